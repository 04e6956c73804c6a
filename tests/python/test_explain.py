"""`xql_ffi.explain`: what it finds in a plan, against what is known of the statement and its rows."""

from __future__ import annotations

import pytest
from datafusion import SessionContext

import xql_ffi
from support import sessions

NETWORK = """
    WITH h AS (SELECT x.i, w.k, tanh(SUM(x.x * w.val)) AS h FROM x JOIN w ON x.j = w.j GROUP BY x.i, w.k),
         o AS (SELECT h.i, SUM(h.h * v.val) AS o FROM h JOIN v ON h.k = v.k GROUP BY h.i),
         loss AS (SELECT AVG(power(o - y, 2)) AS l FROM o JOIN y ON o.i = y.i)
    SELECT j, k, grad((SELECT l FROM loss), val) AS d FROM w"""
RECURSION = """
    WITH RECURSIVE path AS (SELECT CAST(0 AS BIGINT) AS step, k, val FROM v
                            UNION ALL SELECT step + 1, k, val * 1.1 FROM path WHERE step < 3),
         loss AS (SELECT SUM(val * val) AS l FROM path)
    SELECT k, grad((SELECT l FROM loss), val) AS d FROM v"""


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    i, j, k = range(40), range(6), range(3)
    return sessions.session(
        {
            "x": {"i": [a for a in i for _ in j], "j": list(j) * 40, "x": [0.1 * a for a in range(240)]},
            "y": {"i": i, "y": [1.0] * 40},
            "w": {"j": [a for a in j for _ in k], "k": list(k) * 6, "val": [0.5] * 18},
            "v": {"k": k, "val": [1.0, 2.0, 3.0]},
        }
    )


def test_a_network(ctx: SessionContext) -> None:
    found = xql_ffi.explain(ctx, NETWORK)
    *relations, statement = found.parts
    assert [part.is_swept for part in relations] == [False] * 4 + [True] * 2
    rows, hidden, output, loss, swept, last = relations
    assert hidden.arrays == ["SUM(val * x) by i, k over j"]
    assert output.arrays == ["SUM(val * h) by i over k"]
    assert [len(part.arrays) for part in relations] == [0, 1, 1, 0, 0, 1]
    assert rows.name in hidden.reads
    assert hidden.name in output.reads
    assert output.name in loss.reads
    assert "avg(" in loss.work()
    assert swept.name in last.reads
    assert last.name in statement.reads
    assert [part.tables for part in relations[:4]] == [1, 1, 1, 1]
    # As often as the plan says so.
    for part in relations:
        assert part.readers == found.plan.count(f"reads {part.name},") + found.plan.count(f"computes {part.name},")
        assert part.measured is None
    shown = str(found).splitlines()
    assert shown[0].startswith("6 relations are computed once, of which 2 are swept; 3 sums are arrays; the plan has ")
    assert len(shown) < len(found.plan.splitlines()) / 3
    assert max(map(len, shown)) <= 120


def test_what_it_took(ctx: SessionContext) -> None:
    found = xql_ffi.explain(ctx, NETWORK, analyze=True)
    measured = [part.measured for part in found.parts]
    assert [each.rows for each in measured if each] == ["18", "120", "40", "1", "120", "18", ""]
    assert all(each.seconds > 0 for each in measured if each)
    assert measured[2] is not None
    assert measured[2].held == "960"
    assert sessions.CONTRACTIONS or "(dense)" in found.parts[1].work()
    assert "ms of processor time" in str(found)


def test_a_recursion(ctx: SessionContext) -> None:
    found = xql_ffi.explain(ctx, RECURSION)
    kept, swept = (part for part in found.parts if "the iterations of path" in part.work())
    assert kept.work() == "keeps the iterations of path"
    assert swept.work().startswith("goes back through the iterations of path")
    assert [kept.is_swept, swept.is_swept] == [False, True]


def test_one_row(ctx: SessionContext) -> None:
    found = xql_ffi.explain(ctx, "SELECT grad(sin(x) * x, x) AS d FROM x")
    (statement,) = found.parts
    assert statement.work() == "sin(x) + x * cos(x) as d"
    assert (statement.readers, statement.tables) == (0, 1)


def test_a_table_in_notebooks(ctx: SessionContext) -> None:
    html = xql_ffi.explain(ctx, 'SELECT grad(x * x, x) AS "<b>" FROM x')._repr_html_()
    assert html.count("<tr>") == 2
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_errors(ctx: SessionContext) -> None:
    with pytest.raises(xql_ffi.VariableError):
        xql_ffi.explain(ctx, "SELECT grad(x * x, 3) FROM x")
