"""Prepared steps."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from xql_ffi._engine import is_active, way_out
from xql_ffi._errors import MissingEngineError
from xql_ffi._expressions import shown
from xql_ffi._gradients import check_registered
from xql_ffi._progress import stepped
from xql_ffi._text.catalog import is_duckdb, is_session, other_engine
from xql_ffi._values import of_python

if TYPE_CHECKING:
    from datafusion import SessionContext

    from xql_ffi._prepared.stepping import Stepping


class Prepared:
    """Statements that run as one step, as `prepare` makes it.

    Threads may share one: its steps wait for one another. It keeps its session.
    """

    def __init__(self, stepping: Stepping) -> None:
        self._stepping, self._running = stepping, threading.Lock()

    def __repr__(self) -> str:
        names = [f"into {name}" if kind == "insert" else name for kind, name in self._stepping.results]
        given = f", of {', '.join(f'${name}' for name in self.parameters)}" if self.parameters else ""
        return f"<xql_ffi.Prepared step of {', '.join(names)}{given}>"

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters, in the order in which the statements have them."""
        return self._stepping.parameters

    def __call__(self, **parameters: float | str | bool | None) -> dict[str, Any]:
        """Runs all statements on the tables as they are now, and then changes the tables, all of them or none.

        Args:
            parameters: a number, a text, a truth value or None for each parameter, also as scalars of NumPy.

        Returns:
            The values, by their names.

        Raises:
            TypeError: a parameter is missing, or is none of these, or there is no parameter of this name.
            DifferentiationError: a statement has a derivative that cannot be taken.
            ValueError: a result does not fit its table, or a value has several rows; or a table is gone.
        """
        given = of_python(parameters)
        self._check_parameters(given)
        with self._running:
            values = self._stepping.step(given)
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
            TypeError, DifferentiationError, ValueError: as a call raises them; also ValueError for a negative number
                of steps.
        """
        if steps < 0:
            msg = f"a step runs 0 times or more; {steps} is negative"
            raise ValueError(msg)
        found = []
        for step in range(steps):
            given = {name: of(step) if callable(of) else of for name, of in parameters.items()}
            found.append({"step": step + 1, **self(**given)})
        names = ["step", *(name for kind, name in self._stepping.results if kind == "value")]
        return pa.table({name: pa.array([row[name] for row in found]) for name in names})

    def _check_parameters(self, given: Mapping[str, object]) -> None:
        if missing := [name for name in self.parameters if name not in given]:
            msg = f"the step needs a value for each parameter; {', '.join(f'${name}' for name in missing)} has none"
            raise TypeError(msg)
        for name, value in given.items():
            if name not in self.parameters:
                has = ", ".join(f"${each}" for each in self.parameters) or "none"
                msg = f"the statements have no parameter ${name}; they have {has}"
                raise TypeError(msg)
            if value is not None and not isinstance(value, bool | int | float | str):
                msg = f"${name} must be a number, a text, a truth value or None; {shown(value)} is none of these"
                raise TypeError(msg)


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
    if "step" in given["values"]:
        msg = "run() returns the number of a step as step: give the value another name"
        raise ValueError(msg)
    if not any(given.values()):
        msg = "there is nothing to prepare: name a table and a query"
        raise ValueError(msg)
    # `import xql_ffi` is not to wait for data sets of pyarrow, nor for sqlglot.
    from xql_ffi._prepared.stepping import Stepping

    return Prepared(Stepping(ctx, given["updates"], given["inserts"], given["values"]))


def _check_session(ctx: object) -> None:
    if is_duckdb(ctx) or not is_session(ctx):
        msg = f"prepare takes a session of datafusion; {shown(ctx)} is none. {other_engine(ctx)}"
        raise TypeError(msg)
    if not is_active():
        msg = f"prepare needs sessions that differentiate: {way_out()}"
        raise MissingEngineError(msg)
    check_registered(ctx)  # type: ignore[arg-type]
