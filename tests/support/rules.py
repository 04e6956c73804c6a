"""The lines of the rule table, and their evaluation in DataFusion."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from datafusion import SessionContext

import xql_ffi
from support.cases import query
from support.differences import Flags, Points, Values

# No expression in SQL makes one of these of a float.
NOT_MADE_OF_FLOATS = ("u",)


@dataclass(frozen=True)
class Kink:
    """Where a function has a kink in its `input`, and the partial derivatives there."""

    input: str
    at: str
    condition: str
    partials: Sequence[str]


@dataclass(frozen=True)
class Line:
    """A line of the rule table."""

    group: str
    signature: str
    inputs: Sequence[str]
    partials: Sequence[str]
    domain: str
    kinks: Sequence[Kink]
    reason: str

    def __str__(self) -> str:
        return self.signature

    def of(self, count: int) -> "Line":
        """A line for any number of inputs, for this number of them."""
        if self.inputs != ["xi"]:
            return self
        inputs = [f"x{number}" for number in range(1, count + 1)]
        return replace(self, signature=self.signature.replace("x1, ..., xn", ", ".join(inputs)), inputs=inputs)


def lines(*groups: str) -> list[Line]:
    """The lines of some groups of the table, as the library exports it."""
    rows = xql_ffi.rule_table().to_pylist()
    assert rows
    return [_line(row) for row in rows if row["group"] in groups and not {*row["inputs"]} & {*NOT_MADE_OF_FLOATS}]


def _line(row: dict[str, object]) -> Line:
    fields = dict(row)
    del fields["family"]
    kinks = [_kink(**kink) for kink in fields.pop("kinks")]  # type: ignore[attr-defined]
    return Line(kinks=kinks, **fields)  # type: ignore[arg-type]


def _kink(at: str, partials: list[str], why: str) -> Kink:
    equation, _, condition = at.partition(" AND ")
    name, _, expression = equation.partition(" = ")
    assert expression
    assert why
    return Kink(name, expression, condition or "TRUE", [partial.replace("Infinity", _INFINITY) for partial in partials])


_INFINITY = "CAST('Infinity' AS DOUBLE)"


class Evaluator:
    """Evaluates expressions at points."""

    def __init__(self, ctx: SessionContext, type_: pa.DataType | None = None) -> None:
        self.ctx = ctx
        self.type = type_ or pa.float64()

    def columns(self, points: Points, *expressions: str) -> Any:
        """The values of expressions. NaN in the points stays NaN; masked values are NULL."""
        dialect = "duckdb" if any("->" in expression for expression in expressions) else "generic"
        query(self.ctx, f"SET datafusion.sql_parser.dialect = '{dialect}'")
        arrays = {name: pa.array(np.ma.getdata(a), self.type, mask=_mask(a)) for name, a in points.items()}
        count = len(next(iter(arrays.values())))
        self.ctx.deregister_table("at")
        batch = pa.RecordBatch.from_pydict({"row_number": pa.array(range(count)), **arrays})
        self.ctx.register_record_batches("at", [[batch]])
        listed = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(expressions))
        return query(self.ctx, f"SELECT {listed} FROM at ORDER BY row_number").columns

    def floats(self, points: Points, expression: str) -> Values:
        """The values of an expression, NaN for NULL."""
        (column,) = self.columns(points, f"CAST({expression} AS DOUBLE)")
        return np.asarray(column.to_numpy(), np.float64)

    def holds(self, points: Points, condition: str) -> Flags:
        """Where a condition holds; not where it is NULL."""
        (column,) = self.columns(points, condition)
        return np.array([value is True for value in column.to_pylist()], bool)

    def type_of(self, expression: str, names: Sequence[str]) -> pa.DataType:
        """The type of an expression over columns of these names."""
        one = {name: np.ones(1) for name in names or ["x"]}
        (column,) = self.columns(one, expression)
        return column.type


def _mask(values: Values) -> Flags:
    return np.ma.getmaskarray(values)


def as_number(sql: str, type_: pa.DataType) -> str:
    """A number that jumps where the value of another type does."""
    if pa.types.is_floating(type_):
        return sql
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return f"CAST(length({sql}) AS DOUBLE)"
    if pa.types.is_list(type_):
        return f"CAST(array_length({sql}) AS DOUBLE)"
    if pa.types.is_map(type_):
        return f"CAST(cardinality({sql}) AS DOUBLE)"
    if pa.types.is_struct(type_):
        return as_number(f"get_field({sql}, '{type_[0].name}')", type_[0].type)
    return f"CAST({sql} AS DOUBLE)"


def draws(line: Line, count: int) -> Points:
    """Points for the inputs of a line: of everyday size, small and large, and whole.

    All are single precision numbers with zeros at the end, so that small steps away from them are exact.
    """
    random = np.random.default_rng(zlib.crc32(line.signature.encode()))
    shape = (len(line.inputs), count)
    everyday = np.round(random.uniform(-4, 4, shape) * 2**12) / 2**12
    scaled = (
        random.choice([-1, 1], shape)
        * np.exp2(random.integers(-6, 7, shape))
        * (1 + random.integers(0, 2**8, shape) / 2**8)
    )
    whole = random.integers(-3, 4, shape).astype(np.float64)
    kind = random.choice(3, shape, p=[0.6, 0.2, 0.2])
    points = dict(zip(line.inputs, np.choose(kind, [everyday, scaled, whole]), strict=True))
    if {"x", "n"} <= points.keys():
        # The jumps of round(x, 9) are too close to each other for any difference of doubles.
        points["n"] = np.minimum(points["n"], 1.75)
    return points
