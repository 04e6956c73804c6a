"""A PostgreSQL server of its own, on a socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from hosts.given import Given
from hosts.host import HostError, Ran, declared

_TYPES = {pa.int64(): "bigint", pa.int32(): "integer", pa.float64(): "double precision", pa.float32(): "real"}
_ARROW = {20: pa.int64(), 23: pa.int32(), 21: pa.int16(), 701: pa.float64(), 700: pa.float32(), 16: pa.bool_()}
_ARROW |= {1700: pa.float64(), 25: pa.string(), 1043: pa.string()}

# A statement that takes longer is an error. It is not worth compiling for some rows, whatever its estimated cost is.
_LIMITS = "-c statement_timeout=20s -c jit=off"


class Postgres(Given):
    """One server and one connection."""

    dialect = "postgres"
    has_prepare = True

    def __init__(self) -> None:
        programs = _programs()
        # The path of a socket has at most a hundred letters.
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        # No server runs as root. A name space in which root is another user needs no rights for anybody else.
        self._before: tuple[str, ...] = ()
        self._user = None
        if os.geteuid() == 0:
            elsewhere = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
            if shutil.which("unshare") and subprocess.run([*elsewhere, "true"], check=False).returncode == 0:
                self._before = elsewhere
            else:
                self._user = "nobody"
                shutil.chown(self._folder, self._user)
        data = self._folder / "data"
        self._asked(
            programs / "initdb", "--pgdata", data, "--auth=trust", "--username=tests", "--no-sync", "-E", "UTF8"
        )
        settings = f"-c listen_addresses='' -c unix_socket_directories={self._folder} -c fsync=off {_LIMITS}"
        self._stop = (programs / "pg_ctl", "--pgdata", data, "--mode=immediate", "stop")
        start = ("--log", self._folder / "log", "--options", settings, "--wait", "start")
        self._asked(programs / "pg_ctl", "--pgdata", data, *start)
        self._connection = psycopg.connect(f"host={self._folder} user=tests dbname=postgres", autocommit=True)
        self.name = f"PostgreSQL {self._connection.info.server_version // 10000}"

    def _asked(self, *command: str | Path) -> None:
        """Runs a program of the server's; its locale is no one's."""
        how = {"env": {**os.environ, "LC_ALL": "C"}, "cwd": self._folder, "user": self._user, "timeout": 120}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "check": False}
        done = subprocess.run([*self._before, *command], **how, **quiet)  # type: ignore[call-overload]
        if done.returncode:
            pytest.skip(f"no PostgreSQL: {Path(command[0]).name} fails: {done.stderr.strip()[-300:]}")

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        self._give(tables)
        self._connection.execute("DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
        for name, table in tables.items():
            self._connection.execute(f'CREATE TABLE "{name}" ({declared(table.schema, _TYPES)})')
            marks = ", ".join(["%s"] * table.num_columns)
            rows = [tuple(row.values()) for row in table.to_pylist()]
            with self._connection.cursor() as cursor:
                cursor.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)

    def _query(self, text: str) -> Ran:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(text)
                if cursor.description is None:
                    return Ran(pa.schema([]), pa.table({}))
                names = [column.name for column in cursor.description]
                types = [_ARROW.get(column.type_code, pa.string()) for column in cursor.description]
                rows = cursor.fetchall()
        except psycopg.Error as error:
            raise HostError(str(error)) from error
        listed = list(zip(*rows, strict=True)) or [()] * len(names)
        columns = [
            pa.array([float(v) if pa.types.is_floating(t) and v is not None else v for v in column], t)
            for column, t in zip(listed, types, strict=True)
        ]
        table = pa.Table.from_arrays(columns, names=names)
        return Ran(table.schema, table)

    def _drop(self, kind: str, name: str) -> None:
        self._query(f"DROP {kind} IF EXISTS {name} CASCADE")

    def close(self) -> None:
        self._connection.close()
        self._asked(*self._stop)
        shutil.rmtree(self._folder, ignore_errors=True)


def _programs() -> Path:
    """Where the programs of the server are. Skips where there are none."""
    found = [shutil.which("initdb"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")))]
    programs = [Path(path).parent for path in found if path]
    if not programs:
        pytest.skip("no PostgreSQL: there is no initdb")
    return programs[-1]
