"""What hosts have in common that do not say themselves what tables and views they have."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping

import pyarrow as pa

import xql_ffi
from hosts.host import Ran, RefusedError

# What generated statements do with a name, beside running queries.
_DONE = re.compile(
    r"(CREATE (?:OR REPLACE )?VIEW|DROP VIEW IF EXISTS|CREATE TABLE|INSERT INTO|DROP TABLE IF EXISTS"
    r"|PREPARE|EXECUTE|DEALLOCATE) (\w+)(?: AS)? ?(.*)",
    re.DOTALL,
)
_NOTHING = Ran(pa.schema([]), pa.table({}))


class Given(ABC):
    """The tables and views of a host, as `expand_sql` takes them."""

    dialect: str
    # Whether it has PREPARE; another one runs the text when it is executed.
    has_prepare = False

    def _give(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables: dict[str, pa.Schema | str] = {name: table.schema for name, table in tables.items()}
        self._prepared: dict[str, str] = {}

    def expand(self, statement: str) -> str:
        try:
            return xql_ffi.expand_sql(statement, self._tables, dialect=self.dialect)
        except ValueError as error:
            raise RefusedError(str(error)) from error

    def run(self, text: str) -> Ran:
        """Runs one text. Raises HostError."""
        done = _DONE.fullmatch(text)
        if done is None:
            return self._query(text)
        what, name, query = done[1].replace("OR REPLACE ", ""), done[2], done[3]
        if self.has_prepare and what in ("PREPARE", "EXECUTE", "DEALLOCATE"):
            return self._query(text)
        if what == "EXECUTE":
            return self._query(self._prepared[name])
        if what == "PREPARE":
            self._prepared[name] = query
        elif what == "CREATE VIEW":
            self._make_view(name, query)
            self._tables[name] = query
        elif what == "CREATE TABLE":
            self._make_table(name, query)
        elif what == "INSERT INTO":
            self._insert(name, query)
        elif what.startswith("DROP"):
            self._drop(what.split()[1], name)
            self._tables.pop(name, None)
        return _NOTHING

    @abstractmethod
    def _query(self, text: str) -> Ran:
        """Runs a query, or what else has no name here. Raises HostError."""

    def _make_view(self, name: str, query: str) -> None:
        self._drop("VIEW", name)
        self._query(f"CREATE VIEW {name} AS {query}")

    def _make_table(self, name: str, query: str) -> None:
        self._query(f"CREATE TABLE {name} AS {query}")

    def _insert(self, name: str, query: str) -> None:
        self._query(f"INSERT INTO {name} {query}")

    def _drop(self, kind: str, name: str) -> None:
        self._query(f"DROP {kind} IF EXISTS {name}")


class Frames(Given):
    """A host whose views and tables are frames by name."""

    def _make_view(self, name: str, query: str) -> None:
        self._put(name, self._query(query).table)

    def _make_table(self, name: str, query: str) -> None:
        self._put(name, self._query(query).table)

    def _insert(self, name: str, query: str) -> None:
        rows = self._query(query).table
        before = self._query(f"SELECT * FROM {name}").table
        # By their places.
        self._put(name, pa.concat_tables([before, rows.rename_columns(before.column_names).cast(before.schema)]))

    @abstractmethod
    def _put(self, name: str, table: pa.Table) -> None:
        """Makes a table of this name, in the place of another one."""
