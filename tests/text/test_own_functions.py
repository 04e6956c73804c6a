"""Functions of a session or a database that are called like those of DataFusion, of DuckDB or of ours."""

import duckdb
import pyarrow as pa
import pytest
from datafusion import SessionContext, udf

import xql_ffi
from support.sessions import session

DOUBLE = pa.float64()


def with_function(name: str) -> SessionContext:
    ctx = session({"t": {"x": [3.0], "y": [2.0]}}, differentiates=False)
    hundredfold = udf(lambda x: pa.array([100 * value for value in x.to_pylist()]), [DOUBLE], DOUBLE, "immutable", name)
    ctx.register_udf(hundredfold)
    return ctx


def database(name: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.sql("CREATE TABLE t AS SELECT 3e0 AS x, 2e0 AS y")
    connection.sql(f"CREATE MACRO {name}(x) AS 100 * x")
    return connection


# That of `sin(x)` calls `cos`, whatever the statement calls.
@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("sin", "SELECT grad(sin(x), x) AS d FROM t"),
        ("cos", "SELECT grad(sin(x), x) AS d FROM t"),
        ("pow", "SELECT grad(pow(x), x) AS d FROM t"),
        ("power", "SELECT grad(power(x), x) AS d FROM t"),
        ("avg", "SELECT x, grad(avg(x), x) AS d FROM t GROUP BY x"),
        ("sin", "SELECT grad(s, x) AS d FROM (SELECT x, sin(x) AS s FROM t) AS q"),
    ],
)
def test_in_the_place_of_datafusions(name: str, statement: str) -> None:
    ctx = with_function(name)
    with pytest.raises(
        xql_ffi.DifferentiationError, match=f"a function {name} of its own in the place of DataFusion's"
    ):
        xql_ffi.sql(ctx, statement)
    # What does not call it is what it was, and so is the function.
    assert xql_ffi.sql(ctx, "SELECT grad(exp(y) * x, x) AS d FROM t").to_pydict() == {"d": [pytest.approx(7.38905609)]}
    if name != "avg":
        assert ctx.sql(f"SELECT {name}(x) AS v FROM t").to_pydict() == {"v": [300.0]}


def test_in_a_view() -> None:
    ctx = with_function("sin")
    ctx.sql("CREATE VIEW v AS SELECT x, sin(x) AS s FROM t")
    with pytest.raises(ValueError, match="a function sin of its own in the place of DataFusion's"):
        xql_ffi.sql(ctx, "SELECT grad(s, x) AS d FROM v")
    connection = database("sin")
    connection.sql("CREATE VIEW v AS SELECT x, sin(x) AS s FROM t")
    with pytest.raises(ValueError, match="a function sin of its own in the place of DuckDB's"):
        xql_ffi.sql(connection, "SELECT grad(s, x) AS d FROM v")


@pytest.mark.parametrize("name", ["grad", "jvp", "vjp", "stop_gradient"])
def test_in_the_place_of_ours(name: str) -> None:
    with pytest.raises(ValueError, match=f"a function {name} of its own, and {name}.* is a derivative here"):
        xql_ffi.sql(with_function(name), f"SELECT {name}(x), grad(x * x, x) AS d FROM t")
    with pytest.raises(xql_ffi.HostError, match=f"a function {name} of its own, and {name}.* is a derivative here"):
        xql_ffi.sql(database(name), f"SELECT {name}(x), grad(x * x, x) AS d FROM t")


def test_operators_that_are_registered_are_no_others() -> None:
    ctx = xql_ffi.register(with_function("softplus"))
    assert xql_ffi.sql(ctx, "SELECT grad(x * stop_gradient(x), x) AS d FROM t").to_pydict() == {"d": [3.0]}


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_in_the_place_of_duckdbs(name: str) -> None:
    connection = database(name)
    with pytest.raises(xql_ffi.HostError, match=f"a function {name} of its own in the place of DuckDB's"):
        xql_ffi.sql(connection, "SELECT grad(sin(x), x) AS d FROM t")
    assert xql_ffi.sql(connection, "SELECT grad(x * x, x) AS d FROM t").fetchall() == [(6.0,)]


# `cube` and `rollup` are words of GROUP BY, `nanvl` and `struct` functions of DataFusion that DuckDB does not have.
@pytest.mark.parametrize("name", ["cube", "rollup", "nanvl", "struct", "twice"])
def test_other_names_are_functions_like_any_other(name: str) -> None:
    connection = database(name)
    assert xql_ffi.sql(connection, f"SELECT grad({name}(y) * x, x) AS d FROM t").fetchall() == [(200.0,)]
    with pytest.raises(xql_ffi.MissingRuleError, match=name):
        xql_ffi.sql(connection, f"SELECT grad({name}(x), x) AS d FROM t")
    grouped = f"SELECT y, SUM(grad({name}(y) * x, x)) AS d FROM t GROUP BY CUBE (y) ORDER BY y"
    assert xql_ffi.sql(connection, grouped).fetchall() == [(2.0, 200.0), (None, 200.0)]
