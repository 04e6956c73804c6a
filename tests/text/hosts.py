"""Other engines with the tables of `cases`."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from text.cases import TABLES, VIEWS


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


HOSTS = {"duckdb": DuckDB}

# What is written otherwise in a host, and what is none of its statements.
OTHERWISE: dict[str, dict[str, str | None]] = {
    "duckdb": {
        "integers": "SELECT id, grad(x * (n // 2) + n % 2 * x, x) AS d FROM t",
        "unnest": "SELECT unnest([grad(x * y, x), grad(x * y, y)]) AS d FROM t",
        "operators on bits": """
            SELECT xor(n, 3) + 1 AS e, n & 1 AS a, n | 4 AS o, grad(q, x) AS d
            FROM (SELECT n, x, x * x AS q FROM t) AS q""",
        "by row, a name in full": "SELECT inp, out, grad((SELECT SUM(sin(val)) FROM w), w.val) AS d FROM memory.main.w",
    },
}

# The same in DataFusion, where that is another text than in `cases`.
ENGINE = {
    "operators on bits": """
        SELECT (n ^ 3) + 1 AS e, n & 1 AS a, n | 4 AS o, grad(q, x) AS d
        FROM (SELECT n, x, x * x AS q FROM t) AS q""",
}

# What a host cannot be told, with the words of the error.
REFUSED: dict[str, dict[str, str]] = {"duckdb": {}}
