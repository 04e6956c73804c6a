"""Times calls of an objective, as an optimizer makes them: parameters in, value and gradient out.

    build/fresh-55/bin/python bench/objective.py [--rows 1000] [--weights 30] [--rounds 200]

The loss is that of a logistic regression with a weight in each row of a table. The figures are those of value and
gradient:

- a call of the objective, which is planned once;
- executing the plan of the same statement, finished and fresh, with no planning;
- the statement, planned anew, as a client's loop without an objective sends it;
- the same function in JAX, compiled, over the features as an array: NumPy in, NumPy out.

They take turns. The least and the median of the rounds are shown; goals are over the median. The exit status is 1 if a
goal is not reached.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from datafusion import SessionContext
from results import Column, parse

import xql_ffi

Array = Any
OVER_EXECUTING, MILLISECONDS = 1.5, 2.0

LOSS = """
    WITH z AS (SELECT x.i, SUM(x.x * w.val) AS z FROM x JOIN w ON x.j = w.j GROUP BY x.i),
         loss AS (SELECT AVG(ln(1 + exp(z)) - y * z) AS l FROM z JOIN y ON z.i = y.i)"""
VALUE = f"{LOSS} SELECT l FROM loss"
BOTH = f"{LOSS} SELECT j, (SELECT l FROM loss) AS l, grad((SELECT l FROM loss), val) AS g FROM w"


def data(rows: int, weights: int) -> tuple[Array, Array]:
    """Random features and labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, weights))
    return x, (x @ rng.normal(size=weights) + rng.normal(size=rows) > 0).astype(float)


def session(x: Array, y: Array) -> SessionContext:
    """The features, the labels and a start as tables."""
    ctx = xql_ffi.register(SessionContext())
    i, j = (index.ravel() for index in np.indices(x.shape))
    ctx.from_arrow(pa.table({"i": i, "j": j, "x": x.ravel()}), name="x")
    ctx.from_arrow(pa.table({"i": np.arange(len(x)), "y": y}), name="y")
    ctx.from_arrow(pa.table({"j": np.arange(x.shape[1]), "val": np.zeros(x.shape[1])}), name="w")
    return ctx


def in_jax(x: Array, y: Array) -> Callable[[Array], tuple[float, Array]]:
    """Value and gradient, compiled."""
    features, labels = jnp.asarray(x), jnp.asarray(y)

    def loss(w: Array) -> Array:
        z = features @ w
        return jnp.mean(jnp.log(1 + jnp.exp(z)) - labels * z)

    both = jax.jit(jax.value_and_grad(loss))

    def call(w: Array) -> tuple[float, Array]:
        value, gradient = both(w)
        return float(value), np.asarray(gradient)

    return call


def seconds(work: Callable[[], object]) -> float:
    """What it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def executing(ctx: SessionContext) -> float:
    """Executing a plan that is finished and fresh."""
    plan = ctx.sql(BOTH).execution_plan()
    parts = range(plan.partition_count)
    return seconds(lambda: [batch.to_pyarrow() for part in parts for batch in ctx.execute(plan, part)])


def measured(rows: int, weights: int, rounds: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The seconds of the four in each round, the first of which is not measured."""
    x, y = data(rows, weights)
    ctx, compiled = session(x, y), in_jax(x, y)
    objective = xql_ffi.objective(ctx, VALUE, "w.val")
    (value, gradient), expected = objective(np.ones(weights)), compiled(np.ones(weights))
    np.testing.assert_allclose(value, expected[0], rtol=1e-10)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-10)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(rounds):
        w = rng.normal(size=weights)
        call, in_arrays = seconds(partial(objective, w)), seconds(partial(compiled, w))
        found.append((call, executing(ctx), seconds(lambda: ctx.sql(BOTH).collect()), in_arrays))
    return np.array(found)


def main() -> int:
    """Measures the four, and says which goals are reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--weights", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=200)
    options, results = parse(parser, rounds=20)
    jax.config.update("jax_enable_x64", val=True)  # type: ignore[no-untyped-call]
    found = measured(options.rows, options.weights, options.rounds)
    case = f"{options.rows:,} rows, {options.weights} weights"
    table = results.table(
        case, *(Column(way, "ms") for way in ("a call", "executing the plan", "the statement", "JAX"))
    )
    for name, times in (("least", found.min(axis=0)), ("median", np.median(found, axis=0))):
        table.line(name, *(1e3 * float(each) for each in times))
    call, executed, *_ = (float(each) for each in np.median(found, axis=0))
    goals = [
        ("a call over executing its plan", call / executed, OVER_EXECUTING),
        ("a call, ms", 1e3 * call, MILLISECONDS),
    ]
    reached = results.goals(goals)
    results.write()
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
