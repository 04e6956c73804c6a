"""Gradients by row through recursive queries as text: DuckDB has them, and other engines are refused them."""

from __future__ import annotations

from typing import Any

import duckdb
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from by_row.test_named_cases import add, numbers
from by_row.test_recursions import CELLS, STEPS, add_stencil, gradient, lorenz, recurrent_network, runge_kutta
from support.compare import assert_same_rows, rows_of
from support.sessions import session as differentiating
from xql_ffi._text.expansion import DIALECTS

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

TABLES: dict[str, dict[str, list[Any]]] = {
    "w": {"k": [1, 2, 3], "val": [0.5, -0.7, 1.1]},
    # Two rows are equal, and there are NULLs.
    "n": {"k": [1, 2, 3, 3, None], "val": [0.5, None, 1.1, 1.1, 0.3]},
    "ab": {"k": [1, 2, 3, 3], "a": [0.5, 0.2, 1.1, 1.1], "b": [1.5, -0.3, 0.4, 0.4]},
    "d": {"i": [1, 1, 2, 2, 3, 3], "j": [1, 2, 2, 3, 3, 1], "c": [0.5, 0.3, 0.9, -0.2, 0.4, 0.25]},
}


class DuckDB:
    """A DuckDB connection that takes tables as a session of DataFusion does."""

    def __init__(self, tables: dict[str, dict[str, list[Any]]]) -> None:
        self.connection = duckdb.connect()
        for name, columns in tables.items():
            self.from_pydict(columns, name)

    def from_pydict(self, columns: dict[str, list[Any]], name: str) -> None:
        self.connection.register("given", pa.table(columns))
        self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        self.connection.unregister("given")

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = xql_ffi.sql(self.connection, statement).fetchall()
        return found

    def gradient(self, statement: str, axes: int, shape: tuple[int, ...]) -> Any:
        """The derivatives by the rows of an array, of a statement that has these behind the places."""
        rows = self.rows(statement)
        found = np.full(shape, np.nan)
        for row in rows:
            found[row[:axes]] = row[axes]
        assert len(rows) == found.size
        return found


@pytest.fixture(scope="module")
def tables() -> DuckDB:
    return DuckDB(TABLES)


@pytest.fixture(scope="module")
def engine() -> SessionContext:
    return differentiating(TABLES)


FIRST = "SELECT 0 AS s, k, val FROM w"
STENCIL = "JOIN d ON d.j = r.k"
BY_W = "k, grad((SELECT l FROM loss), val) AS g FROM w"
BY_N = "k, val, grad((SELECT l FROM loss), val) AS g FROM n"
SQUARES = "SELECT SUM(val * val * (s + 1)) AS l FROM r"


def by(step: str, loss: str = SQUARES, gradients: str = BY_W, first: str = FIRST) -> str:
    return f"WITH RECURSIVE r AS ({first} UNION ALL {step}), loss AS ({loss}) SELECT {gradients}"


OF_N = "SELECT 0 AS s, k, val FROM n"
SINES = "SELECT s + 1, k, sin(val) FROM r WHERE s < 3"

