"""Other engines with the tables of `cases`."""

from __future__ import annotations

import sqlite3
from typing import Any

import duckdb
import polars
import pyarrow as pa

from text.cases import TABLES, VIEWS

SCHEMAS = {**{name: pa.table(columns).schema for name, columns in TABLES.items()}, **VIEWS}


class DuckDB:
    """A DuckDB connection, which says by itself what tables it has."""

    def __init__(self) -> None:
        self.tables = duckdb.connect()
        for name, columns in TABLES.items():
            self.tables.register("given", pa.table(columns))
            self.tables.execute(f'CREATE TABLE "{name}" AS SELECT * FROM given')
            self.tables.unregister("given")
        for name, query in VIEWS.items():
            self.tables.execute(f"CREATE VIEW {name} AS {query}")

    def run(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns, and the rows."""
        found = self.tables.sql(query)
        return found.columns, found.fetchall()


class SQLite:
    """SQLite of Python."""

    tables = SCHEMAS

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:")
        for name, columns in TABLES.items():
            types = {"double": "REAL", "int64": "INTEGER", "string": "TEXT"}
            declared = [f"{field.name} {types[str(field.type)]}" for field in pa.table(columns).schema]
            self._connection.execute(f"CREATE TABLE {name} ({', '.join(declared)})")
            rows = list(zip(*columns.values(), strict=True))
            self._connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' for _ in columns)})", rows)

    def run(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns, and the rows."""
        found = self._connection.execute(query)
        return [column[0] for column in found.description], found.fetchall()


class Polars:
    """The SQL of Polars."""

    tables = SCHEMAS

    def __init__(self) -> None:
        frames = {name: polars.DataFrame(columns) for name, columns in TABLES.items()}
        self._context = polars.SQLContext(frames)

    def run(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns, and the rows."""
        found = self._context.execute(query, eager=True)
        return found.columns, found.rows()


HOSTS = {"duckdb": DuckDB, "polars": Polars, "sqlite": SQLite}

QUOTIENT = "SELECT id, grad(x * (n // 2) + n % 2 * x, x) AS d FROM t"

# 1.0 is a decimal there.
VALUES = """
    SELECT grad(v * v * b, a) AS d
    FROM (SELECT a, b, a * b AS v FROM (VALUES (1e0, 2), (-0.5e0, NULL)) AS t(a, b)) AS q"""

# What is written otherwise in a host, and what is none of its statements.
OTHERWISE: dict[str, dict[str, str | None]] = {
    "duckdb": {
        "integers": QUOTIENT,
        "values": VALUES,
        "unnest": "SELECT unnest([grad(x * y, x), grad(x * y, y)]) AS d FROM t",
        "operators on bits": """
            SELECT xor(n, 3) + 1 AS e, n & 1 AS a, n | 4 AS o, grad(q, x) AS d
            FROM (SELECT n, x, x * x AS q FROM t) AS q""",
        "by row, a name in full": "SELECT inp, out, grad((SELECT SUM(sin(val)) FROM w), w.val) AS d FROM memory.main.w",
    },
    "polars": {
        "integers": QUOTIENT,
        "values": VALUES,
        "log to a base": "SELECT id, grad(log(y, 3), y) AS d, grad(log(3.0, y), y) AS e FROM t WHERE y <> 1",
        "operators on bits": None,
        "unnest": None,
        "by row, a name in full": None,
        "by row, opposite orders": None,
    },
    "sqlite": {
        # The base of a logarithm is greater than one there.
        "log to a base": "SELECT id, grad(log(3, y), y) AS d, grad(log(y, 3.0), y) AS e FROM t WHERE y > 1",
        # There is no NaN.
        "nan": None,
        "qualify": None,
        "operators on bits": """
            SELECT (n | 3) - (n & 3) + 1 AS e, n & 1 AS a, n | 4 AS o, grad(q, x) AS d
            FROM (SELECT n, x, x * x AS q FROM t) AS q""",
        "unnest": None,
        "by row, a name in full": "SELECT inp, out, grad((SELECT SUM(sin(val)) FROM w), w.val) AS d FROM main.w",
    },
}

# The same in DataFusion, where that is another text than in `cases`.
ENGINE = {
    ("sqlite", "log to a base"): "SELECT id, grad(log(3, y), y) AS d, grad(log(y, 3.0), y) AS e FROM t WHERE y > 1",
    **dict.fromkeys(
        (("duckdb", "operators on bits"), ("sqlite", "operators on bits")),
        """SELECT (n ^ 3) + 1 AS e, n & 1 AS a, n | 4 AS o, grad(q, x) AS d
        FROM (SELECT n, x, x * x AS q FROM t) AS q""",
    ),
}

# What a host cannot be told, with the words of the error.
REFUSED: dict[str, dict[str, str]] = {
    "duckdb": {},
    "polars": {
        "grouping sets": "no function grouping",
        "a rollup": "no function grouping",
        "statistics": "no function for DataFusion's regr_",
        "least and greatest": "no first value of a group",
        "the first of each": "Polars orders DISTINCT ON",
        "the first by a constant": "Polars orders DISTINCT ON",
        "order of an aggregate": "no first value of a group",
        "by row, a frame that is not read": "no join in parentheses",
        "by row, a constant derivative": "no join in parentheses",
        "by row": "no function tanh",
        "by the rows of two relations": "no function tanh",
        "by row, rows that are numbered": "no function tanh",
        "by row, the first rows": "no join in parentheses",
        "by row, a window": "no RANGE frame",
    },
    "sqlite": {
        "grouping sets": "no function grouping",
        "a rollup": "no function grouping",
        "statistics": "no function stddev",
        "least and greatest": "no first value of a group",
        "order of an aggregate": "no first value of a group",
        "by row, opposite orders": "no value in a row of a group",
    },
}
