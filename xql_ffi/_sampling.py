"""The values of an expression around the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionConfig, SessionContext, col, lit

from xql_ffi._expressions import parts, quoted
from xql_ffi._richardson import STEPS, Difference, derive

_SHIFTS = [0.0, *STEPS, *(-step for step in STEPS)]


class Differences(NamedTuple):
    """The derivatives at a row, from both sides, from below and from above, and the scale of the variable there."""

    central: Difference | None
    below: Difference | None
    above: Difference | None
    scale: float


class Sample:
    """Rows of a table, over which expressions are evaluated."""

    def __init__(self, ctx: SessionContext, frame: DataFrame) -> None:
        self.ctx = ctx
        self.rows = frame.to_arrow_table()
        # Expressions may qualify columns with the name of the table, without its schema, that the first one is of.
        first = frame.parse_sql_expr(quoted(self.rows.column_names[0])).to_variant()
        self.name = (first.relation() or "t").rpartition(".")[-1]

    def frame(self, rows: pa.Table) -> DataFrame:
        """Rows of these columns, by the name of the table."""
        return self.ctx.read_batches(rows.to_batches()).alias(quoted(self.name))

    def evaluate(self, rows: pa.Table, *expressions: Expr) -> list[pa.ChunkedArray]:
        """Expressions over rows of these columns, in order."""
        number = f"row_{uuid4().hex}"
        frame = self.frame(rows.append_column(number, pa.array(range(rows.num_rows))))
        return list(_selected(frame, [col(number), *expressions]).sort(col("e0")).to_arrow_table().columns[1:])

    def differences(self, expression: Expr, column: str) -> dict[int, Differences]:
        """Those of each row, by its number; none where the column is NULL or no number."""
        rows = self._decoded(double=not self._takes_single(expression))
        variable, field = rows[column].to_pylist(), rows.schema.field(column)
        scales = _scales(variable)
        moved = [variable[n] + shift * scale for n, scale in scales.items() for shift in _SHIFTS]
        repeated = rows.take(pa.array([n for n in scales for _ in _SHIFTS], pa.int64()))
        shifted = repeated.set_column(rows.column_names.index(column), field, pa.array(moved, field.type))
        (found,) = self.evaluate(shifted, expression)
        values = iter(math.nan if value is None else float(value) for value in found.to_pylist())
        # What is rounded to single precision on the way is a staircase, if one looks closely.
        computed = {part.canonical_name(): part for part in parts(expression) if part.variant_name() != "BinaryExpr"}
        types = _selected(self.frame(rows), computed.values()).schema().types
        precision = 2.0**-23 if pa.float32() in types else 2.0**-52
        return {n: _differences([next(values) for _ in _SHIFTS], scale, precision) for n, scale in scales.items()}

    def _decoded(self, *, double: bool) -> pa.Table:
        """Returns the rows without dictionaries; with floats in double precision, if so."""
        schema = self.rows.schema
        plain = [t.value_type if pa.types.is_dictionary(t) else t for t in schema.types]
        types = [pa.float64() if double and pa.types.is_floating(t) else t for t in plain]
        return self.rows.cast(pa.schema([field.with_type(t) for field, t in zip(schema, types, strict=True)]))

    def _takes_single(self, expression: Expr) -> bool:
        """Whether a function of the user's own takes Float32, which DataFusion makes of no Float64 by itself."""
        catalog = SessionContext(SessionConfig().with_information_schema())
        called = {part.rex_call_operator() for part in parts(expression) if part.variant_name() == "ScalarFunction"}
        called -= set(catalog.udfs())
        known = called & set(self.ctx.udfs())
        for name in known:
            catalog.register_udf(self.ctx.udf(name))
        parameters = catalog.table("information_schema.parameters").filter(col("parameter_mode") == lit("IN"))
        takers = parameters.filter(col("data_type") == lit("Float32")).to_pydict()["specific_name"]
        return known != called or not known.isdisjoint(takers)


def _differences(values: Sequence[float], scale: float, precision: float) -> Differences:
    """From the values at all shifts."""
    middle, up, down = values[0], values[1 : 1 + len(STEPS)], values[1 + len(STEPS) :]
    rounding = precision * max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    steps = [step * scale for step in STEPS]
    central = derive(steps, [(u - d) / (2 * h) for h, u, d in zip(steps, up, down, strict=True)], rounding, order=2)
    below = derive(steps, [(middle - d) / h for h, d in zip(steps, down, strict=True)], rounding, order=1)
    above = derive(steps, [(u - middle) / h for h, u in zip(steps, up, strict=True)], rounding, order=1)
    return Differences(central, below, above, scale)


def _selected(frame: DataFrame, expressions: Iterable[Expr]) -> DataFrame:
    return frame.select(*(expression.alias(f"e{i}") for i, expression in enumerate(expressions)))


def _scales(variable: Sequence[float | None]) -> dict[int, float]:
    """The power of two at or below each number, so that moving by steps rounds nothing; of 0 that of the largest."""
    sizes = {number: abs(x) for number, x in enumerate(variable) if x is not None and math.isfinite(x)}
    largest = max(sizes.values(), default=0.0) or 1.0
    return {number: 2.0 ** (math.frexp(size or largest)[1] - 1) for number, size in sizes.items()}
