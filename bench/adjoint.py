"""Times the gradient of a recursive query by the rows that it starts from: the adjoint of a model in SQL.

    build/fresh-55/bin/python bench/adjoint.py [--steps 20 40 80] [--wide 4000] [--wide-steps 20 80] [--rounds 5]

The model is that of Lorenz (1996) in steps of Runge and Kutta, as examples/assimilation.py has it, and the value is how
far its cells are from what was observed of them at the last step. The figures are the fastest of the rounds, on one
thread:

- the gradient beside the value, both of physical plans that are finished and fresh;
- planning and execution by the number of steps: planning knows no steps, and execution is to be linear in them;
- JAX, `lax.scan` and `grad`, compiled: from Arrow tables of field and observations to a table of the gradient, with the
  compilation of a function that is new and without it, beside the same with planning and execution here.

The gradients have to agree with those of JAX to 1e-8 of the largest. The exit status is 1 if a goal is not reached.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from results import Column, Goal, Results, parse

import xql_ffi

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import assimilation

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

CELLS = 40
FORCING: float = assimilation.FORCING
STEP: float = assimilation.STEP
OVER_THE_VALUE, OVER_THE_VALUE_WIDE, LONG_OVER_SHORT, PLANNING, OVER_JAX = 6.0, 4.0, 5.0, 1.25, 1.0


@dataclass(frozen=True)
class Times:
    """The fastest of the rounds, in seconds: planning and execution of the value and of its gradient."""

    value_planning: float
    value: float
    planning: float
    gradient: float

    @property
    def whole(self) -> float:
        """From the statement to the gradient."""
        return self.planning + self.gradient


def field(cells: int, seed: int) -> pa.Table:
    """Random cells of one experiment."""
    values = FORCING + np.random.default_rng(seed).standard_normal(cells)
    return pa.table({"experiment": np.zeros(cells, np.int64), "cell": np.arange(cells), "val": values})


def session(cells: int) -> SessionContext:
    """A session with the neighbours of cells on a circle, a field and what was observed."""
    ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)))
    numbers, roles = np.arange(cells), assimilation.ROLES
    stencil = {
        "cell": np.tile(numbers, len(roles)),
        "role": np.repeat(list(roles), cells),
        "neighbour": np.concatenate([(numbers + shift) % cells for shift in roles.values()]),
    }
    ctx.from_arrow(pa.table(stencil), name="stencil")
    ctx.from_arrow(field(cells, 1), name="field")
    ctx.from_arrow(field(cells, 2), name="observed")
    return ctx


def statements(steps: int) -> tuple[str, str]:
    """The value of a run of so many steps, and its gradient."""
    loss = f"""WITH RECURSIVE {assimilation.model(steps)},
        loss AS (SELECT SUM(power(m.val - o.val, 2)) AS l
            FROM model m JOIN observed o ON o.cell = m.cell WHERE m.step = {steps})"""
    return f"{loss} SELECT l FROM loss", f"{loss} SELECT cell, grad((SELECT l FROM loss), val) AS d FROM field"


def planned_and_executed(ctx: SessionContext, statement: str) -> tuple[float, float, pa.Table]:
    """The seconds of both, and what comes of it."""
    clock = time.perf_counter
    start = clock()
    plan = ctx.sql(statement).execution_plan()
    planned = clock()
    batches = [batch.to_pyarrow() for batch in ctx.execute(plan, 0)]
    return planned - start, clock() - planned, pa.Table.from_batches(batches)


def measure(ctx: SessionContext, steps: int, rounds: int) -> Times:
    """Times the value and its gradient, in turn."""
    found = []
    for _ in range(rounds):
        both = [planned_and_executed(ctx, statement)[:2] for statement in statements(steps)]
        found.append([seconds for pair in both for seconds in pair])
    return Times(*(min(times) for times in zip(*found, strict=True)))


def in_jax(steps: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """A function that is not compiled yet, from the tables of field and observations to that of the gradient."""

    def slopes(x: jax.Array) -> jax.Array:
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + FORCING

    def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        h = STEP
        k1 = slopes(x)
        k2 = slopes(x + h / 2 * k1)
        k3 = slopes(x + h / 2 * k2)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + slopes(x + h * k3)), None

    @jax.jit
    @jax.grad
    def gradient(x: jax.Array, observed: jax.Array) -> jax.Array:
        return jnp.sum((jax.lax.scan(step, x, None, steps)[0] - observed) ** 2)

    def run(first: pa.Table, observed: pa.Table) -> pa.Table:
        found = gradient(*(jnp.asarray(table["val"].to_numpy()) for table in (first, observed)))
        return pa.table({"cell": first["cell"], "d": np.asarray(found)})

    return run


def beside_jax(ctx: SessionContext, cells: int, steps: int, rounds: int) -> tuple[float, float]:
    """The seconds of JAX with compilation and without, the fastest of the rounds. Both gradients have to agree."""
    tables = field(cells, 1), field(cells, 2)
    clock = time.perf_counter
    with_compilation, without = [], []
    for _ in range(rounds):
        run = in_jax(steps)
        start = clock()
        expected = run(*tables)
        compiled = clock()
        run(*tables)
        with_compilation.append(compiled - start)
        without.append(clock() - compiled)
    found = planned_and_executed(ctx, statements(steps)[1])[2].sort_by("cell")["d"].to_numpy()
    size = np.abs(expected["d"].to_numpy()).max()
    np.testing.assert_allclose(found, expected["d"].to_numpy(), rtol=0, atol=1e-8 * size)
    return min(with_compilation), min(without)


def over_the_value(results: Results, found: dict[tuple[int, int], Times]) -> list[Goal]:
    """The table of values and gradients."""
    names = ("value, planning", "value", "gradient, planning", "gradient")
    table = results.table("case", *(Column(name, "ms", 1) for name in names), Column("ratio"))
    goals: list[Goal] = []
    for (cells, steps), times in found.items():
        case, ratio = f"{cells:,} cells, {steps} steps", times.gradient / times.value
        seconds = times.value_planning, times.value, times.planning, times.gradient
        table.line(case, *(1e3 * each for each in seconds), ratio)
        goals.append((f"over the value, {case}", ratio, OVER_THE_VALUE if cells == CELLS else OVER_THE_VALUE_WIDE))
    return goals


def by_steps(found: dict[tuple[int, int], Times]) -> list[Goal]:
    """What more steps take."""
    counts = sorted(steps for cells, steps in found if cells == CELLS)
    if len(counts) < 2:
        return []
    short, long = found[CELLS, counts[0]], found[CELLS, counts[-1]]
    case = f"{counts[-1]} steps over {counts[0]}"
    return [
        (f"{case}, planning included", long.whole / short.whole, LONG_OVER_SHORT),
        (f"{case}, planning alone", long.planning / short.planning, PLANNING),
    ]


def over_jax(
    results: Results, sessions: dict[int, SessionContext], found: dict[tuple[int, int], Times], rounds: int
) -> list[Goal]:
    """The table of JAX."""
    columns = [Column(name, "ms", 1) for name in ("xql-ffi", "JAX, compiling", "JAX, compiled")]
    ratios = Column("over compiling"), Column("over compiled")
    table = results.table("from the tables to the gradient", *columns, *ratios)
    goals: list[Goal] = []
    for (cells, steps), times in found.items():
        compiling, compiled = beside_jax(sessions[cells], cells, steps, rounds)
        seconds, case = (times.whole, compiling, compiled), f"{cells:,} cells, {steps} steps"
        table.line(case, *(1e3 * each for each in seconds), times.whole / compiling, times.whole / compiled)
        if cells == CELLS:
            goals.append((f"over JAX compiling, {case}", times.whole / compiling, OVER_JAX))
    return goals


def main() -> int:
    """Measures all cases, and says which goals are reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 40, 80])
    parser.add_argument("--wide", type=int, default=4000, help="cells of a wide field (%(default)s)")
    parser.add_argument("--wide-steps", type=int, nargs="*", default=[20, 80])
    parser.add_argument("--rounds", type=int, default=5)
    options, results = parse(parser, steps=[20, 80], wide_steps=[20], rounds=3)
    sessions = {cells: session(cells) for cells in (CELLS, options.wide)}
    cases = [(CELLS, steps) for steps in options.steps] + [(options.wide, steps) for steps in options.wide_steps]
    found = {(cells, steps): measure(sessions[cells], steps, options.rounds) for cells, steps in cases}
    goals = over_the_value(results, found) + by_steps(found)
    goals += over_jax(results, sessions, found, options.rounds)
    reached = results.goals(goals)
    results.write()
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
