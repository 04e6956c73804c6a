"""Writes the page of figures and draws its pictures: ``python docs/figures.py``.

The records in ``bench/records`` are what the programs of ``bench/`` write with ``--json``, each named like its program.
Those of ``bench/records/54`` are the same on the engine for DataFusion 54.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from string import Template

from matplotlib.axes import Axes
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from results import Report

HERE = Path(__file__).resolve().parent
RECORDS = HERE.parent / "bench" / "records"
ON_54 = RECORDS / "54"
# Ratios on the engine for 54 stand beside those on 55 where they differ by more than this part.
DIFFERS = 0.1

# Told apart by the colour-blind.
BLUE, ORANGE, GREEN, PURPLE, GREY, BLACK = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#AAAAAA", "#000000"
COLORS = (BLUE, GREEN, ORANGE, PURPLE, GREY, BLACK, "#56B4E9", "#D55E00")


PAGE = """\
# Figures

What xql-ffi costs, and against what. Each table is what a program of `bench/` prints, run on the wheels' profile; its
records are in `bench/records`, from which `docs/figures.py` writes this page. Each record is of one machine:
$processor; of JAX $jax.
Figures are of `datafusion` 55, which `pip install xql-ffi` gives, but for those of the programs that were last run on
the engine for 54: $older.
A column `engine, 54` has the same ratio there, where it differs by more than a tenth.
Times are processor time, the least of several rounds, unless it says otherwise; below 1 is faster.
[Performance](performance.md) says why the figures are what they are.

## Derivatives and those written by hand

`bench/forms.py`: fifteen derivatives as SQL, executed by `datafusion` as it comes from PyPI, over the fastest SQL
that one would write for them, on one thread, 10,000,000 rows. `/ hand` is the time over that of this
SQL, `/ value` over that of the function itself, `/ JAX` over that of JAX.

![Ratios of fifteen derivatives over those by hand and over JAX](images/figures-forms.png)

$forms

## What a process begins with

`bench/startup.py`: processor time and memory of a process that does what the line says and all lines before it. The
last two lines are what one more idle session takes; its memory is in kB.

$startup

## From a file to a table

`bench/from_file.py`: derivatives of 10,000,000 rows in a Parquet file, as an Arrow table, by the engine and by
pyarrow and JAX, on both cores, wall time. The first run compiles in JAX; DataFusion plans each time.

$file

## Planning

`bench/growth.py`: a statement without calls, the same with `grad` around each expression, and the text of the
derivative planned as it stands. What differentiating itself adds is the difference of the last two, by node of the
expressions. A statement without a call takes no time of ours: its plan comes back as it is.

![Milliseconds of planning by nodes: lines of slope one](images/figures-growth.png)

$growth

`bench/planning.py`: statements whose loss is written through CTEs, by `xql_ffi.gradient`, or n times, and deep
expressions.

$planning

## The engine and the stock module

`bench/engine_vs_stock.py`: queries without a derivative, on the engine over the same on the stock module: the 22 of
TPC-H at scale 1, the ten groupings and five joins of h2o.ai, and cases of planning and running plain expressions.

![Ratios of all queries, around 1](images/figures-engine.png)

$engine

## A registered session of DataFusion 55 and a plain one

`bench/engine_vs_stock.py` in an environment with `datafusion` 55: the same queries in a session that is registered over
those in a session as it is.

$stock

Planning one of the 22 statements of TPC-H takes $added ms longer at most, and $added_mean ms in the mean.

`bench/versions.py`: statements with derivatives on DataFusion 55 over the same on the engine for 54, by the programs
that time planning, gradients by row and training, in their quick sizes. These were measured before a plan that runs in
the library knew how many rows the tables of the host have (`product by x` held its larger side), before the host
planned on the stack of the thread, and before sums of products were arrays.

$versions

## Gradients by row

`bench/rows.py`: gradients by the rows of a table, over a backward pass written by hand as SQL, over ddxdb on stock
`datafusion` 55, and with the value over the value alone.

$rows

## Sums of products

`bench/contraction.py`: gradients by row that are made of [sums of products](contractions.md), on one thread, from the
text of the statement to its rows, beside DataFusion's joins and groups for the same (`SET xql.contractions = false`)
and beside NumPy from the same columns to the same rows.

$contraction

$contraction_goals

`bench/contraction_growth.py`: the same with twice as many rows, hidden units and steps again and again. `growth` is the
time over that of half the size, 2 where it grows in proportion.

