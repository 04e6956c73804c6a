"""Spark's SQL as Sail runs it, in a process of its own with an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from hosts.given import Frames
from hosts.host import HostError, Ran
from hosts.process import Process, read, written


class Sail(Frames):
    """A server of Sail with its client. The texts are written here."""

    name = "Spark SQL (Sail 0.7.2)"
    dialect = "spark"

    def __init__(self, python: Path) -> None:
        self._process = Process(python, "hosts.sail_worker", {})

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        self._give(tables)
        self._process.ask("open", {name: written(table) for name, table in tables.items()}, raises=HostError)

    def _query(self, text: str) -> Ran:
        table = read(self._process.ask("run", text, raises=HostError))
        return Ran(table.schema, table)

    def _make_view(self, name: str, query: str) -> None:
        self._process.ask("view", name, query, raises=HostError)

    def _put(self, name: str, table: pa.Table) -> None:
        self._process.ask("put", name, written(table), raises=HostError)

    def _drop(self, _kind: str, name: str) -> None:
        self._process.ask("drop", name, raises=HostError)

    def close(self) -> None:
        self._process.close()
