"""The values of an expression around the rows of a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext, col

from xql_ffi._richardson import STEPS, Difference, derive


@dataclass(frozen=True)
class Line:
    """The values of an expression on a line through a row, along a column."""

    steps: list[float]
    up: list[float]
    middle: float
    down: list[float]
    precision: float

    def central(self) -> Difference | None:
        """The derivative at the row."""
        quotients = [(u - d) / (2 * h) for h, u, d in zip(self.steps, self.up, self.down, strict=True)]
        return derive(self.steps, quotients, self._rounding(), order=2)

    def one_sided(self) -> list[Difference | None]:
        """The derivatives from below and from above."""
        above = [(u - self.middle) / h for h, u in zip(self.steps, self.up, strict=True)]
        below = [(self.middle - d) / h for h, d in zip(self.steps, self.down, strict=True)]
        return [derive(self.steps, quotients, self._rounding(), order=1) for quotients in (below, above)]

    def slope(self) -> float:
        """The value over the variable: what a derivative is small or large against."""
        return abs(self.middle) / (self.steps[0] * 8)

    def _rounding(self) -> float:
        return self.precision * max((abs(v) for v in [*self.up, *self.down] if math.isfinite(v)), default=0.0)


class Sample:
    """Rows of a table, over which expressions are evaluated."""

    def __init__(self, ctx: SessionContext, frame: DataFrame) -> None:
        self.ctx = ctx
        self.rows = frame.to_arrow_table()
        # By the name that the expression may qualify columns with.
        self.name = _table_name(frame)
        if not self.rows.num_rows:
            msg = "the table has no rows, so there is nothing to compare"
            raise ValueError(msg)

    def evaluate(self, rows: pa.Table, *expressions: Expr) -> list[pa.ChunkedArray]:
        """Expressions over rows of the same columns, in order."""
        number = f"row_{uuid4().hex}"
        numbered = rows.append_column(number, pa.array(range(rows.num_rows)))
        with self._registered(numbered) as frame:
            named = [expression.alias(f"e{i}") for i, expression in enumerate(expressions)]
            found = frame.select(*named, col(number).alias("n")).sort(col("n")).to_arrow_table()
        return list(found.columns[:-1])

    def parse(self, sql: str) -> Expr:
        """An expression over the columns."""
        with self._registered(self.rows) as frame:
            return frame.parse_sql_expr(sql)

    @contextmanager
    def _registered(self, rows: pa.Table) -> Iterator[DataFrame]:
        unique = f"rows_{uuid4().hex}"
        self.ctx.register_record_batches(unique, [rows.to_batches()])
        try:
            yield self.ctx.sql(f'SELECT * FROM "{unique}" AS {_quoted(self.name)}')
        finally:
            self.ctx.deregister_table(unique)

    def lines(self, expression: Expr, column: str) -> list[Line | None]:
        """The line through each row, or none if the column is NULL or no number there."""
        variable = self.rows[column].to_pylist()
        scales = _scales(variable)
        numbers = [number for number, scale in enumerate(scales) if scale]
        moved = {n: [variable[n] + side * s * scales[n] for side, s in _SHIFTS] for n in numbers}
        repeated = self.rows.take(pa.array([n for n in numbers for _ in _SHIFTS], pa.int64()))
        shifted = list(itertools.chain.from_iterable(moved.values()))
        try:
            doubled = _doubled(repeated)
            (values,) = self.evaluate(_replaced(doubled, column, shifted), expression)
        except Exception:  # a function may take Float32 only
            (values,) = self.evaluate(_replaced(repeated, column, shifted), expression)
        # What rounds to single precision on the way is a staircase, if one looks closely.
        single = values.type != pa.float64() or "Float32" in expression.canonical_name()
        precision = 2.0**-23 if single else 2.0**-52
        flat = [math.nan if value is None else float(value) for value in values.to_pylist()]
        lines: list[Line | None] = [None] * len(scales)
        for position, n in enumerate(numbers):
            found = flat[position * len(_SHIFTS) : (position + 1) * len(_SHIFTS)]
            up, down = found[1 : len(STEPS) + 1], found[len(STEPS) + 1 :]
            lines[n] = Line([s * scales[n] for s in STEPS], up, found[0], down, precision)
        return lines


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table_name(frame: DataFrame) -> str:
    """The name of the table that the first column is of, without its schema."""
    column = frame.parse_sql_expr(_quoted(frame.schema().names[0])).to_variant()
    return (column.relation() or "t").rpartition(".")[-1]


_SHIFTS = [(0, 0.0), *((1, step) for step in STEPS), *((-1, step) for step in STEPS)]


def _scales(variable: Sequence[Any]) -> list[float]:
    """The power of two at or below each number, so that moving by steps rounds nothing; 0 where there is no number.

    A variable of 0 is moved by what the largest in the column is.
    """
    sizes = [abs(float(x)) if x is not None and math.isfinite(x) else -1.0 for x in variable]
    largest = max(sizes, default=0.0)
    for_zero = largest if largest > 0 else 1.0
    return [0.0 if size < 0 else 2.0 ** (math.frexp(size or for_zero)[1] - 1) for size in sizes]


def _plain(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def _doubled(rows: pa.Table) -> pa.Table:
    """The rows with all floats in double precision."""
    for position, column in enumerate(rows.schema):
        if pa.types.is_floating(_plain(column.type)):
            field = pa.field(column.name, pa.float64(), column.nullable)
            rows = rows.set_column(position, field, rows.column(position).cast(_plain(column.type)).cast(pa.float64()))
    return rows


def _replaced(rows: pa.Table, column: str, values: Sequence[float]) -> pa.Table:
    """The rows with other values in a column."""
    position = rows.schema.get_field_index(column)
    field = rows.schema.field(position)
    array = pa.array(values, pa.float64()).cast(_plain(field.type)).cast(field.type)
    return rows.set_column(position, field, array)
