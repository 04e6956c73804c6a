"""Spark's SQL as Sail runs it, in a process of its own with an environment of its own."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import xql_ffi
from hosts.host import HostError, Ran, RefusedError
from hosts.worker import written
from support.processes import TESTS


class Sail:
    """A server of Sail with its client. The texts are written here."""

    name = "Spark SQL (Sail 0.7.2)"
    dialect = "spark"

    def __init__(self, python: Path) -> None:
        self._schemas: dict[str, pa.Schema] = {}
        variables = {**os.environ, "PYTHONPATH": str(TESTS)}
        self._process = subprocess.Popen(
            [python, "-m", "hosts.sail_worker"], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        self._schemas = {name: table.schema for name, table in tables.items()}
        self._ask("open", {name: written(table) for name, table in tables.items()})

    def expand(self, statement: str) -> str:
        try:
            return xql_ffi.expand_sql(statement, self._schemas, dialect=self.dialect)
        except ValueError as error:
            raise RefusedError(str(error)) from error

    def run(self, text: str) -> Ran:
        with pa.ipc.open_stream(self._ask("run", text)) as stream:
            table = stream.read_all()
        return Ran(table.schema, table)

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, *request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        how, answer = pickle.load(self._process.stdout)
        if how == "failed":
            raise HostError(answer)
        return answer
