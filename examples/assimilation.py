"""Data assimilation in SQL: the field that a chaotic model started from, by what was observed of it later.

    python examples/assimilation.py [--output DIR] [--settings 0.2:1 0.2:4 ...] [--experiments N] [--cycles N]

The model of Lorenz (1996), 40 cells on a circle, is a recursive query over a table. Strong-constraint 4D-Var looks for
the field whose run comes nearest to what was observed: a cost, whose gradient by the rows of the field is a sweep back
through all iterations of the recursive query, the adjoint of the model. SciPy's L-BFGS-B takes value and gradient from
one SQL statement. The setting is that of the benchmarks of DAPPER (https://github.com/nansencenter/DAPPER, in
dapper/mods/Lorenz96/sakov2008.py, which has the errors that are quoted):

1. Truth: the model runs from random fields, and is observed with errors.
2. Assimilation: cycle by cycle, the field of an experiment follows the truth. The first cycle is also done with JAX.
3. Flow: where does a value come from? Its derivative by the field of every step before it.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from matplotlib.figure import Figure
from report import heading, save
from scipy.optimize import minimize

from xql_ffi import progress, register

HERE = Path(__file__).resolve().parent

Array = npt.NDArray[np.float64]
# The cost of the fields of all experiments, and its gradient.
Cost = Callable[[Array], tuple[float, Array]]

CELLS, FORCING, STEP = 40, 8.0, 0.05
SETTLING = 200  # steps until a random field is one of those that the model comes to
EXPERIMENTS, CYCLES, SPIN_UP = 20, 10, 3
FLOW, TARGET = 40, 20  # the flow is looked at over so many steps, and ends in this cell
SEED = 0
# L-BFGS-B stops where the cost falls by less than 1e-7 of it.
STOP = {"maxiter": 100, "ftol": 1e-7, "gtol": 1e-5}


@dataclass(frozen=True)
class Setting:
    """When observations come, and how the window over them is.

    Attributes:
        every: the steps of the model from one observation to the next.
        lag: the observations that a window spans; the last of them is assimilated, the others were before.
        spread: the variance of the background's errors, which are taken to be independent.
        quoted: a method and its mean error, as DAPPER lists them.
    """

    every: int
    lag: int
    spread: float
    quoted: tuple[str, float]

    @property
    def steps(self) -> int:
        """The steps of the model in a window."""
        return self.every * self.lag


SETTINGS = {
    "0.2:1": Setting(4, 1, 0.2, ("4D-Var", 0.46)),
    "0.2:2": Setting(4, 2, 0.09, ("4D-Var", 0.39)),
    "0.2:4": Setting(4, 4, 0.025, ("4D-Var", 0.37)),
    "0.05:4": Setting(1, 4, 0.05, ("3D-Var", 0.41)),
}

# --------------------------------------------------------------------------------------------------------------------
# The queries
#
# A field is a table of (experiment, cell, val). The table `stencil` has, for each cell, its neighbours by their roles.
# --------------------------------------------------------------------------------------------------------------------

ROLES = {"ahead": 1, "behind": -1, "twice_behind": -2, "here": 0}


def slope(name: str, before: str, at: str, kept: Sequence[str]) -> str:
    """A stage of the step: the slopes of the model at an expression over the columns of the stage before.

    Lorenz, E. N. (1996): Predictability: a problem partly solved. dx_i/dt = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + F
    """
    roles = ",\n                ".join(f"SUM({at}) FILTER (WHERE s.role = '{role}') AS {role}" for role in ROLES)
    passed = "".join(
        f",\n                SUM(b.{column}) FILTER (WHERE s.role = 'here') AS {column}" for column in kept
    )
    return f"""
        {name}_read AS (
            SELECT b.step, b.experiment, s.cell,
                {roles}{passed}
            FROM {before} b JOIN stencil s ON s.neighbour = b.cell GROUP BY b.step, b.experiment, s.cell),
        {name} AS (
            SELECT step, experiment, cell, {", ".join(kept)},
                (ahead - twice_behind) * behind - here + {FORCING} AS {name}
            FROM {name}_read)"""


def model(steps: int, *, pushed: bool = False) -> str:
    """The fields of all steps from the table `field`, each by a step of the classical method of Runge and Kutta.

    If they are pushed, the table `pushes` has what is added to each cell at each step.
    """
    push = " + p.val" if pushed else ""
    at_start = " JOIN pushes p ON p.cell = f.cell AND p.step = 0" if pushed else ""
    at_step = " JOIN pushes p ON p.cell = k4.cell AND p.step = k4.step + 1" if pushed else ""
    return f"""model AS (
    SELECT 0 AS step, f.experiment, f.cell, f.val{push} AS val FROM field f{at_start}
    UNION ALL (
    WITH
        k0 AS (
            SELECT step, experiment, cell, val AS x FROM model WHERE step < {steps}),\
{slope("k1", "k0", "x", ["x"])},\
{slope("k2", "k1", f"x + {STEP / 2} * k1", ["x", "k1"])},\
{slope("k3", "k2", f"x + {STEP / 2} * k2", ["x", "k1", "k2"])},\
{slope("k4", "k3", f"x + {STEP} * k3", ["x", "k1", "k2", "k3"])}
    SELECT k4.step + 1, k4.experiment, k4.cell, x + {STEP} / 6 * (k1 + 2 * k2 + 2 * k3 + k4){push}
    FROM k4{at_step}))"""


def run(steps: int) -> str:
    """The fields of all steps from the table `field`."""
    return f"WITH RECURSIVE {model(steps)}\nSELECT step, experiment, cell, val FROM model"


def descent(steps: int, spread: float) -> str:
    """The cost of 4D-Var and its derivative by every row of the table `field`.

    What is observed at the end of the window has errors of variance 1, the background those of variance `spread`.
    """
    return f"""
