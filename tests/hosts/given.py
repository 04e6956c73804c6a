"""What hosts have in common that do not say themselves what tables and views they have."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

import xql_ffi
from hosts.host import RefusedError

_VIEW = re.compile(r"CREATE (?:OR REPLACE )?VIEW (\w+) AS (.*)", re.DOTALL)


class Given:
    """The tables and views of a host, as `expand_sql` takes them."""

    dialect: str

    def _give(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables: dict[str, pa.Schema | str] = {name: table.schema for name, table in tables.items()}

    def _note(self, text: str) -> None:
        """Keeps the query of a view that has been made."""
        if made := _VIEW.fullmatch(text):
            self._tables[made[1]] = made[2]

    def expand(self, statement: str) -> str:
        try:
            return xql_ffi.expand_sql(statement, self._tables, dialect=self.dialect)
        except ValueError as error:
            raise RefusedError(str(error)) from error
