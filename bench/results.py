"""What the programs of this folder have in common: two options, tables, and the same figures as records in a file.

    build/fresh-55/bin/python bench/planning.py --quick --json planning.json

The file has the commit, the date, the processor and the versions once, and under "records" each figure that was
printed: program, case, figure, value, unit, and whether the smaller or the larger of two is the better one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypedDict

DISTRIBUTIONS = ("xql-ffi", "xql-ffi-engine", "datafusion", "numpy", "pyarrow", "jax", "sqlglot")

Better = Literal["smaller", "larger", "neither"]
Goal = tuple[str, float, float]


class Record(TypedDict):
    """One figure."""

    program: str
    case: str
    figure: str
    value: float
    unit: str
    better: Better


class Report(TypedDict):
    """What a file has."""

    commit: str
    date: str
    processor: str
    versions: dict[str, str]
    records: list[Record]


@dataclass(frozen=True)
class Column:
    """A column of a table: what its figures are, in which unit (a ratio has none), and how they are shown."""

    figure: str
    unit: str = ""
    digits: int = 2
    better: Better = "smaller"

    @property
    def head(self) -> str:
        """The column's name with the unit."""
        return f"{self.figure}, {self.unit}" if self.unit else self.figure

    @property
    def width(self) -> int:
        """How many characters wide the column is."""
        return max(len(self.head), 9)

    def cell(self, value: float | str | None) -> str:
        """How a figure is shown, or a word in its place."""
        return value or "" if value is None or isinstance(value, str) else f"{value:,.{self.digits}f}"


def seconds(run: Callable[[], object], rounds: int = 1) -> float:
    """The seconds of processor time that it takes, the least of so many rounds."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


@dataclass
class Results:
    """The figures of a run of a program."""

    file: Path | None
    commit: str | None = None
    records: list[Record] = field(default_factory=list)

    def table(self, first: str, *columns: Column) -> Table:
        """Begins a table in Markdown, whose first column has the cases."""
        return Table(self, first, columns)

    def goals(self, goals: Iterable[Goal]) -> bool:
        """The table of goals, and whether all are reached: figures by name, each with the largest that reaches it."""
        goals = list(goals)
        table = self.table("figure", Column("ratio"), Column("goal", better="neither"), Column("reached"))
        for name, figure, goal in goals:
            table.line(name, figure, goal, "" if figure <= goal else "missed")
        return all(figure <= goal for _, figure, goal in goals)

    def write(self) -> None:
        """Writes the file, if one is wanted."""
        if self.file:
            report = Report(
                commit=self.commit or checkout(),
                date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                processor=processor(),
                versions=dict(versions()),
                records=self.records,
            )
            self.file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


@dataclass
class Table:
    """A table that is printed line by line, with its figures noted as records."""

    results: Results
    first: str
    columns: tuple[Column, ...]
    width: int = 40

    def __post_init__(self) -> None:
        print()
        self._show(self.first, [column.head for column in self.columns])
        print("|" + "-" * (self.width + 2), *("-" * (column.width + 1) + ":" for column in self.columns), "", sep="|")

    def line(self, case: str, *values: float | str | None) -> None:
        """Prints a line. Words and gaps are no records."""
        self._show(case, [column.cell(value) for column, value in zip(self.columns, values, strict=True)])
        for column, value in zip(self.columns, values, strict=True):
            if isinstance(value, (int, float)):
                self.results.records.append(
                    Record(
                        program=Path(sys.argv[0]).stem,
                        case=case,
                        figure=column.figure,
                        value=float(value),
                        unit=column.unit,
                        better=column.better,
                    )
                )

    def _show(self, case: str, cells: list[str]) -> None:
        padded = (f"{cell:>{column.width}}" for column, cell in zip(self.columns, cells, strict=True))
        print(f"| {case:{self.width}} | {' | '.join(padded)} |", flush=True)


def parse(parser: argparse.ArgumentParser, **quick: Any) -> tuple[argparse.Namespace, Results]:
    """Parses the command line.

    Args:
        parser: The parser with the program's own options.
        quick: The defaults of these options with `--quick`.

    Returns:
        The options, and where the figures go.
    """
    sizes = ", ".join(f"{name} {shown(value)}" for name, value in quick.items())
    parser.add_argument("--quick", action="store_true", help=f"seconds rather than minutes: {sizes}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as records too")
    parser.add_argument("--commit", help="that of the installed xql_ffi, if it is not that of this checkout")
    options = parser.parse_args()
    if options.quick:
        parser.set_defaults(**quick)
        options = parser.parse_args()
    return options, Results(options.json, options.commit)


def shown(value: Any) -> str:
    """A default as one would write it on the command line."""
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def checkout() -> str:
    """The commit of this checkout, with a mark if files have changed."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    return subprocess.run(
        command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def processor() -> str:
    """The name of the processor and the number of its cores."""
    name = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).exists():
        models = [line for line in info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        name = models[0].partition(": ")[2] if models else name
    return f"{name}, {os.cpu_count()} cores"


def versions() -> Iterable[tuple[str, str]]:
    """The versions of what is measured, as far as it is installed, and whether the engine is active."""
    import xql_ffi

    yield "python", platform.python_version()
    for name in DISTRIBUTIONS:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    # Without the path of its file.
    yield "engine", xql_ffi.engine_status().partition(" runs on ")[0]
