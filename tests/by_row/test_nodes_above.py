"""Derivatives by row in several nodes over one FROM: WHERE, a window, groups, HAVING.

Each node has a sweep through the queries in FROM. All of them know a row by the same number, though groups that are
computed by two threads come in another order each time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from datafusion import SessionConfig, SessionContext

from support.cases import query
from support.sessions import session

X: dict[str, list[Any]] = {"i": [0, 0, 1, 1, 2], "j": [0, 1, 1, 2, 0], "val": [1.0, 2.0, 3.0, -1.0, 0.5]}
W: dict[str, list[Any]] = {"j": [0, 1, 2], "g": [0, 0, 1], "val": [1.0, 2.0, -0.5]}
V: dict[str, list[Any]] = {"i": [0, 1, 2], "val": [1.0, -2.0, 0.25]}
H = """h AS (SELECT x.i, SUM(x.val * w.val * w.val * v.val) AS val
    FROM x JOIN w ON x.j = w.j JOIN v ON x.i = v.i GROUP BY x.i)"""
# More executions than a wrong order would have luck.
TIMES = 8

DENSE = np.zeros((3, 3))
DENSE[X["i"], X["j"]] = X["val"]
WEIGHTS, FACTORS = np.array(W["val"]), np.array(V["val"])
# By rows of h, and those of w or v.
BY_W = 2 * DENSE * WEIGHTS * FACTORS[:, None]
BY_V = np.diag(DENSE @ WEIGHTS**2)
ALONG = BY_W @ np.arange(3.0)
G = np.array(W["g"])


def pairs(values: np.ndarray, where: np.ndarray) -> list[tuple[Any, ...]]:
    """The values by the rows of h and w where a condition holds."""
    return [(i, j, values[i, j]) for i in range(3) for j in range(3) if where[i, j]]


def by_parts() -> list[tuple[Any, ...]]:
    """Each derivative that is not 0 beside the sum of those of its part."""
    where = BY_W != 0
    sums = {g: float((BY_W * where)[:, g == G].sum()) for g in (0, 1)}
    return [(i, j, value, sums[W["g"][j]]) for i, j, value in pairs(BY_W, where)]


def by_groups() -> list[tuple[Any, ...]]:
    """The sums of derivatives that are positive, those that are more than 1."""
    sums = np.where(BY_W > 0, BY_W, 0).sum(axis=1)
    return [(i, float(total)) for i, total in enumerate(sums) if total > 1]


# By name: the statement behind h, and its rows in order.
STATEMENTS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "a sum above WHERE": (
        "SELECT SUM(grad(h.val, w.val)) AS a FROM h CROSS JOIN w WHERE grad(h.val, w.val) <> 0",
        [(BY_W.sum(),)],
    ),
    "a sum of products above WHERE": (
        "SELECT SUM(h.i * grad(h.val, w.val)) AS a FROM h CROSS JOIN w WHERE grad(h.val, w.val) > 0",
        [((np.where(BY_W > 0, BY_W, 0).sum(axis=1) * np.arange(3)).sum(),)],
    ),
    "a window above WHERE": (
        """SELECT h.i, w.j, grad(h.val, w.val) AS a, SUM(grad(h.val, w.val)) OVER (PARTITION BY w.g) AS b
           FROM h CROSS JOIN w WHERE grad(h.val, w.val) <> 0 ORDER BY h.i, w.j""",
        by_parts(),
    ),
    "HAVING above groups above WHERE": (
        """SELECT h.i, SUM(grad(h.val, w.val)) AS a FROM h CROSS JOIN w WHERE grad(h.val, w.val) > 0
           GROUP BY h.i HAVING SUM(grad(h.val, w.val)) > 1 ORDER BY h.i""",
        by_groups(),
    ),
    "another variable in WHERE": (
        """SELECT h.i, w.j, grad(h.val, w.val) AS a FROM h CROSS JOIN w JOIN v ON v.i = h.i
           WHERE grad(h.val, v.val) > 1 ORDER BY h.i, w.j""",
        pairs(BY_W, np.repeat(np.diag(BY_V)[:, None] > 1, 3, axis=1)),
    ),
    "a direction in each": (
        """SELECT SUM(grad(h.val, w.val)) AS a, SUM(jvp(h.val, w.val, w.j)) AS b FROM h CROSS JOIN w
           WHERE jvp(h.val, w.val, w.j) > 0""",
        [(BY_W[ALONG > 0].sum(), 3 * ALONG[ALONG > 0].sum())],
    ),
    "an order by another derivative": (
        """SELECT h.i, w.j, grad(h.val, w.val) AS a FROM h CROSS JOIN w WHERE grad(h.val, w.val) <> 0
           ORDER BY grad(h.val * h.val, w.val), h.i, w.j""",
        sorted(
            pairs(BY_W, BY_W != 0),
            key=lambda row: (2 * (DENSE @ WEIGHTS**2 * FACTORS)[row[0]] * row[2], row[0], row[1]),
        ),
    ),
    "a row of each": (
        """SELECT DISTINCT ON (w.j) w.j, h.i, grad(h.val, w.val) AS a FROM h CROSS JOIN w
           WHERE grad(h.val, w.val) <> 0 ORDER BY w.j, grad(h.val, w.val)""",
        [(j, *min(((i, BY_W[i, j]) for i in range(3) if BY_W[i, j]), key=lambda row: row[1])) for j in range(3)],
    ),
}


def tables(way: str) -> SessionContext:
    ctx = session({"x": X, "w": W, "v": V}, config=SessionConfig().with_target_partitions(2))
    ctx.sql(f"SET xql.contractions = {way}")
    return ctx


@pytest.mark.parametrize("way", ["true", "false", "fallback"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_nodes_above(name: str, way: str) -> None:
    statement, expected = STATEMENTS[name]
    ctx = tables(way)
    for _ in range(TIMES if way == "fallback" else 1):
        found = query(ctx, f"WITH {H} {statement}")
        rows = [tuple(row.values()) for row in found.to_pylist()]
        assert rows == [pytest.approx(row, rel=1e-14) for row in expected]


def test_rows_are_numbered_once() -> None:
    """The sweeps of two nodes read the same rows: those of the variable, and those of groups."""
    statement, _ = STATEMENTS["a sum above WHERE"]
    plans = tables("true").sql(f"EXPLAIN WITH {H} {statement}").to_pydict()["plan"]
    computed = [line.split("computes ")[1].split(",")[0] for line in plans[1].splitlines() if "computes ∂" in line]
    assert sorted(name.split(" #")[0] for name in computed) == ["∂groups", "∂rows", "∂sums", "∂sums"]


# By name: statements in which a value comes from the rows of another node, of which none is the variable's own.
OTHERS = {
    "a derived table": """SELECT grad(a * a, b) FROM (
        SELECT h.val AS a, w.val AS b FROM h CROSS JOIN w WHERE grad(h.val, w.val) <> 0) q""",
    "some rows": """SELECT grad(a * a, b) FROM (
        SELECT h.val AS a, w.val AS b, grad(h.val, w.val) AS c FROM h CROSS JOIN w LIMIT 100) q""",
    "distinct rows": """SELECT grad(a * a, b) FROM (
        SELECT DISTINCT h.val AS a, w.val AS b, grad(h.val, w.val) AS c FROM h CROSS JOIN w) q""",
    "a window": """SELECT grad(MAX(h.val) OVER (PARTITION BY h.i), w.val)
        FROM h CROSS JOIN w WHERE grad(h.val, w.val) <> 0""",
    "groups": """SELECT h.i, w.val, grad(MAX(h.val), w.val)
        FROM h CROSS JOIN w WHERE grad(h.val, w.val) <> 0 GROUP BY h.i, w.val""",
}


@pytest.mark.parametrize("way", ["true", "false"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_references_are_refused(name: str, way: str) -> None:
    """As they are without a derivative below: 0 would be silently wrong."""
    with pytest.raises(Exception, match=r"is a variable of its own|3 cells of"):
        query(tables(way), f"WITH {H} {OTHERS[name]}")
    alone = OTHERS[name].replace("WHERE grad(h.val, w.val) <> 0", "").replace(", grad(h.val, w.val) AS c", "")
    with pytest.raises(Exception, match="is a variable of its own"):
        query(tables(way), f"WITH {H} {alone}")


def test_a_key_beside_a_derivative_is_constant() -> None:
    statement = "SELECT grad(h.i * 2.0, w.val) AS a FROM h CROSS JOIN w WHERE grad(h.val, w.val) > 5 ORDER BY h.i"
    found = query(tables("true"), f"WITH {H} {statement}")
    assert found.to_pydict() == {"a": [0.0] * int((BY_W > 5).sum())}


N = "n AS (SELECT x.i, SUM(x.val * e.eps * e.eps) AS val FROM x CROSS JOIN e GROUP BY x.i)"
EPS = 3.0
SUMS = DENSE.sum(axis=1)
# By name: statements above WHERE over n and the one row of e, and their rows.
OWN: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "a product": ("SELECT n.i, grad(n.val * e.eps, e.eps) AS a {} ORDER BY n.i", list(enumerate(SUMS * EPS**2))),
    "a sum": ("SELECT grad(SUM(n.val * e.eps), e.eps) AS a {} GROUP BY e.eps", [(SUMS.sum() * EPS**2,)]),
    "beside a window": (
        "SELECT n.i, grad(n.val * e.eps, e.eps) AS a, SUM(grad(n.val, e.eps)) OVER () AS b {} ORDER BY n.i",
        [(i, total * EPS**2, SUMS.sum() * 2 * EPS) for i, total in enumerate(SUMS)],
    ),
}


@pytest.mark.parametrize("way", ["true", "false", "fallback"])
@pytest.mark.parametrize("name", OWN)
def test_by_the_variable_itself(name: str, way: str) -> None:
    """Where the function has it, the query beside it is another reference, which does not move with its only cell."""
    statement, expected = OWN[name]
    ctx = tables(way)
    ctx.from_pydict({"eps": [EPS]}, name="e")
    found = query(ctx, f"WITH {N} {statement.format('FROM n CROSS JOIN e WHERE grad(n.val, e.eps) > 0')}")
    assert [tuple(row.values()) for row in found.to_pylist()] == [pytest.approx(row, rel=1e-14) for row in expected]


@pytest.mark.parametrize("way", ["true", "false", "fallback"])
@pytest.mark.parametrize(
    "above", ["", ", SUM(grad(h.val, a.val)) OVER () AS t", ", grad((SELECT SUM(val) FROM h), w.val) AS t"]
)
@pytest.mark.parametrize("where", ["", " WHERE grad(h.val, w.val) <> 0"])
def test_two_references(way: str, above: str, where: str) -> None:
    """Each is a variable of its own, also where both are one row."""
    statement = f"""SELECT h.i, w.j, a.j AS k, grad(h.val * a.val, w.val) AS e, grad(w.val * a.val, w.val) AS f,
        SUM(grad(h.val * a.val, w.val)) OVER (PARTITION BY h.i, w.j, a.j) AS g{above}
        FROM h CROSS JOIN w CROSS JOIN w a{where} ORDER BY h.i, w.j, k"""
    found = query(tables(way), f"WITH {H} {statement}").to_pylist()
    there = [(i, j, k) for i in range(3) for j in range(3) for k in range(3) if BY_W[i, j] or not where]
    expected = [(*at, BY_W[at[0], at[1]] * WEIGHTS[at[2]], WEIGHTS[at[2]]) for at in there]
    assert [tuple(row.values())[:5] for row in found] == [pytest.approx(row, rel=1e-14) for row in expected]
    assert [row["g"] for row in found] == pytest.approx([row[3] for row in expected], rel=1e-14)


@pytest.mark.parametrize("way", ["true", "false"])
@pytest.mark.parametrize(
    "columns",
    [
        "h.i, w.j",
        "h.i, w.j, h.val AS a, w.val AS b",
        "h.i, w.j, h.val AS pv",
        "h.i, w.j, h.val AS pv, h.val",
        "h.i, w.j, grad(h.val, w.val) AS d, w.val AS b",
    ],
)
def test_order_by_what_the_select_list_renames(way: str, columns: str) -> None:
    found = query(tables(way), f"WITH {H} SELECT {columns} FROM h CROSS JOIN w ORDER BY grad(h.val, w.val), 1, 2")
    expected = sorted((BY_W[i, j] + 0.0, i, j) for i in range(3) for j in range(3))
    assert [(row["i"], row["j"]) for row in found.to_pylist()] == [(i, j) for _, i, j in expected]


def test_a_second_derivative_of_two_references() -> None:
    """The gradient within reads its relation twice, as a union of two residuals."""
    loss = "(SELECT SUM(a.val * b.val * b.val) FROM w a CROSS JOIN w b)"
    gradient = f"WITH g AS (SELECT j, grad({loss}, val) AS d FROM w)"
    statement = f"{gradient} SELECT grad((SELECT SUM(d) FROM g), val) AS e FROM w ORDER BY j"
    total, count = WEIGHTS.sum(), len(WEIGHTS)
    # The gradient is sum(w^2) + 2 * w * sum(w).
    expected = 2 * count * WEIGHTS + 2 * total + 2 * total
    for way in ("true", "false"):
        assert query(tables(way), statement).to_pydict()["e"] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("way", ["true", "false"])
def test_a_view_by_two_names(way: str) -> None:
    """Below the other name of a view stands the view's own."""
    ctx = tables(way)
    ctx.sql("CREATE VIEW s AS SELECT j, val * val AS val FROM w")
    statement = """SELECT t.j AS k, s.j, w.j AS i, grad(s.val, w.val) AS a, grad(t.val, w.val) AS b,
        SUM(grad(s.val, w.val)) OVER (PARTITION BY s.j) AS c
        FROM w CROSS JOIN s t CROSS JOIN s ORDER BY grad(s.val * 2, w.val) + 0.0, k, s.j, i"""
    slopes = np.diag(2 * WEIGHTS)
    rows = [
        (k, j, i, slopes[j, i], slopes[k, i], 3 * slopes[j, j]) for k in range(3) for j in range(3) for i in range(3)
    ]
    found = query(ctx, statement).to_pylist()
    assert [tuple(row.values()) for row in found] == sorted(rows, key=lambda row: (row[3], *row[:3]))
