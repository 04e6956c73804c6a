"""Which sessions have special functions, whose functions these are, and in which plans they are differentiated."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from datafusion import ScalarUDF, SessionContext, col, udf

import xql_ffi
from support import sessions
from xql_ffi._special import FUNCTIONS, SIGNATURES

X = [0.25, 0.5, 1.5]


def of_user(name: str = "erf") -> ScalarUDF:
    def minus(x: pa.Array) -> pa.Array:
        return pa.array([None if v is None else -v for v in x.to_pylist()], pa.float64())

    return udf(minus, [pa.float64()], pa.float64(), "immutable", name)


@pytest.fixture
def session() -> SessionContext:
    return xql_ffi.register(sessions.session({"t": {"k": [0, 1, 2], "x": X}}), functions=True)


def values(ctx: SessionContext, sql: str) -> list[float | None]:
    rows: list[float | None] = ctx.sql(sql).to_arrow_table().column(0).to_pylist()
    return rows


def pdf(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def test_names_are_those_of_the_rule_table() -> None:
    table = xql_ffi.rule_table().to_pylist()
    signatures = [row["signature"] for row in table if row["family"] == "special functions"]
    assert [signature.replace("CAST(n AS BIGINT)", "n") for signature in signatures] == list(FUNCTIONS)


def test_without_functions_a_session_has_none() -> None:
    ctx = sessions.session({"t": {"x": X}})
    assert not set(ctx.udfs()) & set(SIGNATURES)
    with pytest.raises(xql_ffi.MissingRuleError, match=r"no function ndtr\(x\).*functions=True"):
        ctx.sql("SELECT grad(ndtr(x), x) FROM t")


def test_registering_twice(session: SessionContext) -> None:
    assert set(SIGNATURES) <= set(session.udfs())
    xql_ffi.register(session, functions=True)
    assert values(session, "SELECT grad(erf(x), x) FROM t") == pytest.approx(
        [2 / math.sqrt(math.pi) * math.exp(-x * x) for x in X]
    )


@pytest.mark.parametrize("is_before", [True, False])
def test_a_function_of_the_user_is_his(is_before: bool) -> None:
    ctx = sessions.session({"t": {"x": X}})
    if is_before:
        ctx.register_udf(of_user())
    xql_ffi.register(ctx, functions=True)
    if not is_before:
        ctx.register_udf(of_user())
    assert values(ctx, "SELECT erf(x) FROM t") == [-x for x in X]
    with pytest.raises(xql_ffi.MissingRuleError, match="erf"):
        ctx.sql("SELECT grad(erf(x), x) FROM t").collect()
    # What a derivative calls is not what the session has.
    ctx.register_udf(of_user("digamma"))
    assert values(ctx, "SELECT grad(lgamma(x + 0.5), x) FROM t")[1] == pytest.approx(-0.5772156649015329)
    assert values(ctx, "SELECT digamma(x) FROM t") == [-x for x in X]


def test_a_rule_of_the_user_is_his() -> None:
    ctx = sessions.session({"t": {"x": X}})
    xql_ffi.register(ctx, rules=[xql_ffi.rule("softplus(x)", "normal_cdf(x)")], functions=True)
    assert values(ctx, "SELECT grad(softplus(x), x) FROM t") == pytest.approx([cdf(x) for x in X])


def test_in_the_api_of_frames(session: SessionContext) -> None:
    frame = session.table("t").select(xql_ffi.grad(session.udf("normal_cdf")(col("x")), "x").alias("d"))
    assert frame.to_pydict()["d"] == pytest.approx([pdf(x) for x in X])


def test_by_row(session: SessionContext) -> None:
    """The likelihood of a probit."""
    loss = """
        WITH l AS (SELECT SUM(log_ndtr((k - 1) * t.x)) AS l FROM t)
        SELECT grad((SELECT l FROM l), x) FROM t ORDER BY k
    """
    expected = [(k - 1) * pdf((k - 1) * x) / cdf((k - 1) * x) for k, x in enumerate(X)]
    assert values(session, loss) == pytest.approx(expected)


def test_in_an_aggregate(session: SessionContext) -> None:
    sql = """
        WITH m AS (SELECT w, lgamma(w * x) AS f FROM t CROSS JOIN (SELECT 2.0 AS w))
        SELECT grad(SUM(f), w) FROM m GROUP BY w
    """
    found = values(session, sql)
    h = 1e-5
    expected = sum(math.lgamma((2 + h) * x) - math.lgamma((2 - h) * x) for x in X) / (2 * h)
    assert found == [pytest.approx(expected, rel=1e-8)]


def test_in_a_window(session: SessionContext) -> None:
    sql = "SELECT jvp(SUM(expm1(x)) OVER (ORDER BY k), x, 1) FROM t ORDER BY k"
    assert values(session, sql) == pytest.approx([sum(map(math.exp, X[: n + 1])) for n in range(3)])


def test_in_a_recursion(session: SessionContext) -> None:
    """Newton's method for a quantile, whose derivative by the probability is that of the inverse."""
    sql = """
        WITH RECURSIVE p AS (SELECT 0.9 AS p), newton AS (
            SELECT 0 AS step, p, 0.0 AS x FROM p
            UNION ALL
            SELECT step + 1, p, x - (normal_cdf(x) - p) / normal_pdf(x) FROM newton WHERE step < 8)
        SELECT grad(x, p) AS by_p, x, normal_quantile(0.9) AS q FROM newton WHERE step = 8
    """
    (row,) = session.sql(sql).to_pylist()
    assert row["x"] == pytest.approx(row["q"], rel=1e-14)
    assert row["by_p"] == pytest.approx(1 / pdf(row["q"]), rel=1e-12)


def test_in_a_formula_of_the_users_own() -> None:
    """What DataFusion lacks, a rule may call without its being handed over."""
    ctx = sessions.session({"t": {"x": X}})
    ctx.register_udf(of_user("gelu"))
    xql_ffi.register(ctx, rules=[xql_ffi.rule("gelu(x)", "normal_cdf(x) + x * normal_pdf(x)")])
    assert values(ctx, "SELECT grad(gelu(x), x) FROM t") == pytest.approx([cdf(x) + x * pdf(x) for x in X])
