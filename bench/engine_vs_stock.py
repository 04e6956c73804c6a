"""Times the same queries on the stock `datafusion` and on one that differentiates.

    build/fresh/bin/python bench/engine_vs_stock.py [--suites own tpch h2o] [--scale 1] [--rounds 3] [--only WORD ...]
    build/fresh-55/bin/python bench/engine_vs_stock.py ...

The environments are those of `dev.py wheels`, since what `dev.py build` makes is quick to build and slow to run. With
DataFusion 54 the two are the stock module and xql-ffi-engine, with 55 a session as it is and a registered one. The
suites are queries of our own, TPC-H, and the h2o.ai benchmark. Their tables are made in `build/data`, once for each
scale. No query differentiates anything.

Each round starts two processes, of which one differentiates, and which take turns in running a case, so that whatever
else the machine does meets both. The table gives the least times of each, their ratio, and the
median of the ratios of all turns. Times are processor times of all threads, which other work on the machine disturbs
less; the ratio of the least wall times stands beside. The rows of the first turn are compared. The exit status is 1 if
rows differ, or if both ratios of a case, or both of their geometric means over a group of cases, are above the limit.
That is 1.5 where a registered session plans.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import engine_cases
import h2o
import same_rows
import tpch
from engine_cases import Case
from results import Column, Results, parse

SUITES = {"own": engine_cases, "tpch": tpch, "h2o": h2o}
# Values of XQL_FFI_ENGINE, which matters to DataFusion 54 alone.
STOCK, ENGINE = "0", "1"
DATA = Path(__file__).resolve().parents[1] / "build" / "data"
PARTITIONS = os.cpu_count() or 1
# In a round a case runs until it has taken this many seconds or has been run so often, but once at least.
SECONDS, RUNS = 0.5, 15
# The limit of planning in a registered session.
PLANNING = 1.5


class Sample(NamedTuple):
    """Seconds of a run."""

    wall: float
    cpu: float


# For each case the samples of its turns: the stock module, the engine.
Turns = dict[str, list[tuple[Sample, Sample]]]


def tables(suite: str, scale: float) -> Path:
    """The folder with the tables of a suite, which are made if they are not there."""
    folder = DATA / f"{suite}-{scale:g}"
    if not folder.exists():
        print(f"making {folder}", file=sys.stderr)
        DATA.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=DATA) as made:
            place = Path(made) / "tables"
            place.mkdir()
            SUITES[suite].make(place, scale)
            shutil.move(place, folder)
    return folder


class Side:
    """A process that differentiates, or not."""

    def __init__(self, side: str, suites: list[str], scale: float) -> None:
        command = [sys.executable, __file__, "--serve", "--scale", str(scale), "--suites", *suites]
        env = {**os.environ, "XQL_FFI_ENGINE": side}
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.module, self.cases = self.answer()

    def answer(self) -> Any:
        """What the process says next."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def run(self, number: int, keep: Path | None = None) -> Sample:
        """Runs a case and keeps its rows, if it has rows and a file is named."""
        assert self.process.stdin is not None
        print(json.dumps([number, str(keep or "")]), file=self.process.stdin, flush=True)
        return Sample(*self.answer())

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve(suites: list[str], scale: float) -> None:
    """Names the cases, then runs what `Side` asks for."""
    from datafusion import SessionConfig, SessionContext, _internal

    registers = os.environ["XQL_FFI_ENGINE"] == ENGINE and not on_engine()
    cases: list[Case] = []
    for suite in suites:
        ctx = SessionContext(SessionConfig().with_target_partitions(PARTITIONS))
        if registers:
            from xql_ffi import register

            register(ctx)
        cases += SUITES[suite].cases(ctx, tables(suite, scale))
    print(json.dumps([_internal.__file__, [(case.group, case.name) for case in cases]]), flush=True)
    for line in sys.stdin:
        number, keep = json.loads(line)
        case = cases[number]
        wall, cpu = time.perf_counter(), time.process_time()
        result: Any = case.run()
        sample = Sample(time.perf_counter() - wall, time.process_time() - cpu)
        if keep and case.ordered is not None:
            same_rows.keep(result, case.ordered, Path(keep))
        del result
        print(json.dumps(sample), flush=True)


def on_engine() -> bool:
    """Whether the installed `datafusion` is the one that there is an engine for."""
    return metadata.version("datafusion").startswith("54.")


