"""What EXPLAIN shows: the derivative, and nothing of the calls."""

import pytest
from datafusion import SessionContext

from support.cases import assert_no_call, plans, query
from xql_ffi._engine import is_engine


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("SELECT grad(sin(x), x) AS d FROM t", ["cos(x@"]),
        ("SELECT id FROM t WHERE grad(sin(x), x) > 0", ["FilterExec: cos(x@"]),
        ("SELECT id FROM t ORDER BY grad(sin(x), x)", ["cos(x@"]),
        ("SELECT SUM(grad(sin(x), x)) AS d FROM t", ["cos("]),
        ("SELECT g, SUM(grad(sin(x), x)) OVER (PARTITION BY g) AS d FROM t", ["cos("]),
        ("SELECT jvp(sin(x) * cos(y), x, w, y, 2.0) AS d FROM t", ["cos(x@", "sin(y@", "w@"]),
        ("SELECT vjp(exp(x), x, w) AS d FROM t", ["exp(x@", "w@"]),
        ("SELECT grad(grad(sin(x), x), x) AS d FROM t", ["sin(x@"]),
        ("SELECT u.id FROM u JOIN v ON u.id = v.id AND grad(sin(u.x) * v.x, u.x) > 0", ["cos("]),
        (
            "SELECT id FROM u WHERE EXISTS (SELECT 1 FROM v WHERE v.id = u.id AND grad(sin(u.x) * v.x, u.x) > 0)",
            ["cos("],
        ),
    ],
)
def test_shows_the_derivative(ctx: SessionContext, statement: str, shown: list[str]) -> None:
    explained = plans(ctx, statement).values()
    assert_no_call(explained)
    for part in shown:
        assert any(part in plan for plan in explained)


def test_shows_no_more_than_the_derivative(ctx: SessionContext) -> None:
    """Of NOT NULL columns nothing need be tested for NULL, and constants are folded."""
    plan = plans(ctx, "SELECT grad(x * x * 3, x) AS d, grad(x, x) AS one, grad(y, x) AS nought FROM t")["physical_plan"]
    assert "CASE" not in plan
    assert "1 as one" in plan
    assert "0 as nought" in plan


def test_reads_only_the_columns_that_the_derivative_needs(ctx: SessionContext) -> None:
    plan = plans(ctx, "SELECT grad(x * y + w, x) AS d FROM t")["logical_plan"]
    assert "projection=[y]" in plan


def test_comparison_is_pushed_down_like_any_other(ctx: SessionContext) -> None:
    """A filter on a derivative over a join sinks to the side that it concerns."""
    statement = "SELECT u.id FROM u JOIN v ON u.id = v.id WHERE grad(u.x * u.x, u.x) > 1"
    plan = plans(ctx, statement)["logical_plan"]
    assert_no_call([plan])
    logical = plan.splitlines()
    join = next(number for number, line in enumerate(logical) if "Join" in line)
    filter_ = next(number for number, line in enumerate(logical) if "Filter: " in line and "u.x" in line)
    assert filter_ > join


@pytest.mark.parametrize(
    "options", ["ANALYZE", "VERBOSE", "FORMAT INDENT", "FORMAT TREE", "FORMAT PGJSON", "FORMAT GRAPHVIZ"]
)
def test_every_form_of_explain(ctx: SessionContext, options: str) -> None:
    shown = query(ctx, f"EXPLAIN {options} SELECT grad(sin(x), x) AS d FROM t").to_pydict()
    assert any("cos(" in plan for plan in shown["plan"])
    final = [
        p
        for kind, p in zip(shown["plan_type"], shown["plan"], strict=True)
        if not kind.startswith(("initial", "logical_plan after"))
    ]
    assert_no_call(final)


@pytest.mark.skipif(
    is_engine(), reason="DataFusion 54 breaks the lines of a tree within a character itself, and panics"
)
def test_a_tree_of_columns_that_are_added(ctx: SessionContext) -> None:
    """DataFusion breaks its lines within a character such as that of ∂sum. These are shown without a tree."""
    chain = "b AS (SELECT p.id, p.x * q.x + q.x AS x FROM t p JOIN t q ON p.id = q.id)"
    chain += (
        ", c AS (SELECT p.id, p.x - q.x * q.x AS x FROM b p JOIN b q ON p.id = q.id), l AS (SELECT SUM(x) AS l FROM c)"
    )
    shown = query(ctx, f"EXPLAIN FORMAT TREE WITH {chain} SELECT grad((SELECT l FROM l), x) AS d FROM t").to_pydict()
    assert any("SharedScanExec: " in plan for plan in shown["plan"])


def test_expanded_only_when_optimized(ctx: SessionContext) -> None:
    """The statement as it was bound still has the call, the optimized plan has the derivative."""
    frame = ctx.sql("SELECT grad(sin(x), x) AS d FROM t")
    assert "grad(" in frame.logical_plan().display_indent()
    assert "cos(" in frame.optimized_logical_plan().display_indent()
