"""What is refused, by a message that names it."""

from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext, udf

import xql_ffi

TABLES = {"t": pa.schema({"x": pa.float64(), "s": pa.string()}), "w": pa.schema({"k": pa.int64(), "val": pa.float64()})}

REFUSED = {
    "no table": ("SELECT grad(x, x) FROM nowhere", "no table called nowhere"),
    "no column": ("SELECT grad(z, z) FROM t", "No field named z"),
    "no function": ("SELECT grad(f(x), x) FROM t", "no function called f"),
    "no derivative": ("SELECT grad(length(s) * random() * x, x) FROM t", "random"),
    "no statement": ("SELECT grad(x, x FROM t", "Expected"),
    "other dialect": (None, "the dialect must be one of"),
    "rows of an iteration read again": (
        """WITH RECURSIVE r AS (
               SELECT 0 AS step, k, val FROM w
               UNION ALL
               SELECT step + 1, k, val - grad((SELECT SUM(val * val) FROM r), val) FROM r WHERE step < 3)
           SELECT * FROM r""",
        "reads the rows of the last iteration of r",
    ),
    "a draw that is read again": (
        "SELECT grad((SELECT SUM(a * a) FROM (SELECT val * random() AS a, val FROM w) AS q), val) FROM w",
        "random",
    ),
    "a table function of another name": (
        "SELECT grad(x * value, x) FROM t, read_everything('files')",
        "generate_series and range over whole",
    ),
    "a struct that is unnested": (
        "SELECT grad(a, x), unnest(named_struct('p', 1)) FROM (SELECT x, x * x AS a FROM t) AS q",
        "unnest of a struct",
    ),
    "update through relations": (
        "UPDATE w SET val = val - grad((SELECT SUM(val * val) FROM w), val)",
        "derivatives that read the row alone",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    statement, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        xql_ffi.expand_sql(statement or "SELECT 1", TABLES, dialect="datafusion" if statement else "cobol")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, TABLES), "must be a string of SQL"),
        (("SELECT grad(x, x) FROM t", None), "None is none of them"),
        (("SELECT grad(x, x) FROM t", {"t": 1}), "must be a pyarrow schema or the query of a view"),
    ],
)
def test_types_of_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        xql_ffi.expand_sql(*arguments)


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        ("SELECT grad(SUM(x * x), x) FROM t", xql_ffi.VariableError, "GROUP BY t.x"),
        ("SELECT grad(SUM(a), x) FROM (SELECT x, x * x AS a FROM t) AS q", xql_ffi.VariableError, "GROUP BY q.x"),
        ("SELECT grad(*, x) FROM t", xql_ffi.NotNumericError, "many columns"),
        ("SELECT grad(s, x) FROM t", xql_ffi.NotNumericError, "t.s is Utf8"),
        ("SELECT grad(gamma(x), x) FROM t", ValueError, r"DataFusion has no function gamma\(x\). This package has it"),
        ("SELECT grad(frob(x), x) FROM t", ValueError, "no function called frob"),
        ("SELECT grad(approx_median(x * k), x) FROM t, w GROUP BY x", xql_ffi.UnsupportedRelationError, "median"),
        (
            "SELECT grad(q.x, t.x) FROM t JOIN t AS q ON true",
            xql_ffi.VariableError,
            r"^grad\(q.x",
        ),
    ],
)
def test_kinds(statement: str, kind: type[ValueError], message: str) -> None:
    with pytest.raises(kind, match=message):
        xql_ffi.expand_sql(statement, TABLES)


def test_all_columns_are_no_expression() -> None:
    with pytest.raises(xql_ffi.NotNumericError, match="many columns"):
        xql_ffi.differentiate_sql("*", "x", ["x"])


def test_more_than_an_expression() -> None:
    for expression in ("x, x), grad(x", "x) FROM columns --", "x;"):
        with pytest.raises(ValueError, match=r"not one expression|Expected|single statement"):
            xql_ffi.differentiate_sql(expression, "x", ["x"])


def test_a_view_of_a_dataframe() -> None:
    ctx = SessionContext()
    ctx.from_pydict({"x": [1.0]}, name="t")
    ctx.register_view("v", ctx.sql("SELECT x, x * x AS y FROM t"))
    with pytest.raises(ValueError, match="which query computes this view"):
        xql_ffi.expand_sql("SELECT grad(y, x) FROM v", ctx)


def test_functions_of_the_session() -> None:
    ctx = SessionContext()
    ctx.from_pydict({"x": [2.0], "y": [0.5]}, name="t")
    ctx.register_udf(udf(lambda x: x, [pa.float64()], pa.float64(), "immutable", "same"))
    assert xql_ffi.expand_sql("SELECT grad(x * same(y), x) AS d FROM t", ctx).endswith("same(y) END AS d FROM t")
    with pytest.raises(ValueError, match="no derivative is known for the function same"):
        xql_ffi.expand_sql("SELECT grad(same(x), x) AS d FROM t", ctx)
    rules = [xql_ffi.rule("same(x)", "1")]
    assert xql_ffi.sql(ctx, "SELECT grad(same(x) * y, x) AS d FROM t", rules=rules).to_pydict() == {"d": [0.5]}
