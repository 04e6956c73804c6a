"""Runs Sail for another process, in the environment that has it, which has neither `datafusion` nor `xql-ffi`."""

import os

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from hosts.process import read, serve, written


class Worker:
    """Tables of one session at a time."""

    def __init__(self) -> None:
        os.environ |= {"SAIL_MODE": "local", "RUST_LOG": "error"}
        self._server = SparkConnectServer("127.0.0.1", 0)
        self._server.start(background=True)
        _, port = self._server.listening_address
        self._session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        self._names: set[str] = set()

    def open(self, tables: dict[str, bytes]) -> None:
        for name in list(self._names):
            self.drop(name)
        for name, data in tables.items():
            self.put(name, data)

    def put(self, name: str, data: bytes) -> None:
        self._session.createDataFrame(read(data)).createOrReplaceTempView(name)
        self._names.add(name)

    def view(self, name: str, query: str) -> None:
        self._session.sql(query).createOrReplaceTempView(name)
        self._names.add(name)

    def drop(self, name: str) -> None:
        if name in self._names:
            self._session.catalog.dropTempView(name)
            self._names.remove(name)

    def run(self, text: str) -> bytes:
        return written(self._session.sql(text).toArrow())


if __name__ == "__main__":
    serve(Worker)
    # The server would wait for its sessions.
    os._exit(0)
