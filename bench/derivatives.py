"""Times derivatives against the same written by hand, against their primal and against JAX.

    .venv/bin/python bench/derivatives.py [--rows 2000000] [--rounds 9]

Every round runs all ways of a case one after the other, so that whatever else the machine does meets each; the figures
are the fastest of the rounds. DataFusion executes a finished physical plan on one thread over batches in memory; JAX is
compiled, in float64 and on one thread too. Planning is timed on its own, from the text to the physical plan. Where
several derivatives are taken, all of them are in one statement, the primal with them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from results import Column, parse

import xql_ffi

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Case:
    """A formula, its derivatives written by hand, and the same function in JAX."""

    name: str
    primal: str
    by_hand: dict[str, str]
    jax: Callable[..., Any]
    columns: tuple[str, ...]

    def statement(self, derivatives: list[str]) -> str:
        """The query of these expressions; of several, together with the primal."""
        wanted = derivatives if len(derivatives) == 1 else [self.primal, *derivatives]
        return "SELECT " + ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(wanted)) + " FROM t"

    def ours(self) -> str:
        """The query with `grad`."""
        return self.statement([f"grad({self.primal}, {variable})" for variable in self.by_hand])

    def hand(self) -> str:
        """The query as one would write it without `grad`."""
        return self.statement(list(self.by_hand.values()))


def logistic(count: int) -> Case:
    """The loss of a logistic regression with `count` weights."""
    weights = [f"w{i}" for i in range(count)]
    margin = " + ".join(f"w{i} * x{i}" for i in range(count))

    def loss(*at: Any) -> Any:
        *params, y = at
        w, x = params[:count], params[count:]
        return jnp.log(1 + jnp.exp(-y * sum(a * b for a, b in zip(w, x, strict=True))))

    return Case(
        f"logistic loss, gradient by {count} weights",
        f"ln(1 + exp(-y * ({margin})))",
        {w: f"(-y) * exp(-y * ({margin})) / (1 + exp(-y * ({margin}))) * x{i}" for i, w in enumerate(weights)},
        loss,
        (*weights, *(f"x{i}" for i in range(count)), "y"),
    )


CASES = [
    Case(
        "saturation vapour pressure",
        "6.112 * exp(17.67 * (t - 273.15) / (t - 29.65))",
        {"t": "6.112 * exp(17.67 * (t - 273.15) / (t - 29.65)) * 4302.645 / ((t - 29.65) * (t - 29.65))"},
        lambda t: 6.112 * jnp.exp(17.67 * (t - 273.15) / (t - 29.65)),
        ("t",),
    ),
    Case(
        "Michaelis-Menten kinetics",
        "v * s / (k + s)",
        {"s": "v * k / ((k + s) * (k + s))"},
        lambda v, s, k: v * s / (k + s),
        ("v", "s", "k"),
    ),
    Case(
        "radiated power",
        "5.67e-8 * a * power(t, 4)",
        {"t": "22.68e-8 * a * t * t * t"},
        lambda a, t: 5.67e-8 * a * t**4,
        ("a", "t"),
    ),
    Case(
        "damped oscillation",
        "a * exp(-g * t) * cos(w * t)",
        {"t": "-a * exp(-g * t) * (g * cos(w * t) + w * sin(w * t))"},
        lambda a, g, w, t: a * jnp.exp(-g * t) * jnp.cos(w * t),
        ("a", "g", "w", "t"),
    ),
    Case(
        "squared error, gradient by 2 parameters",
        "power(w * x + b - y, 2)",
        {"w": "2 * (w * x + b - y) * x", "b": "2 * (w * x + b - y)"},
        lambda w, b, x, y: (w * x + b - y) ** 2,
        ("w", "b", "x", "y"),
    ),
    logistic(8),
    logistic(32),
]


def table(columns: tuple[str, ...], rows: int) -> pa.Table:
    """Random values between 0.5 and 1.5, in the batches that DataFusion works with."""
    rng = np.random.default_rng(0)
    whole = pa.table({name: rng.uniform(0.5, 1.5, rows) for name in columns})
    return pa.Table.from_batches(whole.to_batches(max_chunksize=8192))


def session(data: pa.Table) -> SessionContext:
    """A session of one thread with the data as table `t`."""
    ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)))
    ctx.register_record_batches("t", [data.to_batches()])
    return ctx


def seconds(job: Callable[[], object]) -> float:
    """How long the job takes."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def fastest(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest time of each job over the rounds."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            best[name] = min(best[name], seconds(job))
    return best


def measure(case: Case, rows: int, rounds: int) -> list[float]:
    """The figures of a line of the table."""
    rows = max(8192, rows // len(case.columns))
    data = table(case.columns, rows)
    ctx = session(data)
    arrays = [data[name].to_numpy() for name in case.columns]
    positions = [case.columns.index(variable) for variable in case.by_hand]
    jax_gradient = jax.jit(jax.vmap(jax.value_and_grad(case.jax, positions)))

    def run(sql: str) -> Callable[[], object]:
        planned = ctx.sql(sql).execution_plan()
        return lambda: sum(1 for _ in ctx.execute(planned, 0))

    def plan(sql: str) -> Callable[[], object]:
        return lambda: ctx.sql(sql).execution_plan()

    primal = f"SELECT {case.primal} FROM t"
    run_times = fastest(
        {
            "ours": run(case.ours()),
            "hand": run(case.hand()),
            "primal": run(primal),
            "jax": lambda: jax.block_until_ready(jax_gradient(*arrays)),  # type: ignore[no-untyped-call]
        },
        rounds,
    )
    plan_times = fastest({"ours": plan(case.ours()), "hand": plan(case.hand()), "primal": plan(primal)}, rounds)
    return [
        run_times["ours"] / rows * 1e9,
        run_times["ours"] / run_times["hand"],
        run_times["ours"] / run_times["primal"],
        run_times["ours"] / run_times["jax"],
        plan_times["ours"] * 1e3,
        plan_times["ours"] / plan_times["hand"],
        plan_times["ours"] / plan_times["primal"],
    ]


COLUMNS = (
    Column("derivative, a row", "ns", 1),
    Column("/ hand"),
    Column("/ primal"),
    Column("/ JAX"),
    Column("planning", "ms", 1),
    Column("planning / hand"),
    Column("planning / primal"),
)


def main() -> None:
    """Measures all cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="values in the table of a case, over its columns")
    parser.add_argument("--rounds", type=int, default=9)
    arguments, results = parse(parser, rows=200_000, rounds=5)
    table = results.table("case", *COLUMNS)
    for case in CASES:
        table.line(case.name, *measure(case, arguments.rows, arguments.rounds))
    results.write()


if __name__ == "__main__":
    main()
