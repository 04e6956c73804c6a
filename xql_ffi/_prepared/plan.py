"""The plan of prepared statements: an endless recursive query, each turn of which is a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from xql_ffi._calls import may_differentiate
from xql_ffi._engine import is_engine
from xql_ffi._expressions import quoted
from xql_ffi._loss import QUERY, called, scans
from xql_ffi._objective.live import Live, Loop
from xql_ffi._objective.session import NO_JOIN, own, views_over
from xql_ffi._objective.statements import all_columns
from xql_ffi._prepared.combining import PART, Combined, Places, apart, at, combined
from xql_ffi._prepared.reading import read, with_parameters
from xql_ffi._prepared.tables import Table
from xql_ffi._progress import unwatched
from xql_ffi._registered import logical_plan, sharing

# What a turn has beside its rows: its number, how many rows it has, and a number for what plans the recursive query.
_TURNS, _TURN, _COUNT, _CALL = "steps", "turn", "rows", "call"


@dataclass(frozen=True)
class Planned:
    """Statements that run whenever a turn is asked for.

    Attributes:
        loop: takes the turns.
        schemas: the columns of the results, by statement.
        places: where these are in the rows of a turn.
        swept: how many derivatives are computed together.
        is_for_good: whether each turn computes all of it: DataFusion 55 computes scalar subqueries once.
    """

    loop: Loop
    schemas: Sequence[pa.Schema]
    places: Sequence[Sequence[int]]
    swept: int
    is_for_good: bool

    def turn(self) -> list[pa.Table]:
        """The rows of each statement, with the tables as they are now."""
        rows = self.loop.turn()
        results = []
        for number, (schema, places) in enumerate(zip(self.schemas, self.places, strict=True), start=1):
            own_rows = rows.filter(pc.equal(rows.column(PART), number))
            results.append(pa.table([own_rows.column(at(place)) for place in places], names=schema.names))
        return results


class Planner:
    """Plans statements over the tables of a session."""

    def __init__(self, session: Any, statements: Sequence[str], tables: Mapping[str, Table], row: Live | None) -> None:
        """Takes what is to be planned.

        Args:
            session: the session.
            statements: queries.
            tables: the tables that they may read, by their names.
            row: the table of one row with the parameters, if there are any.
        """
        self._session = session
        self._tag = tag = uuid4().hex
        self._tables, self._row = tables, row
        self._lives = {f"rows_{number}_{tag}": each for number, each in enumerate(self._live_tables().values())}
        if row is not None:
            self._lives[f"parameters_{tag}"] = row
            columns = {name: name for name in row.schema.names}
            statements = [with_parameters(each, f"parameters_{tag}", columns) for each in statements]
        self._statements = [read(each) for each in statements]
        shadowed = dict(zip(self._live_tables(), self._lives, strict=False))
        self._shadows = {quoted(name): f"SELECT * FROM {live}" for name, live in shadowed.items()}
        named = " ".join(each.text for each in self._statements)
        views = views_over(session, shadowed, named)
        self._shadows |= views
        texts = [*(each.text for each in self._statements), *views.values()]
        self._has_subquery = any(read(text).has_subquery for text in texts)
        # DataFusion 55 makes joins of scalar subqueries before the statement is differentiated.
        self._joins = is_engine() or not any(map(may_differentiate, texts))
        self._own = own(session, joins=self._joins)

    def _live_tables(self) -> dict[str, Live]:
        return {name: table.live for name, table in self._tables.items() if table.live is not None}

    def planned(self) -> Planned:
        """Plans the statements so that what they have in common is computed once, or else each by itself."""
        schemas = {name: self._tables[name].schema for name in self._live_tables()}
        if self._row is not None:
            schemas[f"parameters_{self._tag}"] = self._row.schema
        names = [name.strip('"') for name in self._shadows]
        together = combined(self._statements, schemas, names, self._tag)
        if together.heads:
            with suppress(Exception):
                return self._in_session(together)
        # Each by itself they may be planned, or else say better why not.
        return self._in_session(apart(self._statements))

    def _in_session(self, together: Combined) -> Planned:
        try:
            with self._registered():
                return self._planned(together)
        except Exception as error:
            if not self._joins or NO_JOIN not in str(error):
                raise
        self._own, self._joins = own(self._session, joins=False), False
        with self._registered():
            return self._planned(together)

    def schemas(self) -> list[pa.Schema]:
        """The columns of the results."""
        with self._registered():
            return [self._schema(each, ()) for each in apart(self._statements).statements]

    def _schema(self, statement: str, heads: Sequence[str]) -> pa.Schema:
        with sharing():
            frame = self._own.sql(self._with(heads, all_columns(statement)), options=QUERY)
        self._check_scans(frame)
        return frame.schema()

    def _with(self, heads: Sequence[str], query: str) -> str:
        shadows = [f"{name} AS ({body}\n)" for name, body in self._shadows.items()]
        every = ", ".join([*shadows, *heads])
        return f"WITH {every} {query}" if every else query

    def _check_scans(self, frame: Any) -> None:
        """Checks that a plan reads no table in memory that is not looked at in each step.

        Raises:
            ValueError: it reads one.
        """
        for scan in scans(logical_plan(frame)):
            if self._tag in scan or scan.endswith("()") or scan.startswith("∂"):
                continue
            table = self._tables.get(scan.rpartition(".")[2].strip('"'))
            if table is None or table.live is not None:
                msg = (
                    f"a statement reads {scan} by its name in full, or in a view that was made of a DataFrame, where it "
                    "would be read as it is now: read it by its bare name, or in views made by CREATE VIEW"
                )
                raise ValueError(msg)

    @contextmanager
    def _registered(self) -> Iterator[None]:
        made = []
        try:
            for name, live in self._lives.items():
                self._own.register_dataset(name, live)
                made.append(name)
            yield
        finally:
            for name in made:
                self._own.deregister_table(name)

    def _planned(self, together: Combined) -> Planned:
        schemas = [self._schema(each, together.heads) for each in together.statements]
        places = Places()
        own_places = [places.of([str(of) for of in schema.types]) for schema in schemas]
        types: dict[int, pa.DataType] = {}
        for schema, own_place in zip(schemas, own_places, strict=True):
            types |= dict(zip(own_place, schema.types, strict=True))
        empty = f"nulls_{self._tag}"
        nulls = pa.table({at(place): pa.nulls(1, types[place]) for place in sorted(types)} | {_CALL: pa.nulls(1, pa.float64())})
        self._own.register_dataset(empty, Live(nulls))
        try:
            text = self._text(together, schemas, own_places, empty)
            with unwatched(), sharing():
                stream = self._own.sql(text, options=QUERY).execute_stream()
            loop = Loop(stream, _COUNT)
        finally:
            self._own.deregister_table(empty)
        is_for_good = self._joins or not self._has_subquery
        return Planned(loop, schemas, own_places, together.swept, is_for_good)

    def _text(
        self, together: Combined, schemas: Sequence[pa.Schema], places: Sequence[Sequence[int]], empty: str
    ) -> str:
        """The recursive query.

        Its columns are numbered as `Places` has it. A statement has NULL in those of others.
        """
        count = len({place for own_places in places for place in own_places})
        every = [at(place) for place in range(count)]
        heads, branches = list(together.heads), [f"SELECT 0 AS {PART}, {', '.join(every)} FROM {empty}"]
        for number, (statement, schema, own_places) in enumerate(
            zip(together.statements, schemas, places, strict=True), start=1
        ):
            name = f"q{number}_{self._tag}"
            heads.append(f"{name} AS ({statement}\n)")
            of_place = dict(zip(own_places, schema.names, strict=True))
            columns = [
                f"q.{quoted(of_place[place])} AS {at(place)}" if place in of_place else f"n.{at(place)}"
                for place in range(count)
            ]
            branches.append(f"SELECT {number} AS {PART}, {', '.join(columns)} FROM {empty} AS n CROSS JOIN {name} AS q")
        union = self._with(heads, " UNION ALL ".join(branches))
        listed = ", ".join(every)
        turn = f"SELECT coalesce(MAX({_TURN}), 0) + 1 AS {_TURN}, CAST(0 AS DOUBLE) AS {_CALL} FROM {_TURNS}"
        columns = f"t.{_TURN}, COUNT(*) OVER () AS {_COUNT}, {called(f't.{_CALL}')} AS {_CALL}, u.{PART}, {listed}"
        return f"""WITH RECURSIVE {_TURNS} AS (
            SELECT CAST(0 AS BIGINT) AS {_TURN}, CAST(1 AS BIGINT) AS {_COUNT}, {_CALL}, CAST(0 AS BIGINT) AS {PART}, {listed}
            FROM {empty}
            UNION ALL
            SELECT {columns} FROM ({turn}) AS t CROSS JOIN ({union}) AS u)
            SELECT * FROM {_TURNS}"""
