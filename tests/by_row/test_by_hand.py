"""Gradients by row of small statements, each with a derivative that is derived by hand.

One thing that may be forgotten decides each of them: a pair of which one is NULL, a row that FILTER leaves out, a term
of a sum, a key that is negative or large.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest

from support.cases import query
from support.sessions import session

TABLES = {
    # Rows 0 and 3 are pairs of val and y.
    "n": {
        "id": [0, 1, 2, 3],
        "g": [0, 0, 1, 1],
        "val": [1.0, None, 2.0, 3.0],
        "y": [1.0, 5.0, None, 2.0],
        "z": [2.0, 2.0, 2.0, 1.0],
        "u": [0.0, 0.0, 4.0, 1.0],
        "k": [0.0, 0.0, 2.0, 3.0],
    },
    "w": {
        "id": [0, 1, 2, 3],
        "g": [0, 0, 1, 1],
        "val": [1.0, 3.0, -0.5, 2.0],
        "y": [0.5, 1.5, 1.25, 3.0],
        # The last digits of three of them are the same.
        "far": [0, 1 << 62, -(1 << 62), 1 << 61],
    },
    "x": {"k": [0, 1, 2, 3, 4], "id": [0, 1, 1, 2, 3], "val": [1.0, 2.0, 3.0, -1.0, 0.25]},
}


class ByHand(NamedTuple):
    """A value, the column of `n` or `w` by whose rows it is differentiated, and the derivatives."""

    value: str
    variable: str
    derivatives: list[float | None]


CASES = {
    "pairs, of squares": ByHand("SELECT regr_sxx(val, y) FROM n", "n.y", [2 * -0.5, 0.0, None, 2 * 0.5]),
    "pairs, of a mean": ByHand("SELECT regr_avgx(val, y) FROM n", "n.y", [1 / 2, 0.0, None, 1 / 2]),
    # The slope is (3 - 1) / (y3 - y0).
    "pairs, of a slope": ByHand("SELECT regr_slope(val, y) FROM n", "n.y", [2.0, 0.0, None, -2.0]),
    "ties beside a filter": ByHand("SELECT MAX(z) FILTER (WHERE id > 1) FROM n", "n.z", [0.0, 0.0, 1.0, 0.0]),
    "ties in a filter": ByHand("SELECT MIN(z) FILTER (WHERE id < 2) FROM n", "n.z", [1 / 2, 1 / 2, 0.0, 0.0]),
    # The derivative of sqrt is infinite where k is 0.
    "an infinite derivative of a row": ByHand(
        "SELECT SUM(s * k) FROM (SELECT sqrt(u) AS s, k FROM n)", "n.u", [0.0, 0.0, 2 / (2 * 2.0), 3 / (2 * 1.0)]
    ),
    "an infinite derivative of a group": ByHand(
        "SELECT SUM(s * k) FROM (SELECT g, sqrt(SUM(u)) AS s, SUM(k) AS k FROM n GROUP BY g)",
        "n.u",
        [0.0, 0.0, 5 / (2 * math.sqrt(5)), 5 / (2 * math.sqrt(5))],
    ),
    "a sum of two products": ByHand(
        """SELECT SUM(s * s) FROM (SELECT x.k, w.g, SUM(x.val * w.val + x.k * w.y) AS s
            FROM x JOIN w ON x.id = w.id GROUP BY x.k, w.g)""",
        "w.val",
        [2 * 1.0 * 1, 2 * 7.5 * 2 + 2 * 12.0 * 3, 2 * 4.25 * -1, 2 * 12.5 * 0.25],
    ),
    "a sum with a filter": ByHand(
        "SELECT SUM(s * s) FROM (SELECT g, SUM(val) FILTER (WHERE y > 1) AS s FROM w GROUP BY g)",
        "w.val",
        [0.0, 2 * 3.0, 2 * 1.5, 2 * 1.5],
    ),
    "keys below 0": ByHand(
        "SELECT SUM(s * s) FROM (SELECT g - 3 AS g, SUM(val) AS s FROM w GROUP BY g - 3)",
        "w.val",
        [2 * 4.0, 2 * 4.0, 2 * 1.5, 2 * 1.5],
    ),
    "keys that are far apart": ByHand(
        """SELECT SUM(z.s * z.s) FROM (SELECT a.g, SUM(a.val * b.val) AS s
            FROM w a JOIN w b ON a.far = b.far GROUP BY a.g) z""",
        "w.val",
        [2 * 10.0 * 2 * 1.0, 2 * 10.0 * 2 * 3.0, 2 * 4.25 * 2 * -0.5, 2 * 4.25 * 2 * 2.0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_by_hand(name: str) -> None:
    value, variable, derivatives = CASES[name]
    table, _, _ = variable.partition(".")
    statement = f"SELECT {table}.id, grad(({value}), {variable}) AS d FROM {table} ORDER BY {table}.id"
    found = query(session(TABLES), statement).column("d").to_pylist()
    assert [d is None for d in found] == [d is None for d in derivatives]
    known = [d for d in derivatives if d is not None]
    assert [d for d in found if d is not None] == pytest.approx(known, rel=1e-14)


def test_rows_without_a_partner_count_once() -> None:
    """What a condition that reads both sides leaves without a partner stays one row, whatever the keys are."""
    counted = """SELECT w.g, COUNT(*) * SUM(w.val) AS s FROM w LEFT JOIN x ON x.id = w.id AND x.k > w.y GROUP BY w.g"""
    squares = f"(SELECT SUM(z.s * z.s) FROM ({counted}) z)"
    found = query(session(TABLES), f"SELECT id, grad({squares}, w.val) AS d FROM w ORDER BY id").column("d").to_pylist()
    # Each group has two rows: s = 2 * (1 + 3), and 2 * (-0.5 + 2), of which a square has the derivative 2 * s * 2.
    assert found == [32.0, 32.0, 12.0, 12.0]
