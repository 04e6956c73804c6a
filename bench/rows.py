"""Times gradients by row beside the value, a backward pass written by hand as SQL steps, ddxdb, JAX and NumPy.

    build/fresh-55/bin/python bench/rows.py [--rounds 3] [--clock wall|cpu] [--only NAME ...] [--skip WAY ...]

Every round runs all ways of a case one after the other, so that whatever else the machine does meets each; the figures
are the fastest of the rounds. Everything is measured from the text of the statement to the rows in memory, planning
included, which is given beside. ddxdb runs in an environment of its own on the stock `datafusion`, which this program
makes in a temporary folder (or takes from `--peer PATH`, the Python of one). The exit status is 1 if a goal is not
reached.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from results import Column, Results, parse
from rows_cases import CASES, Case, layers, network

PEER = ["ddxdb[datafusion]==0.4.3", "numpy", "pyarrow"]
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
PARTITIONS = os.cpu_count() or 1

Way = Callable[[], Any]
Times = dict[str, float]


def register(ctx: Any, name: str, table: pa.Table) -> None:
    """Registers a table, in as many partitions as the session has."""
    batches = table.to_batches(max_chunksize=8192)
    ctx.deregister_table(name)
    ctx.register_record_batches(name, [part for i in range(PARTITIONS) if (part := batches[i::PARTITIONS])] or [[]])


def load(ctx: Any, case: Case) -> None:
    """Registers the tables of a case."""
    for name, table in case.tables.items():
        register(ctx, name, pa.table(table))


def collected(ctx: Any, statement: str) -> pa.Table:
    """The rows of a statement."""
    # A union gives batches that differ in what they declare as nullable.
    batches = [pa.Table.from_batches([batch]) for batch in ctx.sql(statement).collect()]
    return pa.concat_tables(batches, promote_options="default")


def trained(ctx: Any, case: Case, loss: str) -> pa.Table:
    """The parameters after all steps of training, driven by this program."""
    start = pa.table(case.tables[case.variable])
    table = start
    for _ in range(case.steps):
        table = collected(ctx, case.update(loss))
        register(ctx, case.variable, table)
    register(ctx, case.variable, start)
    return table


def in_order(case: Case, table: pa.Table) -> np.ndarray:
    """The last column of a result but the value's, in the order of the keys."""
    keys = [table.column(position).to_numpy() for position in range(len(case.keys))]
    return np.asarray(table.column(len(case.keys)).to_numpy())[np.lexsort(keys[::-1])]


def engine() -> Any:
    """A session of the engine with the operators."""
    from datafusion import SessionConfig, SessionContext

    import xql_ffi

    return xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(PARTITIONS)))


OURS = "(SELECT l FROM loss)"


