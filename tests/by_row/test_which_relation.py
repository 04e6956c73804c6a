"""Which relation a gradient by row is by: the one that its name binds, however alike others look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datafusion import SessionContext

from support.cases import query

Register = Callable[[SessionContext], SessionContext]

NODES = "CREATE TABLE nodes (k INT) AS VALUES (0), (1), (2)"


@pytest.fixture
def session(register: Register) -> SessionContext:
    session = register(SessionContext())
    query(session, "CREATE TABLE w (k INT, val DOUBLE) AS VALUES (0, 1.0), (1, 2.0)")
    query(session, NODES)
    return session


def rows(session: SessionContext, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a statement, by the first column."""
    return sorted(tuple(row.values()) for row in query(session, statement).to_pylist())


def test_a_constant_that_several_stages_read(session: SessionContext) -> None:
    """Rows of `w` meet several rows of a constant, which is computed once and read twice."""
    query(session, "CREATE TABLE d (k INT, n INT) AS VALUES (0, 1), (0, 10), (1, 100)")
    joined = "FROM w JOIN (SELECT DISTINCT k, n FROM d) c USING (k)"
    value = f"(SELECT SUM(val * n) {joined}) + (SELECT SUM(val * val * n) {joined})"
    assert rows(session, f"SELECT k, grad({value}, val) AS g FROM w") == [(0, 33.0), (1, 500.0)]
    norm = f"SELECT SUM(g * g) AS s FROM (SELECT grad({value}, val) AS g FROM w) AS q"
    assert rows(session, norm) == [(33.0**2 + 500.0**2,)]


def test_steps_that_read_one_constant(session: SessionContext) -> None:
    """Two rounds of a walk over a graph, in which each round reads the degrees."""
    query(session, "CREATE TABLE edges (a INT, b INT) AS VALUES (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)")
    query(session, "CREATE TABLE ranks (k INT, val DOUBLE) AS VALUES (0, 0.5), (1, 0.25), (2, 0.25)")
    degrees = "degrees AS (SELECT a, COUNT(*) AS n FROM edges GROUP BY a)"
    step = """{to} AS (SELECT e.b AS k, SUM(r.val / d.n) AS val FROM {of} r JOIN edges e ON e.a = r.k
        JOIN degrees d ON d.a = r.k GROUP BY e.b)"""
    steps = ", ".join([degrees, step.format(of="ranks", to="r1"), step.format(of="r1", to="r2")])
    loss = f"WITH {steps}, loss AS (SELECT SUM(val * (k + 1)) AS l FROM r2)"
    # One step is the matrix m. The gradient is (m m)^T (1, 2, 3).
    m = [[0.0, 1.0, 0.5], [0.5, 0.0, 0.5], [0.5, 0.0, 0.0]]
    twice = [[sum(m[i][j] * m[j][k] for j in range(3)) for k in range(3)] for i in range(3)]
    expected = [(k, pytest.approx(sum((i + 1) * twice[i][k] for i in range(3)))) for k in range(3)]
    assert rows(session, f"{loss} SELECT k, grad((SELECT l FROM loss), val) AS g FROM ranks") == expected


@pytest.mark.parametrize("start", ["1.0", "1.5"])
@pytest.mark.parametrize("alias", ["", " AS f"])
def test_ctes_of_equal_text(session: SessionContext, start: str, alias: str) -> None:
    name = "f" if alias else "hub"
    statement = f"""WITH hub AS (SELECT k, 1.0 AS val FROM nodes), auth AS (SELECT k, {start} AS val FROM nodes),
        loss AS (SELECT SUM(2 * h.val + 10 * a.val) AS l FROM hub h JOIN auth a USING (k))
        SELECT k, grad((SELECT l FROM loss), {name}.val) AS g FROM hub{alias}"""
    assert rows(session, statement) == [(0, 2.0), (1, 2.0), (2, 2.0)]