CASES = {
    # Where the variable is read.
    "in the static term": by("SELECT s + 1, k, val * val FROM r WHERE s < 3", f"{SQUARES} WHERE s = 3"),
    "in every iteration": by(
        "SELECT r.s + 1, r.k, r.val * w.val FROM r JOIN w ON w.k = r.k WHERE r.s < 3",
        first="SELECT 0 AS s, k, 1e0 AS val FROM w",
    ),
    "at the end too": by(
        "SELECT s + 1, k, val / 2 FROM r WHERE s < 3",
        "SELECT SUM(r.val * w.val * w.val) AS l FROM r JOIN w ON w.k = r.k",
    ),
    "in all of them": by(
        f"SELECT r.s + 1, d.i, SUM(d.c * r.val * w.val) FROM r {STENCIL} JOIN w ON w.k = d.i "
        "WHERE s < 3 GROUP BY s, d.i",
        "SELECT SUM(r.val * w.val) AS l FROM r JOIN w ON r.k = w.k WHERE s >= 2",
    ),
    "in a subquery of a step": by("SELECT s + 1, k, val * (SELECT AVG(val) FROM w) FROM r WHERE s < 3"),
    "beside the value": by(SINES, gradients="k, grad(power((SELECT l FROM loss) - val, 2), val) AS g FROM w"),
    # What is read of the iterations.
    "the first rows alone": by(SINES, f"{SQUARES} WHERE s = 0"),
    "one iteration in the middle": by(SINES, f"{SQUARES} WHERE s = 1"),
    "none of the rows": by(SINES, f"{SQUARES} WHERE s = 77"),
    "several times": by(
        SINES,
        "SELECT SUM(r.val * m.t * m.x) AS l "
        "FROM r JOIN (SELECT s, SUM(val) AS t, MAX(val) AS x FROM r GROUP BY s) AS m ON m.s = r.s",
    ),
    # Rows.
    "rows vanish": by("SELECT s + 1, k, val * val FROM r WHERE s < 5 AND val * val > 0.2"),
    "rows appear": by(f"SELECT r.s + 1, d.i, r.val * d.c FROM r {STENCIL} WHERE s < 4"),
    "no iteration": by("SELECT s + 1, k, sin(val) FROM r WHERE s < 0"),
    "no first rows": by(SINES, first=f"{FIRST} WHERE k > 77"),
    "equal rows and NULL": by("SELECT s + 1, k, val * val FROM r WHERE s < 3", SQUARES, BY_N, OF_N),
    "equal rows without a key": by(
        "SELECT s + 1, val * val FROM r WHERE s < 3", SQUARES, BY_N, "SELECT 0 AS s, val FROM n"
    ),
    # Nodes of a step.
    "join and groups": by(f"SELECT s + 1, d.i, SUM(d.c * tanh(r.val)) FROM r {STENCIL} WHERE s < 3 GROUP BY s, d.i"),
    "groups of all rows": by(
        "SELECT * FROM (SELECT MAX(s) + 1 AS s, SUM(val * val) AS val FROM r) AS q WHERE s < 4",
        first="SELECT 0 AS s, val FROM w",
    ),
    "case": by(
        "SELECT s + 1, k, CASE WHEN val < 0 THEN val * val WHEN s = 1 THEN sin(val) ELSE 0.5 * val END "
        "FROM r WHERE s < 4"
    ),
    "a maximum with ties": by(
        "(WITH m AS (SELECT MAX(val) AS m FROM r) SELECT s + 1, k, val * m.m FROM r CROSS JOIN m WHERE s < 2)",
        SQUARES,
        BY_N,
        OF_N,
    ),
    "windows": by(
        "SELECT s + 1, k, val / SUM(exp(val)) OVER (PARTITION BY s) + lag(val, 1, 0.5e0) OVER (ORDER BY k) "
        "FROM r WHERE s < 3"
    ),
    "outer join": by(
        "SELECT r.s + 1, r.k, r.val * COALESCE(q.val, 0.3e0) "
        "FROM r LEFT JOIN (SELECT k, val FROM r WHERE val > 0) AS q ON q.k = r.k + 1 WHERE r.s < 3"
    ),
    "union": by(
        "SELECT * FROM (SELECT s + 1, k, val * val FROM r WHERE s < 3 "
        "UNION ALL SELECT s + 1, k + 10, sin(val) FROM r WHERE s < 2) AS q"
    ),
    "limit": by("SELECT * FROM (SELECT s + 1, k, val * 1.5 FROM r WHERE s < 3 ORDER BY val DESC LIMIT 2) AS q"),
    "distinct": by("SELECT DISTINCT s + 1, k, sin(val) FROM r WHERE s < 3", SQUARES, BY_N, OF_N),
    "stop_gradient": by("SELECT s + 1, k, stop_gradient(val) * val FROM r WHERE s < 3"),
    # Columns, and recursions beside and inside others.
    "two columns": by(
        "SELECT s + 1, k, a * b, a + sin(b) FROM r WHERE s < 3",
        "SELECT SUM(a * b) AS l FROM r",
        "k, grad((SELECT l FROM loss), a) AS g, grad((SELECT l FROM loss), b) AS h FROM ab",
        "SELECT 0 AS s, k, a, b FROM ab",
    ),
    "two columns, one at the start": by(
        "SELECT r.s + 1, r.k, SUM(r.a * ab.b + ab.a) FROM r JOIN ab ON ab.k = r.k WHERE s < 3 GROUP BY r.s, r.k",
        "SELECT SUM(a * s) AS l FROM r",
        "k, grad((SELECT l FROM loss), a) AS g, grad((SELECT l FROM loss), b) AS h FROM ab",
        "SELECT 0 AS s, k, a FROM ab",
    ),
    "one after the other": by(
        f"{SINES}), q AS (SELECT 0 AS t, k, val FROM r WHERE s = 3 UNION ALL "
        "SELECT t + 1, d.i, SUM(d.c * q.val) FROM q JOIN d ON d.j = q.k WHERE t < 2 GROUP BY t, d.i",
        "SELECT SUM(q.val * r.val) AS l FROM q JOIN r ON r.k = q.k",
    ),
    "one inside the other": by(
        """SELECT * FROM (
            WITH RECURSIVE q AS (
                SELECT 0 AS t, s, k, val FROM r
                UNION ALL SELECT t + 1, q.s, d.i, SUM(d.c * q.val) FROM q JOIN d ON d.j = q.k WHERE t < 2
                GROUP BY t, q.s, d.i)
            SELECT s + 1, k, tanh(val) FROM q WHERE t = 2 AND s < 3) AS z"""
    ),
    "names of its own": by(SINES).replace(" r ", " adjoint ").replace("FROM r)", "FROM adjoint)"),
    "a descent": """
        WITH RECURSIVE a AS (
            SELECT 0 AS n, k, val FROM w
            UNION ALL
            SELECT * FROM (
                WITH RECURSIVE r AS (
                    SELECT 0 AS s, k, val FROM a UNION ALL SELECT s + 1, k, sin(val) FROM r WHERE s < 3),
                    loss AS (SELECT SUM(val * val) AS l FROM r)
                SELECT n + 1, k, val - 0.05 * grad((SELECT l FROM loss), val) FROM a WHERE n < 4) AS q)
        SELECT * FROM a""",
}


