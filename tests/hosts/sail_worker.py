"""Runs Sail for another process, in the environment that has it: pickled requests from stdin, answers on stdout.

It imports nothing but what that environment has.
"""

import os
import pickle
import sys
from typing import Any

import pyarrow as pa


class Worker:
    """Tables of one session at a time."""

    def __init__(self) -> None:
        os.environ |= {"SAIL_MODE": "local", "RUST_LOG": "error"}
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession

        self._server = SparkConnectServer("127.0.0.1", 0)
        self._server.start(background=True)
        _, port = self._server.listening_address
        self._session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        self._names: list[str] = []

    def open(self, tables: dict[str, bytes]) -> None:
        for name in self._names:
            self._session.catalog.dropTempView(name)
        self._names = list(tables)
        for name, data in tables.items():
            with pa.ipc.open_stream(data) as stream:
                self._session.createDataFrame(stream.read_all()).createOrReplaceTempView(name)

    def run(self, text: str) -> bytes:
        table = self._session.sql(text).toArrow()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue())


def main() -> None:
    # What a library prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    worker = Worker()
    while True:
        try:
            name, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        answer: tuple[str, Any]
        try:
            answer = "done", getattr(worker, name)(*arguments)
        except Exception as error:
            answer = "failed", f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()
    # The server would wait for its sessions.
    os._exit(0)


if __name__ == "__main__":
    main()