@pytest.mark.parametrize(
    ("column", "by_hub"), [("val", 12.0), ("val AS v", 12.0), ("val * 1 AS v", 2.0), ("-(-val) AS v", 2.0)]
)
def test_columns_that_ctes_pass_on_and_compute(session: SessionContext, column: str, by_hub: float) -> None:
    """One that is passed on, under any name, is that of the table; one that is computed is the CTE's own."""
    name = column.rpartition(" ")[2]
    statement = f"""WITH hub AS (SELECT k, {column} FROM w), auth AS (SELECT k, {column} FROM w),
        loss AS (SELECT SUM(2 * h.{name} + 10 * a.{name}) AS l FROM hub h JOIN auth a USING (k))
        SELECT k, grad((SELECT l FROM loss), hub.{name}) AS g FROM hub"""
    assert rows(session, statement) == [(0, by_hub), (1, by_hub)]


def test_both_ctes_of_equal_text(session: SessionContext) -> None:
    statement = """WITH hub AS (SELECT k, 2 * val AS v FROM w), auth AS (SELECT k, 2 * val AS v FROM w),
        loss AS (SELECT SUM(h.v * h.v * a.v) AS l FROM hub h JOIN auth a USING (k))
        SELECT w.k, grad((SELECT l FROM loss), w.val), grad((SELECT l FROM loss), hub.v),
            grad((SELECT l FROM loss), auth.v)
        FROM w JOIN hub USING (k) JOIN auth USING (k)"""
    assert rows(session, statement) == [(0, 24.0, 8.0, 4.0), (1, 96.0, 32.0, 16.0)]


def test_views_of_equal_text(session: SessionContext) -> None:
    query(session, "CREATE VIEW a AS SELECT k, 1.0 AS val FROM nodes")
    query(session, "CREATE VIEW b AS SELECT k, 1.0 AS val FROM nodes")
    statement = "SELECT k, grad((SELECT SUM(2 * a.val + 10 * b.val) FROM a JOIN b USING (k)), val) AS g FROM b"
    assert rows(session, statement) == [(0, 10.0), (1, 10.0), (2, 10.0)]


def test_rows_of_equal_text_forward_and_in_reverse(session: SessionContext) -> None:
    statement = """WITH a AS (SELECT 1.0 AS v), b AS (SELECT 1.0 AS v)
        SELECT grad(3 * a.v + 5 * b.v, a.v) AS f, grad((SELECT 3 * a.v + 5 * b.v FROM a CROSS JOIN b), a.v) AS r
        FROM a CROSS JOIN b"""
    assert rows(session, statement) == [(3.0, 3.0)]


def test_a_derived_table_is_known_by_its_text(session: SessionContext) -> None:
    derived = "(SELECT k, 2 * val AS v FROM w)"
    statement = f"SELECT k, grad((SELECT SUM(v * v) FROM {derived} AS a), v) AS g FROM {derived} AS b"
    assert rows(session, statement) == [(0, 4.0), (1, 8.0)]


def test_draws_of_equal_text(session: SessionContext) -> None:
    """Two CTEs draw for themselves, beside a call as without."""
    statement = """WITH a AS (SELECT k, val, random() AS u FROM w), b AS (SELECT k, val, random() AS u FROM w),
        loss AS (SELECT SUM(a.val) AS l, SUM(a.u - b.u) AS d FROM a JOIN b USING (k))
        SELECT (SELECT d FROM loss) = 0.0 AS is_zero, grad((SELECT l + 0 * d FROM loss), val) AS g FROM w"""
    assert rows(session, statement) == [(False, 1.0), (False, 1.0)]


def test_functions_that_look_alike(session: SessionContext) -> None:
    statement = """WITH a AS (SELECT CAST(value AS DOUBLE) AS x FROM generate_series(-1, 1)),
        b AS (SELECT CAST(value AS DOUBLE) AS x FROM generate_series(-2, 2)),
        loss AS (SELECT (SELECT SUM(w.val * a.x * a.x) FROM w CROSS JOIN a)
            + (SELECT SUM(w.val * b.x * b.x) FROM w CROSS JOIN b) AS l)
        SELECT k, (SELECT l FROM loss) AS l, grad((SELECT l FROM loss), val) AS g FROM w"""
    assert rows(session, statement) == [(0, 36.0, 12.0), (1, 36.0, 12.0)]


