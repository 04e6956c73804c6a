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

from xql_ffi._gradients import Columns, Grad, check_expression, named_columns, shortened
from xql_ffi._richardson import SAFETY, Difference
from xql_ffi._sampling import Line, Sample, parts

# A difference says nothing if it may be off by more than this share of the derivative, and of value over variable.
_VAGUE, _NEGLIGIBLE = 1e-3, 1e-9
# Where one-sided derivatives differ by more, relative to the larger, there is a kink.
_KINK = 1e-3


@dataclass(frozen=True)
class Row:
    """A row at which a derivative was compared.

    Attributes:
        number: the number of the row in the table, from 0.
        values: the columns of the row.
        derivative: what the operator gives.
        difference: what central differences give.
        uncertainty: how far off the difference may be, by its own estimate.
        step: the step at which it was taken.
    """

    number: int
    values: Mapping[str, Any]
    derivative: float | None
    difference: float
    uncertainty: float
    step: float

    @property
    def error(self) -> float:
        """By how much the two differ."""
        return math.inf if self.derivative is None else abs(self.derivative - self.difference)


@dataclass(frozen=True)
class ColumnReport:
    """What was found about the derivative by one column.

    Attributes:
        verified: the number of rows where the derivative is that of the differences.
        kinks: rows with a kink, where it lies between the derivatives from either side.
        null: rows where the expression is NULL, and so is the derivative.
        inconclusive: the numbers of rows where differences do not converge: at jumps and poles, at the border of the
            domain, where the column is NULL or no number, where rounding errors are larger than what is asked for, and
            where the expression oscillates too fast for the steps.
        worst: the verified row that differs most, in terms of the tolerance.
    """

    verified: int
    kinks: int
    null: int
    inconclusive: Sequence[int]
    worst: Row | None


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
) -> dict[str, ColumnReport]:
    """Compares ``grad(expr, column)`` with central differences at every row of a table.

    The differences are those of Richardson's extrapolation with an estimate of their own error, of truncation and of
    rounding (C. J. F. Ridders, Accurate computation of F'(x) and F'(x) F''(x), Advances in Engineering Software 4
    (1982); W. H. Press et al., Numerical Recipes, section 5.7). A derivative is wrong where it differs by more than
    ``atol + rtol * |difference|`` and ten times that estimate together. A row where the last is more than a thousandth
    of the derivative counts for nothing, and if there is no row that counts, that is an error too.

    Float32 columns are moved in Float64 if the expression can be evaluated so, since differences in single precision
    have few digits.

    Args:
        ctx: the session, with its functions; Python ones included.
        table: the name of a table of the session, or a DataFrame. Of it, the first ``rows`` rows are used.
        expr: an expression over the columns of one row, in SQL or of the DataFrame API: no aggregate and no window
            function, since what is compared is how it changes as a column of its own row does.
        wrt: the column or columns to differentiate by, as `gradient` takes them.
        grad: the operator; by default the function of the session that is called ``grad``.
        rtol: the relative error that is allowed; by default 1e-6, or 1e-3 where the derivative is a Float32.
        atol: the absolute error that is allowed besides.
        kinks: whether a derivative at a kink is to lie between those from either side; otherwise, such rows count as
            inconclusive.
        rows: how many rows are used.

    Returns:
        A report for each column.

    Raises:
        AssertionError: a derivative is wrong; the message shows the row that is worst. Or the expression is NULL where
            the derivative is not, or the reverse, or no row was conclusive.
        TypeError: an argument is no expression or column.
        ValueError: there is no such table or column, or the table has no rows, or no column is given, or the expression
            is an aggregate or window function, or no `grad` is registered.
    """
    frame = _table(ctx, table) if isinstance(table, str) else table
    columns = named_columns(wrt)
    for column in columns.values():
        _check_column(column, frame)
    operator = grad or _registered_grad(ctx)
    sample = Sample(ctx, frame.limit(rows))
    expression = sample.parse(expr) if isinstance(expr, str) else expr
    check_expression(expression)
    _check_rowwise(expression)
    reports = {}
    for name, column in columns.items():
        call = f"grad({shortened(expr if isinstance(expr, str) else expr.canonical_name())}, {name})"
        values, derivatives = sample.evaluate(sample.rows, expression, operator(expression, column))
        allowed = rtol if rtol is not None else 1e-3 if derivatives.type == pa.float32() else 1e-6
        lines = sample.lines(expression, column.to_variant().name())
        compared = [
            _compare(line, value, derivative, allowed, atol, kinks)
            for line, value, derivative in zip(lines, values.to_pylist(), derivatives.to_pylist(), strict=True)
        ]
        reports[name] = _report(call, sample.rows, compared)
    return reports


def _table(ctx: SessionContext, name: str) -> DataFrame:
    try:
        return ctx.table(name)
    except (KeyError, RuntimeError) as error:
        msg = f"the session has no table called {name!r}: register one, or hand over a DataFrame"
        raise ValueError(msg) from error


