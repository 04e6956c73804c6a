"""Measures the memory of processes that plan many statements, make many sessions or train for many steps, and draws it.

    build/fresh-55/bin/python bench/memory.py [--statements 100000] [--steps 10000] [--sessions 10000] [--picture FILE]

Each case runs in a process of its own, which notes its resident memory a hundred times. Every statement is another
text, so that nothing could be kept for the next one. The table gives the memory after a tenth of the work and at the
end, and what a statement or a step adds in between. The exit status is 1 if a case grows by more than 5 % and 10 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from results import Column, parse

POINTS = 100
PAGE = os.sysconf("SC_PAGE_SIZE")
# Work done, and the resident memory in MB then.
Points = list[tuple[int, float]]


def resident() -> float:
    """The resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE / 1e6


def statements(number: int) -> str:
    """A statement that is no other one."""
    kind = number % 4
    if kind == 0:
        return f"SELECT grad(sin(x * {number}) * y, x) AS d FROM t"
    if kind == 1:
        return f"WITH m AS (SELECT x, y, x * y + {number} AS v FROM t) SELECT AVG(grad(v * v, x)) AS d FROM m"
    if kind == 2:
        return f"SELECT jvp(SUM(x * {number}) OVER (ORDER BY y), x, 1.0) AS d FROM t"
    return f"SELECT x, grad((SELECT SUM(x * x * {number}) FROM t), x) AS d FROM t"


def planned(count: int) -> Iterator[int]:
    """Statements with derivatives, planned."""
    from datafusion import SessionContext

    import xql_ffi

    ctx = xql_ffi.register(SessionContext())
    ctx.from_pydict({"x": [0.5, 1.0], "y": [1.0, 2.0]}, name="t")
    for number in range(count):
        ctx.sql(statements(number)).execution_plan()
        yield number


def as_text(count: int) -> Iterator[int]:
    """Statements written as text."""
    import pyarrow as pa

    import xql_ffi

    tables = {"t": pa.schema({"x": pa.float64(), "y": pa.float64()})}
    for number in range(count):
        xql_ffi.expand_sql(statements(number), tables)
        yield number


def trained(count: int) -> Iterator[int]:
    """Steps of a training loop, in one statement of so many steps."""
    from datafusion import SessionContext

    import xql_ffi

    ctx = xql_ffi.register(SessionContext())
    ctx.from_pydict({"x": [i / 1000 for i in range(1000)], "y": [i / 500 + 1 for i in range(1000)]}, name="data")
    stream = ctx.sql(f"""
        WITH RECURSIVE fit AS (
            SELECT 0 AS step, 0.0 AS w, 0.0 AS b
            UNION ALL
            SELECT step + 1, w - 0.1 * AVG(grad(power(w * x + b - y, 2), w)),
                b - 0.1 * AVG(grad(power(w * x + b - y, 2), b))
            FROM fit CROSS JOIN data WHERE step < {count} GROUP BY step, w, b)
        SELECT step FROM fit""").execute_stream()
    for batch in stream:
        yield max(batch.to_pyarrow().column(0).to_pylist(), default=0)


def trained_by_row(count: int) -> Iterator[int]:
    """Steps of a training loop of a client, a statement for each, of weights that are rows."""
    from datafusion import SessionContext

    import xql_ffi

    ctx = xql_ffi.register(SessionContext())
    ctx.from_pydict({"k": list(range(8)), "val": [0.1] * 8}, name="w")
    ctx.from_pydict({"k": list(range(8)) * 32, "x": [i / 256 for i in range(256)]}, name="d")
    for number in range(count):
        step = ctx.sql("""
            WITH l AS (SELECT AVG(power(w.val * d.x - 1.0, 2)) AS l FROM w JOIN d ON w.k = d.k)
            SELECT k, val - 0.1 * grad((SELECT l FROM l), val) AS val FROM w""").collect()
        ctx.deregister_table("w")
        ctx.register_record_batches("w", [step])
        yield number


def made_and_dropped(count: int) -> Iterator[int]:
    """Sessions that differentiate one statement each."""
    from datafusion import SessionContext

    import xql_ffi

    for number in range(count):
        ctx = xql_ffi.register(SessionContext())
        ctx.from_pydict({"x": [0.5, 1.0], "y": [1.0, 2.0]}, name="t")
        ctx.sql(statements(number)).collect()
        yield number


CASES: dict[str, tuple[Callable[[int], Iterator[int]], str]] = {
    "planned": (planned, "statements"),
    "written as text": (as_text, "statements"),
    "steps of one statement": (trained, "steps"),
    "steps by row, a statement each": (trained_by_row, "steps"),
    "made and dropped": (made_and_dropped, "sessions"),
}


def measure(name: str, count: int) -> Points:
    """The memory over the work of a case, in this process."""
    points: Points = []
    for done in CASES[name][0](count):
        if done >= len(points) * count / POINTS:
            points.append((done, resident()))
    points.append((count, resident()))
    return points


def grows(points: Points, count: int) -> tuple[float, float, float]:
    """The memory after a tenth of the work and at the end, in MB, and the difference for a unit of work, in bytes."""
    begin = next((memory for done, memory in points if done >= count / 10), points[-1][1])
    end = points[-1][1]
    return begin, end, (end - begin) * 1e6 / (0.9 * count)


def draw(measured: dict[str, tuple[Points, int, str]], path: Path) -> None:
    """A panel for each case."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    axes = figure.subplots(2, 3).flat
    for ax in axes[len(measured) :]:
        ax.remove()
    for ax, (name, (points, count, unit)) in zip(axes, measured.items(), strict=False):
        ax.plot([done for done, _ in points], [memory for _, memory in points], color="#0072B2")
        ax.set(title=name, xlabel=unit, ylabel="resident memory, MB", xlim=(0, count))
        ax.set_ylim(0, 1.25 * max(memory for _, memory in points))
    figure.savefig(path, dpi=110)


def main() -> int:
    """Runs all cases, prints a line for each, and draws them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments, results = parse(parser, statements=1000, steps=500, sessions=100)
    if arguments.case:
        unit = CASES[arguments.case][1]
        print(json.dumps(measure(arguments.case, getattr(arguments, unit))))
        return 0
    measured: dict[str, tuple[Points, int, str]] = {}
    columns = (Column("after a tenth", "MB", 1), Column("at the end", "MB", 1), Column("for each", "B", 1))
    table = results.table("case", *columns, Column("time", "s", 1))
    for name, (_, unit) in CASES.items():
        count = getattr(arguments, unit)
        start = time.monotonic()
        sizes = [f"--{unit}={getattr(arguments, unit)}" for unit in ("statements", "steps", "sessions")]
        command = [sys.executable, __file__, f"--case={name}", *sizes]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        points = [(done, memory) for done, memory in json.loads(run.stdout.splitlines()[-1])]
        measured[name] = (points, count, unit)
        begin, end, each = grows(points, count)
        table.line(f"{name}, {count:,} {unit}", begin, end, each, time.monotonic() - start)
    results.write()
    if arguments.picture:
        draw(measured, arguments.picture)
    growths = [grows(points, count) for points, count, _ in measured.values()]
    return int(any(end > begin * 1.05 and end > begin + 10 for begin, end, _ in growths))


if __name__ == "__main__":
    sys.exit(main())
