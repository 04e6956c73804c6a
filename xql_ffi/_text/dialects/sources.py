"""Files and table functions in FROM, as ``'data.parquet'`` or ``read_csv(...)``, whose columns the session knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePath

import pyarrow as pa
from sqlglot import exp

from xql_ffi._errors import HostError
from xql_ffi._expressions import quoted
from xql_ffi._text import library
from xql_ffi._text.dialects.foreign import found
from xql_ffi._text.dialects.host import Host
from xql_ffi._text.dialects.host_scope import HostScope, check_functions
from xql_ffi._text.dialects.macros import query_of
from xql_ffi._text.dialects.reading import CALL
from xql_ffi._text.dialects.views import STORED, Relation, definition

# What a table in FROM is called by.
_PATH = ("this", "db", "catalog", "pivots")


def _around(node: exp.Expr) -> exp.Subquery | exp.CTE | None:
    """Returns the query in FROM, or with a name, that has a part of it."""
    around = node.parent
    while around is not None:
        is_query = isinstance(around, exp.CTE) or (
            isinstance(around, exp.Subquery) and isinstance(around.parent, (exp.From, exp.Join))
        )
        if isinstance(around, (exp.Subquery, exp.CTE)) and is_query:
            is_recursive = any(table.name == around.alias for table in around.find_all(exp.Table))
            has_call = any(CALL in call.meta for call in around.find_all(exp.Anonymous))
            return None if has_call or is_recursive else around
        around = around.parent
    return None


class Sources:
    """The files and table functions of a statement, each of which is planned as a table with a name of its own."""

    def __init__(self, host: Host, known: HostScope) -> None:
        """Those of a statement of a host."""
        self._host = host
        self._known = known
        self._names: dict[str, str] = {}
        self._written: dict[str, exp.Expr] = {}
        # The tables that queries read which are not looked into, by the names of these.
        self._inside: dict[str, frozenset[str]] = {}
        self._fields: dict[str, frozenset[str]] = {}
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
        for query in [*tree.find_all(exp.Subquery), *tree.find_all(exp.Table)]:
            if isinstance(query.this, exp.Pivot) or query.args.get("pivots"):
                self._put(query)
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

    def keep(self, tree: exp.Expr) -> None:
        """Puts tables in the place of queries in FROM with what DataFusion has not, be it in the words of the host.

        Raises:
            HostError: there is no such query, or a derivative may read what it reads.
        """
        for node, name in list(found(tree)):
            if node.root() is not tree:
                continue
            query = _around(node)
            if query is None:
                msg = (
                    f"{self._host.name} has {name}, and DataFusion has not: beside a derivative that sees through "
                    "relations it may stand in a query in FROM that reads other tables, or in a table made before"
                )
                raise HostError(msg)
            if isinstance(query, exp.CTE):
                held = exp.Subquery(this=query.this.copy())
                query.set("this", exp.select("*").from_(held))
                query = held
            self._put(query)
        outside = self._read_by(tree)
        ctes = {self._host.key(cte.alias) for cte in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            if both := self._inside.get(table.name, frozenset()) & (outside | ctes):
                msg = (
                    f"{self._host.text(self._written[table.name])} stays as it is beside a derivative, and reads "
                    f"{min(both)}, which the derivative may read too: keep its rows in a table first"
                )
                raise HostError(msg)

    def check_variables(self, tree: exp.Expr, variables: Iterable[exp.Column]) -> None:
        """Refuses variables of a query that is not looked into, in which other columns may be computed of them.

        Raises:
            HostError: there is one.
        """
        kept = [table for table in tree.find_all(exp.Table) if table.name in self._inside]
        names = {name for table in kept for name in self._fields[table.name]}
        renamed = [table.args["alias"].columns for table in kept if table.alias]
        names |= {self._host.key(column.name) for columns in renamed for column in columns}
        size = -1 if kept else 0
        while size != len(names):
            size = len(names)
            aliases = [item for item in tree.find_all(exp.Alias) if isinstance(item.this, exp.Column)]
            names |= {self._host.key(item.alias) for item in aliases if self._host.key(item.this.name) in names}
        ctes = {self._host.key(cte.alias) for cte in tree.find_all(exp.CTE)}
        tables = [table for table in tree.find_all(exp.Table) if table.name not in self._inside]
        apart = {self._host.key(table.alias_or_name) for table in tables if self._host.key(table.name) not in ctes}
        for variable in variables:
            if self._host.key(variable.name) in names and self._host.key(variable.table) not in apart:
                shown = " and ".join(self._host.text(self._written[table.name]) for table in kept)
                msg = (
                    f"{self._host.text(variable)} may be a column of {shown}, which xql-ffi does not look into: "
                    "differentiate by a column of a table, and name it with the table"
                )
                raise HostError(msg)

    def _put(self, query: exp.Expr) -> None:
        """Puts a table in the place of a query in FROM that is not looked into."""
        inside = self._read_by(query)
        alias = query.args.get("alias")
        if isinstance(query, exp.Table):
            alias = query.args["pivots"][-1].args.get("alias") or alias or exp.TableAlias(this=query.this.copy())
        held = query.copy()
        for part in ("alias", "joins"):
            held.set(part, None)
        if isinstance(held, exp.Table):
            held.args["pivots"][-1].set("alias", None)
            held = exp.Subquery(this=exp.select("*").from_(held))
        self.write(held)
        text = self._host.text(held)
        if text not in self._names:
            name = f"source {len(self._names) + 1}"
            fields = [self._field(field) for field in self._schema(text)]
            library.add_table(self._known.catalog, quoted(name), pa.schema(fields))
            self._names[text], self._written[name], self._inside[name] = name, held, inside
            self._fields[name] = frozenset(field.name for field in fields)
        table = exp.to_identifier(self._names[text], quoted=True)
        query.replace(exp.Table(this=table, alias=alias, joins=query.args.get("joins")))

    def _read_by(self, query: exp.Expr) -> frozenset[str]:
        """Returns the names that a query reads, as the host compares them, also below views and table macros."""
        found: set[str] = set()
        waiting = list(query.find_all(exp.Table))
        while waiting:
            table = waiting.pop()
            source = self._written.get(table.name, table)
            is_named = isinstance(source.this, exp.Identifier)
            name = self._host.key(source.name) if is_named else self._host.text(source.this)
            if name not in found and not isinstance(source, exp.Subquery):
                found.add(name)
                called = [macro.query for macro in self._known.macros if macro.name == source.this.name.lower()]
                texts = [self._known.views[name]] if name in self._known.views else [] if is_named else called
                waiting += [inside for text in texts for inside in self._host.parsed(text).find_all(exp.Table)]
        return frozenset(found)

    def write(self, tree: exp.Expr) -> None:
        """Puts files, table functions and queries in the place of their tables."""
        for table in list(tree.find_all(exp.Table)):
            if isinstance(written := self._written.get(table.name), exp.Subquery):
                held = written.copy()
                held.set("alias", table.args.get("alias") or exp.TableAlias(this=self._host.identifier(table.name)))
                held.set("joins", table.args.get("joins"))
                table.replace(held)
            elif written is not None:
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
        """Returns the name of the table or view for a source, which is the same wherever it is written."""
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
