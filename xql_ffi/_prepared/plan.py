"""The plan of prepared statements: an endless recursive query, each turn of which is a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from xql_ffi._calls import may_differentiate
from xql_ffi._engine import is_engine
from xql_ffi._expressions import quoted
from xql_ffi._loss import QUERY, called, scans
from xql_ffi._objective.mutable_dataset import MutableDataset, RecursiveStepper
from xql_ffi._objective.session import NO_JOIN, own, views_over
from xql_ffi._objective.statements import all_columns
from xql_ffi._prepared.combining import PART, Combined, Places, apart, at, combined
from xql_ffi._prepared.reading import read, with_parameters
from xql_ffi._prepared.tables import Table
from xql_ffi._progress import unwatched
from xql_ffi._session_proxy import logical_plan, sharing

_Made = TypeVar("_Made")

# What a turn has beside its rows: its number, how many rows it has, and a number for what plans the recursive query.
_TURN, _COUNT, _CALL = "turn", "rows", "call"


@dataclass(frozen=True)
class Planned:
    """Statements that run whenever a turn is asked for.

    Attributes:
        loop: takes the turns.
        schemas: the columns of the results, by statement.
        places: where these are in the rows of a turn.
        is_for_good: whether each turn computes all of it: DataFusion 55 computes scalar subqueries once.
    """

    loop: RecursiveStepper
    schemas: Sequence[pa.Schema]
    places: Sequence[Sequence[int]]
    is_for_good: bool

    def turn(self) -> list[pa.Table]:
        """Returns the rows of each statement, with the tables as they are now."""
        rows = self.loop.turn()
        results = []
        for number, (schema, places) in enumerate(zip(self.schemas, self.places, strict=True), start=1):
            own_rows = rows.filter(pc.equal(rows.column(PART), number))
            results.append(pa.table([own_rows.column(at(place)) for place in places], names=schema.names))
        return results


class Planner:
    """Plans statements over the tables of a session."""

    def __init__(
        self, session: Any, statements: Sequence[str], tables: Mapping[str, Table], row: MutableDataset | None
    ) -> None:
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
        shadowed = {name: live for name, live in shadowed.items() if self._is_read(name)}
        self._shadows = {quoted(name): f"SELECT * FROM {live}" for name, live in shadowed.items()}
        named = " ".join(each.text for each in self._statements)
        views = views_over(session, shadowed, named, self._is_read)
        self._shadows |= views
        texts = [*self._statements, *map(read, views.values())]
        self._has_subquery = any(each.has_subquery for each in texts)
        # DataFusion 55 makes joins of scalar subqueries before the statement is differentiated.
        self._joins = is_engine() or not any(may_differentiate(each.text) for each in texts)
        self._own = own(session, joins=self._joins)
        known = {name: self._tables[name].schema for name in self._live_tables()}
        if row is not None:
            known[f"parameters_{tag}"] = row.schema
        self._schemas: Sequence[pa.Schema] | None = None
        self._together = combined(self._statements, known, [name.strip('"') for name in self._shadows], tag)

    def _is_read(self, name: str) -> bool:
        """Returns whether a statement may read a table of this name, and not a table expression.

        Raises:
            ValueError: one may, and another one has a table expression of this name.
        """
        reading = [statement for statement in self._statements if name.lower() in statement.names]
        has_own = [name in statement.own for statement in reading]
        if any(has_own) and not all(statement.means_its_own(name) for statement in reading):
            msg = f"a table expression of a statement is called {name}, as a table is: give it another name"
            raise ValueError(msg)
        return not any(has_own)

    def _live_tables(self) -> dict[str, MutableDataset]:
        return {name: table.live for name, table in self._tables.items() if table.live is not None}

    def schemas(self) -> Sequence[pa.Schema]:
        """Returns the columns of the results."""
        if self._schemas is None:
            self._schemas = self._together_or_apart(self._schemas_of)
        return self._schemas

    def planned(self) -> Planned:
        """Plans the statements so that what they have in common is computed once, if they can be."""
        schemas = self.schemas()
        return self._together_or_apart(lambda together: self._planned(together, schemas))

    def _together_or_apart(self, work: Callable[[Combined], _Made]) -> _Made:
        """Does the work for all statements together; if that fails, for each statement separately.

        So they may be planned, or else say better why not.
        """
        try:
            return work(self._together)
        except Exception:
            if not self._together.heads:
                raise
        self._together = apart(self._statements)
        return work(self._together)

    def _schemas_of(self, together: Combined) -> list[pa.Schema]:
        with self._registered() as made:
            heads = dict(together.heads)
            if (sweep := together.sweep) is not None:
                frame = self._frame(f"SELECT * FROM {sweep}", heads)
                self._check_scans(frame)
                schema = frame.schema()
                # Its columns are all that other statements are to know of it here.
                self._register(f"types_{self._tag}", MutableDataset(schema.empty_table()), made)
                heads[sweep] = f"{sweep} AS (SELECT * FROM types_{self._tag})"
            known = replace(together, heads=heads)
            return [self._schema(each, known.read_by(each)) for each in together.statements]

    def _schema(self, statement: str, heads: Mapping[str, str]) -> pa.Schema:
        self._check_scans(self._frame(all_columns(statement), heads))
        # Before it is analyzed, DataFusion takes CASE for what its first branch is. A row has the types as they are.
        # A derived table of the name of a table expression would be taken for it on DataFusion 55.
        none = f"SELECT * FROM ({statement}\n) AS p_{self._tag} LIMIT 0"
        one, its = f"one_{self._tag}", f"its_{self._tag}"
        frame = self._frame(
            f"SELECT {its}.* FROM (SELECT 1 AS {one}) AS {one} LEFT JOIN ({none}) AS {its} ON TRUE", heads
        )
        return frame.collect()[0].schema

    def _frame(self, query: str, heads: Mapping[str, str]) -> Any:
        with sharing():
            return self._own.sql(self._with(heads.values(), query), options=QUERY)

    def _with(self, heads: Iterable[str], query: str) -> str:
        shadows = [f"{name} AS ({body}\n)" for name, body in self._shadows.items()]
        every = ", ".join([*shadows, *heads])
        return f"WITH {every} {query}" if every else query

    def _check_scans(self, frame: Any) -> None:
        """Checks that a plan reads no table in memory that is not looked at in each step.

        Raises:
            ValueError: it reads one.
        """
        plan = logical_plan(frame)
        # The rows of the last iteration, which is a table by the name of the recursive query.
        iterated = {name for each in self._statements for name in each.own} if "RecursiveQuery:" in plan else set()
        for scan in scans(plan):
            if self._tag in scan or scan.endswith("()") or scan.startswith("∂") or scan in iterated:
                continue
            table = self._tables.get(scan.rpartition(".")[2].strip('"'))
            if table is None or table.live is not None:
                msg = (
                    f"a statement reads {scan} by its name in full, or in a view that was made of a DataFrame, where "
                    "it would stay as it is now: read it by its bare name, or in views made by CREATE VIEW"
                )
                raise ValueError(msg)

    @contextmanager
    def _registered(self) -> Iterator[list[str]]:
        """Lets the session know the tables. What is added to the list that it gives is deregistered as well."""
        made: list[str] = []
        try:
            for name, live in self._lives.items():
                self._register(name, live, made)
            yield made
        finally:
            for name in made:
                self._own.deregister_table(name)

    def _register(self, name: str, live: MutableDataset, made: list[str]) -> None:
        self._own.register_dataset(name, live)
        made.append(name)

    def _planned(self, together: Combined, schemas: Sequence[pa.Schema]) -> Planned:
        places = Places()
        own_places = [places.of([str(of) for of in schema.types]) for schema in schemas]
        types: dict[int, pa.DataType] = {}
        for schema, own_place in zip(schemas, own_places, strict=True):
            types |= dict(zip(own_place, schema.types, strict=True))
        columns = {at(place): pa.nulls(1, types[place]) for place in sorted(types)}
        nulls = MutableDataset(pa.table(columns | {_CALL: pa.nulls(1, pa.float64())}))
        text = self._text(together, schemas, own_places)
        try:
            loop = self._begun(text, nulls)
        except Exception as error:
            if not self._joins or NO_JOIN not in str(error):
                raise
            self._own, self._joins = own(self._session, joins=False), False
            loop = self._begun(text, nulls)
        return Planned(loop, schemas, own_places, self._joins or not self._has_subquery)

    def _begun(self, text: str, nulls: MutableDataset) -> RecursiveStepper:
        with self._registered() as made:
            self._register(f"nulls_{self._tag}", nulls, made)
            with unwatched(), sharing():
                stream = self._own.sql(text, options=QUERY).execute_stream()
            return RecursiveStepper(stream, _COUNT)

    def _text(self, together: Combined, schemas: Sequence[pa.Schema], places: Sequence[Sequence[int]]) -> str:
        """Returns the recursive query.

        Its columns are numbered as `Places` has it. A statement has NULL in those of others.
        """
        empty, turns, its = f"nulls_{self._tag}", f"steps_{self._tag}", f"its_{self._tag}"
        count = len({place for own_places in places for place in own_places})
        every = [at(place) for place in range(count)]
        heads, branches = list(together.heads.values()), [f"SELECT 0 AS {PART}, {', '.join(every)} FROM {empty}"]
        for number, (statement, schema, own_places) in enumerate(
            zip(together.statements, schemas, places, strict=True), start=1
        ):
            name = f"q{number}_{self._tag}"
            heads.append(f"{name} AS ({statement}\n)")
            of_place = dict(zip(own_places, schema.names, strict=True))
            columns = [
                f"{its}.{quoted(of_place[place])} AS {at(place)}" if place in of_place else f"n.{at(place)}"
                for place in range(count)
            ]
            branches.append(
                f"SELECT {number} AS {PART}, {', '.join(columns)} FROM {empty} AS n CROSS JOIN {name} AS {its}"
            )
        union = self._with(heads, " UNION ALL ".join(branches))
        listed = ", ".join(every)
        begun = f"SELECT coalesce(MAX({_TURN}), 0) + 1 AS {_TURN}, CAST(0 AS DOUBLE) AS {_CALL} FROM {turns}"
        # Beside the statements the call would have DataFusion 54 write out what these read.
        turn = f"SELECT b.{_TURN}, {called(f'b.{_CALL}')} AS {_CALL} FROM ({begun}) AS b"
        selected = f"t.{_TURN}, COUNT(*) OVER () AS {_COUNT}, t.{_CALL}, u.{PART}, {listed}"
        return f"""WITH RECURSIVE {turns} AS (
            SELECT CAST(0 AS BIGINT) AS {_TURN}, CAST(1 AS BIGINT) AS {_COUNT}, {_CALL}, CAST(0 AS BIGINT) AS {PART},
                {listed} FROM {empty}
            UNION ALL
            SELECT {selected} FROM ({turn}) AS t CROSS JOIN ({union}) AS u)
            SELECT * FROM {turns}"""
