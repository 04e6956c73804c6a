"""The analyzer rule is in every session, and once."""

import inspect

import pytest
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, col, udf

import xql_ffi
from support.cases import query
from support.stock import XARRAY
from xql_ffi import grad_capsule, gradient, jvp_capsule, rule, vjp_capsule

STATEMENT = "SELECT {call} AS d FROM (SELECT w, w * w * x AS p FROM (VALUES (0.5, 3.0)) AS t(w, x)) AS m"
VERBOSE = "EXPLAIN VERBOSE " + STATEMENT.format(call="p")


def _rules(ctx: SessionContext) -> list[str]:
    """The steps of the analyzer that are of the rule."""
    steps: list[str] = query(ctx, VERBOSE).to_pydict()["plan_type"]
    analysis = steps[: steps.index("analyzed_logical_plan")]
    return [step for step in analysis if "differentiate_relations" in step]


@pytest.mark.parametrize(
    "make",
    [
        SessionContext,
        lambda: SessionContext(SessionConfig().with_target_partitions(1), RuntimeEnvBuilder()),
        *XARRAY,
    ],
    ids=["plain", "configured", *["xarray"] * len(XARRAY)],
)
@pytest.mark.parametrize(
    ("operator", "call"),
    [(grad_capsule, "grad(p, w)"), (jvp_capsule, "jvp(p, w, 1.0)"), (vjp_capsule, "vjp(p, w, 1.0)")],
    ids=["grad", "jvp", "vjp"],
)
def test_one_operator_is_enough(make: type[SessionContext], operator: type, call: str) -> None:
    ctx = make()
    ctx.register_udf(operator())
    assert query(ctx, STATEMENT.format(call=call)).to_pydict() == {"d": [3.0]}


def test_rules_are_added_once() -> None:
    ctx = SessionContext()
    for _ in range(2):
        assert len(_rules(ctx)) == 1
        xql_ffi.register(ctx)


@pytest.mark.parametrize(
    "make",
    [
        SessionContext,
        lambda: SessionContext(SessionConfig().with_target_partitions(1), RuntimeEnvBuilder()),
        lambda: SessionContext().enable_url_table(),
        SessionContext.global_ctx,
        *XARRAY,
    ],
    ids=["plain", "configured", "with_urls", "global", *["xarray"] * len(XARRAY)],
)
def test_expressions_see_through_relations_though_nothing_is_registered(make: type[SessionContext]) -> None:
    ctx = make()
    table = "(VALUES (0.5, 3.0)) AS t(w, x)"
    derivative = gradient(col("pred") * col("pred"), "w")
    query(ctx, f"CREATE OR REPLACE VIEW seen_through AS SELECT w, w * x AS pred FROM {table}")
    assert ctx.table("seen_through").select(*derivative).to_pydict() == {"d_w": [9.0]}
    derived = ctx.sql(f"SELECT m.w, m.pred FROM (SELECT w, w * x AS pred FROM {table}) AS m")
    assert derived.select(*derivative).to_pydict() == {"d_w": [9.0]}
    joined = derived.join(ctx.sql(f"SELECT w AS k, x * x AS q FROM {table}"), left_on="w", right_on="k")
    assert joined.select(*gradient(col("pred") * col("q"), "w")).to_pydict() == {"d_w": [27.0]}
    iterated = ctx.sql(
        """WITH RECURSIVE r AS (
             SELECT 0 AS s, 2.0 AS w, 1.0 AS y UNION ALL SELECT s + 1, w, y * w FROM r WHERE s < 3)
           SELECT s, w, y FROM r"""
    )
    assert iterated.sort("s").select(*gradient(col("y"), "w")).to_pydict() == {"d_w": [0.0, 1.0, 4.0, 12.0]}


def test_rules_of_the_users_own_hold_below() -> None:
    """`hypot` has no derivative but the one that comes with the operator."""
    ctx = SessionContext()
    ctx.register_udf(udf(lambda x: x, ["double"], "double", "immutable", name="softplus"))
    ctx.register_udf(grad_capsule(rules=[rule("softplus(x)", "1 / (1 + exp(-x))")]))
    found = query(
        ctx,
        """SELECT grad(AVG(s * s), w) AS d, AVG(s) * 2 * 3 / (1 + exp(-1.5)) AS e
           FROM (SELECT w, softplus(w * x) AS s FROM (VALUES (0.5, 3.0)) AS t(w, x)) AS m GROUP BY w""",
    ).to_pydict()
    assert found["d"] == pytest.approx(found["e"])


def test_sessions_are_made_as_before() -> None:
    native = type(SessionContext().ctx)
    assert list(inspect.signature(native).parameters) == ["config", "runtime"]
    with pytest.raises(TypeError):
        native(1)
    with pytest.raises(TypeError):
        native.__new__(int)  # type: ignore[call-overload]
    derived = type("Derived", (native,), {})
    assert type(derived()) is derived
