"""Times Jacobians by rows, and gradients for each sample, over what they are taken of.

    build/fresh-55/bin/python bench/jacobian.py [--cells 1000 10000 100000] [--samples 1000 10000 100000] [--rounds 3]

Seconds of processor time, planned and run, on one thread, and how often that of what they are over:

- a stencil: the Jacobian of a step of diffusion, three numbers in each row, over the step itself, and over the three
  derivatives along directions from which it is put together by hand, since cells three apart meet in no row (A. Curtis,
  M. Powell, J. Reid, On the estimation of sparse Jacobian matrices, 1974); at 2,000 cells also over JAX's `jacfwd` of
  the same, compiled, which makes all pairs
- samples: the gradients of a logistic regression by 30 weights, one for each sample, over the gradient of the sum
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from results import Column, parse, seconds

import xql_ffi

WEIGHTS = 30
DENSE = 2000
STEP = """SELECT c.i, c.u + 0.1 * (l.u - 2 * c.u + r.u) - 0.05 * power(c.u, 3) AS v
    FROM c JOIN c l ON l.i = c.i - 1 JOIN c r ON r.i = c.i + 1"""
LOSSES = """z AS (SELECT x.i, SUM(x.val * w.val) AS z FROM x JOIN w ON x.j = w.j GROUP BY x.i),
    losses AS (SELECT z.i, ln(1 + exp(z.z)) - y.val * z.z AS val FROM z JOIN y ON z.i = y.i)"""
BY_SAMPLE = f"WITH {LOSSES} SELECT losses.i, w.j, grad(losses.val, w.val) AS d FROM losses CROSS JOIN w"
OF_SUM = (
    f"WITH {LOSSES}, s AS (SELECT SUM(val) AS s FROM losses) SELECT w.j, grad((SELECT s FROM s), w.val) AS d FROM w"
)


def session(**tables: pa.Table) -> SessionContext:
    """A session of one partition with these tables."""
    ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)))
    for name, table in tables.items():
        ctx.from_arrow(table, name=name)
    return ctx


def of_stencil(cells: int, rounds: int) -> tuple[float, float, float]:
    """The seconds of the Jacobian, of the step, and of three derivatives along directions."""
    ctx = session(c=pa.table({"i": np.arange(cells), "u": np.sin(np.arange(cells) * 0.01)}))
    step = seconds(lambda: ctx.sql(STEP).to_arrow_table(), rounds)
    colours = [f"SELECT i, CASE WHEN i % 3 = {colour} THEN 1.0 ELSE 0.0 END AS t FROM c" for colour in range(3)]

    def along_colours() -> None:
        for colour in colours:
            xql_ffi.pushforward(ctx, STEP, "c.u", colour).to_arrow_table()

    whole = seconds(lambda: xql_ffi.jacobian(ctx, STEP, "c.u"), rounds)
    return whole, step, seconds(along_colours, rounds)


def of_jax(cells: int, rounds: int) -> float:
    """The seconds of all pairs with JAX."""

    def step(u: jax.Array) -> jax.Array:
        c, left, right = u[1:-1], u[:-2], u[2:]
        return c + 0.1 * (left - 2 * c + right) - 0.05 * c**3

    whole, u = jax.jit(jax.jacfwd(step)), jnp.sin(jnp.arange(cells) * 0.01)
    whole(u).block_until_ready()
    least: float = seconds(lambda: whole(u).block_until_ready(), rounds)
    return least


def of_samples(samples: int, rounds: int) -> tuple[float, float]:
    """The seconds of the gradients for each sample, and of the gradient of the sum."""
    draw = np.random.default_rng(2026)
    i, j = np.indices((samples, WEIGHTS))
    ctx = session(
        x=pa.table({"i": i.ravel(), "j": j.ravel(), "val": draw.standard_normal(i.size)}),
        y=pa.table({"i": np.arange(samples), "val": draw.integers(0, 2, samples).astype(float)}),
        w=pa.table({"j": np.arange(WEIGHTS), "val": draw.standard_normal(WEIGHTS) / 10}),
    )
    by_sample = seconds(lambda: ctx.sql(BY_SAMPLE).to_arrow_table(), rounds)
    return by_sample, seconds(lambda: ctx.sql(OF_SUM).to_arrow_table(), rounds)


def main() -> None:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--samples", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    options, results = parse(parser, cells=[1000, 10_000], samples=[1000], rounds=1)
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    table = results.table("of", Column("takes", "s", 3), Column("over", "", 2))
    for cells in options.cells:
        whole, step, coloured = of_stencil(cells, options.rounds)
        table.line(f"stencil of {cells} cells, over the step", whole, whole / step)
        table.line(f"stencil of {cells} cells, over three directions", whole, whole / coloured)
    whole, _, _ = of_stencil(DENSE, options.rounds)
    table.line(f"stencil of {DENSE} cells, over jacfwd", whole, whole / of_jax(DENSE, options.rounds))
    for samples in options.samples:
        each, of_sum = of_samples(samples, options.rounds)
        table.line(f"{samples} samples, over the gradient of the sum", each, each / of_sum)
    results.write()


if __name__ == "__main__":
    main()
