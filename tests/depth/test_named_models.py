"""Models that have names, by all of their tables, compared with JAX in double precision, however they are computed."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

import xql_ffi
from depth.models.every import MODELS
from depth.models.model import Model
from support.sessions import session

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
# XLA takes longer to optimize these models than to compute them.
jax.config.update("jax_disable_most_optimizations", True)  # type: ignore[no-untyped-call]

# What the session says, by the name of the way.
WAYS: Mapping[str, Mapping[str, object]] = {
    "several partitions": {"datafusion.execution.target_partitions": 4, "datafusion.execution.batch_size": 3},
    "one partition": {"datafusion.execution.target_partitions": 1},
    "dense": {"xql.contractions": "dense"},
    "sparse": {"xql.contractions": "sparse"},
    "fallback": {"xql.contractions": "fallback"},
    "one checkpoint": {"xql.checkpoints": 1},
}
Gradients = Mapping[str, Any]


@functools.cache
def of(name: str, depth: int) -> tuple[Model, float, Gradients]:
    """A model, its value and its gradients, as JAX has them."""
    model = MODELS[name].make(depth)
    value, gradients = jax.jit(jax.value_and_grad(model.loss))(model.arrays())
    for table, by in gradients.items():
        assert np.abs(by).max() > 1e-8, f"the loss does not depend on {table}"
    return model, float(value), gradients


def close(found: Any, wanted: Any, what: str) -> None:
    """Asserts equality up to rounding, relative to the largest of the numbers."""
    scale = max(1.0, float(np.abs(np.asarray(wanted)).max()))
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-9, atol=1e-11 * scale, err_msg=what)


def session_of(model: Model, way: str, runtime: RuntimeEnvBuilder | None = None) -> SessionContext:
    """A session with the tables of a model, which computes in this way."""
    ctx = session(model.tables(), config=SessionConfig(), runtime=runtime)
    for option, value in WAYS[way].items():
        ctx.sql(f"SET {option} = {value}")
    return ctx


def check(name: str, depth: int, ctx: SessionContext) -> None:
    """Compares the value and the gradients by all tables, of one statement, with those of JAX."""
    model, value, wanted = of(name, depth)
    found = xql_ffi.gradients(ctx, model.statement("SELECT l FROM loss"), [f"{table}.val" for table in model.weights])
    close(found.value, value, "the value")
    assert found.by.keys() == wanted.keys()
    for table, by in found.by.items():
        close(model.weights[table].of_rows(by.to_arrow_table(), "d_val"), wanted[table], table)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_by_all_tables(name: str, way: str) -> None:
    depth = MODELS[name].daily
    if way == "one checkpoint" and not of(name, depth)[0].recursive:
        pytest.skip("nothing is iterated")
    check(name, depth, session_of(of(name, depth)[0], way))


@pytest.mark.parametrize("name", MODELS)
def test_deep_ones(name: str) -> None:
    check(name, MODELS[name].deep, session_of(of(name, MODELS[name].deep)[0], "several partitions"))


@pytest.mark.parametrize("name", MODELS)
def test_by_one_table_after_the_other(name: str) -> None:
    """As users write it: a statement for each, whose recursive queries may not depend on the table."""
    model, _, wanted = of(name, MODELS[name].daily)
    ctx = session_of(model, "several partitions")
    for table, weights in model.weights.items():
        select = f"SELECT {', '.join(weights.axes)}, grad((SELECT l FROM loss), val) AS slope FROM {table}"
        found = ctx.sql(model.statement(select)).to_arrow_table()
        close(weights.of_rows(found, "slope"), wanted[table], table)


@pytest.mark.parametrize("name", MODELS)
def test_without_shared_relations_it_is_refused_or_right(name: str) -> None:
    ctx = session_of(of(name, MODELS[name].daily)[0], "several partitions")
    ctx.sql("SET xql.share_relations = false")
    refused = "recursive quer|more than the 10000|by the value of a sum, whose last digit"
    try:
        check(name, MODELS[name].daily, ctx)
    except xql_ffi.UnsupportedRelationError as error:
        if not re.search(refused, str(error)):
            raise


@pytest.mark.parametrize("name", MODELS)
def test_an_objective(name: str) -> None:
    """Value, gradient, and the Hessian times a vector."""
    model, value, wanted = of(name, MODELS[name].daily)
    ctx = session_of(model, "several partitions")
    made = xql_ffi.objective(ctx, model.statement("SELECT l FROM loss"), [f"{table}.val" for table in model.weights])
    found = made(made.start)
    close(found[0], value, "the value")
    for table, by in made.parameters(found[1]).items():
        close(model.weights[table].of_rows(by, "val"), wanted[table], table)
    arrays = model.arrays()
    tangents = {table: np.cos(np.arange(array.size)).reshape(array.shape) for table, array in arrays.items()}
    hvp = jax.jit(lambda arrays: jax.jvp(jax.grad(model.loss), (arrays,), (tangents,))[1])(arrays)
    vector = [0.0] * len(made.start)
    for number, (place, table) in enumerate(positions(made, model)):
        vector[number] = float(tangents[table][place])
    for table, by in made.parameters(made.hvp(made.start, np.array(vector))).items():
        close(model.weights[table].of_rows(by, "val"), hvp[table], f"the product, {table}")


def positions(made: Any, model: Model) -> list[tuple[tuple[int, ...], str]]:
    """The place of each parameter in the array of its table, and the table."""
    numbered = made.parameters(np.arange(len(made.start), dtype=float))
    found: dict[int, tuple[tuple[int, ...], str]] = {}
    for table, rows in numbered.items():
        numbers = model.weights[table].of_rows(rows, "val")
        found |= {int(number): (place, table) for place, number in np.ndenumerate(numbers)}
    return [found[number] for number in range(len(made.start))]


@pytest.mark.parametrize("name", MODELS)
def test_little_memory(name: str) -> None:
    """It is right, or what the pool refuses."""
    model = of(name, MODELS[name].daily)[0]
    for size in (1 << 15, 1 << 18, 1 << 21, 1 << 26):
        runtime = RuntimeEnvBuilder().with_disk_manager_disabled().with_greedy_memory_pool(size)
        try:
            check(name, MODELS[name].daily, session_of(model, "several partitions", runtime))
        except AssertionError:
            raise
        except Exception as error:
            if size == 1 << 26 or "Resources exhausted" not in str(error):
                raise
