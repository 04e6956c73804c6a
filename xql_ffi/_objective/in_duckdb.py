"""Objectives over the tables of a DuckDB database, by text and prepared statements.

They have a connection of their own to the database, with temporary tables for the parameters, so that nothing of them
is seen by the connection that they were made with, whose results stay what they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from xql_ffi._expressions import quoted, shown
from xql_ffi._loss import stripped, unread
from xql_ffi._objective.host import cast_to, check_columns, check_unchanged, not_shadowed
from xql_ffi._objective.parameters import Relation, same_beside
from xql_ffi._objective.statements import (
    MOVING,
    Kind,
    Names,
    all_columns,
    looked_through,
    moved,
    one_column,
    read_in_place,
    selected,
    shadowed,
    with_numbers,
)
from xql_ffi._objective.views import in_place_of
from xql_ffi._text.expansion import expand_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xql_ffi._objective.parameters import Chosen
    from xql_ffi._text.views import Path

    # The query of a relation, by its number.
    Read = Callable[[int, Relation], str]


class DuckDB:
    """A DuckDB database."""

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()
        self._names = Names(uuid4().hex)
        self._relations: Sequence[Relation] = ()
        self.loss = ""
        # The temporary tables, by the names of those in whose place they are.
        self._tables: dict[str, str] = {}
        self._prepared: set[Kind] = set()

    def rows(self, relation: str) -> pa.Table:
        """Returns the rows of a table by its primary key, or as it has them."""
        return self._read(relation).drop_columns([_ROWID])

    def rows_read(self, name: str) -> pa.Table:
        """The rows that the loss reads of a table without parameters: those in its place, if it has been replaced."""
        if name not in self._tables:
            return self.rows(name)
        return self._cursor.sql(f"SELECT * FROM {self._tables[name]} ORDER BY {_ROWID}").to_arrow_table()

    def _read(self, relation: str) -> pa.Table:
        """Returns the rows with the numbers by which the table knows them."""
        kept = self._cursor.sql(_KEYS, params=[relation]).fetchall()
        if not kept:
            msg = f"the database has no table called {relation!r}; a view or a temporary table has no rows to update"
            raise ValueError(msg)
        order = next((", ".join(map(quoted, key)) for (key,) in kept if key), _ROWID)
        return self._cursor.sql(f"SELECT {_ROWID}, * FROM {quoted(relation)} ORDER BY {order}").to_arrow_table()

    def where(self, relation: str, rows: pa.Table, condition: str) -> Chosen:
        """For which of the rows of a table a condition is true."""
        import numpy as np

        query = f"SELECT {_ROWID} FROM {quoted(relation)} WHERE ({condition}\n)"
        found = self._cursor.sql(query).to_arrow_table().column(0).to_numpy()
        return np.isin(self._read(relation).column(_ROWID).to_numpy(), found)

    def sibling(self, given: Collection[str]) -> DuckDB:
        """Returns a host of its own over the same database, with the rows that are now in place of tables of it."""
        made = DuckDB(self._cursor)
        for name in self._tables:
            if name not in given:
                made._put(name, self.rows_read(name))
        return made

    def prepare(self, loss: object, relations: Sequence[Relation]) -> None:
        """Takes the loss, and the relations whose rows are to be given.

        Raises:
            TypeError: the loss is not SQL.
            ValueError: the loss is not one number.
        """
        if not isinstance(loss, str):
            msg = f"the loss on a DuckDB connection must be a query in SQL; {shown(loss)} is not one"
            raise TypeError(msg)
        query = expand_sql(f"{all_columns(loss)} LIMIT 0", self._cursor)
        schema = self._cursor.sql(query).to_arrow_table().schema
        check_columns(schema.names, schema.types)
        self.take(loss, relations)

    def take(self, loss: str, relations: Sequence[Relation]) -> None:
        """Takes a loss that is known to be one number, in the place of the one before."""
        self.loss, self._relations = stripped(loss), relations
        self._forget()
        steps = self._names.steps
        self._cursor.execute(f"CREATE OR REPLACE TEMP TABLE {steps} AS SELECT 0::DOUBLE AS {self._names.step}")

    def _forget(self) -> None:
        """Forgets the statements that are prepared."""
        for kind in self._prepared:
            self._cursor.execute(f"DEALLOCATE {kind}_{self._names.tag}")
        self._prepared.clear()

    def collect(self, query: str, values: Mapping[str, Mapping[str, pa.Array]]) -> pa.Table:
        """Returns the rows of a query, with these values of the variables of each relation."""
        self._put_all(values, values)
        text = self._shadowed(self._read_by("value"), all_columns(query))
        return self._cursor.sql(expand_sql(text, self._cursor)).to_arrow_table()

    def check(self, value: float) -> None:
        """Checks that the loss reads each parameter. Its text is the one that was given.

        Raises:
            VariableError: it does not read one of them.
        """
        looked = partial(looked_through, self._names)
        ((_, shown),) = self._cursor.execute(f"EXPLAIN (FORMAT json) {self._planned(looked)}").fetchall()
        nodes = list(_nodes(json.loads(shown)))
        for number, relation in enumerate(self._relations):
            for variable in relation.variables:
                is_scanned = any(_scans(node, self._names.table(number), variable) for node in nodes)
                # The plan lacks what has been found to be empty, and conditions that have been found to hold, as they
                # may not for other values.
                if not is_scanned and self._is_planned_without(number, variable):
                    raise unread(f"{relation.name}.{variable}")

    def _is_planned_without(self, number: int, variable: str) -> bool:
        """Returns whether the loss can be planned if a relation has not this column."""

        def left_out(place: int, relation: Relation) -> str:
            return looked_through(self._names, place, relation, variable if place == number else None)

        try:
            self._cursor.execute(f"EXPLAIN {self._planned(left_out)}")
        except Exception:
            return False
        return True

    def _planned(self, read: Read) -> str:
        """Returns the loss as DuckDB plans it, where it reads the relations in this way."""
        return expand_sql(self._shadowed_loss(read), self._cursor)

    def run(self, kind: Kind, tables: Sequence[Mapping[str, Mapping[str, pa.Array]]]) -> pa.Table:
        """Executes a statement, which is written and prepared before its first execution."""
        self._put_all(*tables)
        name = f"{kind}_{self._names.tag}"
        if kind not in self._prepared:
            self._cursor.execute(f"PREPARE {name} AS {expand_sql(self._statement(kind), self._cursor)}")
            self._prepared.add(kind)
        columns = self._cursor.execute(f"EXECUTE {name}").fetchnumpy()
        return pa.table({column: pa.array(numbers) for column, numbers in columns.items()})

    def _put_all(self, values: Mapping[str, Any], tangents: Mapping[str, Any]) -> None:
        """Gives the relations these values and tangents of their variables."""
        for relation in self._relations:
            name = relation.name
            self._put(name, with_numbers(self._names, relation, values[name], tangents[name]))

    def _put(self, name: str, rows: pa.Table) -> None:
        """Gives a temporary table these rows."""
        if name in self._tables:
            with self._transaction(rows):
                self._cursor.execute(f"DELETE FROM {self._tables[name]}")
                self._cursor.execute(f"INSERT INTO {self._tables[name]} SELECT * FROM {_GIVEN}")
        else:
            numbers = {relation.name: number for number, relation in enumerate(self._relations)}
            is_relation = name in numbers
            table = self._names.table(numbers[name]) if is_relation else self._names.other(len(self._tables))
            with self._transaction(rows):
                self._cursor.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM {_GIVEN}")
            self._tables[name] = table

    @contextmanager
    def _transaction(self, given: pa.Table) -> Iterator[None]:
        """A transaction in which statements may read these rows."""
        self._cursor.register(_GIVEN, given)
        self._cursor.begin()
        try:
            yield
            self._cursor.commit()
        except BaseException:
            self._cursor.rollback()
            raise
        finally:
            self._cursor.unregister(_GIVEN)

    def _statement(self, kind: Kind) -> str:
        """Returns a statement with derivatives over the temporary tables."""
        names, relations = self._names, self._relations
        made = {}
        if kind in MOVING:
            made = {names.moved(n): moved(names, n, relation, "FLOAT") for n, relation in enumerate(relations)}
        loss = self._shadowed_loss(self._read_by(kind))
        tables = ", ".join(f"{name} AS ({query}\n)" for name, query in {**made, names.loss: loss}.items())
        return f"WITH {tables} {selected(names, relations, kind)}"

    def _read_by(self, kind: Kind) -> Read:
        """How the loss reads the relations in a statement."""
        return lambda number, relation: read_in_place(self._names, number, relation, kind)

    def _shadowed_loss(self, read: Read) -> str:
        return self._shadowed(read, one_column(self._names, self.loss))

    def _shadowed(self, read: Read, query: str) -> str:
        """Returns a query over the temporary tables, of which it reads the relations in this way."""
        shadows = {quoted(name): f"SELECT * FROM {table}" for name, table in self._tables.items()}
        for number, relation in enumerate(self._relations):
            shadows[quoted(relation.name)] = read(number, relation)
        text = shadowed(query, shadows)
        if self._reads(text):
            text = shadowed(query, shadows | in_place_of(self._views(), query))
            if read_still := self._reads(text):
                raise not_shadowed(read_still)
        return text

    def _reads(self, query: str) -> str | None:
        """One of the tables that have a temporary one in their place, if a query still reads it, be it in a view."""
        ((database, schema),) = self._cursor.sql("SELECT current_database(), current_schema()").fetchall()
        heads = {head.lower() for head in ("", schema, database, f"{database}.{schema}")}
        read = self._cursor.get_table_names(expand_sql(query, self._cursor), qualified=True)
        paths = [name.partition(" AS ")[0].replace('"', "").lower().rpartition(".") for name in read]
        names = {name for head, _, name in paths if head in heads}
        return next((name for name in self._tables if name.lower() in names), None)

    def _views(self) -> dict[Path, str]:
        """Returns the statements that made views that read tables which have a temporary one in their place."""
        views = {tuple(path): query for *path, query in self._cursor.sql(_VIEWS).fetchall()}
        return {path: query for path, query in views.items() if self._reads(f"SELECT * FROM {quoted(path[-1])}")}

    def replace(self, name: str, rows: pa.Table) -> None:
        """Lets the loss read these rows in place of a table of the database."""
        schema = self._cursor.sql(f"SELECT * FROM {quoted(name)} LIMIT 0").to_arrow_table().schema
        if name not in self._tables:
            self._forget()
        self._put(name, cast_to(name, rows, schema))

    def update(self, relations: Sequence[Relation], tables: Mapping[str, pa.Table]) -> None:
        """Gives the tables of the database these values in one transaction."""
        cursor = self._cursor
        cursor.begin()
        try:
            for relation in relations:
                now = self._read(relation.name)
                same = same_beside(now.drop_columns([_ROWID]), relation.rows, relation.variables)
                check_unchanged(relation.name, same=same)
                cursor.register(_GIVEN, tables[relation.name].append_column(_NUMBER, now.column(_ROWID)))
                changes = ", ".join(f"{quoted(v)} = {_GIVEN}.{quoted(v)}" for v in relation.variables)
                table = quoted(relation.name)
                cursor.execute(
                    f"UPDATE {table} SET {changes} FROM {_GIVEN} WHERE {table}.{_ROWID} = {_GIVEN}.{_NUMBER}"
                )
                cursor.unregister(_GIVEN)
            cursor.commit()
        except BaseException:
            cursor.rollback()
            raise


def _nodes(plan: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the nodes of a plan."""
    for node in plan:
        yield node
        yield from _nodes(node.get("children", ()))


def _scans(node: Mapping[str, Any], table: str, column: str) -> bool:
    """Returns whether a node of a plan reads a column of a table."""
    told = dict(node.get("extra_info", {}))
    if not str(told.pop("Table", "")).endswith(table):
        return False
    return "Projections" not in told or re.search(rf"(?<!\w){re.escape(column)}(?!\w)", str(told)) is not None


_ROWID, _NUMBER, _GIVEN = "rowid", "number_of_row", "rows_given"
_KEYS = """
    SELECT constraint_column_names FROM duckdb_tables() AS t
    LEFT JOIN (SELECT * FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY') AS c USING (table_oid)
    WHERE lower(t.table_name) = lower(?) AND NOT t.temporary AND t.database_name = current_database()
        AND t.schema_name = current_schema()
"""
_VIEWS = """
    SELECT database_name, schema_name, view_name, sql FROM duckdb_views()
    WHERE NOT internal AND database_name = current_database() AND schema_name = current_schema()
"""
