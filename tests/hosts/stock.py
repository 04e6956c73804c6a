"""The `datafusion` package as PyPI has it, in a process of its own, where the engine is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from hosts.host import HostError, Ran, RefusedError
from hosts.process import Process, read, written


class Stock:
    """A stock module of one version."""

    dialect = "datafusion"

    def __init__(self, version: str, python: str | Path) -> None:
        self.name = f"datafusion {version}"
        self._process = Process(python, "hosts.worker", {"XQL_FFI_ENGINE": "0"})

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        self._process.ask("open", {name: written(table) for name, table in tables.items()}, raises=HostError)

    def expand(self, statement: str) -> str:
        text: str = self._process.ask("expand", statement, raises=RefusedError)
        return text

    def run(self, text: str) -> Ran:
        declared, table = self._process.ask("run", text, raises=HostError)
        return Ran(pa.ipc.read_schema(pa.py_buffer(declared)), read(table))

    def close(self) -> None:
        self._process.close()
