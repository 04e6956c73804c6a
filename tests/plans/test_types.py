"""Types of derivatives, Float32 only if expression and column both are, and NULL exactly where the expression is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of

_VALUES = [0.5, None, -1.5, 2.0]


class Column(NamedTuple):
    """A column of `typed`, its type, and the type it has for the calculus."""

    name: str
    type: Any
    single: bool


COLUMNS = [
    Column("f16", pa.float16(), single=False),
    Column("f32", pa.float32(), single=True),
    Column("f64", pa.float64(), single=False),
    Column("d32", pa.dictionary(pa.int32(), pa.float32()), single=True),
    Column("d64", pa.dictionary(pa.int8(), pa.float64()), single=False),
]


@pytest.fixture(scope="module")
def typed(register: Callable[[SessionContext], SessionContext]) -> SessionContext:
    """A session with the table `typed`: a column of each differentiable type, others that are NOT NULL, an integer."""
    arrays = {"id": pa.array(range(len(_VALUES)))}
    for column in COLUMNS:
        plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        array = pa.array(_VALUES, plain)
        arrays[column.name] = array.dictionary_encode().cast(column.type) if plain != column.type else array
    arrays["full"] = pa.array([1.0, 2.0, 3.0, 4.0])
    arrays["full32"] = pa.array([1.0, 2.0, 3.0, 4.0], pa.float32())
    arrays["whole"] = pa.array([1, None, 3, 4])
    schema = pa.schema([pa.field(name, a.type, nullable="full" not in name) for name, a in arrays.items()])
    ctx = register(SessionContext())
    ctx.register_record_batches("typed", [[pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)]])
    return ctx


def _field(ctx: SessionContext, expression: str) -> pa.Field:
    """The field of an expression over `typed`: the same for the planner and in the result."""
    frame = ctx.sql(f"SELECT {expression} AS d FROM typed ORDER BY id")
    planned, result = frame.schema().field("d"), frame.to_arrow_table().schema.field("d")
    assert planned.type == result.type, "the result is not of the type that was declared to the planner"
    return result


@pytest.mark.parametrize("column", COLUMNS, ids=[column.name for column in COLUMNS])
@pytest.mark.parametrize(
    ("template", "derivative"),
    [("{0} * {0}", lambda v: 2 * v), ("{0}", lambda v: 1.0), ("CAST({0} AS DOUBLE) * 3", lambda v: 3.0)],
    ids=["product", "itself", "cast"],
)
def test_every_float_column_is_differentiable(
    typed: SessionContext, column: Column, template: str, derivative: Callable[[float], float]
) -> None:
    expression = template.format(column.name)
    table = query(typed, f"SELECT grad({expression}, {column.name}) AS d FROM typed ORDER BY id")
    assert_same_rows(rows_of(table), [(None if v is None else float(derivative(v)),) for v in _VALUES], rel=1e-6)


@pytest.mark.parametrize(
    ("expression", "variable", "expected"),
    [
        ("f32 * f32", "f32", pa.float32()),
        ("sin(f32)", "f32", pa.float32()),
        ("f32 * 2", "f32", pa.float32()),
        ("f32 * full32", "full32", pa.float32()),
        ("f32 / full32 - sqrt(full32) % f32", "full32", pa.float32()),
        ("CASE WHEN full > 1 THEN f32 * f32 ELSE f32 END", "f32", pa.float32()),
        ("coalesce(f32, full32)", "f32", pa.float32()),
        ("CAST(f32 AS FLOAT)", "f32", pa.float32()),
        ("CAST(f64 AS FLOAT) * f32", "f32", pa.float32()),
        ("f32 * 2.0", "f32", pa.float64()),
        ("f32 * f64", "f32", pa.float64()),
        ("f32 * f64", "f64", pa.float64()),
        ("CAST(f32 AS DOUBLE)", "f32", pa.float64()),
        ("CAST(f64 AS FLOAT)", "f64", pa.float64()),
        ("f64 * f64", "f64", pa.float64()),
        ("f16 * f16", "f16", pa.float64()),
        ("f16 * f32", "f32", pa.float32()),
        ("f16 * f32", "f16", pa.float64()),
        ("d32 * d32", "d32", pa.float32()),
        ("d32", "d32", pa.float32()),
        ("d64 * d64", "d64", pa.float64()),
        ("d64", "d64", pa.float64()),
        ("sin(full32)", "full", pa.float64()),
        ("whole", "f32", pa.float64()),
        ("whole", "f64", pa.float64()),
        ("2.5", "f64", pa.float64()),
        ("coalesce(f64, full)", "full32", pa.float64()),
        ("coalesce(f64, full)", "f32", pa.float64()),
    ],
)
def test_type(typed: SessionContext, expression: str, variable: str, expected: pa.DataType) -> None:
    assert _field(typed, f"grad({expression}, {variable})").type == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("grad(grad(f32 * f32, f32), f32)", pa.float32()),
        ("grad(grad(f32 * f64, f32), f64)", pa.float64()),
        ("jvp(f32 * f32, f32, full32)", pa.float32()),
        ("jvp(f32 * f64, f32, 1.0, f64, 1.0)", pa.float64()),
        ("vjp(f64 * f64, f64, 1.0)", pa.float64()),
        ("vjp(f32 * f32, f32, full32)", pa.float32()),
    ],
)
def test_type_of_compositions(typed: SessionContext, call: str, expected: pa.DataType) -> None:
    assert _field(typed, call).type == expected


@pytest.mark.parametrize(
    "expression",
    [
        "f64 * f64",
        "f64 * full",
        "full * f64",
        "full + f64",
        "sin(f64) + full",
        "f64",
        "full * whole",
        "power(full, f64)",
        "power(f64, full)",
        "log(full, full + abs(f64))",
        "coalesce(f64, full)",
        "coalesce(f64, CAST(whole AS DOUBLE), full)",
        "CASE WHEN f64 > 0 THEN full END",
        "CASE WHEN f64 IS NULL THEN full * full ELSE f64 END",
        "CASE whole WHEN 1 THEN full WHEN 3 THEN f64 END",
        "nullif(full, 2.0)",
        "full * CAST(whole AS DOUBLE)",
        "CAST(f32 AS DOUBLE) * full",
        "abs(f64) * 0.0",
        "full * (CASE WHEN whole = 3 THEN NULL ELSE 1.0 END)",
        "full * NULL",
    ],
)
@pytest.mark.parametrize("variable", ["f64", "full"])
def test_null_exactly_where_the_expression_is_null(typed: SessionContext, expression: str, variable: str) -> None:
    table = query(
        typed,
        f"SELECT ({expression}) IS NULL AS f, grad({expression}, {variable}) IS NULL AS d, "
        f"jvp({expression}, {variable}, 2.0) IS NULL AS j, vjp({expression}, {variable}, 2.0) IS NULL AS v "
        "FROM typed ORDER BY id",
    )
    for column in ("d", "j", "v"):
        assert table[column].to_pylist() == table["f"].to_pylist(), column


def test_null_in_second_order(typed: SessionContext) -> None:
    table = query(typed, "SELECT grad(grad(full * full * f64, full), full) AS d FROM typed ORDER BY id")
    assert_same_rows(rows_of(table), [(None if v is None else 2 * v,) for v in _VALUES])


@pytest.mark.parametrize("tangent", ["f64", "CAST(NULL AS DOUBLE)"])
def test_a_null_tangent_gives_null(typed: SessionContext, tangent: str) -> None:
    table = query(
        typed,
        f"SELECT jvp(full * full, full, {tangent}) IS NULL AS j, vjp(full * full, full, {tangent}) IS NULL AS v, "
        f"{tangent} IS NULL AS t FROM typed ORDER BY id",
    )
    assert table["j"].to_pylist() == table["v"].to_pylist() == table["t"].to_pylist()


def test_declared_nullable_whenever_null_can_occur(typed: SessionContext) -> None:
    """Were it declared NOT NULL, the planner would drop the test for NULL."""
    table = query(typed, "SELECT id FROM typed WHERE grad(f64 * full, full) IS NULL ORDER BY id")
    assert table["id"].to_pylist() == [1]
    table = query(typed, "SELECT coalesce(grad(full * f64, full), -1.0) AS d FROM typed ORDER BY id")
    assert_same_rows(rows_of(table), [(-1.0 if v is None else v,) for v in _VALUES])