@pytest.mark.parametrize("name", CASES)
def test_duckdb_has_the_values_of_the_engine(name: str, tables: DuckDB, engine: SessionContext) -> None:
    def ordered(rows: Any) -> list[tuple[Any, ...]]:
        return sorted(rows, key=lambda row: [(value is None, value or 0) for value in row])

    wanted = ordered(rows_of(engine.sql(CASES[name]).to_arrow_table()))
    assert_same_rows(ordered(tables.rows(CASES[name])), wanted, rel=1e-12, abs_=1e-14)


def test_the_first_rows_to_the_sixteenth_power(tables: DuckDB) -> None:
    step, loss = "SELECT s + 1, k, val * val FROM r WHERE s < 3", "SELECT SUM(val * val) AS l FROM r WHERE s = 3"
    found = dict(tables.rows(by(step, loss)))
    assert found == pytest.approx({k: 16 * x**15 for k, x in zip((1, 2, 3), (0.5, -0.7, 1.1), strict=True)}, rel=1e-12)


def test_a_descent_by_the_rows_of_the_last_iteration(tables: DuckDB) -> None:
    """DuckDB may read these several times."""
    statement = """
        WITH RECURSIVE r AS (
            SELECT 0 AS s, k, val FROM w
            UNION ALL
            SELECT s + 1, k, val - 0.1 * grad((SELECT SUM(val * val) FROM r), val) FROM r WHERE s < 5)
        SELECT k, val FROM r WHERE s = 5"""
    wanted = {k: x * 0.8**5 for k, x in zip((1, 2, 3), (0.5, -0.7, 1.1), strict=True)}
    assert dict(tables.rows(statement)) == pytest.approx(wanted, rel=1e-12)


