"""Prepared steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from xql_ffi._engine import is_active, way_out
from xql_ffi._errors import DifferentiationError, MissingEngineError, translated, untagged
from xql_ffi._expressions import shown
from xql_ffi._gradients import check_registered
from xql_ffi._objective.session import put_in_place
from xql_ffi._prepared.reading import parameters_of, read
from xql_ffi._prepared.results import appended, check_fits, fitted, value_of
from xql_ffi._progress import stepped
from xql_ffi._text.catalog import is_duckdb, is_session, other_engine

if TYPE_CHECKING:
    from datafusion import SessionContext

    from xql_ffi._prepared.plan import Planned
    from xql_ffi._prepared.tables import Table

# The Arrow types of parameters by their Python types. What is True is an integer, too.
_TYPES: Sequence[tuple[type, pa.DataType]] = (
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
)


class Prepared:
    """Statements that run as one step, as `prepare` makes it.

    Threads may share one: its steps wait for one another. It keeps its session.
    """

    def __init__(
        self,
        session: SessionContext,
        updates: Mapping[str, str],
        inserts: Mapping[str, str],
        values: Mapping[str, str],
    ) -> None:
        self._session, self._running = session, threading.Lock()
        self._updates, self._inserts, self._values = list(updates), list(inserts), list(values)
        self._statements = [*updates.values(), *inserts.values(), *values.values()]
        names = (name for statement in self._statements for name in parameters_of(statement))
        self._types: dict[str, pa.DataType | None] = dict.fromkeys(names)
        self._tables: dict[str, Table] = {}
        self._row: Any = None
        self._planned: Planned | None = None
        self._refresh()
        self._put(dict.fromkeys(self._types))
        for name, schema in zip(self._named(), self._planner().schemas(), strict=True):
            self._check(name, schema)

    def __repr__(self) -> str:
        targets = ", ".join([*self._updates, *(f"into {name}" for name in self._inserts), *self._values])
        given = f", of {', '.join(f'${name}' for name in self._types)}" if self._types else ""
        return f"<xql_ffi.Prepared step of {targets}{given}>"

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters, in the order in which the statements have them."""
        return list(self._types)

    def __call__(self, **parameters: float | str | bool | None) -> dict[str, Any]:
        """Runs all statements on the tables as they are now, and then changes the tables, all of them or none.

        Args:
            parameters: a number, a text, a truth value or None for each parameter.

        Returns:
            The values, by their names.

        Raises:
            TypeError: a parameter is missing, or is none of these, or there is no parameter of this name.
            DifferentiationError: a statement has a derivative that cannot be taken.
            ValueError: a result does not fit its table, or a value has several rows; or a table is gone.
        """
        self._check_parameters(parameters)
        with self._running:
            values = self._step(parameters)
        stepped(self, values)
        return values

    def run(self, steps: int, /, **parameters: Any) -> pa.Table:
        """Runs the step several times, and returns the values of each.

        What has been done stays if a step fails or Ctrl-C ends one: the tables are those after the last whole step.

        Args:
            steps: how often.
            parameters: as those of a call, or a function of the number of the step, from 0 on: ``lr=lambda step: ...``.

        Returns:
            A row for each step: ``step``, from 1 on, and the values.

        Raises:
            TypeError, DifferentiationError, ValueError: as a call raises them.
        """
        found = []
        for step in range(steps):
            given = {name: of(step) if callable(of) else of for name, of in parameters.items()}
            found.append({"step": step + 1, **self(**given)})
        names = ["step", *self._values]
        return pa.table({name: pa.array([row[name] for row in found]) for name in names})

    def _named(self) -> list[str]:
        return [*self._updates, *self._inserts, *self._values]

    def _check(self, name: str, schema: pa.Schema) -> None:
        """Checks the columns that a statement gives."""
        if name not in self._values or name in self._targets():
            check_fits(name, schema, self._tables[name].schema)
        elif len(schema.names) != 1:
            msg = f"{name} must be one value; its query has the columns {', '.join(map(repr, schema.names))}"
            raise ValueError(msg)

    def _targets(self) -> list[str]:
        return [*self._updates, *self._inserts]

    def _check_parameters(self, given: Mapping[str, object]) -> None:
        if missing := [name for name in self._types if name not in given]:
            msg = f"the step needs a value for each parameter; {', '.join(f'${name}' for name in missing)} has none"
            raise TypeError(msg)
        for name, value in given.items():
            if name not in self._types:
                has = ", ".join(f"${each}" for each in self._types) or "none"
                msg = f"the statements have no parameter ${name}; they have {has}"
                raise TypeError(msg)
            if value is not None and not isinstance(value, bool | int | float | str):
                msg = f"${name} must be a number, a text, a truth value or None; {shown(value)} is none of these"
                raise TypeError(msg)

    def _step(self, parameters: Mapping[str, object]) -> dict[str, Any]:
        # After an error a plan may have ended in the midst of a turn, so that it is not kept.
        planned, self._planned = self._planned, None
        is_same = self._refresh()
        is_same = self._put(parameters) and is_same
        try:
            if planned is None or not is_same:
                planned = self._planner().planned()
            results = planned.turn()
        except Exception as error:
            raise _said(error) from None
        if planned.is_for_good:
            self._planned = planned
        found = dict(zip(self._named_results(), results, strict=True))
        values = {name: value_of(name, found["value", name]) for name in self._values}
        self._change(found)
        return values

    def _named_results(self) -> list[tuple[str, str]]:
        kinds = (("update", self._updates), ("insert", self._inserts), ("value", self._values))
        return [(kind, name) for kind, names in kinds for name in names]

    def _change(self, found: Mapping[tuple[str, str], pa.Table]) -> None:
        """Changes the tables of the session."""
        before, after = {}, {}
        for name in self._targets():
            table = self._tables[name]
            before[name] = table.rows
            kind = "update" if name in self._updates else "insert"
            rows = fitted(name, found[kind, name], table.schema)
            after[name] = rows if kind == "update" else appended(table.rows, rows)
        put_in_place(self._session, before, after)

    def _refresh(self) -> bool:
        """Looks at the tables again. False if a plan is not for them."""
        from xql_ffi._prepared.tables import Table, named_tables

        if self._tables:
            changed = [name for name, table in self._tables.items() if not table.is_current()]
            if not changed:
                return True
        words = frozenset().union(*(read(statement).names for statement in self._statements))
        names = dict.fromkeys([*named_tables(self._session, words), *self._targets()])
        self._tables = {name: Table(self._session, name) for name in names}
        return False

    def _put(self, parameters: Mapping[str, Any]) -> bool:
        """Gives the parameters these values. False if a plan is for others types of them."""
        from xql_ffi._objective.live import Live

        if not self._types:
            return True
        is_same = self._row is not None
        for name, value in parameters.items():
            of = next((each for kind, each in _TYPES if isinstance(value, kind)), None)
            known = self._types[name]
            if of is not None and of != known and not (of == pa.int64() and known == pa.float64()):
                self._types[name], is_same = of, False
        row = pa.table(
            {name: pa.array([value], self._types[name] or pa.float64()) for name, value in parameters.items()}
        ).select(list(self._types))
        if is_same:
            self._row.put(row)
        else:
            self._row = Live(row)
        return is_same

    def _planner(self) -> Any:
        from xql_ffi._prepared.plan import Planner

        return Planner(self._session, self._statements, self._tables, self._row)


