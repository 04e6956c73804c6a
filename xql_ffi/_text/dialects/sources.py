"""Files and table functions in FROM, as ``'data.parquet'`` or ``read_csv(...)``, whose columns the session knows."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath

import pyarrow as pa
from sqlglot import exp

from xql_ffi._errors import HostError
from xql_ffi._expressions import quoted
from xql_ffi._text import library
from xql_ffi._text.dialects.host import Host
from xql_ffi._text.dialects.known import Known, check_functions
from xql_ffi._text.dialects.macros import query_of
from xql_ffi._text.dialects.views import STORED, Relation, definition

# What a table in FROM is called by.
_PATH = ("this", "db", "catalog")


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
        """Puts tables in the place of files and table functions, and views in that of table macros.

        Raises:
            HostError: it is not known which columns one has, or what one computes.
        """
        if self._host.name != "duckdb":
            return
        named = frozenset(self._host.key(cte.alias) for cte in tree.find_all(exp.CTE))
        for part in list(tree.find_all(exp.Table, exp.Column)):
            self._complete(part)
        for table in list(tree.find_all(exp.Table)):
            source = table.this
            is_function = not isinstance(source, exp.Identifier)
            if not is_function and not self._is_file(table):
                continue
            if is_function and self._known.source is None and source.name.lower() in ("generate_series", "range"):
                continue
            name = self._name(exp.Table(**{part: table.args.get(part) for part in _PATH}), named)
            if not table.alias:
                alias = source.name if is_function else PurePath(source.name).name.partition(".")[0]
                table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
            for key in _PATH:
                table.set(key, None)
            table.set("this", exp.to_identifier(name, quoted=True))

    def write(self, tree: exp.Expr) -> None:
        """Puts files, table functions and queries in the place of their tables."""
        for table in list(tree.find_all(exp.Table)):
            if (written := self._written.get(table.name)) is not None:
                if not table.alias:
                    # Its columns are named by it.
                    table.set("alias", exp.TableAlias(this=self._host.identifier(table.name)))
                for part in _PATH:
                    table.set(part, written.copy().args.get(part))
            elif table.name.endswith(STORED) and self._host.key(table.name) not in self._known.tables:
                if not table.alias:
                    table.set("alias", exp.TableAlias(this=table.this.copy()))
                table.set("this", self._host.identifier(table.name.removesuffix(STORED)))

    def _complete(self, part: exp.Expr) -> None:
        """Names the schema that is meant where a database alone is named, as in ``other.t``."""
        database = part.args.get("db")
        if isinstance(database, exp.Identifier) and part.args.get("catalog") is None:
            key = self._host.key(database.name, quoted=bool(database.args.get("quoted")))
            if key in self._known.databases:
                part.set("catalog", database)
                part.set("db", exp.to_identifier(self._host.schema))

    def _is_file(self, table: exp.Table) -> bool:
        name = table.this
        is_alone = bool(name.args.get("quoted")) and not table.args.get("db")
        return is_alone and bool(re.search(r"[./*]", name.name)) and self._host.key(name.name) not in self._known.tables

    def _name(self, source: exp.Table, named: Collection[str]) -> str:
        """The name of the table or view for a source, which is the same wherever it is written."""
        text = self._host.text(source)
        if text not in self._names:
            name = f"source {len(self._names) + 1}"
            query = query_of(source, self._known.macros, self._host)
            fields = [self._field(field) for field in self._schema(text)]
            if query is None:
                library.add_table(self._known.catalog, quoted(name), pa.schema(fields))
            else:
                self._check(text, query, named)
                relation = Relation((name,), query=self._host.text(query))
                library.add_view(self._known.catalog, quoted(name), definition(relation, self._host, self._known))
            self._names[text], self._written[name] = name, source.copy()
        return self._names[text]

    def _check(self, text: str, query: exp.Query, named: Collection[str]) -> None:
        """Refuses a macro whose tables are common table expressions of the statement, by which DuckDB takes them."""
        check_functions(self._known.own, self._host.text(query))
        for table in query.find_all(exp.Table):
            if not table.db and self._host.key(table.name) in named:
                msg = (
                    f"{text} in FROM is a table macro that reads {table.name}, which is a common table expression of "
                    "the statement too: call that otherwise"
                )
                raise HostError(msg)

    def _schema(self, text: str) -> pa.Schema:
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