WITH RECURSIVE {model(steps)},
misfit AS (
    SELECT SUM(power(m.val - o.val, 2)) / 2 AS val
    FROM model m JOIN observed o ON o.experiment = m.experiment AND o.cell = m.cell WHERE m.step = {steps}),
departure AS (
    SELECT SUM(power(f.val - b.val, 2)) / (2 * {spread}) AS val
    FROM field f JOIN background b ON b.experiment = f.experiment AND b.cell = f.cell),
cost AS (
    SELECT misfit.val + departure.val AS val FROM misfit CROSS JOIN departure)
SELECT experiment, cell, (SELECT val FROM cost) AS cost, grad((SELECT val FROM cost), val) AS slope FROM field
"""


def flow(steps: int, target: int) -> str:
    """The derivative of the value of a cell by the fields of all steps before it.

    Each cell gets a push at each step, of 0. What the value gains by a push it gains by the field of that step.
    """
    return f"""
WITH RECURSIVE {model(steps, pushed=True)},
target AS (
    SELECT SUM(val) AS val FROM model WHERE step = {steps} AND cell = {target})
SELECT step, cell, grad((SELECT val FROM target), val) AS slope FROM pushes
"""


# --------------------------------------------------------------------------------------------------------------------
# Running them
# --------------------------------------------------------------------------------------------------------------------


def connect() -> SessionContext:
    """A SQL session that knows the neighbours of every cell. One partition is faster where tables are small."""
    ctx = register(SessionContext(SessionConfig().with_target_partitions(1)))
    cells, shifts = np.arange(CELLS), ROLES.values()
    stencil = {
        "cell": np.tile(cells, len(ROLES)),
        "role": np.repeat(list(ROLES), CELLS),
        "neighbour": np.concatenate([(cells + shift) % CELLS for shift in shifts]),
    }
    ctx.from_arrow(pa.table(stencil), name="stencil")
    return ctx


def put(ctx: SessionContext, name: str, values: Array, axes: Sequence[str] = ("experiment", "cell")) -> None:
    """A table of the session, in the place of the one that it had: a row for each number of an array."""
    if ctx.table_exist(name):
        ctx.deregister_table(name)
    places = dict(zip(axes, np.indices(values.shape), strict=True))
    columns = {axis: index.ravel() for axis, index in places.items()}
    ctx.from_arrow(pa.table({**columns, "val": values.ravel()}), name=name)


def get(found: pa.Table, column: str, axes: Sequence[str]) -> Array:
    """The numbers of a column, each at its place in an array."""
    places = tuple(found[axis].to_numpy() for axis in axes)
    values = np.full([index.max() + 1 for index in places], np.nan)
    values[places] = found[column].to_numpy()
    return values


def trajectories(ctx: SessionContext, field: Array, steps: int) -> Array:
    """The fields of all steps, experiments and cells from those of the first step."""
    put(ctx, "field", field)
    return get(ctx.sql(run(steps)).to_arrow_table(), "val", ("step", "experiment", "cell"))


def truth(ctx: SessionContext, experiments: int, steps: int) -> Array:
    """What the experiments are to find: runs from random fields, without the steps until they have settled."""
    random = np.random.default_rng(SEED).standard_normal((experiments, CELLS))
    with progress():
        fields = trajectories(ctx, FORCING + random, SETTLING + steps)
    return fields[SETTLING:]


def cost_in_sql(ctx: SessionContext, setting: Setting, background: Array, observed: Array) -> Cost:
    """The cost and its gradient by one statement, which is planned for the fields of each call."""
    put(ctx, "background", background)
    put(ctx, "observed", observed)
    statement = descent(setting.steps, setting.spread)

    def cost(fields: Array) -> tuple[float, Array]:
        put(ctx, "field", fields.reshape(background.shape))
        found = ctx.sql(statement).to_arrow_table()
        return found["cost"][0].as_py(), get(found, "slope", ("experiment", "cell")).ravel()

    return cost


def cost_in_jax(setting: Setting, background: Array, observed: Array) -> Cost:
    """The same in JAX and double precision."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

    def slopes(x: jax.Array) -> jax.Array:
        return (jnp.roll(x, -1, axis=1) - jnp.roll(x, 2, axis=1)) * jnp.roll(x, 1, axis=1) - x + FORCING

    def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        k1 = slopes(x)
        k2 = slopes(x + STEP / 2 * k1)
        k3 = slopes(x + STEP / 2 * k2)
        k4 = slopes(x + STEP * k3)
        return x + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    @jax.jit
    @jax.value_and_grad
    def both(fields: jax.Array) -> jax.Array:
        last, _ = jax.lax.scan(step, fields, None, setting.steps)
        return jnp.sum((last - observed) ** 2) / 2 + jnp.sum((fields - background) ** 2) / (2 * setting.spread)

    def cost(fields: Array) -> tuple[float, Array]:
        value, gradient = both(fields.reshape(background.shape))
        return float(value), np.asarray(gradient).ravel()

    return cost


