"""The variable must be a column of a float type."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext, col, lit

import xql_ffi
from support.errors import Refused, assert_refused, assert_says, message_at_planning, refusals
from xql_ffi import grad_capsule

NO_COLUMN = [
    Refused("literal", "SELECT grad(x * x, 2.5) AS d FROM t", ["grad", r"2\.5", "column"]),
    Refused("integer_literal", "SELECT grad(x * x, 7) AS d FROM t", ["grad", "7", "column"]),
    Refused("text", "SELECT grad(x * x, 'x') AS d FROM t", ["grad", r"\bx\b", "column"]),
    Refused("null", "SELECT grad(x * x, NULL) AS d FROM t", ["grad", "null", "column"]),
    Refused("sum", "SELECT grad(x * x, x + 1) AS d FROM t", ["grad", r"x \+ ", "column"]),
    Refused("function", "SELECT grad(x * x, sin(x)) AS d FROM t", ["grad", r"sin\((t\.)?x\)", "column"]),
    Refused("negation", "SELECT grad(x * x, -x) AS d FROM t", ["grad", r"\(?- ?(t\.)?x", "column"]),
    Refused("cast", "SELECT grad(x * x, CAST(s AS DOUBLE)) AS d FROM t", ["grad", r"CAST\((t\.)?s AS", "column"]),
    Refused("subquery", "SELECT grad(x * x, (SELECT MAX(x) FROM t)) AS d FROM t", ["grad", "column"]),
    Refused("derivative", "SELECT grad(x * x, grad(x * x, x)) AS d FROM t", ["grad", "column"]),
    Refused("second_of_jvp", "SELECT jvp(x * y, x, 1.0, y + 1, 1.0) AS d FROM t", ["jvp", r"y \+ ", "column"]),
    Refused("jvp", "SELECT jvp(x * y, 2.5, 1.0) AS d FROM t", ["jvp", r"2\.5", "column"]),
    Refused("vjp", "SELECT vjp(x * y, 2.5, 1.0) AS d FROM t", ["vjp", r"2\.5", "column"]),
    Refused("struct_field", "SELECT grad(r['a'], r['a']) AS d FROM typed", ["grad", "r", "column"]),
    Refused("constants_only", "SELECT grad(2.0 * 3.0, 1.5) AS d", ["grad", r"1\.5", "column"]),
    Refused("constants_only_over_a_table", "SELECT grad(2.0, 1.5) AS d FROM t", ["grad", r"1\.5", "column"]),
    Refused("constants_only_jvp", "SELECT jvp(2.0, 1.5, 4.0) AS d", ["jvp", r"1\.5", "column"]),
    Refused("constants_only_vjp", "SELECT vjp(2.0, 1.5, 4.0) AS d", ["vjp", r"1\.5", "column"]),
]

# What is a whole number in the first rows of a recursion is one in each step, converted or not.
IN_FIRST_ROWS = [
    Refused(
        name,
        f"WITH RECURSIVE fit AS (SELECT 0 AS step, {first} AS w UNION ALL {term}) SELECT w FROM fit",
        [
            r"the first rows of the recursive query fit",
            r"CAST\(... AS DOUBLE\) AS w" if name == "decimal" else r"`0\.0 AS w`",
        ],
    )
    for name, first, term in (
        ("whole_number", "0", "SELECT step + 1, w - 0.1 * grad(w * w, w) FROM fit WHERE step < 3"),
        (
            "renamed",
            "1",
            "SELECT step + 1, v - 0.1 * grad(v * v, v) FROM (SELECT step, w AS v FROM fit) AS s WHERE step < 3",
        ),
        ("decimal", "CAST(1 AS DECIMAL(5, 2))", "SELECT step + 1, w - 0.1 * grad(w * w, w) FROM fit WHERE step < 3"),
        (
            "by_row",
            "0",
            "(WITH loss AS (SELECT SUM(power(w - 2, 2)) AS l FROM fit) "
            "SELECT step + 1, w - 0.1 * grad((SELECT l FROM loss), w) FROM fit WHERE step < 3)",
        ),
        (
            "joined",
            "0",
            "SELECT step + 1, f.w - grad(f.w * x, f.w) FROM fit f JOIN t ON t.id = 1 WHERE step < 3",
        ),
    )
]

_TYPED = pa.table(
    {
        "i": pa.array([1, 2]),
        "i8": pa.array([1, 2], pa.int8()),
        "u32": pa.array([1, 2], pa.uint32()),
        "dec": pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(10, 2)),
        "txt": pa.array(["1", "2"]),
        "view": pa.array(["1", "2"], pa.string_view()),
        "flag": pa.array([True, False]),
        "ts": pa.array([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2)], pa.timestamp("us")),
        "day": pa.array([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
        "dict": pa.array(["1", "2"]).dictionary_encode(),
        "idict": pa.array([1, 2]).dictionary_encode(),
        "r": pa.array([{"a": 1.0}, {"a": 2.0}]),
        "l": pa.array([[1.0], [2.0]]),
        "x": pa.array([1.0, 2.0]),
        "Odd Name": pa.array([1, 2]),
    }
)
# The column and the name that the message gives to its type.
TYPES = {
    "i": "Int64",
    "i8": "Int8",
    "u32": "UInt32",
    "dec": "Decimal",
    "txt": "Utf8",
    "view": "Utf8View",
    "flag": "Boolean",
    "ts": "Timestamp",
    "day": "Date32",
    "dict": "Utf8",
    "idict": "Int64",
}


@pytest.fixture(scope="module")
def typed(ctx: SessionContext) -> SessionContext:
    ctx.from_arrow(_TYPED, name="typed")
    return ctx


@refusals(IN_FIRST_ROWS)
def test_whole_numbers_of_first_rows(ctx: SessionContext, case: Refused) -> None:
    assert_refused(ctx, case)


@refusals(NO_COLUMN)
def test_variable_that_is_no_column(typed: SessionContext, case: Refused) -> None:
    assert_refused(typed, case)


@pytest.mark.parametrize(("column", "type_"), TYPES.items(), ids=TYPES.keys())
@pytest.mark.parametrize("call", ["grad(x * x, {0})", "jvp(x * x, {0}, 1.0)", "vjp(x * x, {0}, 1.0)"])
def test_variable_that_is_no_float(typed: SessionContext, call: str, column: str, type_: str) -> None:
    message = message_at_planning(lambda: typed.sql(f"SELECT {call.format(column)} AS d FROM typed"))
    assert_says(message, [call[:4].rstrip("("), type_, rf'CAST\((typed\.)?"?{column}"? AS DOUBLE\)'])


def test_the_advised_cast_is_sql(typed: SessionContext) -> None:
    """The message quotes a name that needs it, so that what it advises can be pasted."""
    message = message_at_planning(lambda: typed.sql('SELECT grad(x * x, "Odd Name") AS d FROM typed'))
    assert_says(message, [r'CAST\((typed\.)?"Odd Name" AS DOUBLE\)'])


def test_the_advice_works(typed: SessionContext) -> None:
    statement = "SELECT grad(a * a, a) AS d FROM (SELECT CAST(i AS DOUBLE) AS a FROM typed) AS q ORDER BY d"
    assert typed.sql(statement).to_pydict() == {"d": [2.0, 4.0]}


@pytest.mark.parametrize("column", ["r", "l"])
def test_variable_that_no_cast_makes_a_float(typed: SessionContext, column: str) -> None:
    message = message_at_planning(lambda: typed.sql(f"SELECT grad(x * x, {column}) AS d FROM typed"))
    assert_says(message, ["grad", rf"\b{column}\b", {"r": "struct", "l": "list"}[column]])


def test_integer_variable_that_the_expression_uses(typed: SessionContext) -> None:
    """The type error comes before anything that the coercion of the expression could hide."""
    message = message_at_planning(lambda: typed.sql("SELECT grad(i * x, i) AS d FROM typed"))
    assert_says(message, ["Int64", r"CAST\((typed\.)?i AS DOUBLE\)"])


def test_integer_second_variable_of_jvp(typed: SessionContext) -> None:
    message = message_at_planning(lambda: typed.sql("SELECT jvp(i * x, x, 1.0, i, 1.0) AS d FROM typed"))
    assert_says(message, ["jvp", "Int64", r"CAST\((typed\.)?i AS DOUBLE\)"])


def test_placeholder_as_variable(ctx: SessionContext) -> None:
    message = message_at_planning(lambda: ctx.sql("SELECT grad(x * x, $1) AS d FROM t", param_values={"1": 2.5}))
    assert_says(message, ["grad", "column"])


@pytest.mark.parametrize("given", [{"param_values": {"a": 3.0}}, {"a": 3.0}], ids=str)
def test_parameter_as_variable(ctx: SessionContext, given: dict[str, Any]) -> None:
    """The message says how a parameter becomes a column, and that is so."""
    with pytest.raises(xql_ffi.VariableError, match=r"a parameter is one in `FROM \(SELECT \$a AS a\)`"):
        ctx.sql("SELECT grad(x * $a, $a) AS d FROM t", **given).collect()
    found = ctx.sql("SELECT grad(a * a, a) AS d FROM (SELECT $a AS a)", **given)
    assert found.to_pydict() == {"d": [6.0]}


def test_placeholder_as_variable_of_a_prepared_statement(ctx: SessionContext) -> None:
    def build() -> object:
        ctx.sql("PREPARE by_placeholder (DOUBLE) AS SELECT grad(x * x, $1) AS d FROM t").collect()
        return ctx.sql("EXECUTE by_placeholder(2.5)")

    assert_says(message_at_planning(build), ["grad", "column"])  # type: ignore[arg-type]


def test_unknown_column(ctx: SessionContext) -> None:
    """The planner's own message, as without the function."""
    assert_says(message_at_planning(lambda: ctx.sql("SELECT grad(x * x, nowhere) AS d FROM t")), ["nowhere"])


def test_ambiguous_column(ctx: SessionContext) -> None:
    message = message_at_planning(lambda: ctx.sql("SELECT grad(u.x * v.x, x) AS d FROM u CROSS JOIN v"))
    assert_says(message, ["ambiguous", r"\bx\b"])


def test_dataframe_api(ctx: SessionContext) -> None:
    grad = grad_capsule()
    message = message_at_planning(lambda: ctx.table("t").select(grad(col("x") * col("x"), lit(2.5))))
    assert_says(message, ["grad", r"2\.5", "column"])
    message = message_at_planning(lambda: ctx.table("t").select(grad(col("x") * col("x"), col("k"))))
    assert_says(message, ["Int64", r"CAST\((t\.)?k AS DOUBLE\)"])
