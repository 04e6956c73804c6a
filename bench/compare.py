"""Runs programs of this folder in pairs, in two environments, and prints what is slower in the new one.

    python3 dev.py bench [PROGRAM ...] --compare REF     makes both environments and calls
    python3 bench/compare.py PROGRAM ... --old PYTHON COMMIT --new PYTHON [--rounds 3] [--limit 1.1]

Each round runs a program in both environments one after the other, the order changing from round to round, with
`--quick`. Of each time and each size of memory the least of the rounds counts; ratios, which follow from these, are
left out. Programs with a figure above the limit are run a second time, and a figure counts as slower if it is above
the limit again. The exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results import Record

HERE = Path(__file__).resolve().parent
UNITS = ("ns", "µs", "ms", "s", "MB")

# Case and figure.
Key = tuple[str, str]
Figures = dict[Key, float]


@dataclass(frozen=True)
class Look:
    """The figures of a program in both environments."""

    old: Figures
    new: Figures

    def ratios(self) -> Figures:
        """New over old, of the figures that both have."""
        return {key: self.new[key] / old for key, old in self.old.items() if old > 0 and key in self.new}

    def above(self, limit: float) -> set[Key]:
        """What is slower than the limit allows."""
        return {key for key, ratio in self.ratios().items() if ratio > limit}


def least(rounds: Iterable[list[Record]]) -> Figures:
    """The least of each time and each size of memory over the rounds."""
    found: Figures = {}
    for records in rounds:
        for record in records:
            if record["unit"] in UNITS and record["better"] == "smaller":
                key = (record["case"], record["figure"])
                found[key] = min(found.get(key, record["value"]), record["value"])
    return found


def run(program: str, python: str, file: Path, *commit: str) -> list[Record]:
    """The records of one run of a program; the commit of its environment is given if it is not that of the checkout."""
    file.unlink(missing_ok=True)
    command = [python, str(HERE / f"{program}.py"), "--quick", "--json", str(file), *(f"--commit={c}" for c in commit)]
    done = subprocess.run(command, cwd=file.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # A goal that is missed gives a status too, with the records.
    if not file.exists():
        sys.exit(f"{done.stdout}\n{' '.join(command)} ended with {done.returncode}")
    records: list[Record] = json.loads(file.read_text(encoding="utf-8"))["records"]
    return records


def look(program: str, environments: dict[str, list[str]], rounds: int, folder: Path) -> Look:
    """Runs a program so many times in both environments in turn."""
    records: dict[str, list[list[Record]]] = {side: [] for side in environments}
    for number in range(rounds):
        for side in list(environments)[:: -1 if number % 2 else 1]:
            file = folder / f"{program}-{number}-{side}.json"
            python, *commit = environments[side]
            records[side].append(run(program, python, file, *commit))
    return Look(least(records["old"]), least(records["new"]))


def slower(first: Look, second: Look, limit: float) -> set[Key]:
    """What is above the limit both times."""
    return first.above(limit) & second.above(limit)


def main() -> int:
    """Compares the programs one by one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--old", nargs=2, required=True, metavar=("PYTHON", "COMMIT"))
    parser.add_argument("--new", nargs=1, required=True, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1.10)
    parser.add_argument("--folder", type=Path, help="where the records are kept (default: a temporary folder)")
    options = parser.parse_args()
    environments = {"old": options.old, "new": options.new}
    found = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for program in options.programs:
            first = look(program, environments, options.rounds, folder)
            ratios = first.ratios()
            if not ratios:
                sys.exit(f"{program}: no figure is in both environments")
            mean = statistics.geometric_mean(ratios.values())
            print(f"{program}: {len(ratios)} figures, new over old {mean:.2f} as the geometric mean", flush=True)
            if suspects := first.above(options.limit):
                print(f"  above {options.limit}: {len(suspects)}; a second look", flush=True)
                second = look(program, environments, options.rounds, folder)
                for key in sorted(slower(first, second, options.limit)):
                    found += 1
                    once, again = first.ratios()[key], second.ratios()[key]
                    print(f"  SLOWER {', '.join(key)}: {second.old[key]:.4g} -> {second.new[key]:.4g}, ", end="")
                    print(f"x {once:.2f}, again x {again:.2f}", flush=True)
    print(f"slower figures: {found}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
