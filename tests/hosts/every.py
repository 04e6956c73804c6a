"""The hosts by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from hosts.duckdb import DuckDB
from hosts.host import Host
from hosts.polars import Polars
from hosts.postgres import Postgres
from hosts.sail import Sail
from hosts.sqlite import SQLite
from hosts.stock import Stock
from support import scale_out
from text.environments import shared


def _stock(wanted: str) -> Callable[[Path], Host]:
    """A stock module: that of this environment without the engine, or of another one."""

    def begun(folder: Path) -> Host:
        return Stock(wanted, sys.executable if wanted == version("datafusion") else shared(wanted, folder))

    return begun


# It takes an environment of a gigabyte.
SAIL = "sail"

# Each begins with a folder that all processes of a test run share, and skips where it cannot be had.
HOSTS: Mapping[str, Callable[[Path], Host]] = {
    "datafusion 54.0.0": _stock("54.0.0"),
    "datafusion 55.0.0": _stock("55.0.0"),
    "duckdb": lambda _: DuckDB(),
    "sqlite": lambda _: SQLite(),
    "polars": lambda _: Polars(),
    "postgres": lambda _: Postgres(),
    SAIL: lambda _: Sail(scale_out.worker()),
}