def test_files_that_look_alike(session: SessionContext, tmp_path: Path) -> None:
    """DataFusion calls both scans `?table?`."""
    for name, values in {"a": "1,1.0\n2,2.0\n", "b": "1,10.0\n2,20.0\n"}.items():
        (tmp_path / f"{name}.csv").write_text(f"k,val\n{values}")
        session.register_view(name, session.read_csv(tmp_path / f"{name}.csv"))
    statement = """SELECT k, (SELECT SUM(val) FROM a) AS a, (SELECT SUM(val) FROM b) AS b,
        grad((SELECT SUM(a.val * a.val * b.val) FROM a JOIN b USING (k)), val) AS g FROM b"""
    assert rows(session, statement) == [(1, 3.0, 30.0, 1.0), (2, 3.0, 30.0, 4.0)]


def test_a_table_replaced_under_a_view(session: SessionContext) -> None:
    """The view holds the table that it was made over."""
    query(session, "CREATE TABLE t (val DOUBLE) AS VALUES (1.0), (2.0)")
    query(session, "CREATE VIEW v AS SELECT val FROM t")
    query(session, "CREATE OR REPLACE TABLE t (val DOUBLE) AS VALUES (10.0), (20.0), (30.0)")
    squares = "(SELECT SUM(val * val) FROM {})"
    v, t = squares.format("v"), squares.format("t")
    statement = f"SELECT val, {v} AS v, {t} AS t, grad({v}, val) AS g, grad({t}, val) AS h FROM t"
    assert rows(session, statement) == [(x, 5.0, 1400.0, 0.0, 2 * x) for x in (10.0, 20.0, 30.0)]
    assert rows(session, f"SELECT val, grad({v}, val) AS g FROM v") == [(1.0, 2.0), (2.0, 4.0)]


def test_lateral(session: SessionContext) -> None:
    """What LATERAL takes of the rows beside it is a condition of a join."""
    query(session, "CREATE TABLE d (k INT, n INT) AS VALUES (0, 1), (0, 10), (1, 100)")
    for lateral in (
        "JOIN LATERAL (SELECT n FROM d WHERE d.k = w.k) AS c ON true",
        "LEFT JOIN LATERAL (SELECT SUM(n) AS n FROM d WHERE d.k = w.k) AS c ON true",
    ):
        statement = f"SELECT k, grad((SELECT SUM(w.val * c.n) FROM w {lateral}), val) AS g FROM w"
        assert rows(session, statement) == [(0, 11.0), (1, 100.0)]
    reads = "LEFT JOIN LATERAL (SELECT SUM(val * val) AS v FROM w AS o WHERE o.k = w.k) AS c ON true"
    statement = f"SELECT k, grad((SELECT SUM(w.val * c.v) FROM w {reads}), val) AS g FROM w"
    assert rows(session, statement) == [(0, 3.0), (1, 12.0)]


def test_too_large_without_shared_relations(register: Register) -> None:
    """Each layer reads the one below several times: what cannot be planned is refused at once."""
    session = register(SessionContext())
    query(session, "CREATE TABLE w (k INT, val DOUBLE) AS VALUES (0, 1.0), (1, 2.0)")
    layers = ["l0 AS (SELECT k, val FROM w)"]
    for n in range(6):
        layers.append(f"s{n} AS (SELECT AVG(val) AS m, STDDEV(val) AS s FROM l{n})")
        layers.append(f"l{n + 1} AS (SELECT k, tanh((val - m) / (1 + s)) AS val FROM l{n} CROSS JOIN s{n})")
    query(session, "SET xql.share_relations = false")
    statement = f"WITH {', '.join(layers)} SELECT k, grad((SELECT SUM(val) FROM l6), val) AS g FROM w"
    with pytest.raises(Exception, match=r"SET xql.share_relations = true"):
        query(session, statement)
