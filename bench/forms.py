"""Times the derivatives of fifteen functions, as plain SQL, against the fastest that one would write by hand.

    .venv/bin/python bench/forms.py [--rows 10000000] [--rounds 9] [--only NAME]

The derivative is the text of `xql_ffi.expand_sql`, and DataFusion executes it as it comes from PyPI. Each function is
timed twice: the derivatives alone, and beside the value of the function. Every round runs all statements of a function
one after the other, in turn forwards and backwards, so that whatever else the machine does meets each. The figures are
processor time: for each batch of 8,192 rows the least of the rounds, all batches together. DataFusion executes a
finished physical plan on one thread over batches in memory; JAX is compiled, in float64 and on one thread too, its
arrays are on the device before, and all rows are one batch.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

os.environ["XQL_FFI_ENGINE"] = "0"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import datafusion
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from numpy.typing import NDArray
from results import Column, parse

import xql_ffi

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

# The largest part by which a derivative may differ from the one by hand, on values of an ordinary size.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Function:
    """A function, what is differentiated by, the derivatives written by hand for speed, and the function in JAX."""

    name: str
    value: str
    # By variable. DataFusion computes once what several expressions of a SELECT have in common.
    by_hand: dict[str, str]
    jax: Callable[..., Any]
    # Its columns in the order of the arguments in JAX, each with the range it is drawn from.
    columns: dict[str, tuple[float, float]]
    # The derivatives beside the value, where one would write them in another way, with the value in them.
    beside: dict[str, str] | None = None

    def ours(self, *, value: bool) -> str:
        """The statement that the call of `grad` expands to."""
        calls = [f"grad({self.value}, {variable})" for variable in self.by_hand]
        schema = pa.schema([(name, pa.float64()) for name in self.columns])
        return xql_ffi.expand_sql(self._select(calls, value=value), {"t": schema})

    def hand(self, *, value: bool) -> str:
        """The statement as one would write it without `grad`."""
        by_hand = self.beside if value and self.beside is not None else self.by_hand
        return self._select(list(by_hand.values()), value=value)

    def alone(self) -> str:
        """The statement of the value alone."""
        return self._select([], value=True)

    def _select(self, derivatives: Sequence[str], *, value: bool) -> str:
        wanted = [self.value, *derivatives] if value else derivatives
        return "SELECT " + ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(wanted)) + " FROM t"


def logistic(count: int) -> Function:
    """The loss of a logistic regression with `count` weights."""
    margin = " + ".join(f"w{i} * x{i}" for i in range(count))

    def loss(*at: Any) -> Any:
        *params, y = at
        w, x = params[:count], params[count:]
        return jnp.log(1 + jnp.exp(-y * sum(a * b for a, b in zip(w, x, strict=True))))

    names = [*(f"w{i}" for i in range(count)), *(f"x{i}" for i in range(count)), "y"]
    return Function(
        f"logistic loss, {count} weights",
        f"ln(1 + exp(-y * ({margin})))",
        {f"w{i}": f"exp(-y * ({margin})) * -y / (1 + exp(-y * ({margin}))) * x{i}" for i in range(count)},
        loss,
        dict.fromkeys(names, (-1.0, 1.0)),
    )


FUNCTIONS = [
    Function(
        "saturation vapour pressure",
        "6.112 * exp(17.67 * (t - 273.15) / (t - 29.65))",
        {"t": "26297.76624 * exp(17.67 * (t - 273.15) / (t - 29.65)) / ((t - 29.65) * (t - 29.65))"},
        lambda t: 6.112 * jnp.exp(17.67 * (t - 273.15) / (t - 29.65)),
        {"t": (230, 310)},
        {"t": "6.112 * exp(17.67 * (t - 273.15) / (t - 29.65)) * 4302.645 / ((t - 29.65) * (t - 29.65))"},
    ),
    Function(
        "Michaelis-Menten kinetics",
        "v * s / (k + s)",
        {"s": "v * k / ((k + s) * (k + s))"},
        lambda v, s, k: v * s / (k + s),
        {"v": (1, 9), "s": (0.1, 9), "k": (0.5, 2)},
    ),
    Function(
        "radiated power",
        "5.67e-8 * a * power(t, 4)",
        {"t": "2.268e-7 * a * (t * t * t)"},
        lambda a, t: 5.67e-8 * a * t**4,
        {"a": (0.5, 1), "t": (200, 400)},
    ),
    Function(
        "damped oscillation",
        "a * exp(-g * t) * cos(w * t)",
        {"t": "-a * exp(-g * t) * (g * cos(w * t) + w * sin(w * t))"},
        lambda a, g, w, t: a * jnp.exp(-g * t) * jnp.cos(w * t),
        {"a": (1, 2), "g": (0.1, 0.5), "w": (1, 3), "t": (0.1, 5)},
    ),
    Function(
        "squared error, 2 parameters",
        "power(w * x + b - y, 2)",
        {"w": "2 * (w * x + b - y) * x", "b": "2 * (w * x + b - y)"},
        lambda w, b, x, y: (w * x + b - y) ** 2,
        {"w": (-1, 1), "b": (-1, 1), "x": (-2, 2), "y": (-2, 2)},
    ),
    logistic(8),
    Function(
        "Kepler's third law",
        "power(x, 1.5)",
        {"x": "1.5 * sqrt(x)"},
        lambda x: x**1.5,
        {"x": (0.3, 30)},
    ),
    Function(
        "potential temperature",
        "exp(u) * power(x / 3, 0.2857)",
        {"x": f"{0.2857 / 3!r} * exp(u) * power(x / 3, -0.7143)"},
        lambda u, x: jnp.exp(u) * (x / 3) ** 0.2857,
        {"u": (-1, 1), "x": (0.3, 3)},
        {"x": "0.2857 * (exp(u) * power(x / 3, 0.2857)) / x"},
    ),
    Function(
        "Manning's formula",
        "sqrt(s) / n * power(r, 0.6666666666666666)",
        {"r": "0.6666666666666666 * sqrt(s) / n * power(r, -0.3333333333333333)"},
        lambda s, n, r: jnp.sqrt(s) / n * r**0.6666666666666666,
        {"s": (0.001, 0.01), "n": (0.01, 0.1), "r": (0.1, 5)},
        {"r": "0.6666666666666666 * (sqrt(s) / n * power(r, 0.6666666666666666)) / r"},
    ),
    Function(
        "rectified unit",
        "greatest(w * x + b, 0.0)",
        {"w": "CASE WHEN w * x + b >= 0.0 THEN x ELSE 0.0 END"},
        lambda w, b, x: jnp.maximum(w * x + b, 0.0),
        {"w": (-1, 1), "b": (-1, 1), "x": (-2, 2)},
    ),
    Function(
        "distance",
        "sqrt(x * x + y * y)",
        {"x": "x / sqrt(x * x + y * y)"},
        lambda x, y: jnp.sqrt(x * x + y * y),
        {"x": (-2, 2), "y": (-2, 2)},
    ),
    Function(
        "normal density",
        "exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * 2.5066282746310002)",
        {"x": "(m - x) * exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * s * s * 2.5066282746310002)"},
        lambda x, m, s: jnp.exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * math.sqrt(2 * math.pi)),
        {"x": (-2, 2), "m": (-1, 1), "s": (0.5, 2)},
        {"x": "exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * 2.5066282746310002) * (m - x) / (s * s)"},
    ),
    Function(
        "Lennard-Jones potential",
        "4 * e * (power(s / r, 12) - power(s / r, 6))",
        {
            "r": "24 * e * (s / r * (s / r) * (s / r) * (s / r * (s / r) * (s / r)))"
            " * (1 - 2 * (s / r * (s / r) * (s / r) * (s / r * (s / r) * (s / r)))) / r"
        },
        lambda e, s, r: 4 * e * ((s / r) ** 12 - (s / r) ** 6),
        {"e": (0.5, 2), "s": (0.9, 1.1), "r": (1, 2)},
        {"r": "24 * e * power(s / r, 6) * (1 - 2 * power(s / r, 6)) / r"},
    ),
    Function(
        "Planck spectrum",
        "a * power(f, 3) / (exp(h * f) - 1)",
        {"f": "a * (f * f) / (exp(h * f) - 1) * (3 - h * f * exp(h * f) / (exp(h * f) - 1))"},
        lambda a, h, f: a * f**3 / (jnp.exp(h * f) - 1),
        {"a": (1, 2), "h": (0.5, 1.5), "f": (0.5, 3)},
    ),
    Function(
        "sigmoid",
        "1 / (1 + exp(-x))",
        {"x": "exp(-x) / ((1 + exp(-x)) * (1 + exp(-x)))"},
        lambda x: 1 / (1 + jnp.exp(-x)),
        {"x": (-4, 4)},
    ),
]


def table(function: Function, rows: int) -> pa.Table:
    """Random values, in the batches that DataFusion works with."""
    rng = np.random.default_rng(0)
    whole = pa.table({name: rng.uniform(*limits, rows) for name, limits in function.columns.items()})
    return pa.Table.from_batches(whole.to_batches(max_chunksize=8192))


def session(data: pa.Table) -> SessionContext:
    """A session of one thread with the data as table `t`."""
    ctx = SessionContext(SessionConfig().with_target_partitions(1))
    ctx.register_record_batches("t", [data.to_batches()])
    return ctx


def check(function: Function) -> None:
    """Makes sure that what is timed computes the same."""
    ctx = session(table(function, 10_000))
    for value in (False, True):
        ours, hand = (ctx.sql(sql).to_arrow_table() for sql in (function.ours(value=value), function.hand(value=value)))
        for name in ours.column_names:
            np.testing.assert_allclose(ours[name].to_numpy(), hand[name].to_numpy(), rtol=TOLERANCE, err_msg=name)


def least(jobs: dict[str, Callable[[], Iterable[object]]], rounds: int) -> dict[str, float]:
    """The processor time of each job: of each of its batches the least over the rounds."""
    best: dict[str, NDArray[np.float64]] = {}
    for number in range(rounds):
        for name, job in list(jobs.items())[:: -1 if number % 2 else 1]:
            batches = iter(job())
            times = [time.process_time()]
            while next(batches, None) is not None:
                times.append(time.process_time())
            found = np.diff(times)
            best[name] = np.minimum(best.get(name, found), found)
    return {name: float(times.sum()) for name, times in best.items()}


@dataclass(frozen=True)
class Figures:
    """What one function takes: nanoseconds a row of its derivatives, and ratios of processor times."""

    name: str
    row: float
    hand: float
    beside: float
    value: float
    jax: float


def measure(function: Function, rows: int, rounds: int) -> Figures:
    """Times one function."""
    check(function)
    data = table(function, rows)
    ctx = session(data)
    positions = [list(function.columns).index(variable) for variable in function.by_hand]
    gradient = jax.jit(jax.vmap(jax.grad(function.jax, positions)))
    arrays = [jax.device_put(data[name].to_numpy()) for name in function.columns]

    def run(sql: str) -> Callable[[], Iterable[object]]:
        plan = ctx.sql(sql).execution_plan()
        return lambda: ctx.execute(plan, 0)

    def run_jax() -> Iterator[object]:
        yield jax.block_until_ready(gradient(*arrays))  # type: ignore[no-untyped-call]

    times = least(
        {
            "ours": run(function.ours(value=False)),
            "hand": run(function.hand(value=False)),
            "ours beside": run(function.ours(value=True)),
            "hand beside": run(function.hand(value=True)),
            "value": run(function.alone()),
            "jax": run_jax,
        },
        rounds,
    )
    return Figures(
        function.name,
        times["ours"] / rows * 1e9,
        times["ours"] / times["hand"],
        times["ours beside"] / times["hand beside"],
        times["ours"] / times["value"],
        times["ours"] / times["jax"],
    )


COLUMNS = (
    Column("derivative, a row", "ns", 1),
    Column("/ hand"),
    Column("beside the value, / hand"),
    Column("/ value"),
    Column("/ JAX"),
)


def main() -> None:
    """Measures the functions and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="functions whose name has this in it")
    arguments, results = parse(parser, rows=200_000, rounds=5)
    if (status := xql_ffi.engine_status()).startswith("active"):
        sys.exit(f"this program is about DataFusion from PyPI: set XQL_FFI_ENGINE=0 (the engine is {status})")
    versions = f"datafusion {datafusion.__version__}, jax {jax.__version__}"
    print(f"{versions}, {arguments.rows:,} rows, {arguments.rounds} rounds")
    table = results.table("function", *COLUMNS)
    found: list[tuple[float, ...]] = []
    for function in FUNCTIONS:
        if arguments.only in function.name:
            figures = measure(function, arguments.rows, arguments.rounds)
            gc.collect()
            found.append((figures.hand, figures.beside, figures.value, figures.jax))
            table.line(figures.name, figures.row, *found[-1])
    table.line("geometric mean", None, *map(statistics.geometric_mean, zip(*found, strict=True)))
    table.line("worst", None, *map(max, zip(*found, strict=True)))
    results.write()


if __name__ == "__main__":
    main()
