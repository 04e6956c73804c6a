"""Tests of derivatives against finite differences.

>>> from datafusion import SessionContext
>>> import xql_ffi
>>> ctx = xql_ffi.register(SessionContext())
>>> df = ctx.from_pydict({"x": [0.5, 1.0, 2.0]}, name="t")
>>> report = verify_grad(ctx, "t", "sin(x) * x", "x")
>>> report["x"].verified
3
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext

from xql_ffi._columns import Columns, named_columns
from xql_ffi._engine import check_engine
from xql_ffi._expressions import check_expression, parts
from xql_ffi._gradients import Grad
from xql_ffi._richardson import SAFETY
from xql_ffi._sampling import Differences, Sample

# A difference says nothing if it may be off by more than this share of the derivative, and of value over variable.
_VAGUE, _NEGLIGIBLE = 1e-3, 1e-9
# Where one-sided derivatives differ by more, relative to the larger, there is a kink.
_KINK = 1e-3
# The most characters of an expression in a message.
_LONGEST = 200


@dataclass(frozen=True)
class Row:
    """A row at which a derivative was compared, by its number in the table, from 0.

    ``derivative`` is what the operator gives and ``difference`` what central differences give, taken at the step
    ``step``; ``uncertainty`` is how far off they may be, by their own estimate.
    """

    number: int
    values: Mapping[str, Any]
    derivative: float | None
    difference: float = math.nan
    uncertainty: float = math.nan
    step: float = math.nan

    @property
    def error(self) -> float:
        """By how much the two differ."""
        return math.inf if self.derivative is None else abs(self.derivative - self.difference)


@dataclass(frozen=True)
class ColumnReport:
    """The findings about the derivative by one column, as numbers of rows.

    In the rows that are ``verified``, the derivative is that of the differences, of which it differs most in the
    row ``worst``, in terms of the tolerance; if there is none, that is one of the following. At ``kinks``, it lies
    between the derivatives from either side. ``null`` are those where the expression and the derivative are NULL.
    At the ``inconclusive`` ones, listed by their numbers, differences do not converge: at jumps and poles, at the
    border of the domain, where the column is NULL or no number, where rounding errors are too large, and where the
    expression oscillates too fast for the steps.
    """

    verified: int
    kinks: int
    null: int
    inconclusive: Sequence[int]
    worst: Row


class Report(dict[str, ColumnReport]):
    """The findings of `verify_grad`: a report for each column, shown as a table.

    Attributes:
        expression: what was differentiated.
        checked: the number of rows that were looked at.
        rows: the number of rows that the table has.
    """

    def __init__(self, expression: str, reports: Mapping[str, ColumnReport], checked: int, rows: int) -> None:
        super().__init__(reports)
        self.expression, self.checked, self.rows = expression, checked, rows

    def __repr__(self) -> str:
        """Returns the table."""
        lines: list[tuple[str, ...]] = [("column", "verified", "kinks", "null", "inconclusive", "largest error")]
        for name, found in self.items():
            counts = (found.verified, found.kinks, found.null, len(found.inconclusive))
            lines.append((name, *map(str, counts), f"{found.worst.error:.2g}"))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = [
            "  ".join(cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(pairs))
            for pairs in (zip(line, widths, strict=True) for line in lines)
        ]
        return "\n".join([f"derivatives of {self.expression} at {self.checked:,} of {self.rows:,} rows", *shown])


def verify_grad(
    ctx: SessionContext,
    table: str | DataFrame,
    expr: str | Expr,
    wrt: Columns,
    *,
    grad: Grad | None = None,
    rtol: float | None = None,
    atol: float = 0.0,
    kinks: bool = True,
    rows: int = 1000,
) -> Report:
    """Compares ``grad(expr, column)`` with central differences at every row of a table.

    The differences have an estimate of their own error, of truncation and of rounding. A derivative is wrong where it
    differs by more than ``atol + rtol * |difference|`` and ten times that estimate together. A row where the last is
    more than a thousandth of the derivative counts for nothing, and if there is no row that counts, that is an error.

    Args:
        ctx: the session, with its functions; Python ones included.
        table: the name of a table of the session, or a DataFrame. Of it, the first ``rows`` rows are used.
        expr: an expression over the columns of one row, in SQL or of the DataFrame API.
        wrt: the column or columns to differentiate by, as `gradient` takes them.
        grad: the operator; by default the function of the session that is called ``grad``.
        rtol: the relative error that is allowed; by default 1e-6, or 1e-3 where the derivative is a Float32.
        atol: the absolute error that is allowed besides.
        kinks: whether a derivative at a kink is to lie between those from either side, or the row is inconclusive.
        rows: how many rows are used.

    Returns:
        A report for each column, which is printed as a table.

    Raises:
        AssertionError: a derivative is wrong, with the row that is worst, or NULL where the expression is not, or the
            reverse; or no row was conclusive.
        MissingEngineError: this process has no engine, and ``grad`` is not given.
        TypeError: an argument is not an expression or a column.
        ValueError: a table, column or function is missing, or rows, or the expression is over many rows.
    """
    try:
        whole = ctx.table(table) if isinstance(table, str) else table
    except (KeyError, RuntimeError) as error:
        msg = f"the session has no table called {table!r}: register one, or hand over a DataFrame"
        raise ValueError(msg) from error
    columns = named_columns(wrt)
    if grad is None:
        check_engine("grad")
    try:
        operator = grad or ctx.udf("grad")
    except KeyError as error:
        msg = "the session has no function called grad: register it with xql_ffi.register(ctx), or give `grad`"
        raise ValueError(msg) from error
    sample = Sample(ctx, whole.limit(rows))
    checked = sample.rows.num_rows
    if not checked:
        msg = "the table has no rows, so there is nothing to compare"
        raise ValueError(msg)
    expression = sample.frame(sample.rows).parse_sql_expr(expr) if isinstance(expr, str) else expr
    check_expression(expression, "verify_grad")
    reports = {}
    for name, by in columns.items():
        column = by.to_variant().name()
        _check(sample.rows, expression, column)
        values, derivatives = sample.evaluate(sample.rows, expression, operator(expression, by))
        allowed = rtol if rtol is not None else 1e-3 if derivatives.type == pa.float32() else 1e-6
        differences = sample.differences(expression, column)
        compared = [
            _compare(Row(n, row, derivative), value, differences.get(n), allowed, atol, kinks)
            for n, (row, value, derivative) in enumerate(
                zip(sample.rows.to_pylist(), values.to_pylist(), derivatives.to_pylist(), strict=True)
            )
        ]
        reports[name] = _report(f"grad({_shortened(expr)}, {name})", compared)
    return Report(_shortened(expr), reports, checked, checked if checked < rows else whole.count())


def _check(rows: pa.Table, expression: Expr, column: str) -> None:
    if column not in rows.column_names:
        listed = ", ".join(map(repr, rows.column_names))
        msg = f"the table has no column {column!r} to differentiate by, only {listed}"
        raise ValueError(msg)
    for part in parts(expression):
        if part.variant_name() in ("AggregateFunction", "WindowFunction"):
            msg = (
                f"verify_grad takes an expression over the columns of one row, and {_shortened(part)} "
                "is over many rows: give what is inside of it, as f for avg(f)"
            )
            raise ValueError(msg)


def _shortened(expr: str | Expr) -> str:
    sql = expr if isinstance(expr, str) else expr.canonical_name()
    return sql if len(sql) <= _LONGEST else f"{sql[:_LONGEST]} ..."


def _compare(
    row: Row, value: float | None, differences: Differences | None, rtol: float, atol: float, kinks: bool
) -> tuple[str, Row, float]:
    """Returns the verdict, the row with its difference, and the error in terms of what is allowed."""
    derivative = row.derivative
    if value is None or derivative is None:
        return "null" if value is derivative else "NULL in one only", row, 0.0
    central, below, above, scale = differences or (None, None, None, 1.0)
    if central is None or not math.isfinite(value):
        return "inconclusive", row, 0.0
    row = Row(row.number, row.values, derivative, central.value, central.uncertainty, central.step)
    sides, verdict = [central], "verified"
    if below and above:
        noise = SAFETY * (below.uncertainty + above.uncertainty)
        if abs(above.value - below.value) > noise + _KINK * max(abs(above.value), abs(below.value)):
            sides, verdict = [below, above], "kinks" if kinks else "inconclusive"
    low, high = min(side.value for side in sides), max(side.value for side in sides)
    size, uncertainty = max(abs(low), abs(high)), SAFETY * max(side.uncertainty for side in sides)
    error = abs(derivative - min(max(derivative, low), high)) if math.isfinite(derivative) else math.inf
    shown = abs(derivative) if math.isfinite(derivative) else 0.0
    if uncertainty > max(_VAGUE * max(size, shown), _NEGLIGIBLE * abs(value) / scale, atol):
        verdict = "inconclusive"
    elif verdict != "inconclusive" and error > atol + rtol * size + uncertainty:
        verdict = "wrong"
    return verdict, row, error / (atol + rtol * size + uncertainty or 1.0)


def _report(call: str, compared: Sequence[tuple[str, Row, float]]) -> ColumnReport:
    found: dict[str, list[Row]] = {}
    for verdict, row, _ in sorted(compared, key=lambda one: -one[2]):
        found.setdefault(verdict, []).append(row)
    inconclusive = sorted(row.number for row in found.get("inconclusive", []))
    verified, kinks = found.get("verified", []), found.get("kinks", [])
    if one := found.get("NULL in one only"):
        null, other = ("derivative", "expression") if one[0].derivative is None else ("expression", "derivative")
        msg = f"{call}: the {null} is NULL and the {other} is not in row {one[0].number}, {one[0].values}"
    elif wrong := found.get("wrong"):
        worst = wrong[0]
        msg = (
            f"{call} is wrong in {len(wrong)} of {len(compared)} rows. Worst is row {worst.number}, {worst.values}:\n"
            f"  derivative:          {worst.derivative!r}\n"
            f"  central differences: {worst.difference!r}, give or take {worst.uncertainty:.1g} (step {worst.step:.3g})"
        )
    elif not verified and not kinks:
        msg = (
            f"{call} could not be compared in any row: in {len(inconclusive)} of {len(compared)} "
            "differences do not converge, in the others the expression is NULL. Give rows inside its domain, at which "
            "it does not oscillate within a few billionths of the column, or an `atol`"
        )
    else:
        nulls, worst = len(found.get("null", [])), (verified or kinks)[0]
        return ColumnReport(len(verified), len(kinks), nulls, tuple(inconclusive), worst)
    raise AssertionError(msg)