$contraction_growth

`bench/nn2sql.py`: whole trainings on one thread, from the tables to the last weights, at the sizes of
[NN2SQL](https://openreview.net/forum?id=Qxu3uH5EUE) by Schüle and others, and a larger one: all steps as one statement
whose backward pass is derived, a statement a step whose backward pass is written by hand on plain DataFusion, NumPy,
JAX with its compilation, and the text of the one statement on DuckDB.

$nn2sql

`bench/xarray_sql_nn.py`: the network that the benchmark `nn.py` of
[xarray-sql](https://github.com/xqlsystems/xarray-sql) trains, at its size, on one thread: all steps as one statement,
a client's loop with the backward pass by hand on plain DataFusion, NumPy, and JAX with its compilation. The author of
that benchmark reports 2.56 s a step, and 1.45 s without the pixels that are 0, as here.

$xarray_sql_nn

## The adjoint of a recursive query

`bench/adjoint.py`: the gradient by the field that a model of Lorenz (1996) starts from, in steps of Runge and Kutta,
over the model itself, and from the tables to the gradient over JAX, which compiles.

$adjoint

## Fixed points and Jacobians

`bench/fixed_point.py`: the gradient of PageRank by 100,000 links after 200 iterations, over the ranks themselves, which
DataFusion computes with its own joins and groups.

$fixed_point

`bench/jacobian.py`: the Jacobian of a step of diffusion, three numbers in each row, over the step itself and over JAX's
dense `jacfwd`; and the gradients of each sample of a logistic regression by 30 weights, over the gradient of the sum.

$jacobian

## A call of an objective

`bench/objective.py`: value and gradient of a logistic regression with 1,000 rows and 30 weights, wall time on both
cores: a call of an [objective](objective.md), executing the same plan when it is finished and fresh, the statement
planned anew each time, and the function in JAX, compiled, over the features as an array.

$objective

## Training

`bench/training.py`: twenty steps of gradient descent for a logistic regression with five parameters, from a Parquet
file to the parameters: loading, planning or compiling, and all steps, on both cores, wall time.

![Seconds of a training by the number of rows, from the file and once more](images/figures-training.png)

$training

## Reliability

[Limits](limits.md) has how large statements may be, what threads and processes may do, and the memory of processes that
plan 100,000 statements. The tests generate what they check anew with each seed, in the normal run a little, and as much
as they are told:

| what | option | against |
| --- | --- | --- |
| damaged tables at the library boundary | `XQL_FFI_TEST_ATTACKS=1000000` | an error each time, nothing left |
| expressions | `--conformance=20000` | JAX in float64; one in 25 in 50 digits by mpmath |
| plans, forward and by row | `--plans=10000` | differences of the same query; by row, forward mode too |
| names and texts | `--hostile=1000` | the same columns and rows, and no other table read |
| DataFusion's own suite of SQL | `--sqllogictest=1000` | the stock module |
| sizes and threads | `--size=10`, `--load=120` | the derivatives by hand |
| deliberate faults of the code | `tests/mutants/run.py` | a test that fails |
"""


@cache
def report(program: str, folder: Path = RECORDS) -> Report:
    """What a program wrote."""
    found: Report = json.loads((folder / f"{program}.json").read_text(encoding="utf-8"))
    return found


def values(program: str, figure: str, folder: Path = RECORDS) -> dict[str, float]:
    """The values of one figure by case."""
    records = report(program, folder)["records"]
    return {record["case"]: record["value"] for record in records if record["figure"] == figure}


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)], *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


# --------------------------------------------------------------------------------------------------------------------
# Tables
# --------------------------------------------------------------------------------------------------------------------


def forms_table() -> str:
    """Fifteen derivatives over those by hand, over the value and over JAX."""
    heads = ("/ hand", "beside the value, / hand", "/ value", "/ JAX")
    time, *ratios = (values("forms", figure) for figure in ("derivative, a row", *heads))
    lines = [
        [case, f"{time[case]:.1f} ns" if case in time else "", *(f"{ratio[case]:.2f}" for ratio in ratios)]
        for case in ratios[0]
    ]
    return table(("function", "a row", *heads), lines)


def file_table() -> str:
    """Derivatives from a Parquet file to an Arrow table."""
    heads = ("engine, first", "engine, again", "JAX, first", "JAX, again")
    ratios = [values("from_file", f"engine / JAX, {which}") for which in ("first", "again")]
    columns = [values("from_file", figure) for figure in heads]
    lines = [
        [
            case,
            *(f"{c[case]:,.0f} ms" if case in c else "" for c in columns),
            *(f"{ratio[case]:.2f}" for ratio in ratios),
        ]
        for case in ratios[0]
    ]
    return table(("function", *heads, "first, / JAX", "again, / JAX"), lines)


def planning_table() -> str:
    """Planning with derivatives over planning without."""
    without, with_calls, ratio, goal = (values("planning", figure) for figure in ("without", "with", "ratio", "goal"))
    lines = [
        [case, f"{without[case]:,.1f} ms", f"{with_calls[case]:,.1f} ms", f"{ratio[case]:.2f}", f"{goal[case]:.0f}"]
        for case in ratio
    ]
    return table(("case", "without", "with", "ratio", "goal"), lines)


def growth_table() -> str:
    """Planning by the size of expressions and the number of calls."""
    heads = ("without", "with `grad`", "its text", "ours, a node", "JAX traces", "JAX compiles")
    columns = [values("growth", figure) for figure in heads]
    units = ("ms", "ms", "ms", "µs", "ms", "ms")
    lines = [
        [
            case,
            *(
                f"{column[case]:,.1f} {unit}" if case in column else ""
                for column, unit in zip(columns, units, strict=True)
            ),
        ]
        for case in columns[0]
    ]
    return table(("what", *heads), lines)


def means_table(program: str) -> str:
    """The geometric means of ratios of each group of queries without a derivative."""
    figures = ("ratio", "median of turns", "of wall time")
    columns = [values(program, figure) for figure in figures]
    groups = [case for case in columns[0] if ": " not in case]
    lines = [[group, *(f"{column[group]:.3f}" for column in columns)] for group in groups]
    return table(("geometric mean of", "processor time", "median of turns", "wall time"), lines)


def added() -> list[float]:
    """Milliseconds of planning that registering adds to each statement of TPC-H."""
    plain, registered = (values("engine_vs_stock-55", figure) for figure in ("stock", "registered"))
    return [registered[case] - plain[case] for case in plain if case.startswith("TPC-H plan: ")]


def versions_table() -> str:
    """Statements with derivatives on DataFusion 55 over the engine for 54."""
    heads = ("55 / 54", "worst")
    columns = [values("versions", figure) for figure in heads]
    return table(
        ("program: figure", *heads), [[case, *(f"{column[case]:.2f}" for column in columns)] for case in columns[0]]
    )


def goals_table(program: str) -> str:
    """Ratios, each beside that on the engine for 54, where it is another, and its goal."""
    ratio, goal, engine = values(program, "ratio"), values(program, "goal"), values(program, "ratio", ON_54)

    def beside(case: str) -> str:
        is_other = case in engine and abs(engine[case] / ratio[case] - 1) > DIFFERS
        return f"{engine[case]:.2f}" if is_other else ""

    lines = [[c, f"{ratio[c]:.2f}", beside(c), f"{goal[c]:g}"] for c in goal]
    return table(("ratio of processor times", "measured", "engine, 54", "goal"), lines)


def startup_table() -> str:
    """What a process begins with, and what an idle session takes."""
    time, more, memory, added = (
        values("startup", figure) for figure in ("processor time", "more", "memory", "more memory")
    )
    lines = [
        [
            case,
            f"{time[case]:,.0f} ms" if case in more else f"{time[case]:.1f} ms",
            f"{more[case]:,.0f} ms" if case in more else "",
            f"{memory[case]:,.0f} MB" if case in added else f"{memory[case]:,.0f} kB",
            f"{added[case]:,.0f} MB" if case in added else "",
        ]
        for case in time
    ]
    return table(("process", "processor time", "more", "memory", "more"), lines)


def fixed_point_table() -> str:
    """Gradients of a fixed point, in one step and through all."""
    value, gradient, over, memory = (
        values("fixed_point", figure) for figure in ("value", "gradient", "over the value", "memory")
    )
    lines = [
        [case, f"{value[case]:.2f} s", f"{gradient[case]:.2f} s", f"{over[case]:.2f}", f"{memory[case]:,.0f} MB"]
        for case in value
    ]
    return table(("iterations", "value", "gradient", "over the value", "memory"), lines)


def jacobian_table() -> str:
    """Jacobians by rows, and gradients for each sample."""
    takes, over = (values("jacobian", figure) for figure in ("takes", "over"))
    return table(("of", "takes", "over"), [[case, f"{takes[case]:.3f} s", f"{over[case]:.2f}"] for case in takes])


def contraction_table() -> str:
    """Sums of products as arrays, by joins, and in NumPy."""
    times, ratios = ("arrays", "planning", "joins", "NumPy"), ("over NumPy", "over joins")
    columns = [values("contraction", figure) for figure in (*times, *ratios)]
    lines = [
        [
            case,
            *(f"{column[case]:,.0f} ms" for column in columns[:4]),
            *(f"{column[case]:.2f}" for column in columns[4:]),
        ]
        for case in columns[0]
    ]
    return table(("gradient", *times, *ratios), lines)


def contraction_growth_table() -> str:
    """Milliseconds by size, and what twice the size takes over it."""
    time, growth = (values("contraction_growth", figure) for figure in ("time", "growth"))
    lines = [[case, f"{time[case]:,.0f} ms", f"{growth[case]:.2f}" if case in growth else ""] for case in time]
    return table(("gradient or training: size", "time", "growth"), lines)


def xarray_sql_nn_table() -> str:
    """Seconds of a training, and of a step of it."""
    total, step = (values("xarray_sql_nn", figure) for figure in ("in total", "a step"))
    lines = [[way, f"{total[way]:,.1f} s", f"{step[way]:.3f} s"] for way in total]
    return table(("way", "60 steps", "a step"), lines)


def nn2sql_table() -> str:
    """Whole trainings in seconds."""
    ways = ("SQL", "by hand", "NumPy", "JAX", "DuckDB")
    columns = [values("nn2sql", way) for way in ways]
    lines = [[case, *(f"{c[case]:,.2f} s" if case in c else "" for c in columns)] for case in columns[0]]
    return table(("training", *ways), lines)


def objective_table() -> str:
    """Milliseconds of a call, beside those of what it is made of and of JAX."""
    ways = ("a call", "executing the plan", "the statement", "JAX")
    columns = [values("objective", way) for way in ways]
    return table(("of the rounds", *ways), [[case, *(f"{c[case]:.2f} ms" for c in columns)] for case in columns[0]])


def training_table() -> str:
    """Milliseconds of the first training, by rows and ways."""
    found = training("loading and first")
    rows = sorted({count for points in found.values() for count in points})
    lines = [[f"{count:,}", *(f"{p[count]:,.0f} ms" if count in p else "" for p in found.values())] for count in rows]
    return table(("rows", *found), lines)


def training(figure: str) -> dict[str, dict[int, float]]:
    """Milliseconds by way and rows."""
    found: dict[str, dict[int, float]] = {}
    for case, value in values("training", figure).items():
        rows, _, way = case.partition(" rows, ")
        found.setdefault(way, {})[int(rows.replace(",", ""))] = value
    return found


# --------------------------------------------------------------------------------------------------------------------
# Pictures
# --------------------------------------------------------------------------------------------------------------------


def forms() -> Figure:
    """The ratios of fifteen derivatives as dots, those over JAX on a scale of their own."""
    alone, beside, jax = (
        {case: ratio for case, ratio in values("forms", figure).items() if case not in ("geometric mean", "worst")}
        for figure in ("/ hand", "beside the value, / hand", "/ JAX")
    )
    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    dots(left, "over the fastest SQL by hand", {"alone": alone, "beside the value": beside})
    left.axvline(1.1, color=ORANGE, linestyle="--", linewidth=1)
    left.legend(loc="lower right")
    dots(right, "over JAX, compiled, one thread", {"alone": jax})
    right.set_xscale("log", base=2)
    right.xaxis.set_major_formatter("{x:g}")
    left.invert_yaxis()
    return figure


def dots(ax: Axes, title: str, columns: dict[str, dict[str, float]]) -> None:
    """A line for each case with a dot for each column."""
    ax.set_title(title, fontsize=11)
    for (name, column), color, marker in zip(columns.items(), COLORS, "os", strict=False):
        ax.plot(list(column.values()), list(column), marker, color=color, label=name, markersize=6)
    ax.axvline(1, color="black", linewidth=0.8)
    ax.grid(axis="y", color="#E5E5E5")


def growth() -> Figure:
    """Milliseconds of planning by nodes, in one call and in many, beside JAX."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    shown = {
        "planning without calls": ["without"],
        "planning with grad": ["with `grad`"],
        "JAX traces and compiles": ["JAX traces", "JAX compiles"],
    }
    for ax, ending, title in zip(
        figure.subplots(1, 2, sharey=True), ("one call", "calls"), ("One call", "Many calls of 14 nodes"), strict=True
    ):
        for (label, figures), color in zip(shown.items(), (GREY, BLUE, ORANGE), strict=True):
            points: dict[int, float] = {}
            for name in figures:
                for case, value in values("growth", name).items():
                    what, _, nodes = case.removesuffix(" nodes").rpartition(", ")
                    if what.endswith(ending):
                        points[int(nodes)] = points.get(int(nodes), 0.0) + value
            ax.plot(list(points), list(points.values()), "o-", color=color, label=label)
        ax.set(xscale="log", yscale="log", xlabel="nodes", title=title)
        ax.grid(color="#E5E5E5")
    figure.axes[0].set_ylabel("milliseconds")
    figure.axes[0].legend()
    return figure


def engine() -> Figure:
    """The ratios of all queries, in order of size within their group."""
    ratios = values("engine_vs_stock", "ratio")
    groups: dict[str, list[float]] = {}
    for case, ratio in ratios.items():
        group, colon, _ = case.partition(": ")
        if colon:
            groups.setdefault(group, []).append(ratio)
    figure = Figure(figsize=(10, 3), layout="constrained")
    ax = figure.subplots()
    start = 0
    for (group, found), color in zip(groups.items(), COLORS, strict=False):
        name = f"expressions {group}" if group in ("plan", "run") else group
        ax.plot(range(start, start + len(found)), sorted(found), "o", color=color, label=name, markersize=5)
        start += len(found) + 2
    ax.axhline(1, color="black", linewidth=0.8)
    ax.axhspan(0.98, 1.02, color="#EEEEEE", zorder=0)
    ax.set(ylabel="engine / stock", xticks=[], xlabel="queries, in order within each group")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


def trained() -> Figure:
    """Seconds of a training by the number of rows, for each way."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    panels = {"loading and first": "From the file, planning or compiling included", "again": "Once more"}
    for ax, (wanted, title) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        for (way, points), color in zip(training(wanted).items(), COLORS, strict=False):
            seconds = [milliseconds / 1e3 for milliseconds in points.values()]
            ax.loglog(list(points), seconds, marker="o", markersize=4, color=color, label=way)
        ax.set(title=title, xlabel="rows")
        ax.grid(color="#E5E5E5")
    figure.axes[0].set(ylabel="seconds")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


PICTURES = {"forms": forms, "growth": growth, "engine": engine, "training": trained}
TABLES = {
    "forms": forms_table,
    "file": file_table,
    "growth": growth_table,
    "startup": startup_table,
    "fixed_point": fixed_point_table,
    "jacobian": jacobian_table,
    "planning": planning_table,
    "engine": lambda: means_table("engine_vs_stock"),
    "stock": lambda: means_table("engine_vs_stock-55"),
    "added": lambda: f"{max(added()):.1f}",
    "added_mean": lambda: f"{sum(added()) / len(added()):.1f}",
    "versions": versions_table,
    "rows": lambda: goals_table("rows"),
    "contraction": contraction_table,
    "contraction_goals": lambda: goals_table("contraction"),
    "contraction_growth": contraction_growth_table,
    "nn2sql": nn2sql_table,
    "xarray_sql_nn": xarray_sql_nn_table,
    "adjoint": lambda: goals_table("adjoint"),
    "objective": objective_table,
    "training": training_table,
}


def page() -> str:
    """The page in Markdown."""
    reports = {path.stem: report(path.stem) for path in sorted(RECORDS.glob("*.json"))}
    older = [program for program, found in reports.items() if found["versions"]["datafusion"].startswith("54")]
    return Template(PAGE).substitute(
        {name: write() for name, write in TABLES.items()},
        processor=" or ".join(sorted({found["processor"] for found in reports.values()})),
        older=", ".join(f"`{program}`" for program in older),
        jax=reports["forms"]["versions"]["jax"],
    )


if __name__ == "__main__":
    (HERE / "figures.md").write_text(page(), encoding="utf-8")
    for name, draw in PICTURES.items():
        draw().savefig(HERE / "images" / f"figures-{name}.png", dpi=110)