def test_a_hessian_times_a_vector(tables: DuckDB) -> None:
    """The second derivative of the fourth power of each row, of which the direction is the number of the row."""
    statement = """
        WITH RECURSIVE eps AS (SELECT 0e0 AS eps), f AS (SELECT k, val + eps * k AS val, eps FROM w CROSS JOIN eps),
            r AS (SELECT 0 AS s, k, val FROM f UNION ALL SELECT s + 1, k, val * val FROM r WHERE s < 2),
            loss AS (SELECT SUM(val) AS l FROM r WHERE s = 2)
        SELECT k, grad(grad((SELECT l FROM loss), val), eps) AS g FROM f"""
    wanted = {k: 12 * x * x * k for k, x in zip((1, 2, 3), (0.5, -0.7, 1.1), strict=True)}
    assert dict(tables.rows(statement)) == pytest.approx(wanted, rel=1e-12)


def test_the_field_that_a_model_starts_with() -> None:
    """Steps of queries that are deeper in one another than engines read."""
    field, observed = 8 + numbers(1, CELLS), 8 + numbers(2, STEPS + 1, CELLS)
    tables: Any = DuckDB({})
    add(tables, "field", field, "cell")
    add(tables, "o", observed, "step", "cell")
    add_stencil(tables, CELLS)
    ctes = f"""{lorenz(STEPS, "field")},
        loss AS (SELECT SUM(power(r.val - o.val, 2)) AS l
            FROM r JOIN o ON o.step = r.step AND o.cell = r.cell WHERE r.step % 4 = 0)"""

    def cost(x: jax.Array) -> jax.Array:
        total = jnp.zeros(())
        for step in range(STEPS + 1):
            if step % 4 == 0:
                total += jnp.sum((x - observed[step]) ** 2)
            x = runge_kutta(x)
        return total

    found = tables.gradient(gradient(ctes, "field", "cell"), 1, field.shape)
    expected = jax.grad(cost)(field)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12 * float(jnp.abs(expected).max()))


def test_a_recurrent_network() -> None:
    """By weights that every iteration reads, beside inputs of its own."""
    tables: Any = DuckDB({})
    ctes, (_, by_weights, by_recurrent) = recurrent_network(tables)
    for name, expected in (("w", by_weights), ("u", by_recurrent)):
        found = tables.gradient(gradient(ctes, name, "i", "o"), 2, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_an_objective() -> None:
    """The recursive query in prepared statements, with a Hessian times a vector."""
    tables = DuckDB({"w": TABLES["w"]})
    objective = xql_ffi.objective(
        tables.connection, by("SELECT s + 1, k, val * val FROM r WHERE s < 1", gradients="l FROM loss"), "w.val"
    )
    x = np.array([0.3, -0.4, 2.0])
    value, slopes = objective(x)
    assert value == pytest.approx(np.sum(x**2 + 2 * x**4), rel=1e-12)
    np.testing.assert_allclose(slopes, 2 * x + 8 * x**3, rtol=1e-12)
    np.testing.assert_allclose(objective.hvp(x, [1.0, 2.0, 3.0]), (2 + 24 * x**2) * [1.0, 2.0, 3.0], rtol=1e-12)


SCHEMAS = {name: pa.table(columns).schema for name, columns in TABLES.items()}


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "duckdb"])
def test_other_engines_are_refused(dialect: str) -> None:
    with pytest.raises(ValueError, match=r"passes through the recursive query r, .* session .* for DuckDB, the only"):
        xql_ffi.expand_sql(CASES["in the static term"], SCHEMAS, dialect=dialect)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (by("SELECT s + 1, k, val * random() FROM r WHERE s < 3"), r"random\(\) makes another one each time"),
        (
            by(
                "(WITH z AS ("
                f"SELECT s, d.i AS k, SUM(d.c * r.val) AS val FROM r {STENCIL} WHERE s < 3 GROUP BY s, d.i), "
                "m AS (SELECT MAX(val) AS m FROM z) SELECT s + 1, k, val - m.m FROM z CROSS JOIN m)"
            ),
            "again by the value of a sum",
        ),
        (by(SINES).replace("UNION ALL", "UNION"), "r is a recursive query with UNION"),
    ],
)
def test_what_duckdb_is_refused(statement: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        xql_ffi.expand_sql(statement, SCHEMAS, dialect="duckdb")
