"""The analyzer rules are in a session as soon as an operator is registered, and once."""

import inspect

import pytest
import xarray_sql
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, udf

import xql_ffi
from support.cases import query
from xql_ffi import grad_capsule, jvp_capsule, rule, vjp_capsule

STATEMENT = "SELECT {call} AS d FROM (SELECT w, w * w * x AS p FROM (VALUES (0.5, 3.0)) AS t(w, x)) AS m"
VERBOSE = "EXPLAIN VERBOSE " + STATEMENT.format(call="p")


def _rules(ctx: SessionContext) -> list[str]:
    """The steps of the analyzer that are of these rules."""
    steps: list[str] = query(ctx, VERBOSE).to_pydict()["plan_type"]
    analysis = steps[: steps.index("analyzed_logical_plan")]
    return [step for step in analysis if "differentiate_relations" in step or "keep_recursive_columns" in step]


@pytest.mark.parametrize(
    "make",
    [
        SessionContext,
        lambda: SessionContext(SessionConfig().with_target_partitions(1), RuntimeEnvBuilder()),
        xarray_sql.XarrayContext,
    ],
    ids=["plain", "configured", "xarray"],
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
    assert _rules(ctx) == []
    ctx.register_udf(udf(lambda x: x, ["double"], "double", "volatile", name="other"))
    assert _rules(ctx) == []
    for _ in range(2):
        xql_ffi.register(ctx)
    assert len(_rules(ctx)) == 2


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


def test_register_udf_looks_as_before() -> None:
    method = SessionContext().ctx.register_udf
    assert list(inspect.signature(method).parameters) == ["udf"]
    with pytest.raises(TypeError):
        method(1)
