"""Measures how large statements may be, and prints the tables of docs/limits.md.

    build/fresh-55/bin/python bench/limits.py [--seconds 60] [--only sizes lines] [--shapes "calls" "conditions"]

`sizes` gives the processor seconds of planning statements of several sizes without derivatives, with them on the
engine, and as text. `lines` doubles the size of a statement until its planning ends the process or takes too long: on
the stock module of `datafusion` without derivatives, and on the engine with them. Each statement is planned in a
process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Container
from pathlib import Path

from results import Column, Results, parse

TESTS = Path(__file__).resolve().parent.parent / "tests"
SIZES = {
    "terms of a sum": (250, 1000),
    "nodes of a sum in halves": (12_500, 50_000),
    "branches of CASE": (500, 2000),
    "arguments of greatest": (750, 3000),
    "columns of expressions": (250, 1000),
    "columns of a table": (1250, 5000),
    "calls": (250, 1000),
    "CTEs one on another": (16, 64),
    "layers by row": (8, 32),
}
# A shape, the stack of the thread in kB, and the size to begin with.
LINES = (
    ("Horner's scheme", 0, 64),
    ("Horner's scheme", 256, 16),
    ("CASE in one another", 0, 64),
    ("CASE in one another", 256, 16),
    ("conditions", 0, 1024),
    ("conditions of WHERE", 0, 1024),
    ("conditions of WHERE", 2048, 256),
    ("terms of a sum", 0, 512),
    ("CTEs one on another", 0, 64),
    ("CTEs one on another", 256, 16),
)


def planned(case: str, seconds: float, *, engine: bool) -> float | str:
    """The processor seconds of planning, or why there are none."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "XQL_FFI_ENGINE": str(int(engine))}
    command = [sys.executable, "-W", "ignore", "-m", "load.planned", case]
    try:
        run = subprocess.run(
            command, env=environment, cwd=TESTS, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return "time"
    if run.returncode:
        return "ends"
    outcome = json.loads(run.stdout.splitlines()[-1])[1]
    return "refused" if "error" in outcome else float(outcome["seconds"])


def sizes(results: Results, seconds: float, shapes: Container[str], *, small: bool) -> None:
    """Prints a line for each of the shapes and each size."""
    table = results.table("statement", *(Column(figure, "s") for figure in ("without", "engine", "as text")))
    for name, both in ((name, both) for name, both in SIZES.items() if name in shapes):
        for n in both[: 1 if small else None]:
            found = (planned(f"{path}:{name}:{n}:0", seconds, engine=True) for path in ("without", "engine", "text"))
            table.line(f"{name}, {n:,}", *found)


def line(path: str, name: str, stack: int, first: int, seconds: float, *, engine: bool) -> str:
    """The largest size that is planned, of those that double the first, and what is with the next."""
    size = first
    while isinstance(found := planned(f"deep-{path}:{name}:{size}:{stack}", seconds, engine=engine), float):
        size *= 2
    what = {"ends": "overflows the stack", "time": f"takes over {seconds:.0f} s", "refused": "is refused"}[found]
    return f"{size // 2:,}; {size:,} {what}" if size > first else f"{size:,} {what}"


def lines(seconds: float, shapes: Container[str]) -> None:
    """Prints a line for each of the shapes and each stack."""
    print(
        "| statement | stack | stock `datafusion`, without derivatives | engine, with derivatives |\n|---|---:|---|---|"
    )
    for name, stack, first in (line for line in LINES if line[0] in shapes):
        stock = line("without", name, stack, first, seconds, engine=False)
        ours = line("engine", name, stack, first, seconds, engine=True)
        size = f"{stack} kB" if 0 < stack < 1024 else f"{stack // 1024 or 8} MB"
        print(f"| {name} | {size} | {stock} | {ours} |", flush=True)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long planning a statement may take")
    parser.add_argument("--only", nargs="*", choices=("sizes", "lines"), default=["sizes", "lines"])
    every = {*SIZES, *(name for name, _, _ in LINES)}
    parser.add_argument("--shapes", nargs="*", choices=sorted(every), default=every, help="statements of these shapes")
    parser.add_argument("--small", action="store_true", help="the smaller of the two sizes only")
    arguments, results = parse(parser, only=["sizes"], small=True)
    if "sizes" in arguments.only:
        sizes(results, arguments.seconds, arguments.shapes, small=arguments.small)
    results.write()
    if "lines" in arguments.only:
        lines(arguments.seconds, arguments.shapes)


if __name__ == "__main__":
    main()
