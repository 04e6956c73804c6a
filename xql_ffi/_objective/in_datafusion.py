"""Objectives over the tables of a session of DataFusion."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from datafusion.unparser import Dialect, Unparser

from xql_ffi._engine import is_engine
from xql_ffi._expressions import quoted
from xql_ffi._loss import QUERY, called, frame_of, may_read, plan_with_scans, stripped, unread
from xql_ffi._objective.host import cast_to, check_columns, check_unchanged, not_shadowed
from xql_ffi._objective.mutable_dataset import MutableDataset, RecursiveStepper
from xql_ffi._objective.parameters import Relation, same_beside
from xql_ffi._objective.session import NO_JOIN, own, put_in_place, read_still, views_over
from xql_ffi._objective.statements import (
    MOVING,
    Kind,
    Names,
    all_columns,
    has_rows,
    looked_through,
    moved,
    one_column,
    read_in_place,
    repeated,
    shadowed,
    with_numbers,
)
from xql_ffi._progress import unwatched
from xql_ffi._session_proxy import logical_plan, sharing

if TYPE_CHECKING:
    from xql_ffi._objective.parameters import Chosen

# The query of a relation, by its number.
Read = Callable[[int, Relation], str]
_SUBQUERY = "(<subquery>)"


class DataFusion:
    """A session of DataFusion that has ``grad``."""

    def __init__(self, session: Any) -> None:
        self._session = session
        # Sessions in which scalar subqueries are joins, and in which they are computed once.
        self._joining, self._once = own(session, joins=True), own(session, joins=False)
        # Whether the loss has a subquery.
        self._has_subquery = False
        # Whether the value is computed as a part of the gradient.
        self._by_gradient = False
        # Whether it is known that the loss reads all parameters.
        self._is_checked = False
        self._names = Names(uuid4().hex)
        self._relations: Sequence[Relation] = ()
        # The rows of the relations, and of other tables that are replaced.
        self._live: dict[str, MutableDataset] = {}
        # The loss as it was given, until its text is known to be right.
        self._frame: Any = None
        self._loops: dict[Kind, RecursiveStepper] = {}
        self.loss = ""

    def rows(self, relation: str) -> pa.Table:
        """Returns the rows of a relation in their order, by its partitions."""
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

    def rows_read(self, name: str) -> pa.Table:
        """The rows that the loss reads of a table without parameters: those in its place, if it has been replaced."""
        return self._live[name].rows() if name in self._live else self.rows(name)

    def where(self, relation: str, rows: pa.Table, condition: str) -> Chosen:
        """For which of the rows of a relation a condition is true."""
        import numpy as np

        number, table = f"row_{uuid4().hex}", f"rows_{uuid4().hex}"
        numbered = rows.append_column(number, pa.array(range(rows.num_rows), pa.int64()))
        self._session.register_dataset(table, MutableDataset(numbered))
        try:
            query = f"SELECT {number} FROM {table} AS {quoted(relation)} WHERE ({condition}\n)"
            found = self._session.sql(query, options=QUERY).to_arrow_table()
        finally:
            self._session.deregister_table(table)
        chosen = np.zeros(rows.num_rows, dtype=bool)
        chosen[found.column(0).to_numpy()] = True
        return chosen

    def sibling(self, given: Collection[str]) -> DataFusion:
        """Returns a host of its own over the same session, with the rows that are now in place of tables of it."""
        made = DataFusion(self._session)
        made._live = {name: MutableDataset(live.rows()) for name, live in self._live.items() if name not in given}
        return made

    def prepare(self, loss: object, relations: Sequence[Relation]) -> None:
        """Takes the loss, and the relations whose rows are to be given.

        Raises:
            TypeError: the loss is neither SQL nor a DataFrame.
            ValueError: the loss is not one number, or reads a relation in a way that it cannot be replaced.
        """
        frame = frame_of(self._once if is_engine() else self._session, loss)
        schema = frame.schema()
        check_columns(schema.names, schema.types)
        if not isinstance(loss, str):
            loss, self._frame = _written(frame), frame
        if _has_several_rows(frame):
            msg = "the loss must be one value; the query has several rows: aggregate them"
            raise ValueError(msg)
        self.take(loss, relations)

    def take(self, loss: str, relations: Sequence[Relation]) -> None:
        """Takes a loss that is known to be one number, in the place of the one before."""
        self.loss, self._relations = stripped(loss), relations
        self._loops.clear()

    def collect(self, query: str, values: Mapping[str, Mapping[str, pa.Array]]) -> pa.Table:
        """Returns the rows of a query, with these values of the variables of each relation."""
        self._put_all(values, values)
        with self._registered(self._once, "value"):
            return self._shadowed(self._once, self._read_by("value"), all_columns(query)).to_arrow_table()

    def check(self, value: float) -> None:
        """Checks that a loss that was given as a DataFrame has been written in SQL as it is.

        Raises:
            ValueError: it has another value, or that is not known.
        """
        if self._frame is not None:
            try:
                ((given,),) = self._frame.to_pydict().values()
            except Exception as error:
                raise ValueError(_NOT_WRITTEN) from error
            self._frame = None
            if not math.isclose(value, math.nan if given is None else given, rel_tol=1e-6) and not math.isnan(value):
                raise ValueError(_NOT_WRITTEN)

    def run(self, kind: Kind, tables: Sequence[Mapping[str, Mapping[str, pa.Array]]]) -> pa.Table:
        """Takes a turn of a statement, which is planned before its first turn and after an error."""
        self._put_all(*tables)
        if kind == "value" and self._by_gradient:
            kind = "gradient"
        try:
            return self._turn(kind)
        except Exception as error:
            if kind != "value" or not any(said in str(error) for said in _TWICE):
                raise
        # The gradient of such a loss is computed in another way, and the value with it.
        result = self._turn("gradient")
        self._by_gradient = True
        return result

    def _turn(self, kind: Kind) -> pa.Table:
        # After an error it may have ended in the midst of a turn, so that it is not kept.
        loop, is_for_good = self._loops.pop(kind, None), True
        if loop is None:
            loop, is_for_good = self._planned(kind)
        result = loop.turn()
        if is_for_good:
            self._loops[kind] = loop
        return result

    def _put_all(self, values: Mapping[str, Any], tangents: Mapping[str, Any]) -> None:
        """Gives the relations these values and tangents of their variables."""
        for relation in self._relations:
            name = relation.name
            self._put(name, with_numbers(self._names, relation, values[name], tangents[name]))

    def _put(self, name: str, rows: pa.Table) -> None:
        if name in self._live:
            self._live[name].put(rows)
        else:
            self._live[name] = MutableDataset(rows)

    def replace(self, name: str, rows: pa.Table) -> None:
        """Lets the loss read these rows in place of a table of the session."""
        if name not in self._live:
            schema = self._session.table(quoted(name)).schema()
            self._loops.clear()
        else:
            schema = self._live[name].schema
        self._put(name, cast_to(name, rows, schema))

    def _planned(self, kind: Kind) -> tuple[RecursiveStepper, bool]:
        """Plans a statement, and says whether the plan gives in each turn what it would give if planned anew."""
        if kind == "value" or is_engine():
            try:
                return self._planned_by(self._joining, kind), True
            except Exception as error:
                if _METADATA in str(error):
                    raise ValueError(_WITHOUT_METADATA) from error
                if NO_JOIN not in str(error):
                    raise
        loop = self._planned_by(self._once, kind)
        return loop, kind != "value" and not self._has_subquery

    def _planned_by(self, session: Any, kind: Kind) -> RecursiveStepper:
        """Plans a statement."""
        names = self._names
        with self._registered(session, kind) as made:
            if kind == "value" and not self._is_checked:
                self._check_all_are_read(session)
            session.register_view(names.loss, self._shadowed_loss(session, self._read_by(kind)))
            made.append(names.loss)
            relations = self._relations if has_rows(kind) else ()
            # A call is a turn of this query. Blocks of `progress` are told of calls, and not of its steps.
            with unwatched(), sharing():
                stream = session.sql(repeated(names, relations, kind)).execute_stream()
            return RecursiveStepper(stream, 1 + sum(relation.rows.num_rows for relation in relations))

    @contextmanager
    def _registered(self, session: Any, kind: Kind) -> Iterator[list[str]]:
        """Lets a session know the live tables, by names that nothing else has.

        What is added to the list that it gives is deregistered as well.
        """
        names, made = self._names, list[str]()
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
            yield made
        finally:
            for table in reversed(made):
                session.deregister_table(table)

    def _check_all_are_read(self, session: Any) -> None:
        """Checks that the loss reads each parameter.

        Raises:
            VariableError: it does not read one of them.
        """
        name = self._names.loss
        looked = self._shadowed_loss(session, lambda number, relation: looked_through(self._names, number, relation))
        session.register_view(name, looked)
        try:
            zero = "(SELECT CAST(0 AS DOUBLE) AS zero)"
            with sharing():
                frame = session.sql(f"SELECT {name}, {called('zero')} AS zero FROM {name} CROSS JOIN {zero}")
            plan = plan_with_scans(frame)
        finally:
            session.deregister_table(name)
        for number, relation in enumerate(self._relations):
            for variable in relation.variables:
                if not may_read(plan, self._names.table(number), variable):
                    raise unread(f"{relation.name}.{variable}")
        self._is_checked = True

    def _read_by(self, kind: Kind) -> Read:
        """How the loss reads the relations in a statement."""
        return lambda number, relation: read_in_place(self._names, number, relation, kind)

    def _tables(self) -> dict[str, str]:
        """Returns the names of the live tables, by the names of those of the session."""
        numbers = {relation.name: number for number, relation in enumerate(self._relations)}
        others = [name for name in self._live if name not in numbers]
        numbers |= {name: len(numbers) + place for place, name in enumerate(others)}
        return {name: self._names.table(number) for name, number in numbers.items()}

    def _shadowed_loss(self, session: Any, read: Read) -> Any:
        return self._shadowed(session, read, one_column(self._names, self.loss))

    def _shadowed(self, session: Any, read: Read, query: str) -> Any:
        """A query over live tables in the place of those of the session, with this way to read the relations."""
        tables = self._tables()
        shadows = {quoted(name): f"SELECT * FROM {table}" for name, table in tables.items()}
        for number, relation in enumerate(self._relations):
            shadows[quoted(relation.name)] = read(number, relation)
        with sharing():
            frame = session.sql(shadowed(query, shadows), options=QUERY)
        if self._reads(frame, tables):
            shadows |= self._views(tables, query)
            with sharing():
                frame = session.sql(shadowed(query, shadows), options=QUERY)
            if table := self._reads(frame, tables):
                raise not_shadowed(table)
        self._has_subquery = _SUBQUERY in logical_plan(frame)
        return frame

    def _reads(self, frame: Any, tables: Mapping[str, str]) -> str | None:
        """One of these tables of the session that a plan still reads."""
        return read_still(frame, tables)

    def _views(self, tables: Mapping[str, str], query: str) -> dict[str, str]:
        """The queries of the views that read these tables and that a query names, each after those that it reads."""
        return views_over(self._session, tables, query)

    def update(self, relations: Sequence[Relation], tables: Mapping[str, pa.Table]) -> None:
        """Gives the relations of the session these rows, all of them or none."""
        before = {relation.name: self.rows(relation.name) for relation in relations}
        for relation in relations:
            check_unchanged(relation.name, same=same_beside(before[relation.name], relation.rows, relation.variables))
        put_in_place(self._session, before, tables)


def _written(frame: Any) -> str:
    """Returns the query of a DataFrame."""
    try:
        written: str = Unparser(Dialect.default()).plan_to_sql(frame.logical_plan())
    except Exception as error:  # datafusion has no class of its own for that
        raise ValueError(_NOT_WRITTEN) from error
    return written


def _has_several_rows(frame: Any) -> bool:
    """Returns whether a loss is known to have several rows.

    A recursive query may be one that DataFusion plans in statements with derivatives alone, as those are that compute
    the loss. Whoever takes their turns counts the rows.
    """
    try:
        return bool(frame.limit(2).count() > 1)
    except Exception:
        return False


# What DataFusion says of a recursive query whose recursive term reads the last rows twice.
_TWICE = ("Multiple recursive references", "Unexpected empty work table")
# What DataFusion says of a recursive query over a table whose schema has metadata, as tables of pandas have.
_METADATA = "schema metadata differ"
_WITHOUT_METADATA = (
    "the loss reads a table whose Arrow schema has metadata, as those of pandas have, over which DataFusion runs no "
    "recursive query. Register it without: ctx.from_arrow(table.replace_schema_metadata(None), name=...)"
)
_NOT_WRITTEN = "this DataFrame cannot be written as the query that it is: give the loss in SQL"
