"""Engines that run statements on several workers, which have nothing of xql-ffi.

- `sail`: the workers of Sail, which reads Spark's SQL. A statement is sent as text, which ``expand_sql`` has written.
- `ballista`: a scheduler and executors of Ballista, each a process of its own. The session is one of this process, with
  the operators registered. It plans a statement as any other and sends the optimized plan, which has no derivative.

Each is a context: the workers are there as long as the block.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

import xql_ffi

Process = subprocess.Popen[bytes]
# Stands for the port in the command of a program.
PORT = "{port}"


class Engine(Protocol):
    """A session with workers."""

    def read(self, name: str, folder: Path) -> None:
        """Makes the Parquet files of a folder a table."""

    def send(self, name: str, table: pa.Table) -> None:
        """Makes a small table of this process one of the session, in place of the one before."""

    def run(self, statement: str) -> pa.Table:
        """The rows of a statement with derivatives."""

    def kill_worker(self) -> None:
        """Ends one of the workers at once, as a machine does that fails."""


# --------------------------------------------------------------------------------------------------------------------
# Sail
# --------------------------------------------------------------------------------------------------------------------


class _Sail:
    def __init__(self, session: Any) -> None:
        self._session = session
        self._schemas: dict[str, pa.Schema] = {}
        self._expanded: dict[str, str] = {}

    def read(self, name: str, folder: Path) -> None:
        self._session.read.parquet(str(folder)).createOrReplaceTempView(name)
        self._schemas[name] = pq.read_schema(next(folder.iterdir()))

    def send(self, name: str, table: pa.Table) -> None:
        self._session.createDataFrame(table).createOrReplaceTempView(name)
        self._schemas[name] = table.schema

    def run(self, statement: str) -> pa.Table:
        if statement not in self._expanded:
            self._expanded[statement] = xql_ffi.expand_sql(statement, self._schemas, dialect="spark")
        return self._session.sql(self._expanded[statement]).toArrow()

    def kill_worker(self) -> None:
        raise NotImplementedError("the workers of a local cluster of Sail are threads of this process")


@contextmanager
def sail(workers: int, _: Path) -> Iterator[Engine]:
    """A session with so many Sail workers on this machine. Small tables are sent as they are."""
    count = str(workers)
    os.environ |= {"SAIL_MODE": "local-cluster", "SAIL_CLUSTER__WORKER_INITIAL_COUNT": count}
    os.environ |= {"SAIL_CLUSTER__WORKER_MAX_COUNT": count, "SAIL_CLUSTER__WORKER_MAX_IDLE_TIME_SECS": "3600"}
    os.environ.setdefault("RUST_LOG", "error")
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    try:
        _, port = server.listening_address
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        try:
            yield _Sail(session)
        finally:
            session.stop()
    finally:
        server.stop()


# --------------------------------------------------------------------------------------------------------------------
# Ballista
# --------------------------------------------------------------------------------------------------------------------

# The scheduler of the Python package. Its executors have one port in common, so that they are those of the crate,
# which `dev.py scale-out --engine ballista` installs.
SCHEDULER = """
from ballista import BallistaScheduler
import sys
scheduler = BallistaScheduler("127.0.0.1", int(sys.argv[1]))
scheduler.start()
scheduler.wait_for_termination()
"""
EXECUTOR = Path(__file__).parents[1] / "build" / "ballista" / "bin" / "ballista-executor"
# The relations of a gradient by row are computed once by a node that other processes do not know.
PLAIN = "SET xql.share_relations = false"


class _Ballista:
    def __init__(self, address: str, executors: list[Process], folder: Path) -> None:
        from ballista import BallistaSessionContext

        self._context = BallistaSessionContext(address)
        xql_ffi.register(self._context)
        self._context.sql(PLAIN)
        self._executors, self._folder = executors, folder
        self._sent: dict[str, int] = {}

    def read(self, name: str, folder: Path) -> None:
        self._context.register_parquet(name, str(folder))

    def send(self, name: str, table: pa.Table) -> None:
        # A plan says where a table is, and not what is in it: executors on other machines read the same storage.
        number = self._sent[name] = self._sent.get(name, 0) + 1
        path = self._folder / f"{name}-{number}.parquet"
        pq.write_table(table, path)
        if number > 1:
            self._context.deregister_table(name)
        self._context.register_parquet(name, str(path))

    def run(self, statement: str) -> pa.Table:
        return self._context.sql(statement).to_arrow_table()

    def kill_worker(self) -> None:
        self._executors.pop().kill()


@contextmanager
def ballista(workers: int, folder: Path) -> Iterator[Engine]:
    """A session with a scheduler and so many executors on this machine. Small tables are files in a folder for them."""
    with _processes() as start:
        port, _ = start([sys.executable, "-c", SCHEDULER, PORT])
        command = [str(EXECUTOR), "--scheduler-host=127.0.0.1", f"--scheduler-port={port}", "--concurrent-tasks=1"]
        command += ["--bind-host=127.0.0.1", f"--bind-port={PORT}"]
        executors = []
        for number in range(workers):
            own = folder / f"executor-{number}"
            own.mkdir()
            _, executor = start([*command, f"--bind-grpc-port={_free_port()}", f"--work-dir={own}"])
            executors.append(executor)
        yield _Ballista(f"df://127.0.0.1:{port}", executors, folder)


# --------------------------------------------------------------------------------------------------------------------
# Processes
# --------------------------------------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def _wait_for(port: int, process: Process, seconds: float = 60.0) -> None:
    """Waits until a process listens at a port."""
    until = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the process does not listen at port {port}: {process.args!r}")


@contextmanager
def _processes() -> Iterator[Callable[[list[str]], tuple[int, Process]]]:
    """What starts programs that listen at a port, the argument PORT, and gives the port. They end with the block."""
    started: list[Process] = []

    def start(command: list[str]) -> tuple[int, Process]:
        port = _free_port()
        command = [part.replace(PORT, str(port)) for part in command]
        # The module of `datafusion` in them is that of PyPI.
        process = subprocess.Popen(command, env={"RUST_LOG": "error", **os.environ, "XQL_FFI_ENGINE": "0"})
        started.append(process)
        _wait_for(port, process)
        return port, process

    try:
        yield start
    finally:
        # Executors of Ballista do not end with what has started them.
        for process in reversed(started):
            process.kill()
            process.wait()
