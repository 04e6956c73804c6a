"""Runs a prepared step on a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from xql_ffi._errors import DifferentiationError, translated, untagged
from xql_ffi._objective.mutable_dataset import MutableDataset
from xql_ffi._objective.session import put_in_place
from xql_ffi._prepared.plan import Planned, Planner
from xql_ffi._prepared.reading import parameters_of
from xql_ffi._prepared.results import appended, check_fits, fitted, value_of
from xql_ffi._prepared.tables import Table, named_tables, words_of

# What the result of a statement is for.
Kind = Literal["update", "insert", "value"]

# The Arrow types of parameters by their Python types. What is True is an integer, too.
_TYPES: Sequence[tuple[type, pa.DataType]] = (
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
)


class Stepping:
    """The statements of a step, and the tables of the session that they read and change."""

    def __init__(
        self, session: Any, updates: Mapping[str, str], inserts: Mapping[str, str], values: Mapping[str, str]
    ) -> None:
        """Takes the statements, as `prepare` takes them.

        Raises:
            ValueError: as `prepare` raises it.
        """
        self._session = session
        given: dict[Kind, Mapping[str, str]] = {"update": updates, "insert": inserts, "value": values}
        self.results = [(kind, name) for kind, queries in given.items() for name in queries]
        self._statements = [query for queries in given.values() for query in queries.values()]
        names = (name for statement in self._statements for name in parameters_of(statement))
        self._types: dict[str, pa.DataType | None] = dict.fromkeys(names)
        self._tables: dict[str, Table] = {}
        self._row: MutableDataset | None = None
        self._planner: Planner | None = None
        self._planned: Planned | None = None
        self._refresh()
        # Of what types parameters are is not known before the first call.
        self._put(dict.fromkeys(self._types))
        try:
            self._planner = self._checked_planner()
        except Exception as error:
            said = self._said(error)
            is_refused = isinstance(said, ValueError) and not isinstance(said, DifferentiationError)
            if not self._types or is_refused:
                raise said from None

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters."""
        return list(self._types)

    def step(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Runs the statements, changes the tables, and returns the values."""
        # After an error a plan may have ended in the midst of a turn, so that it is not kept.
        planned, self._planned = self._planned, None
        is_same = self._refresh()
        is_same = self._put(parameters) and is_same
        try:
            if not is_same or self._planner is None:
                self._planner, planned = self._checked_planner(), None
            planned = planned or self._planner.planned()
            results = planned.turn()
        except Exception as error:
            raise self._said(error) from None
        if planned.is_for_good:
            self._planned = planned
        found = list(zip(self.results, results, strict=True))
        values = {name: value_of(name, rows) for (kind, name), rows in found if kind == "value"}
        self._change({(kind, name): rows for (kind, name), rows in found if kind != "value"})
        return values

    def _change(self, found: Mapping[tuple[Kind, str], pa.Table]) -> None:
        """Changes the tables of the session."""
        before, after = {}, {}
        for (kind, name), rows in found.items():
            table = self._tables[name]
            given = fitted(name, rows, table.schema)
            before[name] = table.rows
            after[name] = given if kind == "update" else appended(table.rows, given)
        put_in_place(self._session, before, after)

    def _refresh(self) -> bool:
        """Looks at the tables again. False if a plan is not for them."""
        if self._tables and all(table.is_current() for table in self._tables.values()):
            return True
        targets = (name for kind, name in self.results if kind != "value")
        words = words_of(self._session, self._statements)
        names = dict.fromkeys([*named_tables(self._session, words), *targets])
        self._tables = {name: Table(self._session, name) for name in names}
        return False

    def _put(self, parameters: Mapping[str, Any]) -> bool:
        """Gives the parameters these values. False if a plan is for other types of them."""
        if not self._types:
            return True
        for name, value in parameters.items():
            of = next((each for kind, each in _TYPES if isinstance(value, kind)), None)
            # Integers are floats as well.
            if of is not None and not (pa.types.is_integer(of) and self._types[name] == pa.float64()):
                self._types[name] = of
        columns = {name: pa.array([parameters[name]], of or pa.null()) for name, of in self._types.items()}
        row = pa.table(columns)
        if self._row is not None and self._row.schema == row.schema:
            self._row.put(row)
            return True
        self._row = MutableDataset(row)
        return False

    def _checked_planner(self) -> Planner:
        """Returns the planner of the statements, after a check that their results fit the tables."""
        planner = Planner(self._session, self._statements, self._tables, self._row)
        for (kind, name), schema in zip(self.results, planner.schemas(), strict=True):
            if kind != "value":
                self._tables[name].check_in_memory()
                check_fits(name, schema, self._tables[name].schema)
            elif len(schema.names) != 1:
                msg = f"{name} must be one value; its query has the columns {', '.join(map(repr, schema.names))}"
                raise ValueError(msg)
        return planner

    def _said(self, error: Exception) -> Exception:
        """Returns an error in words that do not name what this package has made itself."""
        if not isinstance(error, DifferentiationError):
            error = translated(str(error)) or error
        said = untagged(str(error), [name for name, table in self._tables.items() if table.live is not None])
        return error if said == str(error) else type(error)(said)
