"""CTEs that several others read are planned and computed once, however deep they go."""

from __future__ import annotations

import time

import jax
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from depth import gpt, graphs
from support.seed import SEED
from support.sessions import session
from xql_ffi._loss import in_its_part, selected_beside

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


def with_(queries: dict[str, str], select: str) -> str:
    return f"WITH {', '.join(f'{name} AS ({query})' for name, query in queries.items())} {select}"


def close(found: object, wanted: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted).ravel(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_gpt_by_one_of_its_tables(layers: int) -> None:
    arrays = gpt.weights(layers)
    ctx = session(gpt.tables(arrays))
    for name in ("wq_0", f"g_{layers - 1}", "x0"):
        keys = "j" if arrays[name].ndim == 1 else "i, j"
        select = f"SELECT {keys}, grad((SELECT l FROM loss), val) AS d FROM {name} ORDER BY {keys}"
        found = ctx.sql(gpt.statement(layers, select)).to_pydict()["d"]
        close(found, jax.grad(lambda array, name=name: gpt.loss({**arrays, name: array}, layers))(arrays[name]))


def test_a_gpt_by_all_of_its_tables() -> None:
    arrays = gpt.weights(2)
    ctx = session(gpt.tables(arrays))
    value, wanted = jax.value_and_grad(gpt.loss)(arrays, 2)
    found = xql_ffi.gradients(ctx, gpt.statement(2, "SELECT l FROM loss"), [f"{name}.val" for name in arrays])
    assert found.value == pytest.approx(float(value), rel=1e-12)
    for name, frame in found.by.items():
        keys = ["j"] if arrays[name].ndim == 1 else ["i", "j"]
        close(frame.sort(*keys).to_pydict()["d_val"], wanted[name])


def test_an_objective_of_a_gpt() -> None:
    arrays = gpt.weights(2)
    ctx = session(gpt.tables(arrays))
    made = xql_ffi.objective(ctx, gpt.statement(2, "SELECT l FROM loss"), [f"{name}.val" for name in arrays])
    wanted, by = jax.value_and_grad(gpt.loss)(arrays, 2)
    for _ in range(2):
        value, gradient = made(made.start)
        assert value == pytest.approx(float(wanted), rel=1e-12)
        close(gradient, np.concatenate([np.ravel(by[name]) for name in arrays]))
    parts = np.split(made.start[::-1], np.cumsum([array.size for array in arrays.values()])[:-1])
    tangents = {name: part.reshape(array.shape) for (name, array), part in zip(arrays.items(), parts, strict=True)}
    _, hvp = jax.jvp(lambda arrays: jax.grad(gpt.loss)(arrays, 2), (arrays,), (tangents,))
    close(made.hvp(made.start, made.start[::-1]), np.concatenate([np.ravel(hvp[name]) for name in arrays]))
    assert made.jvp(made.start, made.start[::-1]) == pytest.approx(float(np.dot(gradient, made.start[::-1])), rel=1e-9)


@pytest.mark.parametrize("number", range(4))
def test_random_graphs(number: int) -> None:
    nodes = graphs.graph(25, SEED + number)
    draw = np.random.default_rng(number).standard_normal
    w, m = draw(graphs.ROWS), draw((graphs.ROWS, graphs.ROWS)) / 2
    i, j = np.indices(m.shape)
    ctx = session(
        {
            "w": pa.table({"i": np.arange(graphs.ROWS), "val": w}),
            "m": pa.table({"i": i.ravel(), "j": j.ravel(), "val": m.ravel()}),
        }
    )
    wanted = jax.grad(graphs.loss, argnums=(1, 2))(nodes, w, m)
    for table, keys, by in (("w", "i", wanted[0]), ("m", "i, j", wanted[1])):
        select = f"SELECT grad((SELECT l FROM loss), val) AS d FROM {table} ORDER BY {keys}"
        close(ctx.sql(with_(graphs.queries(nodes), select)).to_pydict()["d"], by)


@pytest.fixture
def ctx() -> SessionContext:
    return session({"w": {"i": [0, 1, 2], "val": [0.5, -1.0, 2.0]}})


# Each reads the one before twice: a thousand copies of the first.
CHAIN = {
    "c0": "SELECT i, tanh(val) AS val FROM w",
    **{f"c{n + 1}": f"SELECT a.i, (a.val + b.val) / 2 AS val FROM c{n} a JOIN c{n} b ON a.i = b.i" for n in range(40)},
    "loss": "SELECT SUM(val * val) AS l FROM c40",
}
SLOPE = 2 * np.tanh([0.5, -1.0, 2.0]) * (1 - np.tanh([0.5, -1.0, 2.0]) ** 2)


def test_planning_is_linear(ctx: SessionContext) -> None:
    start = time.monotonic()
    close(
        ctx.sql(with_(CHAIN, "SELECT grad((SELECT l FROM loss), val) AS d FROM w ORDER BY i")).to_pydict()["d"], SLOPE
    )
    # Written out, the plan would have 2^40 nodes.
    assert time.monotonic() - start < 120


def test_by_a_cte_in_the_middle(ctx: SessionContext) -> None:
    # c5 has the values of c0, and what is above it passes them on.
    found = ctx.sql(with_(CHAIN, "SELECT grad((SELECT l FROM loss), val) AS d FROM c5 ORDER BY i")).to_pydict()["d"]
    close(found, 2 * np.tanh([0.5, -1.0, 2.0]))


def test_a_deep_one_in_from(ctx: SessionContext) -> None:
    with pytest.raises(
        xql_ffi.UnsupportedRelationError, match=r"in FROM is written out, and has .* Keep its rows in a table"
    ):
        ctx.sql(with_(CHAIN, "SELECT grad(val * val, val) FROM c20")).collect()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (
            f"CREATE VIEW deep AS {with_(CHAIN, 'SELECT l FROM loss')}",
            "SELECT grad((SELECT l FROM deep), val) AS d FROM w",
        ),
        (f"CREATE VIEW deep AS {with_(CHAIN, 'SELECT i, val FROM c40')}", None),
        (
            f"CREATE TABLE made AS {with_(CHAIN, 'SELECT i, grad((SELECT l FROM loss), val) AS d FROM w')}",
            "SELECT d FROM made",
        ),
    ],
    ids=["a view", "a view that is read twice", "a table"],
)
def test_statements_that_make_something(ctx: SessionContext, statement: str, found: str | None) -> None:
    ctx.sql(statement).collect()
    twice = "SELECT grad((SELECT SUM(a.val * b.val) FROM deep a JOIN deep b ON a.i = b.i), val) AS d FROM w"
    rows = ctx.sql(f"SELECT d FROM ({found or twice}) ORDER BY abs(d)").to_pydict()["d"]
    close(rows, sorted(SLOPE, key=abs))


