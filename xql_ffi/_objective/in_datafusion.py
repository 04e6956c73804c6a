"""Objectives over the tables of a session of DataFusion."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from datafusion import SQLOptions
from datafusion.unparser import Dialect, Unparser

from xql_ffi._expressions import quoted, shown
from xql_ffi._objective.host import cast_to, check_columns, check_unchanged, not_shadowed
from xql_ffi._objective.live import Live, Loop
from xql_ffi._objective.parameters import Relation, same_beside
from xql_ffi._objective.statements import (
    MOVING,
    Kind,
    Names,
    moved,
    read_in_place,
    repeated,
    shadowed,
    with_numbers,
)
from xql_ffi._text.catalog import relations as tables_and_views
from xql_ffi._text.views import MADE, named_in

if TYPE_CHECKING:
    from xql_ffi._objective.parameters import Chosen

_SCAN = re.compile(r"^\s*TableScan: (\S+)", re.MULTILINE)


class DataFusion:
    """A session of DataFusion that has ``grad``."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._names = Names(uuid4().hex)
        self._relations: Sequence[Relation] = ()
        # The rows of the relations, and of other tables that are replaced.
        self._live: dict[str, Live] = {}
        self._loops: dict[Kind, Loop] = {}
        self._loss = self._column = ""

    def rows(self, relation: str) -> pa.Table:
        """The rows of a relation in their order, by its partitions."""
        try:
            frame = self._session.table(quoted(relation))
        except (KeyError, RuntimeError) as error:
            msg = f"the session has no table called {relation!r}"
            raise ValueError(msg) from error
        if not frame.logical_plan().display().startswith("TableScan:"):
            msg = f"{relation} is a view, which has no cells of its own: name the tables that it reads"
            raise ValueError(msg)
        batches = [batch for partition in frame.collect_partitioned() for batch in partition]
        return pa.Table.from_batches(batches, frame.schema()).combine_chunks()

    def where(self, relation: str, rows: pa.Table, condition: str) -> Chosen:
        """For which of the rows of a relation a condition is true."""
        import numpy as np

        number, table = f"row_{uuid4().hex}", f"rows_{uuid4().hex}"
        numbered = rows.append_column(number, pa.array(range(rows.num_rows), pa.int64()))
        self._session.register_dataset(table, Live(numbered))
        try:
            query = f"SELECT {number} FROM {table} AS {quoted(relation)} WHERE ({condition}\n)"
            found = self._session.sql(query, options=_QUERY).to_arrow_table()
        finally:
            self._session.deregister_table(table)
        chosen = np.zeros(rows.num_rows, dtype=bool)
        chosen[found.column(0).to_numpy()] = True
        return chosen

    def prepare(self, loss: object, relations: Sequence[Relation]) -> None:
        """Takes the loss, and the relations whose rows are to be given.

        Raises:
            TypeError: the loss is neither SQL nor a DataFrame.
            ValueError: the loss is not one number, or reads a relation in a way that it cannot be replaced.
        """
        frame = self._session.sql(loss, options=_QUERY) if isinstance(loss, str) else loss
        # xarray-sql has DataFrames of its own, around those of DataFusion.
        if not hasattr(frame, "into_view"):
            msg = f"the loss must be a query in SQL or a DataFrame; {shown(loss)} is neither"
            raise TypeError(msg)
        schema = frame.schema()
        check_columns(schema.names, schema.types)
        self._column = schema.names[0]
        if isinstance(loss, str):
            self._loss = loss.strip().rstrip(";")
        else:
            self._loss = Unparser(Dialect.default()).plan_to_sql(frame.logical_plan())
        self._relations = relations

    def run(self, kind: Kind, tables: Sequence[Mapping[str, Mapping[str, pa.Array]]]) -> pa.Table:
        """Takes a turn of a statement, which is planned before its first turn and after an error."""
        values, tangents = tables
        for relation in self._relations:
            self._put(relation.name, with_numbers(self._names, relation, values[relation.name], tangents[relation.name]))
        try:
            if kind not in self._loops:
                self._loops[kind] = self._planned(kind)
            return self._loops[kind].turn()
        except BaseException:
            # It may have ended in the midst of a turn.
            self._loops.pop(kind, None)
            raise

    def _put(self, name: str, rows: pa.Table) -> None:
        if name in self._live:
            self._live[name].put(rows)
        else:
            self._live[name] = Live(rows)

    def replace(self, name: str, rows: pa.Table) -> None:
        """Lets the loss read these rows in place of a table of the session."""
        if name not in self._live:
            schema = self._session.table(quoted(name)).schema()
            self._loops.clear()
        else:
            schema = self._live[name].schema
        self._put(name, cast_to(name, rows, schema))

    def _planned(self, kind: Kind) -> Loop:
        """Plans a statement. While it does, the session knows tables by names that nothing else has."""
        names, session, made = self._names, self._session, list[str]()
        try:
            for name, table in self._tables().items():
                session.register_dataset(table, self._live[name])
                made.append(table)
            if kind in MOVING:
                session.register_record_batches(names.steps, [[pa.record_batch({names.step: [0.0]})]])
                made.append(names.steps)
                for number, relation in enumerate(self._relations):
                    session.sql(f"CREATE VIEW {names.moved(number)} AS {moved(names, number, relation, 'REAL')}")
                    made.append(names.moved(number))
            session.register_view(names.loss, self._shadowed(kind))
            made.append(names.loss)
            relations = self._relations if kind in ("gradient", "hvp") else ()
            stream = session.sql(repeated(names, relations, kind)).execute_stream()
            return Loop(stream, 1 + sum(relation.rows.num_rows for relation in relations))
        finally:
            for table in reversed(made):
                session.deregister_table(table)

    def _tables(self) -> dict[str, str]:
        """What live tables are called, by the names of those of the session."""
        numbers = {relation.name: number for number, relation in enumerate(self._relations)}
        others = [name for name in self._live if name not in numbers]
        numbers |= {name: len(numbers) + place for place, name in enumerate(others)}
        return {name: self._names.table(number) for name, number in numbers.items()}

    def _shadowed(self, kind: Kind) -> Any:
        """The loss over live tables in the place of those of the session."""
        names, tables = self._names, self._tables()
        shadows = {quoted(name): f"SELECT * FROM {table}" for name, table in tables.items()}
        for number, relation in enumerate(self._relations):
            shadows[quoted(relation.name)] = read_in_place(names, number, relation, kind)
        frame = self._session.sql(shadowed(names, self._loss, self._column, shadows), options=_QUERY)
        if self._reads(frame, tables):
            shadows |= self._views(tables)
            frame = self._session.sql(shadowed(names, self._loss, self._column, shadows), options=_QUERY)
            if read := self._reads(frame, tables):
                raise not_shadowed(read)
        return frame

    def _reads(self, frame: Any, tables: Mapping[str, str]) -> str | None:
        """One of these tables of the session that a plan still reads."""
        scans = {scan.rpartition(".")[2] for scan in _SCAN.findall(frame.logical_plan().display_indent())}
        return next((name for name in tables if name in scans), None)

    def _views(self, tables: Mapping[str, str]) -> dict[str, str]:
        """The queries of the views that read these tables, each after those that it reads."""
        queries = {}
        for path, query in tables_and_views(self._session):
            if isinstance(query, str) and self._reads(self._session.table(".".join(map(quoted, path))), tables):
                queries[path] = query
        shadows: dict[str, str] = {}
        while queries:
            below = {path: named_in(query, queries).keys() - {path} for path, query in queries.items()}
            path = min(queries, key=lambda path: len(below[path]))
            query = queries.pop(path)
            made = MADE.match(query)
            head = quoted(path[-1]) + (made[1] or "" if made else "")
            shadows[head] = (query[made.end() :] if made else query).strip().rstrip(";")
        return shadows

    def update(self, relations: Sequence[Relation], tables: Mapping[str, pa.Table]) -> None:
        """Gives the relations of the session these rows, all of them or none."""
        before = {relation.name: self.rows(relation.name) for relation in relations}
        for relation in relations:
            check_unchanged(
                relation.name, same=same_beside(before[relation.name], relation.rows, relation.variables)
            )
        try:
            for name, rows in tables.items():
                self._register(name, rows)
        except BaseException:
            for name, rows in before.items():
                self._register(name, rows)
            raise

    def _register(self, name: str, rows: pa.Table) -> None:
        self._session.deregister_table(quoted(name))
        batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        self._session.register_record_batches(quoted(name), [batches])


_QUERY = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