def analyse(cost: Cost, background: Array) -> tuple[Array, int]:
    """The fields of the least cost, and how many times the cost was asked for."""
    found = minimize(cost, background.ravel(), jac=True, method="L-BFGS-B", options=STOP)
    return found.x.reshape(background.shape), found.nfev


def error(fields: Array, true: Array) -> Array:
    """The root mean square over cells, in each experiment."""
    result: Array = np.sqrt(np.mean((fields - true) ** 2, axis=-1))
    return result


@dataclass(frozen=True)
class Cycle:
    """What a cycle of assimilation finds.

    Attributes:
        step: of the model, at the start of the window.
        fields: of the window, by step, experiment and cell.
        background: the error of the field that the last observation meets before it is assimilated, by experiment.
        analysis: the error of this field afterwards.
        calls: of the cost and its gradient.
    """

    step: int
    fields: Array
    background: Array
    analysis: Array
    calls: int


def assimilate(
    ctx: SessionContext,
    setting: Setting,
    true: Array,
    observed: Array,
    cycles: int,
    report: Callable[[int, Cycle], None] = lambda number, cycle: None,
) -> list[Cycle]:
    """Cycles of 4D-Var, the windows of which begin one observation after another.

    The fields that a cycle finds are carried to the beginning of the next window, and are the background there.
    """
    errors = np.random.default_rng(SEED + 1).standard_normal(true.shape[1:])
    background = true[0] + np.sqrt(setting.spread) * errors
    found: list[Cycle] = []
    for number in range(cycles):
        start = number * setting.every
        end = start + setting.steps
        before = trajectories(ctx, background, setting.steps)
        cost = cost_in_sql(ctx, setting, background, observed[end])
        fields, calls = analyse(cost, background)
        after = trajectories(ctx, fields, setting.steps)
        found.append(Cycle(start, after, error(before[-1], true[end]), error(after[-1], true[end]), calls))
        report(number + 1, found[-1])
        background = after[setting.every]
    return found


