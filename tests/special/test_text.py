"""Derivatives of special functions as text: with the names that a host has, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi

T = {"t": pa.schema({"x": pa.float64()})}


def expanded(expression: str, dialect: str = "datafusion") -> str:
    text = xql_ffi.expand_sql(f"SELECT grad({expression}, x) AS d FROM t", T, dialect=dialect, functions=True)
    return text.removeprefix("SELECT ").removesuffix(" AS d FROM t")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("lgamma(x)", "digamma(x)"),
        ("gammaln(2 * x)", "2.0 * digamma(2 * x)"),
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


@pytest.mark.parametrize(
    ("dialect", "expression", "text"),
    [
        ("postgres", "erf(x)", "CAST(1.1283791670955126 AS DOUBLE PRECISION) * exp(-x * x)"),
        ("spark", "expm1(x)", "exp(x)"),
        ("spark", "log1p(x)", "1e0 / (1e0 + x)"),
        ("polars", "log1p(x)", "1e0 / (1e0 + x)"),
    ],
)
def test_of_hosts_that_have_it(dialect: str, expression: str, text: str) -> None:
    assert expanded(expression, dialect) == text


@pytest.mark.parametrize(
    ("dialect", "expression", "name"),
    [
        ("duckdb", "lgamma(x)", "digamma"),
        ("duckdb", "gamma(x)", "digamma"),
        ("postgres", "lgamma(x)", "digamma"),
        ("duckdb", "erf(x)", "erf"),
        ("sqlite", "log1p(x)", "log1p"),
    ],
)
def test_of_hosts_that_lack_it(dialect: str, expression: str, name: str) -> None:
    with pytest.raises(xql_ffi.DifferentiationError, match=name):
        expanded(expression, dialect)