class Local:
    """What runs in this process."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.ctx = engine()
        load(self.ctx, case)

    def by_hand(self) -> pa.Table:
        """The backward pass as SQL steps with temporary tables."""
        for name, query in self.case.by_hand.items():
            if name in ("value", "gradient"):
                result = collected(self.ctx, query)
            else:
                self.ctx.sql(f"CREATE OR REPLACE TABLE {name} AS {query}")
        for name in self.case.by_hand.keys() - {"value", "gradient"}:
            self.ctx.deregister_table(name)
        return result

    def ways(self) -> dict[str, Way]:
        """What is timed, by name."""
        case, ctx = self.case, self.ctx
        if case.steps:
            return {
                "one statement": lambda: collected(ctx, case.training()),
                "client": lambda: trained(ctx, case, OURS),
            }
        gradient = case.gradient(OURS, value=False)
        ways: dict[str, Way] = {
            "value": lambda: collected(ctx, case.value()),
            "gradient": lambda: collected(ctx, gradient),
            "both": lambda: collected(ctx, case.gradient(OURS, value=True)),
            "by hand": self.by_hand,
            "planning": lambda: ctx.sql(gradient).execution_plan(),
            "planning the value": lambda: ctx.sql(case.value()).execution_plan(),
            "NumPy": lambda: case.backward(case.arrays),
        }
        return {**ways, "JAX": compiled(case)}


def compiled(case: Case) -> Way:
    """The value and the gradients by JAX, compiled."""
    import jax

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    import jax.numpy as jnp

    data = {name: jnp.asarray(array) for name, array in case.arrays.items() if name not in case.parameters}
    at = {name: jnp.asarray(case.arrays[name]) for name in case.parameters}
    run = jax.jit(jax.value_and_grad(lambda at: case.loss(jnp, {**data, **at})))
    return lambda: jax.block_until_ready(run(at))  # type: ignore[no-untyped-call]


class Remote:
    """ddxdb in a process of its own."""

    def __init__(self, python: Path, clock: str) -> None:
        command = [str(python), __file__, "--serve", "--clock", clock]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **question: str) -> Any:
        """The answer of the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve(clock: Callable[[], float]) -> None:
    """Answers the questions of `Remote`, in the environment of ddxdb."""
    from datafusion import SessionConfig
    from ddxdb import Context

    case, ctx = None, None
    for line in sys.stdin:
        question = json.loads(line)
        if "case" in question:
            case = CASES[question["case"]]()
            ctx = Context(SessionConfig().with_target_partitions(PARTITIONS))
            load(ctx, case)
            print(json.dumps({}), flush=True)
            continue
        assert case is not None
        start = clock()
        try:
            way = question["way"]
            if way == "client":
                result = trained(ctx, case, "loss")
            elif way == "value":
                result = collected(ctx, case.value())
            else:
                result = collected(ctx, case.gradient("loss", value=way == "both"))
        except Exception as error:  # What it refuses is part of the answer.
            print(json.dumps({"error": str(error).splitlines()[0]}), flush=True)
            continue
        seconds = clock() - start
        gradient = [] if way == "value" or not question["check"] else in_order(case, result).tolist()
        print(json.dumps({"seconds": seconds, "gradient": gradient}), flush=True)