def difference_to_jax(setting: Setting, true: Array, observed: Array, first: Cycle) -> float:
    """How far the fields of the first cycle are from those that L-BFGS-B finds with the cost of JAX."""
    errors = np.random.default_rng(SEED + 1).standard_normal(true.shape[1:])
    background = true[0] + np.sqrt(setting.spread) * errors
    fields, _ = analyse(cost_in_jax(setting, background, observed[setting.steps]), background)
    return float(np.abs(fields - first.fields[0]).max())


def flow_of(ctx: SessionContext, field: Array, steps: int = FLOW, target: int = TARGET) -> Array:
    """The derivative of the value of a cell after some steps, by the fields of all steps and cells before it."""
    put(ctx, "field", field[np.newaxis])
    put(ctx, "pushes", np.zeros((steps + 1, CELLS)), ("step", "cell"))
    return get(ctx.sql(flow(steps, target)).to_arrow_table(), "slope", ("step", "cell"))


# --------------------------------------------------------------------------------------------------------------------
# Figures
# --------------------------------------------------------------------------------------------------------------------


def fields_figure(setting: Setting, true: Array, observed: Array, cycles: Sequence[Cycle]) -> Figure:
    """The fields of an experiment by time: true, observed, found, and how far the last are from the first."""
    times = slice(setting.steps, setting.steps + (len(cycles) - 1) * setting.every + 1)
    found = np.concatenate([cycle.fields[setting.steps - setting.every : setting.steps, 0] for cycle in cycles])
    found = np.concatenate([found, cycles[-1].fields[-1:, 0]])[setting.every :]
    seen = np.full(true[times, 0].shape, np.nan)
    seen[:: setting.every] = observed[times, 0][:: setting.every]
    panels = [
        ("truth", true[times, 0], "viridis", -10.0, 14.0),
        (f"observed every {setting.every * STEP:g}, with errors of 1", seen, "viridis", -10.0, 14.0),
        ("4D-Var in SQL", found, "viridis", -10.0, 14.0),
        ("4D-Var less truth", found - true[times, 0], "RdBu_r", -2.0, 2.0),
    ]
    figure = Figure(figsize=(11, 6), layout="constrained")
    span = (-0.5 * STEP, (len(found) - 0.5) * STEP, -0.5, CELLS - 0.5)
    for axes, (title, values, colors, low, high) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        mesh = axes.imshow(
            values.T, cmap=colors, vmin=low, vmax=high, origin="lower", aspect="auto", extent=span, interpolation="none"
        )
        axes.set_title(title, fontsize=10)
        axes.set(xlabel="time", ylabel="cell")
        figure.colorbar(mesh, ax=axes)
    return figure