def test_prepared(ctx: SessionContext) -> None:
    chain = {**CHAIN, "c0": "SELECT i, tanh(val) * $1 AS val FROM w"}
    ctx.sql(f"PREPARE deep AS {with_(chain, 'SELECT grad((SELECT l FROM loss), val) AS d FROM w ORDER BY i')}")
    for factor in (1.0, 3.0):
        close(ctx.sql(f"EXECUTE deep({factor})").to_pydict()["d"], SLOPE * factor**2)


def test_a_training_whose_step_is_deep(ctx: SessionContext) -> None:
    step = {**CHAIN, "c0": "SELECT i, tanh(val) AS val FROM fit"}
    training = f"""
        WITH RECURSIVE fit AS (
            SELECT 0 AS step, i, val FROM w
            UNION ALL
            ({with_(step, "SELECT step + 1, i, val - 0.1 * grad((SELECT l FROM loss), val) FROM fit WHERE step < 3")}))
        SELECT val FROM fit WHERE step = 3 ORDER BY i
    """
    at = np.array([0.5, -1.0, 2.0])
    for _ in range(3):
        at = at - 0.1 * 2 * np.tanh(at) * (1 - np.tanh(at) ** 2)
    close(ctx.sql(training).to_pydict()["val"], at)


def test_equal_names_of_others(ctx: SessionContext) -> None:
    # The view has CTEs of the same names, and all but the first are of the same text.
    ctx.sql(
        f"CREATE VIEW deep AS {with_({**CHAIN, 'c0': 'SELECT i, 3 * val AS val FROM w'}, 'SELECT l FROM loss')}"
    ).collect()
    select = "SELECT grad((SELECT l FROM loss) + (SELECT l FROM deep), val) AS d FROM w ORDER BY i"
    close(ctx.sql(with_(CHAIN, select)).to_pydict()["d"], SLOPE + 18 * np.array([0.5, -1.0, 2.0]))


def test_without_shared_relations_it_is_refused_or_right(ctx: SessionContext) -> None:
    ctx.sql("SET xql.share_relations = false")
    short = {**{f"c{n}": CHAIN[f"c{n}"] for n in range(4)}, "loss": "SELECT SUM(val * val) AS l FROM c3"}
    close(
        ctx.sql(with_(short, "SELECT grad((SELECT l FROM loss), val) AS d FROM w ORDER BY i")).to_pydict()["d"], SLOPE
    )


def test_a_statement_without_a_call_has_the_plan_that_it_had(ctx: SessionContext) -> None:
    plain = session({"w": {"i": [0, 1, 2], "val": [0.5, -1.0, 2.0]}}, differentiates=False)
    short = {f"c{n}": CHAIN[f"c{n}"] for n in range(6)}
    statement = f"EXPLAIN {with_(short, 'SELECT SUM(a.val * b.val) FROM c5 a JOIN c5 b ON a.i = b.i')}"
    plans = [frame.sql(statement).to_pydict()["plan"][0] for frame in (ctx, plain)]
    assert plans[0] == plans[1]


def test_a_statement_without_a_call_is_computed_once_where_the_session_says_so(ctx: SessionContext) -> None:
    ctx.sql("SET xql.share_ctes = true")
    (row,) = ctx.sql(with_(CHAIN, "SELECT l FROM loss")).to_pylist()
    assert row["l"] == pytest.approx(float((np.tanh([0.5, -1.0, 2.0]) ** 2).sum()))


def test_derivatives_are_joined_where_their_rows_stand() -> None:
    """Over the rows of all tables each join would have the columns of all."""

    def size(count: int, *, together: bool) -> int:
        ctx = session({f"w{n}": pa.table({"k": [1, 2], "val": [1.0 + n, 2.0]}) for n in range(count)})
        joins = " ".join(f"JOIN w{n} ON w{n}.k = w0.k" for n in range(1, count))
        terms = " + ".join(f"w{n}.val * w{n}.val" for n in range(count))
        derivatives = [f"grad((SELECT l FROM loss), r{n + 1}.val)" for n in range(count)]
        columns = ", ".join(f"r{n + 1}.k AS k{n}, {derivative} AS d{n}" for n, derivative in enumerate(derivatives))
        if together:
            columns = f"{in_its_part(derivatives)} AS d"
        rows = selected_beside("", [f"w{n}" for n in range(count)], "tag")
        loss = f"loss AS (SELECT SUM({terms}) AS l FROM w0 {joins})"
        plan = ctx.sql(f"WITH {loss} SELECT {columns} FROM {rows}").optimized_logical_plan()
        return len(plan.display_indent_schema())

    assert size(16, together=False) < 2.8 * size(8, together=False)
    assert size(16, together=True) < 2.3 * size(8, together=True)
