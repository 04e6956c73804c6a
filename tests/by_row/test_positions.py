"""Gradients by row in every position of a statement, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datafusion import SessionContext

from support.cases import query

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

VALUES = [0.5, -0.75, 1.25, 2.0, 0.25]
LOSS = "(SELECT SUM(sin(val) * val) / MAX(val) FROM w)"


def _loss(values: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sin(values) * values) / jnp.max(values)


GRADIENT = np.asarray(jax.grad(_loss)(jnp.array(VALUES)))


TABLES = {"w": {"k": list(range(len(VALUES))), "val": VALUES}}


def _rows(session: SessionContext, statement: str) -> list[float]:
    """The column `d` in the order of `k`."""
    rows = query(session, statement).to_pylist()
    return [row["d"] for row in sorted(rows, key=lambda row: row["k"])]


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT k, grad({LOSS}, val) AS d FROM w",
        f"SELECT k, 2 * grad({LOSS}, w.val) / 2 AS d FROM public.w",
        f"SELECT k, vjp({LOSS}, val, k + 1.0) / (k + 1.0) AS d FROM w AS v",
        f"SELECT k, SUM(grad({LOSS}, val)) AS d FROM w GROUP BY k",
        f"SELECT k, d FROM (SELECT k, grad({LOSS}, val) AS d FROM w) AS s ORDER BY d",
        f"WITH loss AS {LOSS} SELECT k, grad((SELECT * FROM loss), val) AS d FROM w",
        f"WITH v AS (SELECT k, val FROM w) SELECT k, grad({LOSS.replace('FROM w', 'FROM v')}, val) AS d FROM v",
        f"SELECT a.k, grad({LOSS}, a.val) AS d FROM w AS a JOIN w AS b ON a.k = b.k",
    ],
)
def test_positions(session: SessionContext, statement: str) -> None:
    np.testing.assert_allclose(_rows(session, statement), GRADIENT, rtol=1e-12)


def test_statements(session: SessionContext) -> None:
    call = f"SELECT k, grad({LOSS}, val) AS d FROM w"
    query(session, f"CREATE TABLE kept AS {call}")
    query(session, f"CREATE VIEW seen AS {call}")
    query(session, "CREATE TABLE filled (k BIGINT, d DOUBLE)")
    query(session, f"INSERT INTO filled {call}")
    query(session, f"PREPARE ready AS {call}")
    for statement in ["SELECT * FROM kept", "SELECT * FROM seen", "SELECT * FROM filled", "EXECUTE ready"]:
        np.testing.assert_allclose(_rows(session, statement), GRADIENT, rtol=1e-12)
    plan = "\n".join(row["plan"] for row in query(session, f"EXPLAIN {call}").to_pylist())
    assert "SharedScanExec" in plan
    assert "grad(" not in plan.split("physical_plan")[-1].replace("as grad(", "")


def test_rows_that_are_shown_do_not_change_derivatives(session: SessionContext) -> None:
    rows = query(session, f"SELECT k, grad({LOSS}, val) AS d FROM w WHERE k > 1 ORDER BY k LIMIT 2").to_pylist()
    np.testing.assert_allclose([row["d"] for row in rows], GRADIENT[2:4], rtol=1e-12)


def test_the_total_derivative(session: SessionContext) -> None:
    count = len(VALUES)
    found = _rows(session, "SELECT k, grad(val - (SELECT AVG(val) FROM w), val) AS d FROM w")
    np.testing.assert_allclose(found, [1 - 1 / count] * count, rtol=1e-14)
    found = _rows(session, "SELECT k, grad(2 * (SELECT MAX(val) FROM w), val) AS d FROM w")
    np.testing.assert_allclose(found, [2.0 if value == max(VALUES) else 0.0 for value in VALUES], rtol=0)


def test_null_cells(session: SessionContext) -> None:
    session.from_pydict({"k": [1, 2, 3], "val": [0.5, None, 2.0]}, name="n")
    assert _rows(session, "SELECT k, grad((SELECT SUM(val * val) FROM n), val) AS d FROM n") == [1.0, None, 4.0]
    assert _rows(session, "SELECT k, grad((SELECT COUNT(val) * 1.0 FROM n), val) AS d FROM n") == [0.0, None, 0.0]


def test_training_in_one_statement(session: SessionContext) -> None:
    statement = """
        WITH RECURSIVE state AS (
            SELECT 0 AS step, k, val FROM w
            UNION ALL
            SELECT step + 1, k, val - 0.1 * grad((SELECT SUM(power(val - k, 4)) / 10 FROM state), val) FROM state
            WHERE step < 25)
        SELECT k, val AS d FROM state WHERE step = 25"""
    keys = jnp.arange(len(VALUES))
    values = jnp.array(VALUES)
    for _ in range(25):
        values = values - 0.1 * jax.grad(lambda values: jnp.sum((values - keys) ** 4) / 10)(values)
    np.testing.assert_allclose(_rows(session, statement), np.asarray(values), rtol=1e-10)
