"""Times statements with derivatives on DataFusion 55, and on the engine for 54.

    build/fresh/bin/python bench/versions.py --other build/fresh-55/bin/python [--rounds 3] [--programs planning ...]

The environments are those of `dev.py wheels`: the one that runs this program has DataFusion 54 and the engine, the
other one 55. The programs, which time planning, gradients by row and training, run in both in turn with `--quick`. Of
each time the least of the rounds counts. The table has the geometric mean of the ratios of each program, and the worst.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from compare import Figures, Look, look
from results import Column, Results, parse

PROGRAMS = ("planning", "growth", "rows", "training")


def wanted(figures: Figures) -> Figures:
    """The times of derivatives, without those of what they are compared with."""
    others = ("jax", "ddxdb", "numpy", "loop", "text")
    return {key: value for key, value in figures.items() if not any(word in " ".join(key).lower() for word in others)}


def report(results: Results, looks: dict[str, Look]) -> None:
    """Prints a line for each program and figure."""
    ratio, worst = Column("55 / 54", digits=2), Column("worst", digits=2)
    table = results.table("program: figure", ratio, worst, Column("cases", digits=0, better="neither"))
    for program, found in looks.items():
        by_figure: dict[str, list[float]] = {}
        for (_, figure), value in wanted(found.ratios()).items():
            by_figure.setdefault(figure, []).append(value)
        for figure, ratios in by_figure.items():
            table.line(f"{program}: {figure}", statistics.geometric_mean(ratios), max(ratios), float(len(ratios)))


def main() -> None:
    """Runs the programs and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", required=True, metavar="PYTHON", help="that of an environment with DataFusion 55")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS))
    options, results = parse(parser, rounds=1)
    environments = {"old": [sys.executable], "new": [options.other]}
    with tempfile.TemporaryDirectory() as folder:
        looks = {program: look(program, environments, options.rounds, Path(folder)) for program in options.programs}
    report(results, looks)
    results.write()


if __name__ == "__main__":
    main()