def peer_python(folder: Path) -> Path:
    """The Python of a new environment with ddxdb."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEER], check=True)
    return python


def agree(name: str, gradient: np.ndarray, expected: np.ndarray) -> None:
    """Ends the program if two gradients differ."""
    scale = np.abs(expected).max()
    error = np.abs(gradient - expected).max() / scale
    if gradient.shape != expected.shape or not error < 1e-9:
        sys.exit(f"{name}: the gradients differ by {error:.1e} of their scale")


def measured(name: str, remote: Remote | None, rounds: int, clock: Callable[[], float], skip: set[str]) -> Times:
    """The fastest of the rounds of every way of a case, in seconds."""
    case = CASES[name]()
    local = {way: run for way, run in Local(case).ways().items() if way not in skip}
    best: Times = {}
    checked = {} if case.steps else {"NumPy": np.concatenate([np.ravel(g) for g in case.backward(case.arrays)[1]])}
    if remote:
        remote.ask(case=name)
    peer = [] if remote is None else ["client"] if case.steps else ["value", "gradient", "both"]
    for turn in range(rounds + 1):
        # The first turn warms up and checks.
        for way, run in local.items():
            start = clock()
            result = run()
            if turn:
                best[way] = min(best.get(way, np.inf), clock() - start)
            elif way == "JAX":
                checked[way] = np.concatenate([np.ravel(result[1][name]) for name in case.parameters])
            elif isinstance(result, pa.Table) and way != "value":
                checked[way] = in_order(case, result)
        for way in peer:
            answer = remote.ask(way=way, check="" if turn else "yes") if remote else {}
            if "error" in answer:
                print(f"  ddxdb refuses {name}, {way}: {answer['error']}", flush=True)
                peer = [other for other in peer if other != way]
            elif turn:
                best[f"ddxdb {way}"] = min(best.get(f"ddxdb {way}", np.inf), answer["seconds"])
            elif answer["gradient"]:
                checked[f"ddxdb {way}"] = np.array(answer["gradient"])
    reference = next(iter(checked.values()))
    for way, gradient in checked.items():
        agree(f"{name}, {way}", gradient, reference)
    return best


def peak_of(kind: str, size: int, clock: str) -> dict[str, float]:
    """The time and the memory of a gradient in a fresh process."""
    command = [sys.executable, __file__, "--point", kind, str(size), "--clock", clock]
    found: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return found


def point(kind: str, size: int, clock: Callable[[], float]) -> None:
    """Prints the time and the memory of one gradient."""
    case = network(size // 16, 16, 8, 4) if kind == "rows" else layers(size)
    ctx = engine()
    load(ctx, case)
    small = network(16, 16, 8, 4)
    other = engine()
    load(other, small)
    collected(other, small.gradient(OURS, value=False))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = clock()
    plan = ctx.sql(case.gradient(OURS, value=False))
    plan.execution_plan()
    planned = clock()
    plan.to_arrow_table()
    seconds = clock() - planned
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps({"planning": planned - start, "seconds": seconds, "memory": memory}))


def growth(results: Results, sizes: dict[str, list[int]], clock: str) -> None:
    """Prints what grows with rows and with layers."""
    table = results.table("growth", Column("planning", "ms", 1), Column("running", "ms", 1), Column("memory", "MB", 1))
    for kind, points in sizes.items():
        for size in points:
            found = peak_of(kind, size, clock)
            table.line(f"{size:,} {kind}", found["planning"] * 1e3, found["seconds"] * 1e3, found["memory"])


def fastest(run: Way, rounds: int, clock: Callable[[], float]) -> float:
    """The seconds of the fastest of several calls."""
    times = []
    for _ in range(rounds):
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)


def ratios(times: dict[str, Times]) -> list[tuple[str, float, float]]:
    """The figures that have a goal: name, ratio, goal."""
    found = []

    def add(name: str, case: str, over: tuple[str, str], goal: float) -> None:
        a, b = (times[case].get(way) for way in over)
        if a is not None and b is not None:
            found.append((name.format(case), a / b, goal))

    for case, best in times.items():
        if "one statement" in best:
            add("{}: one statement over a client's steps", case, ("one statement", "client"), 0.5)
            add("{}: one statement over ddxdb's steps", case, ("one statement", "ddxdb client"), 0.5)
            continue
        add("{}: gradient over ddxdb", case, ("gradient", "ddxdb gradient"), 0.2)
        add("{}: gradient over by hand", case, ("gradient", "by hand"), 1.15)
        add("{}: value and gradients over value", case, ("both", "value"), 3.0 if case == "network" else 4.0)
    return found


def main() -> int:
    """Measures all cases and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: processor time of all threads")
    parser.add_argument("--only", nargs="*", help="cases: " + ", ".join([*CASES, "growth"]))
    parser.add_argument("--skip", nargs="*", default=[], help="ways of a case that are not run, or ddxdb")
    parser.add_argument("--peer", type=Path, help="the Python of an environment with ddxdb")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    arguments, results = parse(parser, only=[name for name in CASES if name != "block"], skip=["ddxdb"])
    clock = CLOCKS[arguments.clock]
    if arguments.serve:
        serve(clock)
        return 0
    if arguments.point:
        point(arguments.point[0], int(arguments.point[1]), clock)
        return 0
    wanted = arguments.only or [*CASES, "growth"]
    cases = [name for name in CASES if name in wanted]
    print(f"{arguments.clock} time, fastest of {arguments.rounds}, {PARTITIONS} partitions")
    times: dict[str, Times] = {}
    with tempfile.TemporaryDirectory() as folder:
        remote = None
        if cases and "ddxdb" not in arguments.skip:
            remote = Remote(arguments.peer or peer_python(Path(folder) / "ddxdb"), arguments.clock)
        for name in cases:
            times[name] = measured(name, remote, arguments.rounds, clock, set(arguments.skip))
            table = results.table(name, Column("time", "ms", 1))
            for way, seconds in times[name].items():
                table.line(f"{name}, {way}", seconds * 1e3)
        if remote:
            remote.close()
    reached = results.goals(ratios(times))
    if "growth" in wanted:
        growth(results, {"rows": [10_000, 100_000, 1_000_000], "layers": [2, 4, 8, 16]}, arguments.clock)
    results.write()
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
