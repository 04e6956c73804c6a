"""The `datafusion` package as PyPI has it, in a process of its own, where the engine is not."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from hosts.host import HostError, Ran, RefusedError
from hosts.worker import written
from support.processes import TESTS


class Stock:
    """A stock module of one version."""

    dialect = "datafusion"

    def __init__(self, version: str, python: str | Path) -> None:
        self.name = f"datafusion {version}"
        variables = {**os.environ, "PYTHONPATH": str(TESTS), "XQL_FFI_ENGINE": "0"}
        self._process = subprocess.Popen(
            [python, "-m", "hosts.worker"], env=variables, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        self._ask("open", {name: written(table) for name, table in tables.items()}, raises=HostError)

    def expand(self, statement: str) -> str:
        text: str = self._ask("expand", statement, raises=RefusedError)
        return text

    def run(self, text: str) -> Ran:
        declared, table = self._ask("run", text, raises=HostError)
        with pa.ipc.open_stream(table) as stream:
            return Ran(pa.ipc.read_schema(pa.py_buffer(declared)), stream.read_all())

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, *request: Any, raises: type[Exception]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        how, answer = pickle.load(self._process.stdout)
        if how == "failed":
            raise raises(answer)
        return answer
