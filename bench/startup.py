"""Times what a process begins with: importing xql_ffi, registering a session, and the first derivative.

    build/fresh-55/bin/python bench/startup.py [--rounds 9]

Each line is a process of its own that does what it says and all lines before; the figures are the least of the rounds.
Processor time is that of the whole process, memory is its largest resident size. The last lines are a session that is
registered and idle beside one that is not, by a hundred of both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from results import Column, parse

TABLE = 'ctx.from_pydict({"x": [0.5, 2.0]}, name="t")'
STEPS = {
    "import datafusion": "from datafusion import SessionContext",
    "a session and a query": f'ctx = SessionContext(); {TABLE}; ctx.sql("SELECT sin(x) FROM t").to_pydict()',
    "import xql_ffi": "import xql_ffi",
    "register": "ctx = xql_ffi.register(ctx)",
    "the first grad": 'ctx.sql("SELECT grad(sin(x), x) FROM t").to_pydict()',
    "the first gradient by row": 'ctx.sql("SELECT grad((SELECT SUM(x * x) FROM t), x) FROM t").to_pydict()',
}
SESSIONS = 100
IDLE = {
    "a session": f"held = [SessionContext() for _ in range({SESSIONS})]",
    "a registered session": f"held = [xql_ffi.register(SessionContext()) for _ in range({SESSIONS})]",
}
# A child's largest resident size is no less than its parent's, whose pages it shares at first: a small one in between.
RUNNER = """
import resource, subprocess, sys, time
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def measure(program: str, rounds: int) -> tuple[float, float]:
    """The milliseconds of processor time and the megabytes of a process that runs a program."""
    found = []
    for _ in range(rounds):
        command = [sys.executable, "-c", RUNNER, program]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=os.sep)
        seconds, kilobytes = map(float, done.stdout.split())
        found.append((seconds * 1e3, kilobytes / (1 if sys.platform != "darwin" else 1024) / 1e3))
    times, sizes = zip(*found, strict=True)
    return min(times), min(sizes)


def main() -> None:
    """Measures all programs and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options, results = parse(parser, rounds=3)
    columns = (
        Column("processor time", "ms", 0),
        Column("more", "ms", 0),
        Column("memory", "MB", 0),
        Column("more memory", "MB", 0),
    )
    table = results.table("process", *columns)
    done: list[str] = []
    before = 0.0, 0.0
    for name, step in STEPS.items():
        done.append(step)
        found = measure("\n".join(done), options.rounds)
        table.line(name, found[0], found[0] - before[0], found[1], found[1] - before[1])
        before = found
    table = results.table("idle", Column("processor time", "ms", 2), Column("memory", "kB", 0))
    for name, step in IDLE.items():
        found = measure("\n".join([*done, step]), options.rounds)
        table.line(name, (found[0] - before[0]) / SESSIONS, (found[1] - before[1]) * 1e3 / SESSIONS)
    results.write()


if __name__ == "__main__":
    main()
