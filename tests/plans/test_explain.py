"""What EXPLAIN shows: the derivative, and nothing of the calls."""

import pytest
from datafusion import SessionContext

from support.cases import assert_no_call, plans, query


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
    physical = plans(ctx, statement)["physical_plan"]
    assert_no_call(physical)
    for part in shown:
        assert part in physical


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
    logical = plans(ctx, statement)["logical_plan"].splitlines()
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
    for plan in final:
        assert_no_call(plan)


def test_expanded_only_when_optimized(ctx: SessionContext) -> None:
    """The statement as it was bound still has the call, the optimized plan has the derivative."""
    frame = ctx.sql("SELECT grad(sin(x), x) AS d FROM t")
    assert "grad(" in frame.logical_plan().display_indent()
    assert "cos(" in frame.optimized_logical_plan().display_indent()