def measure(sides: Sequence[Side], only: list[str], rows: Path | None) -> tuple[Turns, dict[str, str]]:
    """The turns of a round, and, if there is a folder to keep rows in, where the rows of a case differ."""
    turns: Turns = {}
    differences: dict[str, str] = {}
    for number, (group, name) in enumerate(sides[0].cases):
        case = f"{group}: {name}"
        if only and not any(word in case for word in only):
            continue
        taken = turns.setdefault(case, [])
        if rows:
            files = rows / "stock.npz", rows / "engine.npz"
            taken.append((sides[0].run(number, files[0]), sides[1].run(number, files[1])))
            if files[0].exists():
                differences[case] = same_rows.difference(*files)
                files[0].unlink()
        while not taken or (len(taken) < RUNS and sum(stock.wall for stock, _ in taken) < SECONDS):
            # Who begins changes, so that neither always finds the caches as the other one leaves them.
            first = len(taken) % 2 == 0
            begun = sides[not first].run(number)
            other = sides[first].run(number)
            taken.append((begun, other) if first else (other, begun))
    return turns, differences


def report(results: Results, turns: Turns, limit: float, mean_limit: float) -> bool:
    """Prints the tables of cases and of their groups; whether the ratios of processor time are within the limits."""
    ratio, wall = Column("ratio", digits=3), Column("of wall time", digits=3)
    median = Column("median of turns", digits=3)
    ours = "engine" if on_engine() else "registered"
    table = results.table("case", Column("stock", "ms"), Column(ours, "ms"), ratio, median, wall, Column("limit"))
    groups: dict[str, list[tuple[float, float, float]]] = {"all": []}
    within = True
    for case, taken in turns.items():
        stock, engine = (
            Sample(*(min(times) for times in zip(*samples, strict=True))) for samples in zip(*taken, strict=True)
        )
        middle = statistics.median(engine.cpu / stock.cpu for stock, engine in taken)
        ratios = (engine.cpu / stock.cpu, middle, engine.wall / stock.wall)
        group = case.partition(": ")[0]
        for name in (group, "all"):
            groups.setdefault(name, []).append(ratios)
        above = min(ratios[:2]) > allowed(group, limit)
        within &= not above
        table.line(case, stock.cpu * 1e3, engine.cpu * 1e3, *ratios, "above" if above else None)
    table = results.table("geometric mean of", ratio, median, wall, Column("limit"))
    for group in sorted(groups, key="all".__eq__):
        means = [statistics.geometric_mean(column) for column in zip(*groups[group], strict=True)]
        above = min(means[:2]) > allowed(group, mean_limit)
        within &= not above
        table.line(group, *means, "above" if above else None)
    return within


def allowed(group: str, limit: float) -> float:
    """The largest ratio of a group. A registered session looks at each statement before another session plans it."""
    plans = group == "all" or group.endswith("plan")
    return PLANNING if plans and not on_engine() else limit


def main() -> int:
    """Runs the rounds and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--scale", type=float, default=1, help="1 is 2,500,000 to 6,000,000 rows (default: 1)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1.10, help="of a case (default: 1.10)")
    parser.add_argument("--mean-limit", type=float, default=1.02, help="of a geometric mean (default: 1.02)")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="cases whose name contains a word")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args, results = parse(parser, suites=["own"], rounds=2, scale=0.04)
    if args.serve:
        serve(args.suites, args.scale)
        return 0

    for suite in args.suites:
        tables(suite, args.scale)
    turns: Turns = {}
    differences: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        for number in range(args.rounds):
            print(f"round {number + 1}/{args.rounds}", file=sys.stderr)
            sides = [Side(side, args.suites, args.scale) for side in (STOCK, ENGINE)]
            if on_engine() and sides[0].module == sides[1].module:
                sys.exit(f"both sides loaded {sides[0].module}: is xql-ffi-engine installed?")
            taken, differ = measure(sides, args.only, None if number else Path(folder))
            differences |= differ
            for case, samples in taken.items():
                turns.setdefault(case, []).extend(samples)
            for side in sides:
                side.close()
    print(f"stock: {sides[0].module}\nours:  {sides[1].module}\n{PARTITIONS} partitions, scale {args.scale:g}")
    within = report(results, turns, args.limit, args.mean_limit)
    print(f"\nThe rows of {list(differences.values()).count('')} of {len(differences)} queries are the same on both.")
    for case, what in differences.items():
        if what:
            print(f"{case}: the rows differ in {what}")
    results.write()
    return 0 if within and not any(differences.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