def prepare(
    ctx: SessionContext,
    updates: Mapping[str, str],
    *,
    inserts: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
) -> Prepared:
    """Prepares statements as one step: planned once, run on the tables as they are at each call.

    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> w = ctx.from_pydict({"k": [1, 2], "val": [3.0, 4.0]}, name="w")
    >>> view = ctx.sql("CREATE VIEW loss AS SELECT SUM(val * val) AS l FROM w")
    >>> step = xql_ffi.prepare(
    ...     ctx,
    ...     {"w": "SELECT k, val - $lr * grad((SELECT l FROM loss), val) AS val FROM w"},
    ...     values={"loss": "SELECT l FROM loss"})
    >>> step(lr=0.25), step(lr=0.25)
    ({'loss': 25.0}, {'loss': 6.25})
    >>> ctx.sql("SELECT k, val FROM w ORDER BY k").to_pydict()
    {'k': [1, 2], 'val': [0.75, 1.0]}

    All statements read the tables as they are before the step. Derivatives ``grad((SELECT l FROM loss), val)`` by the
    rows of several tables are computed together, the loss once.

    Args:
        ctx: the session, with ``grad``.
        updates: for each table that changes a query of all its rows after the step.
        inserts: for each table that grows a query of the rows that the step adds.
        values: queries of one value each, such as the loss, by the names of the values. They have one row at most.

    Returns:
        A `Prepared`, which is called with the values of the parameters ``$name`` in the statements.

    Raises:
        TypeError: this is no session of datafusion, or a statement is no text.
        MissingEngineError: the sessions of this process do not differentiate.
        ValueError: the session has no such table, the columns of a query do not fit its table, a table is to change and
            to grow, a statement reads a table in a way that it cannot be read anew, or no ``grad`` is registered.
    """
    _check_session(ctx)
    given = {"updates": updates, "inserts": inserts or {}, "values": values or {}}
    for what, queries in given.items():
        for name, query in queries.items():
            if not isinstance(query, str):
                msg = f"{what} are queries in SQL by names; that of {name} is {shown(query)}"
                raise TypeError(msg)
    if both := given["updates"].keys() & given["inserts"].keys():
        msg = f"{min(both)} is to change and to grow: add the rows in its update, with UNION ALL"
        raise ValueError(msg)
    if not any(given.values()):
        msg = "there is nothing to prepare: name a table and a query"
        raise ValueError(msg)
    try:
        return Prepared(ctx, given["updates"], given["inserts"], given["values"])
    except Exception as error:
        raise _said(error) from None


def _check_session(ctx: object) -> None:
    if is_duckdb(ctx) or not is_session(ctx):
        msg = f"prepare takes a session of datafusion; {shown(ctx)} is none. {other_engine(ctx)}"
        raise TypeError(msg)
    if not is_active():
        msg = f"prepare needs sessions that differentiate: {way_out()}"
        raise MissingEngineError(msg)
    check_registered(ctx)  # type: ignore[arg-type]


def _said(error: Exception) -> Exception:
    """An error in words that do not name what this package has made itself."""
    if not isinstance(error, DifferentiationError):
        error = translated(str(error)) or error
    said = untagged(str(error))
    return error if said == str(error) else type(error)(said)