def errors_figure(runs: dict[str, list[Cycle]]) -> Figure:
    """The error by cycle, over all experiments, beside the ones that are quoted."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for axes, (name, cycles) in zip(figure.subplots(1, len(runs), squeeze=False).flat, runs.items(), strict=True):
        setting, numbers = SETTINGS[name], np.arange(1, len(cycles) + 1)
        for label, color, errors in (
            ("before the observation", "tab:orange", np.array([cycle.background for cycle in cycles])),
            ("after it", "tab:blue", np.array([cycle.analysis for cycle in cycles])),
        ):
            low, high = np.quantile(errors, [0.1, 0.9], axis=1)
            axes.fill_between(numbers, low, high, color=color, alpha=0.15, linewidth=0)
            axes.plot(numbers, errors.mean(axis=1), color=color, label=label)
        method, figure_quoted = setting.quoted
        axes.axhline(figure_quoted, color="black", linestyle="--", linewidth=1, label=f"DAPPER, {method}")
        axes.set(xlabel="cycle", ylabel="root mean square error", ylim=(0, None))
        axes.set_title(f"observed every {setting.every * STEP:g}, lag {setting.lag}", fontsize=10)
        axes.legend(frameon=False, fontsize=8)
        axes.grid(alpha=0.3)
    return figure


def flow_figure(fields: Array, slopes: Array, target: int = TARGET) -> Figure:
    """The field by time, and the gradient of its last value in a cell as it goes back through time."""
    steps = len(slopes) - 1
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    span = (-0.5 * STEP, (steps + 0.5) * STEP, -0.5, CELLS - 0.5)
    limit = float(np.quantile(np.abs(slopes), 0.995))
    panels = [
        ("field", fields, "viridis", -10.0, 14.0),
        ("derivative of the marked value by the field", slopes, "RdBu_r", -limit, limit),
    ]
    for axes, (title, values, colors, low, high) in zip(figure.subplots(1, 2), panels, strict=True):
        mesh = axes.imshow(
            values.T, cmap=colors, vmin=low, vmax=high, origin="lower", aspect="auto", extent=span, interpolation="none"
        )
        axes.plot(steps * STEP, target, "o", color="tab:red", markeredgecolor="white", markersize=8)
        axes.set_title(title, fontsize=10)
        axes.set(xlabel="time", ylabel="cell")
        figure.colorbar(mesh, ax=axes)
    return figure


# --------------------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Assimilate the observations of all settings: numbers to the terminal, figures to the output directory."""
    parser = argparse.ArgumentParser(description="Data assimilation in SQL, by the adjoint of a recursive query.")
    parser.add_argument("--output", type=Path, default=HERE / "output", help="directory of the figures (%(default)s)")
    parser.add_argument(
        "--settings",
        nargs="+",
        choices=SETTINGS,
        default=["0.2:1", "0.05:4"],
        help="time from one observation to the next, and observations in a window (%(default)s)",
    )
    parser.add_argument("--experiments", type=int, default=EXPERIMENTS, help="runs, each of its own (%(default)s)")
    parser.add_argument("--cycles", type=int, default=CYCLES, help="cycles of each experiment (%(default)s)")
    parser.add_argument("--spin-up", type=int, default=SPIN_UP, help="cycles that no mean counts (%(default)s)")
    options = parser.parse_args(arguments)
    if options.cycles <= options.spin_up:
        parser.error("there are no cycles after the spin-up")
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()

    heading("Truth: one recursive query")
    ctx = connect()
    print(f"\n{run(SETTLING)}")
    chosen = {name: SETTINGS[name] for name in options.settings}
    steps = max(setting.steps + (options.cycles - 1) * setting.every for setting in chosen.values())
    true = truth(ctx, options.experiments, max(steps, FLOW))
    observed = true + np.random.default_rng(SEED + 2).standard_normal(true.shape)
    print(
        f"\n  {options.experiments} experiments, {len(true) + SETTLING - 1} steps; the values vary by {true.std():.2f}"
    )

    heading("Assimilation: the gradient of a cost that reads the recursive query")
    print(descent(4, 0.2).replace(model(4), "model AS (...)"))
    runs: dict[str, list[Cycle]] = {}
    for name, setting in chosen.items():
        print(f"\n  observed every {setting.every * STEP:g}, lag {setting.lag}")

        def report(number: int, cycle: Cycle) -> None:
            errors = f"error {cycle.background.mean():.3f} -> {cycle.analysis.mean():.3f}"
            seconds = time.perf_counter() - started
            print(f"  cycle {number:3}   {errors}   {cycle.calls:2} gradients   {seconds:6.1f} s", flush=True)

        runs[name] = assimilate(ctx, setting, true, observed, options.cycles, report)
        errors = np.array([cycle.analysis for cycle in runs[name][options.spin_up :]])
        margin = errors.mean(axis=0).std(ddof=1) / np.sqrt(errors.shape[1]) if errors.shape[1] > 1 else np.nan
        method, quoted = setting.quoted
        print(f"  mean error {errors.mean():.3f} +- {margin:.3f}; {method} of DAPPER {quoted:.2f}")
        if importlib.util.find_spec("jax"):
            apart = difference_to_jax(setting, true, observed, runs[name][0])
            print(f"  the fields of the first cycle are those that JAX finds, to {apart:.0e}")
    first = options.settings[0]
    save(fields_figure(chosen[first], true, observed, runs[first]), output / "assimilation-fields.png")
    save(errors_figure(runs), output / "assimilation-errors.png")

    heading("Flow: one value by the fields of all steps before it")
    print(flow(FLOW, TARGET).replace(model(FLOW, pushed=True), "model AS (...)"))
    slopes = flow_of(ctx, true[0, 0])
    save(flow_figure(true[: FLOW + 1, 0], slopes), output / "assimilation-flow.png")

    print(f"\n{time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
