"""Derivatives of special functions as text: with the names that a host has, or refused."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from datafusion import SessionContext, udf

import xql_ffi

T = {"t": pa.schema({"x": pa.float64()})}


def expanded(expression: str, dialect: str = "datafusion") -> str:
    text = xql_ffi.expand_sql(f"SELECT grad({expression}, x) AS d FROM t", T, dialect=dialect, functions=True)
    return text.removeprefix("SELECT ").removesuffix(" AS d FROM t")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("lgamma(x)", "digamma(x)"),
        ("gammaln(2 * x)", "2.0 * digamma(2.0 * x)"),
        ("softplus(x)", "sigmoid(x)"),
        ("ndtr(x)", "normal_pdf(x)"),
        ("polygamma(2, x)", "polygamma(3.0, x)"),
    ],
)
def test_of_datafusion(expression: str, text: str) -> None:
    assert expanded(expression) == text
    assert xql_ffi.differentiate_sql(expression, "x", ["x"], functions=True) == text


def test_a_plain_session_runs_it() -> None:
    ctx = xql_ffi.register(SessionContext(), functions=True)
    ctx.from_pydict({"x": [0.5]}, name="t")
    statement = "SELECT grad(erf(x), x) AS d FROM t"
    assert xql_ffi.sql(ctx, statement, functions=True).to_pydict()["d"] == [pytest.approx(0.8787825789354449)]
    # Nobody says that it is not the user's own.
    with pytest.raises(xql_ffi.MissingRuleError, match="erf"):
        xql_ffi.expand_sql(statement, ctx)


def test_a_rule_calls_what_the_session_may_lack() -> None:
    rule = xql_ffi.rule("gelu(x)", "normal_cdf(x) + x * normal_pdf(x)")
    statement = "SELECT grad(gelu(x), x) AS d FROM t"
    ctx = SessionContext()
    ctx.register_udf(udf(lambda x: x, [pa.float64()], pa.float64(), "immutable", "gelu"))
    ctx.from_pydict({"x": [0.5]}, name="t")
    text = "SELECT CASE WHEN gelu(x) IS NOT NULL THEN 1.0 END * (normal_cdf(x) + x * normal_pdf(x)) AS d FROM t"
    assert xql_ffi.expand_sql(statement, ctx, rules=[rule], functions=True) == text
    with pytest.raises(xql_ffi.MissingRuleError, match=r"the derivative calls normal_cdf.*functions=True"):
        xql_ffi.expand_sql(statement, ctx, rules=[rule])


@pytest.mark.parametrize(
    ("dialect", "expression", "text"),
    [
        ("postgres", "erf(x)", "1.1283791670955126 * exp(-(x * x))"),
        ("spark", "expm1(x)", "exp(x)"),
        ("spark", "log1p(x)", "1.0 / (1.0 + x)"),
        ("polars", "log1p(x)", "1.0 / (1.0 + x)"),
    ],
)
def test_of_hosts_that_have_it(dialect: str, expression: str, text: str) -> None:
    assert expanded(expression, dialect) == text


@pytest.mark.parametrize(
    ("dialect", "expression", "message"),
    [
        ("duckdb", "lgamma(x)", "duckdb has no function for digamma, which the derivative calls"),
        ("duckdb", "gamma(x)", "duckdb has no function for digamma, which the derivative calls"),
        ("postgres", "2 * lgamma(x)", "postgres has no function for digamma, which the derivative calls"),
        ("duckdb", "erf(x)", "duckdb has no function erf"),
        ("sqlite", "log1p(x)", "sqlite has no function log1p"),
    ],
)
def test_of_hosts_that_lack_it(dialect: str, expression: str, message: str) -> None:
    for statement in (
        f"SELECT grad({expression}, x) AS d FROM t",
        f"SELECT grad(y, x) AS d FROM (SELECT x, {expression} AS y FROM t) AS q",
    ):
        with pytest.raises(xql_ffi.HostError, match=message):
            xql_ffi.expand_sql(statement, T, dialect=dialect)


def test_a_rule_for_a_host() -> None:
    """Not the special function, but the one of the host that has its name."""
    rule = xql_ffi.rule("lgamma(x)", "ln(x) - 0.5 / x")
    text = xql_ffi.expand_sql("SELECT grad(lgamma(x), x) AS d FROM t", T, dialect="duckdb", rules=[rule])
    assert text == "SELECT ln(x) - 0.5 / x AS d FROM t"


def test_duckdb_runs_it() -> None:
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("CREATE TABLE t AS SELECT CAST(0.5 AS DOUBLE) AS x")
    with pytest.raises(xql_ffi.HostError, match="digamma"):
        xql_ffi.sql(connection, "SELECT grad(lgamma(x), x) AS d FROM t")
    kept = xql_ffi.sql(
        connection, "SELECT lgamma(x) AS f, grad(x * stop_gradient(lgamma(x)), x) AS d FROM t"
    ).fetchall()
    assert kept == [(pytest.approx(math.lgamma(0.5)), pytest.approx(math.lgamma(0.5)))]
