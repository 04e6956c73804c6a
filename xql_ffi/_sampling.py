"""The values of an expression on lines through the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionConfig, SessionContext, col, lit

from xql_ffi._richardson import STEPS, Difference, derive

_SHIFTS = [0.0, *STEPS, *(-step for step in STEPS)]


@dataclass(frozen=True)
class Line:
    """The values of an expression at a row, and at steps up and down from it along a column."""

    steps: Sequence[float]
    middle: float
    up: Sequence[float]
    down: Sequence[float]
    precision: float

    def central(self) -> Difference | None:
        """The derivative at the row."""
        return self._derive([(u - d) / 2 for u, d in zip(self.up, self.down, strict=True)], order=2)

    def one_sided(self) -> tuple[Difference | None, Difference | None]:
        """The derivatives from below and from above."""
        below, above = [self.middle - d for d in self.down], [u - self.middle for u in self.up]
        return self._derive(below, order=1), self._derive(above, order=1)

    def slope(self) -> float:
        """The value over the variable: what a derivative is small or large against."""
        return abs(self.middle) / (self.steps[0] / STEPS[0])

    def _derive(self, differences: Sequence[float], order: int) -> Difference | None:
        largest = max((abs(v) for v in [*self.up, *self.down] if math.isfinite(v)), default=0.0)
        quotients = [difference / step for difference, step in zip(differences, self.steps, strict=True)]
        return derive(self.steps, quotients, self.precision * largest, order)


class Sample:
    """Rows of a table, over which expressions are evaluated."""

    def __init__(self, ctx: SessionContext, frame: DataFrame) -> None:
        self.ctx = ctx
        self.rows = frame.to_arrow_table()
        # Expressions may qualify columns with the name of the table, without its schema, that the first one is of.
        first = frame.parse_sql_expr(_quoted(self.rows.column_names[0])).to_variant()
        self.name = (first.relation() or "t").rpartition(".")[-1]
        if not self.rows.num_rows:
            msg = "the table has no rows, so there is nothing to compare"
            raise ValueError(msg)

    def parse(self, sql: str) -> Expr:
        """An expression over the columns."""
        with self._registered(self.rows) as frame:
            return frame.parse_sql_expr(sql)

    def evaluate(self, rows: pa.Table, *expressions: Expr) -> list[pa.ChunkedArray]:
        """Expressions over rows of the same columns, in order."""
        number = f"row_{uuid4().hex}"
        with self._registered(rows.append_column(number, pa.array(range(rows.num_rows)))) as frame:
            found = _selected(frame, [col(number), *expressions]).sort(col("e0")).to_arrow_table()
        return list(found.columns[1:])

    def lines(self, expression: Expr, column: str) -> list[Line | None]:
        """The line through each row, or none if the column is NULL or no number there."""
        rows = self.rows if self._takes_single(expression) else _doubled(self.rows)
        variable = rows[column].to_pylist()
        scales = _scales(variable)
        numbers = [number for number, scale in enumerate(scales) if scale]
        moved = pa.array([variable[n] + shift * scales[n] for n in numbers for shift in _SHIFTS], pa.float64())
        repeated = rows.take(pa.array([n for n in numbers for _ in _SHIFTS], pa.int64()))
        field = rows.schema.field(column)
        moved = moved.cast(_plain(field.type)).cast(field.type)
        (values,) = self.evaluate(repeated.set_column(rows.column_names.index(column), field, moved), expression)
        flat = iter(math.nan if value is None else float(value) for value in values.to_pylist())
        # What is rounded to single precision on the way is a staircase, if one looks closely.
        precision = 2.0**-23 if pa.float32() in self._types(rows, expression) else 2.0**-52
        lines: list[Line | None] = [None] * len(scales)
        for n in numbers:
            middle, *around = (next(flat) for _ in _SHIFTS)
            steps = [step * scales[n] for step in STEPS]
            lines[n] = Line(steps, middle, around[: len(steps)], around[len(steps) :], precision)
        return lines

    def _takes_single(self, expression: Expr) -> bool:
        """Whether a function of the user's own takes Float32, which DataFusion makes of no Float64 by itself."""
        catalog = SessionContext(SessionConfig().with_information_schema())
        functions = {part.rex_call_operator() for part in parts(expression) if part.variant_name() == "ScalarFunction"}
        functions -= set(catalog.udfs())
        if functions - set(self.ctx.udfs()):
            return True  # one that is not registered may
        for name in functions:
            catalog.register_udf(self.ctx.udf(name))
        takers = catalog.table("information_schema.parameters").filter(
            col("data_type") == lit("Float32"), col("parameter_mode") == lit("IN")
        )
        return not functions.isdisjoint(takers.to_pydict()["specific_name"])

    def _types(self, rows: pa.Table, expression: Expr) -> set[pa.DataType]:
        """The types of all that an expression computes on the way."""
        computed = {part.canonical_name(): part for part in parts(expression) if part.variant_name() != "BinaryExpr"}
        with self._registered(rows) as frame:
            return set(_selected(frame, computed.values()).schema().types)

    @contextmanager
    def _registered(self, rows: pa.Table) -> Iterator[DataFrame]:
        unique = f"rows_{uuid4().hex}"
        self.ctx.register_record_batches(unique, [rows.to_batches()])
        try:
            yield self.ctx.sql(f'SELECT * FROM "{unique}" AS {_quoted(self.name)}')
        finally:
            self.ctx.deregister_table(unique)


def parts(expression: Expr) -> Iterator[Expr]:
    """An expression and all that it is made of, subqueries aside."""
    yield expression
    if expression.variant_name() not in ("Column", "Literal"):  # they are their own operands
        with suppress(RuntimeError):  # subqueries and placeholders have none
            for operand in expression.rex_call_operands():
                yield from parts(operand)


def _selected(frame: DataFrame, expressions: Iterable[Expr]) -> DataFrame:
    return frame.select(*(expression.alias(f"e{i}") for i, expression in enumerate(expressions)))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def _scales(variable: Sequence[Any]) -> list[float]:
    """The power of two at or below each number, so that moving by steps rounds nothing; 0 where there is no number.

    A variable of 0 is moved by what the largest in the column is.
    """
    sizes = [abs(float(x)) if x is not None and math.isfinite(x) else -1.0 for x in variable]
    largest = max(sizes, default=0.0)
    for_zero = largest if largest > 0 else 1.0
    return [0.0 if size < 0 else 2.0 ** (math.frexp(size or for_zero)[1] - 1) for size in sizes]


def _doubled(rows: pa.Table) -> pa.Table:
    """The rows with all floats in double precision."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_floating(_plain(field.type)):
            double = rows.column(position).cast(_plain(field.type)).cast(pa.float64())
            rows = rows.set_column(position, field.with_type(pa.float64()), double)
    return rows
