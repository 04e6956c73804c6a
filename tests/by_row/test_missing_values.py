"""What takes the place of a missing value, in sums over rows, beside derivatives of one row by its own value.

An expression that is NULL is not a value that is NULL: its derivative is that of what takes its place, and the same
value may count elsewhere in the row.
"""

from __future__ import annotations

import pytest

from support.cases import query
from support.sessions import session

# u and f are NULL in some of the rows, val is in one.
TABLE = {
    "r": [0, 1, 2, 3, 4, 5],
    "val": [1.0, 2.0, 3.0, -0.5, None, 0.7],
    "u": [None, 2.0, None, 0.0, 1.5, -2.0],
    "f": [0.3, None, None, 1.1, 2.0, 0.0],
}
EXPRESSIONS = [
    "COALESCE(val, 0.5)",
    "u * COALESCE(val, 0.5)",
    "COALESCE(u, 2) * val",
    "COALESCE(u, 2) * COALESCE(val, 0.5)",
    "val + COALESCE(u * val, 0)",
    "COALESCE(val, 1) * COALESCE(u * val, 3)",
    "COALESCE(f + val, u) - val",
    "val * val * val + COALESCE(f - val, 0.5)",
    "COALESCE(COALESCE(val * f, 2) * val, 1)",
    "COALESCE(COALESCE(val, 2), 3) * val",
    "COALESCE(nullif(val, 2), 3) * val + val",
    "COALESCE(val, u) * COALESCE(u, f, 1)",
    "CASE WHEN val IS NOT NULL THEN val ELSE 4 END * sin(val)",
    "CASE WHEN u > 0 THEN u ELSE -1 END * val",
    "COALESCE(CAST(val AS FLOAT), 0.5) * COALESCE(f, 1)",
    "COALESCE(sqrt(val * val), 1) * val",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_missing_in_a_sum(expression: str) -> None:
    ctx = session({"t": TABLE})
    by_row = query(ctx, f"SELECT r, grad((SELECT SUM({expression}) FROM t), val) AS d FROM t ORDER BY r").to_pylist()
    alone = query(ctx, f"SELECT r, val, {expression} AS e, grad({expression}, val) AS d FROM t ORDER BY r").to_pylist()
    for found, expected in zip(by_row, alone, strict=True):
        if expected["val"] is not None:
            # What has no value in a row has no part in a sum.
            assert found["d"] == pytest.approx(expected["d"] if expected["e"] is not None else 0.0, rel=1e-6), found


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            """WITH a AS (SELECT r, val * 1 AS val FROM t)
            SELECT r, grad((SELECT SUM(p.val + COALESCE(p.val * q.val, 0)) FROM a p LEFT JOIN a q ON q.r = p.r + 1),
                val) AS d FROM a ORDER BY r""",
            [1 + 2.0, 1 + 3.0 + 1.0, 1 - 0.5 + 2.0, 1 + 3.0, None, 1.0],
        ),
        (
            """WITH a AS (SELECT r % 2 AS k, SUM(val) AS s FROM t GROUP BY r % 2),
                b AS (SELECT a.s + COALESCE(a.s * t.f, 7) AS z FROM a JOIN t ON a.k = t.r % 2)
            SELECT r, grad((SELECT SUM(z) FROM b), val) AS d FROM t ORDER BY r""",
            [3 + 2.3, 3 + 1.1, 3 + 2.3, 3 + 1.1, None, 3 + 1.1],
        ),
    ],
    ids=["another row", "groups"],
)
def test_what_another_row_lacks(statement: str, expected: list[float | None]) -> None:
    found = [row["d"] for row in query(session({"t": TABLE}), statement).to_pylist()]
    assert [d for d, e in zip(found, expected, strict=True) if e is not None] == pytest.approx(
        [e for e in expected if e is not None], rel=1e-14
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # val is NULL in one of six rows, which does not move, though its derivative would be that of the others.
        ("SELECT SUM(val) FROM t", 2.0 * 5),
        ("SELECT SUM(CASE WHEN val IS NULL THEN val ELSE 3 * val END) FROM t", 6.0 * 5),
        ("SELECT SUM(s) FROM (SELECT r % 2 AS g, SUM(val) AS s FROM t GROUP BY r % 2)", 2.0 * 5),
    ],
)
def test_a_cell_that_is_missing_does_not_move(value: str, expected: float) -> None:
    ctx = session({"t": TABLE})
    found = query(ctx, f"SELECT jvp(({value}), val, 2.0) AS d FROM t").column("d").to_pylist()
    assert found == [expected] * 6


SUM = "SELECT 1 AS k, SUM(val * val) AS val FROM t"
OWN = "SELECT r AS k, val * val AS val FROM t"
GROUPS = "SELECT u > 0 AS k, SUM(val * val) AS val FROM t WHERE u <> 0 GROUP BY u > 0"
KEYS = (
    "SELECT a.r AS k, a.val * SUM(b.val) AS val FROM t a CROSS JOIN t b WHERE a.r < 2 AND b.r < 3 GROUP BY a.r, a.val"
)


@pytest.mark.parametrize(
    ("relation", "direction", "expected"),
    [
        pytest.param(SUM, "COALESCE(f, 0.0)", [2 * (0.3 - 0.55)], id="sum"),
        pytest.param(SUM, "f", [None], id="sum along NULL"),
        # Neither f of the row with r = 4 is read nor that of rows that have no part in the group.
        pytest.param(OWN, "f", [0.6, None, None, -1.1, None, 0.0], id="own row"),
        pytest.param(GROUPS, "COALESCE(f, 5.0)", [0.0, 20.0], id="groups"),
        pytest.param(GROUPS, "f", [0.0, None], id="groups along NULL"),
        pytest.param(KEYS, "1.0", [9.0, 12.0], id="keys"),
        pytest.param(KEYS, "nullif(1.0 * r, 2)", [None, None], id="keys along NULL"),
    ],
)
def test_a_direction_that_is_missing(relation: str, direction: str, expected: list[float | None]) -> None:
    """The derivative is not known where a cell that the value depends on moves by NULL."""
    ctx = session({"t": TABLE})
    statement = f"""WITH h AS ({relation}) SELECT h.k, jvp(h.val, t.val, {direction}) AS d FROM h CROSS JOIN t
        WHERE t.r = 0 ORDER BY h.k"""
    assert query(ctx, statement).column("d").to_pylist() == pytest.approx(expected)
    if len(expected) == 1:
        one = query(ctx, f"SELECT jvp(({SUM.replace('1 AS k, ', '')}), val, {direction}) AS d FROM t WHERE r = 0")
        assert one.column("d").to_pylist() == pytest.approx(expected)
