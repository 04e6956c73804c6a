"""Derivatives in branches of a union are those of each alone, and one sweep where these have tables of their own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from datafusion import SessionContext

from support.cases import plans
from support.compare import rows_of
from support.sessions import session

TABLES = {
    "d": {"k": [1, 2, 3, 1], "x": [0.5, -1.0, 2.0, 1.5]},
    "w": {"k": [1, 2, 3], "val": [0.3, None, -0.7]},
    "v": {"k": [3, 1], "val": [1.1, 0.2], "other": [2.0, -3.0]},
    "u": {"k": [1, 2], "val": [2, 5]},
}
LOSS = """loss AS (SELECT SUM(tanh(w.val * d.x) * v.val * v.other) AS l FROM d JOIN w ON d.k = w.k JOIN v ON v.k = d.k),
    more AS (SELECT AVG(val * val) + (SELECT l FROM loss) AS m FROM w)"""
L, M = "(SELECT l FROM loss)", "(SELECT m FROM more)"
BY_W, BY_V = f"SELECT k, grad({L}, val) AS d FROM w", f"SELECT k, grad({L}, val) AS d FROM v"

APART = {
    "two tables": [BY_W, BY_V],
    "a value before": [f"SELECT 0 AS k, {L} AS d", BY_W, BY_V],
    "a value behind": [BY_W, BY_V, f"SELECT 0, {L}"],
    "names of the first": [f"SELECT k AS place, grad({L}, val) + 1.0 AS slope FROM w", BY_V],
    "literals": [
        f"SELECT 'w' AS name, true AS b, grad({L}, val) AS d FROM w",
        f"SELECT 'v', false, grad({L}, val) FROM v",
    ],
    "NULL": [
        f"SELECT k, grad({L}, val) AS d, CAST(NULL AS DOUBLE) AS e FROM w",
        f"SELECT k, grad({L}, val), other FROM v",
    ],
    "conditions": [f"{BY_W} WHERE k < 3", f"{BY_V} WHERE other > 0"],
    "no rows": [f"{BY_W} WHERE k > 30", BY_V],
    "two variables": [BY_W, BY_V, f"SELECT k, grad({L}, other) FROM v AS other_v"],
    "two losses": [BY_W, f"SELECT k, grad({M}, val) FROM v"],
    "the sum of two losses": [f"SELECT k, grad({L} + 2 * {M}, val) AS d FROM w", BY_V],
    "an alias": [f"SELECT q.k, grad({L}, q.val) AS d FROM w AS q", f"SELECT r.k, grad({L}, r.val) FROM v AS r"],
    "a join": [f"SELECT w.k, grad({L}, w.val) AS d FROM w JOIN u ON u.k = w.k", BY_V],
    "the own row": [f"SELECT k, grad({L} * val, val) AS d FROM w", "SELECT k, grad(val * val, val) FROM v", BY_V],
    "vjp": [f"SELECT k, vjp({L}, val, 2.0) AS d FROM w", f"SELECT k, vjp({L}, val, 3.0) FROM v"],
    "a product of derivatives": [f"SELECT k, grad({L}, val) * grad({M}, val) AS d FROM w", BY_V],
}
TOGETHER = {
    "one table twice": [BY_W, f"SELECT k, grad({M}, val) FROM w"],
    "one table under two names": [
        f"SELECT a.k, grad({L}, a.val) AS d FROM w AS a",
        f"SELECT b.k, grad({M}, b.val) FROM w AS b",
    ],
    "a table of both": [
        f"SELECT w.k, grad({L}, w.val) AS d FROM w JOIN u ON u.k = w.k",
        f"SELECT v.k, grad({L}, v.val) FROM v JOIN u ON u.k = v.k",
    ],
    "draws": [f"SELECT k, grad({L}, val) + 0 * random() AS d FROM w", BY_V],
    "other types": [BY_W, "SELECT k, val FROM u", BY_V],
}
AROUND = {
    "nothing": "{}",
    "an order": "SELECT * FROM ({}) AS q ORDER BY 1",
    "groups": "SELECT COUNT(*), SUM(d) FROM ({}) AS q",
    "a CTE that is read twice": "SELECT a.d, b.d FROM ({}) AS a JOIN ({}) AS b ON a.k = b.k",
    "a limit": "SELECT COUNT(*) FROM (SELECT * FROM ({}) AS q LIMIT 100) AS r",
}


def counted(ctx: SessionContext, sql: str) -> Counter[Any]:
    """The rows in no order, of floats the first twelve digits."""
    rows = rows_of(ctx.sql(sql).to_arrow_table())
    return Counter(tuple(f"{each:.12g}" if isinstance(each, float) else repr(each) for each in row) for row in rows)


def with_loss(select: str) -> str:
    return f"WITH {LOSS} {select}"


@pytest.mark.parametrize("branches", [*APART.values(), *TOGETHER.values()], ids=[*APART, *TOGETHER])
def test_each_branch_has_its_own_derivatives(branches: list[str]) -> None:
    ctx = session(TABLES)
    alone = sum((counted(ctx, with_loss(branch)) for branch in branches), Counter())
    assert counted(ctx, with_loss(" UNION ALL ".join(branches))) == alone


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_queries_around(around: str) -> None:
    ctx = session(TABLES)
    names = [f"alone_{place}" for place in range(2)]
    for name, branch in zip(names, (BY_W, BY_V), strict=True):
        ctx.register_record_batches(name, [ctx.sql(with_loss(branch)).collect()])
    kept = " UNION ALL ".join(f"SELECT * FROM {name}" for name in names)
    union = f"{BY_W} UNION ALL {BY_V}"
    assert counted(ctx, with_loss(around.replace("{}", union))) == counted(ctx, around.replace("{}", kept))


@pytest.mark.parametrize(("branches", "is_once"), [(APART["two tables"], True), (TOGETHER["one table twice"], False)])
def test_how_often_the_loss_is_computed(branches: list[str], is_once: bool) -> None:
    plan = plans(session(TABLES), with_loss(" UNION ALL ".join(branches)))["physical_plan"]
    assert (plan.count("SharedScanExec: computes ∂groups") == 1) == is_once
    assert "UnionExec" in plan


def test_an_error_is_that_of_the_branch() -> None:
    branches = [BY_W, f"SELECT k, grad({L}, nothing) FROM v"]
    ctx = session(TABLES)
    with pytest.raises(Exception, match="nothing"):
        ctx.sql(with_loss(" UNION ALL ".join(branches)))


def test_a_refusal_is_that_of_the_branch() -> None:
    ctx = session(TABLES)
    refused = f"SELECT k, grad({L}, other * 2) AS d FROM v"
    said = []
    for statement in (refused, " UNION ALL ".join([BY_W, BY_V, refused])):
        with pytest.raises(Exception, match="must be a column") as error:
            ctx.sql(with_loss(statement)).collect()
        said.append(str(error.value))
    assert said[0] == said[1]
