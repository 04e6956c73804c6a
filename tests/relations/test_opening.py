"""The queries anyone writes first, in every position."""

from pathlib import Path

import pytest
from datafusion import SessionContext

from support import tables
from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.tables import T

_W, _B = 0.75, -0.25

MODEL = "m AS (SELECT y, slope, slope * x + b AS pred FROM t CROSS JOIN params)"
LOSS = f"WITH {MODEL} SELECT AVG(grad(power(pred - y, 2), slope)) AS d FROM m"
MEAN = "SELECT grad(AVG(power(slope * x - y, 2)), slope) AS d FROM t CROSS JOIN params GROUP BY slope"
SQUARE = "SELECT grad(x * x, x) AS d FROM t GROUP BY x * x, x ORDER BY d"

_LOSS = sum(2 * (_W * row.x + _B - row.y) * row.x for row in T) / len(T)
_MEAN = sum(2 * (_W * row.x - row.y) * row.x for row in T) / len(T)
_SQUARE = sorted(2 * row.x for row in T)

QUERIES = pytest.mark.parametrize(
    ("statement", "expected"),
    [(LOSS, [(_LOSS,)]), (MEAN, [(_MEAN,)]), (SQUARE, [(slope,) for slope in _SQUARE])],
    ids=["loss_over_a_cte", "of_an_aggregate", "beside_group_keys"],
)
Expected = list[tuple[float]]


TABLES = {**tables.TABLES, "params": {"slope": [_W], "b": [_B]}}


def _check(session: SessionContext, statement: str, expected: Expected) -> None:
    assert_same_rows(rows_of(query(session, statement)), expected, rel=1e-12)


@QUERIES
def test_as_it_is(session: SessionContext, statement: str, expected: Expected) -> None:
    _check(session, statement, expected)


@QUERIES
def test_in_a_subquery(session: SessionContext, statement: str, expected: Expected) -> None:
    _check(session, f"SELECT d FROM ({statement}) AS q ORDER BY d", expected)


@QUERIES
def test_in_a_scalar_subquery(session: SessionContext, statement: str, expected: Expected) -> None:
    _check(session, f"SELECT (SELECT MAX(d) FROM ({statement}) AS q) AS d", expected[-1:])


@QUERIES
def test_in_a_condition(session: SessionContext, statement: str, expected: Expected) -> None:
    found = query(session, f"SELECT id FROM t WHERE x IN (SELECT d / 2 FROM ({statement}) AS q) ORDER BY id")
    assert rows_of(found) == [(row.id,) for row in T if (2 * row.x,) in expected]


@QUERIES
def test_in_a_view(session: SessionContext, statement: str, expected: Expected) -> None:
    query(session, f"CREATE VIEW slopes AS {statement}")
    _check(session, "SELECT d FROM slopes ORDER BY d", expected)


@QUERIES
def test_over_a_view(session: SessionContext, statement: str, expected: Expected) -> None:
    query(session, "CREATE VIEW data AS SELECT * FROM t WHERE id > 0")
    _check(session, statement.replace("FROM t", "FROM data AS t"), expected)


@QUERIES
def test_inserted(session: SessionContext, statement: str, expected: Expected) -> None:
    query(session, "CREATE TABLE slopes (d DOUBLE)")
    query(session, f"INSERT INTO slopes {statement}")
    _check(session, "SELECT d FROM slopes ORDER BY d", expected)


@QUERIES
def test_in_a_new_table(session: SessionContext, statement: str, expected: Expected) -> None:
    query(session, f"CREATE TABLE slopes AS {statement}")
    _check(session, "SELECT d FROM slopes ORDER BY d", expected)


@QUERIES
def test_copied(session: SessionContext, statement: str, expected: Expected, tmp_path: Path) -> None:
    query(session, f"COPY ({statement}) TO '{tmp_path}/slopes.parquet'")
    session.register_parquet("slopes", f"{tmp_path}/slopes.parquet")
    _check(session, "SELECT d FROM slopes ORDER BY d", expected)


@QUERIES
def test_prepared(session: SessionContext, statement: str, expected: Expected) -> None:
    query(session, f"PREPARE slopes(BIGINT) AS SELECT d FROM ({statement}) AS q ORDER BY d LIMIT $1")
    _check(session, "EXECUTE slopes(3)", expected[:3])


@QUERIES
def test_in_a_union(session: SessionContext, statement: str, expected: Expected) -> None:
    _check(
        session,
        f"SELECT d FROM (SELECT d FROM ({statement}) AS q UNION ALL SELECT 1e9 AS d) AS u ORDER BY d",
        [*expected, (1e9,)],
    )


@QUERIES
def test_in_the_static_term_of_a_recursion(session: SessionContext, statement: str, expected: Expected) -> None:
    _check(
        session,
        f"""WITH RECURSIVE doubling AS (
              SELECT 0 AS step, d FROM ({statement}) AS q
              UNION ALL
              SELECT step + 1, 2 * d FROM doubling WHERE step < 2)
            SELECT d FROM doubling WHERE step = 2 ORDER BY d""",
        [(4 * slope,) for (slope,) in expected],
    )


def test_in_the_recursive_term(session: SessionContext) -> None:
    """The gradient of a loss over a subquery of the step, and that of an aggregate."""
    statement = """WITH RECURSIVE fit AS (
      SELECT 0 AS step, CAST(0.5 AS DOUBLE) AS a
      UNION ALL
      SELECT step + 1, a - 0.05 * {gradient}
      FROM (SELECT step, a, y, a * x AS pred FROM fit CROSS JOIN t WHERE step < 5) AS m GROUP BY step, a)
    SELECT a AS d FROM fit ORDER BY step"""
    w = 0.5
    steps = [(w,)]
    for _ in range(5):
        w = w - 0.05 * sum(2 * (w * row.x - row.y) * row.x for row in T) / len(T)
        steps.append((w,))
    for gradient in ("AVG(grad(power(pred - y, 2), a))", "grad(AVG(power(pred - y, 2)), a)"):
        _check(session, statement.format(gradient=gradient), steps)
