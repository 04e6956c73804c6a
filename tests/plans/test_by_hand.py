"""A derivative that one expression says has the plan that it has when it is written by hand, node by node."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext

import xql_ffi
from support.programs import load
from support.stock import ON_STOCK

cases = load("bench/forms_cases")
# What is computed once for the derivative and in the text by hand not, by the number of projections that this adds. The
# derivative of `power(x, 2/3)` is the quotient of that power and `x`; by hand it is a power of its own.
MORE = {
    "potential temperature": (3, 2),
    "Manning's formula": (2, 1),
    "normal density": (1, 1),
    "Lennard-Jones potential": (0, 1),
    "power(x, 1/3)": (2, 2),
    "power(x, 2/3)": (2, 2),
}
# Of these a guard reads the argument of the root as well: `sqrt` of a negative number ends a query of DataFusion 55.
GUARDED = ("asin(x)", "acos(x)", "acosh(x)") if ON_STOCK else ()
RULES = [
    (rule["signature"], variable, partial)
    for rule in xql_ffi.rule_table().to_pylist()
    if rule["group"] == "differentiable" and "..." not in rule["signature"] and rule["signature"] != "power(x, y)"
    for variable, partial in zip(rule["inputs"], rule["partials"], strict=True)
]


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    return xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)), functions=True)


@pytest.fixture(autouse=True)
def _no_table(ctx: SessionContext) -> Iterator[None]:
    yield
    ctx.deregister_table("t")


def nodes(ctx: SessionContext, statement: str) -> list[str]:
    """The nodes of a physical plan, from the top."""
    plan = ctx.sql(f"EXPLAIN {statement}").to_pydict()["plan"][-1]
    return [line.strip().partition(":")[0] for line in plan.splitlines() if line.strip()]


@pytest.mark.parametrize("function", cases.FUNCTIONS + cases.POWERS, ids=lambda function: function.name)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside the value"])
def test_functions_that_people_have(ctx: SessionContext, function: object, beside: bool) -> None:
    assert isinstance(function, cases.Function)
    ctx.register_record_batches("t", [cases.table(function, 3).to_batches()])
    more = ["ProjectionExec"] * MORE.get(function.name, (0, 0))[beside]
    assert nodes(ctx, function.called(value=beside)) == more + nodes(ctx, function.hand(value=beside))


@pytest.mark.parametrize(("call", "variable", "partial"), RULES, ids=[f"{call} by {by}" for call, by, _ in RULES])
def test_rules_of_the_table(ctx: SessionContext, call: str, variable: str, partial: str) -> None:
    columns = {name: [0.5, 0.25] for name in ("x", "y", "z", "a", "b", "c", "n")}
    ctx.from_arrow(pa.table(columns), name="t")
    by_hand = partial.replace("Ω", f"({call})")
    more = ["ProjectionExec"] if call in GUARDED else []
    assert nodes(ctx, f"SELECT grad({call}, {variable}) AS d FROM t") == more + nodes(
        ctx, f"SELECT {by_hand} AS d FROM t"
    )
