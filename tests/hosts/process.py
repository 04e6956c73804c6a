"""Requests to a host in a process of its own, as pickles on stdin, and answers on stdout: both ends.

It imports nothing but what every environment of a host has.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

TESTS = Path(__file__).resolve().parents[1]


class Process:
    """A module that serves a worker, run by a Python of its own."""

    def __init__(self, python: str | Path, module: str, variables: Mapping[str, str]) -> None:
        """Starts it with further variables of the environment."""
        environment = {**os.environ, "PYTHONPATH": str(TESTS), **variables}
        self._process = subprocess.Popen(
            [python, "-m", module], env=environment, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, *request: Any, raises: type[Exception]) -> Any:
        """What the worker's method of the first name gives for the other arguments."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        how, answer = pickle.load(self._process.stdout)
        if how == "failed":
            raise raises(answer)
        return answer

    def close(self) -> None:
        """Lets it end."""
        self._process.communicate()


def serve(make: Callable[[], Any]) -> None:
    """Calls the methods of a worker until there are no more requests."""
    # What a library prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    worker = make()
    while True:
        try:
            name, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            answer = "done", getattr(worker, name)(*arguments)
        except BaseException as error:  # a panic is none of Exception
            answer = "failed", f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


def written(table: pa.Table) -> bytes:
    """A table as bytes that every version of Arrow reads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def read(data: bytes) -> pa.Table:
    """A table that was written."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()
