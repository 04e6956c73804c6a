"""Replaces tables and views of a DataFusion session for statements that read other rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa

from xql_ffi._engine import is_engine
from xql_ffi._expressions import quoted
from xql_ffi._loss import scans
from xql_ffi._objective.views import in_place_of
from xql_ffi._session_proxy import logical_plan, twin_of
from xql_ffi._text.catalog import relations

# What DataFusion says of a scalar subquery that it can make no join of, such as one in an aggregate.
NO_JOIN = "Physical plan does not support logical expression ScalarSubquery"


def own(session: Any, *, joins: bool) -> Any:
    """Returns a session with the tables, functions and options of this one, but for an option of its own.

    DataFusion computes a scalar subquery before the rest of a plan, and once. In a recursive query it is to be computed
    in each iteration, as a part of the plan, which it is as a join. DataFusion 55 makes joins of them before the
    statement is differentiated, which does not see through these.
    """
    made: Any = twin_of(session) if is_engine() else session.enable_url_table()
    if is_engine():
        # What several parts of a statement read is computed once without a derivative, too.
        made.sql("SET xql.share_ctes = true")
    if joins:
        made.sql("SET datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery = false")
    return made


def read_still(frame: Any, tables: Collection[str]) -> str | None:
    """One of these tables of the session that a plan still reads."""
    found = scans(logical_plan(frame))
    return next((name for name in tables if any(f".{scan}".endswith(f".{name}") for scan in found)), None)


def views_over(
    session: Any, tables: Collection[str], query: str, is_named: Callable[[str], bool] = lambda _name: True
) -> dict[str, str]:
    """Returns the queries of the views that read these tables and that a query names, each after those that it reads.

    Args:
        session: the session.
        tables: the tables.
        query: the query.
        is_named: whether a name in the query may be that of a view, and not that of a table expression.
    """
    queries = {}
    for path, body in relations(session):
        if not isinstance(body, str) or not is_named(path[-1]):
            continue
        if read_still(session.table(".".join(map(quoted, path))), tables):
            queries[path] = body
    return in_place_of(queries, query)


def put_in_place(session: Any, before: Mapping[str, pa.Table], tables: Mapping[str, pa.Table]) -> None:
    """Puts tables in memory in the place of tables of a session, all of them or none.

    Args:
        session: the session.
        before: the rows that the tables have.
        tables: those that they are to have.
    """
    try:
        for name, rows in tables.items():
            _put(session, name, rows)
    except BaseException:
        for name, rows in before.items():
            _put(session, name, rows)
        raise


def _put(session: Any, name: str, rows: pa.Table) -> None:
    session.deregister_table(quoted(name))
    batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    session.register_record_batches(quoted(name), [batches])
