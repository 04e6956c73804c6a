"""Files and table functions in FROM, as ``'data.parquet'`` or ``read_csv(...)``, whose columns the session knows."""

from __future__ import annotations

import re
from pathlib import PurePath

import pyarrow as pa
from sqlglot import exp

from xql_ffi._errors import HostError
from xql_ffi._expressions import quoted
from xql_ffi._text import library
from xql_ffi._text.dialects.host import Host
from xql_ffi._text.dialects.known import Known


class Sources:
    """The files and table functions of a statement, each of which is planned as a table with a name of its own."""

    def __init__(self, host: Host, known: Known) -> None:
        """Those of a statement of a host."""
        self._host = host
        self._known = known
        self._names: dict[str, str] = {}
        self._written: dict[str, exp.Expr] = {}
        # Columns as they are called there, by how the host compares their names.
        self.columns: dict[str, str] = {}
        self.not_floats: set[str] = set()

    def read(self, tree: exp.Expr) -> None:
        """Puts tables in the place of files and table functions.

        Raises:
            HostError: it is not known which columns one has.
        """
        if self._host.name != "duckdb":
            return
        for table in list(tree.find_all(exp.Table)):
            source = table.this
            is_function = not isinstance(source, exp.Identifier)
            if not is_function and not self._is_file(table):
                continue
            if is_function and self._known.source is None and source.name.lower() in ("generate_series", "range"):
                continue
            if not table.alias:
                alias = source.name if is_function else PurePath(source.name).name.partition(".")[0]
                table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
            table.set("this", exp.to_identifier(self._name(source), quoted=True))

    def write(self, tree: exp.Expr) -> None:
        """Puts files and table functions in the place of their tables."""
        for table in tree.find_all(exp.Table):
            if table.name in self._written:
                if not table.alias:
                    # Its columns are named by it.
                    table.set("alias", exp.TableAlias(this=self._host.identifier(table.name)))
                table.set("this", self._written[table.name].copy())

    def _is_file(self, table: exp.Table) -> bool:
        name = table.this
        is_alone = bool(name.args.get("quoted")) and not table.args.get("db")
        return is_alone and bool(re.search(r"[./*]", name.name)) and self._host.key(name.name) not in self._known.tables

    def _name(self, source: exp.Expr) -> str:
        """The name of the table for a source, which is the same wherever it is written."""
        text = self._host.text(source)
        if text not in self._names:
            name = f"source {len(self._names) + 1}"
            schema = self._schema(source, text)
            library.add_table(self._known.catalog, quoted(name), pa.schema([self._field(field) for field in schema]))
            self._names[text], self._written[name] = name, source.copy()
        return self._names[text]

    def _schema(self, source: exp.Expr, text: str) -> pa.Schema:
        if self._known.source is None:
            msg = (
                f"the columns of {text} in FROM are not known: hand over the connection in the place of the mapping, "
                "or name a table in its place"
            )
            raise HostError(msg)
        try:
            return self._known.source(text)
        except Exception as error:
            msg = f"the connection cannot say which columns {text} in FROM has: {error}"
            raise HostError(msg) from error

    def _field(self, field: pa.Field) -> pa.Field:
        key = self._host.key(field.name)
        self.columns[key] = field.name
        if not pa.types.is_floating(field.type):
            self.not_floats.add(key)
        return field.with_name(key)
