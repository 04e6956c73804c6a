"""Statements with derivatives as plans of Substrait, and plans with derivatives as queries of a session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from datafusion.substrait import Consumer, Producer, Serde

from xql_ffi._errors import HostError
from xql_ffi._expressions import shown
from xql_ffi._loss import QUERY, scans
from xql_ffi._special import SIGNATURES
from xql_ffi._text.catalog import is_duckdb, is_session
from xql_ffi._text.expansion import expand_sql
from xql_ffi._text.shadowed_functions import called

if TYPE_CHECKING:
    from collections.abc import Iterable

    from datafusion import DataFrame, SessionContext

    from xql_ffi._rules import Rule

_UNWRITTEN = re.compile(r"[Uu]nsupported plan type: (?P<node>\w+)")
# Strings and names in quotes are looked over.
_MATERIALIZED = re.compile(r"""'[^']*'|"[^"]*"|\b(?P<said>as\s+materialized\s*\()""", re.IGNORECASE)
_DEEP = "recursion limit reached"
_SHORT = 300
_BOUND = r"(UNBOUNDED PRECEDING|CURRENT ROW|UNBOUNDED FOLLOWING)"
# What is lost of window functions, as plans show them.
_LOST_IN_WINDOWS = {
    rf"RANGE BETWEEN (?!{_BOUND} AND {_BOUND})": "frames of RANGE between numbers",
    r"FILTER \(WHERE": "FILTER",
    r"IGNORE NULLS": "IGNORE NULLS",
    r"\(DISTINCT ": "DISTINCT",
}
# What a plan's nodes are in SQL, of those that Substrait or DataFusion's writer lacks.
_NODES = {
    "RecursiveQuery": "recursive queries. Take the steps one by one, each as a plan over the rows of the last",
    "Unnest": "unnest of lists",
}


def to_substrait(session: SessionContext, statement: str, *, rules: Iterable[Rule] = ()) -> bytes:
    """Writes a query with derivatives as a plan of Substrait, which has no function and no node of this package.

    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = SessionContext()
    >>> _ = ctx.from_pydict({"x": [3.0]}, name="t")
    >>> plan = xql_ffi.to_substrait(ctx, "SELECT grad(x * x, x) AS d FROM t")
    >>> xql_ffi.from_substrait(ctx, plan).to_pydict()
    {'d': [6.0]}

    The plan is that of the text which `expand_sql` makes of the query, written by DataFusion. Substrait has no common
    table expressions as DataFusion writes it: what several parts read stands in each of them.

    Args:
        session: the session that has the tables, registered or not.
        statement: one query.
        rules: derivatives of functions that have none, or other ones.

    Returns:
        The bytes of a plan, a message ``substrait.Plan`` of protocol buffers.

    Raises:
        TypeError: this is no session of DataFusion, or the statement is not a string.
        HostError: Substrait, or DataFusion's writer of it, lacks what the query has.
        ValueError: as for `expand_sql`, or the statement is no query.
    """
    _check(session, "to_substrait")
    special = frozenset(SIGNATURES) & frozenset(session.udfs()) if hasattr(session, "udfs") else frozenset()
    has_special = isinstance(statement, str) and not special.isdisjoint(called(statement))
    text = expand_sql(statement, session, rules=rules, functions=has_special)
    if left := sorted(special & called(text)):
        msg = f"{left[0]} is a function of xql-ffi, which other readers of Substrait lack. Write what it computes"
        raise HostError(msg)
    if any(found["said"] for found in _MATERIALIZED.finditer(text)):
        msg = "AS MATERIALIZED says that rows are computed once, which a plan of Substrait cannot say. Leave it out"
        raise HostError(msg)
    frame = session.sql_with_options(text, QUERY)
    plan = frame.logical_plan()
    if "SubplanScan:" in plan.display_indent():
        # The engine decides how often a CTE is computed when it optimizes.
        plan = frame.optimized_logical_plan()
    _check_is_written(plan.display_indent())
    try:
        return bytes(Producer.to_substrait_plan(plan, session).encode())
    except Exception as error:
        raise HostError(_lacking(str(error))) from None


def from_substrait(session: SessionContext, plan: bytes) -> DataFrame:
    """Reads a plan of Substrait as a query, in which ``grad``, ``jvp``, ``vjp`` and ``stop_gradient`` are derivatives.

    The operators are functions of an extension, by these names, in a session that `register` has given them to. Their
    variable is an argument, a reference to a field. A plan does not say which of its parts were one CTE. A derivative
    by the rows of a table is by that wherever it is read; one by a column that the plan computes is by those rows
    alone, and by no other part that computes the same.

    Args:
        session: the session that has the tables; registered, if the plan has derivatives.
        plan: the bytes of a ``substrait.Plan``.

    Returns:
        The query, which has not been run.

    Raises:
        TypeError: this is no session of DataFusion, or the plan is not bytes.
        HostError: DataFusion's reader of Substrait lacks what the plan has, or the session a table or a function of it.
        DifferentiationError: a derivative in it is refused.
    """
    _check(session, "from_substrait")
    if not isinstance(plan, (bytes, bytearray, memoryview)):
        msg = f"a plan of Substrait is bytes; {shown(plan)} is not"
        raise TypeError(msg)
    try:
        read = Consumer.from_substrait_plan(session, Serde.deserialize_bytes(bytes(plan)))
    except Exception as error:
        raise HostError(_lacking(str(error))) from None
    return session.create_dataframe_from_logical_plan(read)


def _check_is_written(plan: str) -> None:
    """Refuses what DataFusion's writer or reader of Substrait leaves out of a plan, as it is shown, without a word.

    Raises:
        HostError: the plan has such a thing.
    """
    windows = " ".join(line for line in plan.splitlines() if "WindowAggr: " in line)
    for lost, what in _LOST_IN_WINDOWS.items():
        if re.search(lost, windows):
            msg = f"DataFusion loses {what} of window functions through Substrait: keep what they give in a table"
            raise HostError(msg)
    by_last: dict[str, str] = {}
    for table in scans(plan):
        last = table.rpartition(".")[2]
        if by_last.setdefault(last, table) != table:
            msg = (
                f"DataFusion takes {by_last[last]} and {table} for one table on the way through Substrait: give one of "
                "them a name of its own, by a view"
            )
            raise HostError(msg)


def _check(session: Any, function: str) -> None:
    if not is_session(session) or is_duckdb(session) or not hasattr(session, "create_dataframe_from_logical_plan"):
        msg = f"xql_ffi.{function} takes a SessionContext of datafusion; {shown(session)} is none"
        raise TypeError(msg)


def _lacking(message: str) -> str:
    """Returns the message of the writer or the reader of Substrait, without the plan."""
    if found := _UNWRITTEN.search(message):
        node = found["node"]
        return f"Substrait, as DataFusion writes it, has no {_NODES.get(node, node)}"
    if _DEEP in message:
        return (
            "the plan is deeper than DataFusion's reader of Substrait takes, some 100 messages in one another: keep "
            "what is computed in between in a table"
        )
    short = message if len(message) <= _SHORT else f"{message[:_SHORT]}..."
    return f"Substrait, as DataFusion has it, lacks something of the plan: {short}"