def _check_column(column: Expr, frame: DataFrame) -> None:
    name, names = column.to_variant().name(), frame.schema().names
    if name not in names:
        msg = f"the table has no column {name!r} to differentiate by, only {', '.join(map(repr, names))}"
        raise ValueError(msg)


def _check_rowwise(expression: Expr) -> None:
    for part in parts(expression):
        if part.variant_name() in ("AggregateFunction", "WindowFunction"):
            msg = (
                f"verify_grad takes an expression over the columns of one row, and {shortened(part.canonical_name())} "
                "is over many rows: give what is inside of it, as f for avg(f)"
            )
            raise ValueError(msg)


def _registered_grad(ctx: SessionContext) -> Grad:
    try:
        return ctx.udf("grad")
    except KeyError as error:
        msg = "the session has no function called grad: register it with xql_ffi.register(ctx), or give `grad`"
        raise ValueError(msg) from error


@dataclass(frozen=True)
class _Compared:
    """A row and what there is to say about it."""

    verdict: str
    derivative: float | None = None
    difference: Difference | None = None
    # The error in terms of what is allowed.
    excess: float = 0.0


def _compare(
    line: Line | None, value: float | None, derivative: float | None, rtol: float, atol: float, kinks: bool
) -> _Compared:
    if (value is None) != (derivative is None):
        return _Compared("NULL in one only", derivative)
    if value is None:
        return _Compared("null")
    difference = line.central() if line else None
    if line is None or derivative is None or difference is None or not math.isfinite(value):
        return _Compared("inconclusive", derivative)
    low, high, verdict = difference, difference, "verified"
    below, above = line.one_sided()
    if below and above and _is_kink(below, above):
        if not kinks:
            return _Compared("inconclusive", derivative)
        low, high = sorted((below, above), key=lambda side: side.value)
        verdict = "kinks"
    uncertainty = SAFETY * max(low.uncertainty, high.uncertainty)
    size = max(abs(low.value), abs(high.value))
    shown = derivative if math.isfinite(derivative) else 0.0
    if uncertainty > max(_VAGUE * max(size, abs(shown)), _NEGLIGIBLE * line.slope(), atol):
        return _Compared("inconclusive", derivative, difference)
    allowed = atol + rtol * size + uncertainty
    nearest = min(max(derivative, low.value), high.value)
    error = abs(derivative - nearest) if math.isfinite(derivative) else math.inf
    excess = error / allowed if allowed else (math.inf if error else 0.0)
    return _Compared(verdict if excess <= 1 else "wrong", derivative, difference, excess)


def _is_kink(below: Difference, above: Difference) -> bool:
    apart = abs(above.value - below.value)
    noise = SAFETY * (above.uncertainty + below.uncertainty)
    return apart > noise + _KINK * max(abs(above.value), abs(below.value))


def _report(call: str, rows: pa.Table, compared: Sequence[_Compared]) -> ColumnReport:
    numbers: dict[str, list[int]] = {}
    for number, row in enumerate(compared):
        numbers.setdefault(row.verdict, []).append(number)
    for number in numbers.get("NULL in one only", []):
        which = "the expression is NULL and the derivative is not"
        if compared[number].derivative is None:
            which = "the derivative is NULL and the expression is not"
        msg = f"{call}: {which} in row {number}, {_values(rows, number)}"
        raise AssertionError(msg)
    if wrong := numbers.get("wrong"):
        worst = _row(rows, compared, wrong)
        msg = (
            f"{call} is wrong in {len(wrong)} of {len(compared)} rows. Worst is row {worst.number}, {worst.values}:\n"
            f"  derivative:          {worst.derivative!r}\n"
            f"  central differences: {worst.difference!r}, give or take {worst.uncertainty:.1g} (step {worst.step:.3g})"
        )
        raise AssertionError(msg)
    verified, kinks = numbers.get("verified", []), numbers.get("kinks", [])
    if not verified and not kinks:
        msg = (
            f"{call} could not be compared in any row: in {len(numbers.get('inconclusive', []))} of {len(compared)} "
            "differences do not converge, in the others the expression is NULL. Give rows inside its domain, at which "
            "it does not oscillate within a few billionths of the column, or an `atol`"
        )
        raise AssertionError(msg)
    return ColumnReport(
        verified=len(verified),
        kinks=len(kinks),
        null=len(numbers.get("null", [])),
        inconclusive=tuple(numbers.get("inconclusive", [])),
        worst=_row(rows, compared, verified) if verified else None,
    )


def _row(rows: pa.Table, compared: Sequence[_Compared], numbers: Sequence[int]) -> Row:
    number = max(numbers, key=lambda n: compared[n].excess)
    worst = compared[number]
    value, uncertainty, step = worst.difference or (math.nan, math.nan, math.nan)
    return Row(number, _values(rows, number), worst.derivative, value, uncertainty, step)


def _values(rows: pa.Table, number: int) -> dict[str, Any]:
    values: dict[str, Any] = rows.slice(number, 1).to_pylist()[0]
    return values
