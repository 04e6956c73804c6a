"""Jacobians of rows times vectors of rows, without the Jacobians."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import uuid4

from datafusion import DataFrame, SessionContext, col, functions, lit

from xql_ffi._errors import VariableError
from xql_ffi._expressions import quoted
from xql_ffi._jacobians import DERIVATIVE, Variable, check_names, check_rows, variable
from xql_ffi._loss import frame_of, plan_with_scans, scans, viewed
from xql_ffi._session_proxy import logical_plan

# What gives other values each time it is computed.
_DRAWS = re.compile(r"\b(?:random|uuid)\(\)")


def pullback(
    ctx: SessionContext,
    query: str | DataFrame,
    wrt: str,
    cotangent: str | DataFrame,
    *,
    keys: Sequence[str] | None = None,
) -> DataFrame:
    """Returns cotangents of the rows of a query times its Jacobian by the rows of a relation: ``c.T @ J``.

    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> w = ctx.from_pydict({"k": [1, 2, 3], "val": [3.0, 4.0, 5.0]}, name="w")
    >>> products = "SELECT a.k, a.val * b.val AS val FROM w a JOIN w b ON b.k = a.k + 1"
    >>> pullback(ctx, products, "w.val", "SELECT 1 AS k, 2.0 AS c").sort("k").to_pydict()
    {'k': [1, 2, 3], 'd': [8.0, 6.0, 0.0]}

    It is the gradient of the sum of products of the rows with their cotangents, one statement in reverse mode.

    Args:
        ctx: the session. Its function ``grad`` differentiates, with the rules that it was registered with.
        query: a query in SQL or as a DataFrame. Its last column is differentiated, the others are the keys of its rows.
        wrt: the column to differentiate by, with its relation: ``"w.val"``.
        cotangent: a query with these keys, by their names, and the cotangents as its last column. They count as
            constant. A row of the query without one, or with NULL, has the cotangent 0. Rows of the query that have
            the same keys have the same cotangent.
        keys: the columns of the relation that the result has, by default all that are not floats.

    Returns:
        The keys of the rows of the relation and ``d``, of all of them, in no particular order. It is in memory.

    Raises:
        TypeError: a query is neither SQL nor a DataFrame.
        ValueError: the cotangents lack a key, have one twice, or have columns that are none; there is no such relation
            or column; or the session has no ``grad``.
        MissingEngineError: the ``datafusion`` of this process does not differentiate.
        VariableError: the query does not read the column.
    """
    check_rows(ctx, "pullback")
    by = variable(ctx, wrt, keys)
    _check_no_derivative(by.keys, "the relation")
    outputs, vectors = frame_of(ctx, query), frame_of(ctx, cotangent)
    *of, value = _names(outputs, "the query")
    vector = _vector_of(vectors, of, "the cotangents", "the query")
    _check_keys(vectors, of, "the cotangents", "give each row of the query one")
    tag, beside = uuid4().hex, uuid4().hex
    with viewed(ctx, outputs, tag) as rows, viewed(ctx, vectors, beside) as cotangents:
        product = f"o.{quoted(value)} * stop_gradient(c.{quoted(vector)})"
        total = f"SELECT coalesce(SUM({product}), 0) FROM {rows} AS o {_joined(cotangents, 'c', 'o', of)}"
        statement = f"SELECT {_listed(by.keys)}grad(({total}), {quoted(by.name)}) AS {DERIVATIVE} FROM {by.table}"
        found = ctx.sql(statement).cache()
    _check_is_read(found, outputs, by)
    return found


def pushforward(
    ctx: SessionContext,
    query: str | DataFrame,
    wrt: str,
    direction: str | DataFrame,
    *,
    keys: Sequence[str] | None = None,
) -> DataFrame:
    """Returns the Jacobian of the rows of a query by the rows of a relation times a direction of these: ``J @ t``.

    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> w = ctx.from_pydict({"k": [1, 2, 3], "val": [3.0, 4.0, 5.0]}, name="w")
    >>> products = "SELECT a.k, a.val * b.val AS val FROM w a JOIN w b ON b.k = a.k + 1"
    >>> pushforward(ctx, products, "w.val", "SELECT 2 AS k, 1.0 AS t").sort("k").to_pydict()
    {'k': [1, 2], 'd': [3.0, 5.0]}

    A pullback is linear in the cotangents, and its derivative by these, times the direction, is the product: reverse
    mode twice, one statement (J. Townsend, "A new trick for calculating Jacobian vector products", 2017).

    Args:
        ctx: the session. Its function ``grad`` differentiates, with the rules that it was registered with.
        query: a query in SQL or as a DataFrame. Its last column is differentiated, the others are the keys of its rows,
            which have to tell them apart.
        wrt: the column to differentiate by, with its relation: ``"w.val"``.
        direction: a query with the keys of the relation, by their names, and as its last column how the column moves.
            It counts as constant. A row of the relation without one, or with NULL, does not move.
        keys: the columns of the relation that a direction names its rows by, by default all that are not floats.

    Returns:
        The keys of the rows of the query and ``d``, NULL where the value is NULL, of all of them, in no particular
        order. It is in memory.

    Raises:
        TypeError: a query is neither SQL nor a DataFrame.
        ValueError: the keys do not tell the rows of the query, of the relation or of the direction apart; the direction
            lacks a key, or has columns that are none; the query draws random numbers; there is no such relation or
            column; or the session has no ``grad``.
        MissingEngineError: the ``datafusion`` of this process does not differentiate.
        UnsupportedRelationError: the query has a recursive query that varies, through which reverse mode goes once.
        VariableError: the query does not read the column.
    """
    check_rows(ctx, "pushforward")
    by = variable(ctx, wrt, keys)
    _check_no_derivative(by.keys, "the relation")
    outputs, vectors = frame_of(ctx, query), frame_of(ctx, direction)
    *of, value = _names(outputs, "the query")
    vector = _vector_of(vectors, by.keys, "the direction", "the relation")
    if _DRAWS.search(logical_plan(outputs)):
        msg = "the query draws random numbers, others each time it is computed: keep its rows in a table"
        raise ValueError(msg)
    _check_keys(ctx.table(by.table), by.keys, "the relation", "name columns that do, keys=[...]")
    _check_keys(vectors, by.keys, "the direction", "give each row of the relation one")
    tag, beside = uuid4().hex, uuid4().hex
    with viewed(ctx, outputs, tag) as rows, viewed(ctx, vectors, beside) as directions:
        one, null = f"one_{tag}", f"null_{tag}"
        # Any cotangents: the pullback is linear in them.
        total = f"SELECT SUM(o.{quoted(value)} * c.{one}) FROM {rows} AS o {_joined(f'of_{tag}', 'c', 'o', of)}"
        moved = f"g.{DERIVATIVE} * stop_gradient(t.{quoted(vector)})"
        own = f"CAST(1 AS DOUBLE) AS {one}, {quoted(value)} IS NULL AS {null}"
        statement = f"""WITH of_{tag} AS (SELECT {_listed(of)}{own} FROM {rows}),
            by_{tag} AS (SELECT {_listed(by.keys)}grad(({total}), {quoted(by.name)}) AS {DERIVATIVE} FROM {by.table}),
            along_{tag} AS (SELECT coalesce(SUM({moved}), 0) AS {DERIVATIVE}
                FROM by_{tag} AS g {_joined(directions, "t", "g", by.keys)})
            SELECT {_listed(of)}CASE WHEN NOT {null} THEN grad((SELECT {DERIVATIVE} FROM along_{tag}), {one}) END
                AS {DERIVATIVE}
            FROM of_{tag}"""
        found = ctx.sql(statement).cache()
    # Of the result, which is there, rather than of the query.
    _check_keys(found, of, "the query", "select columns that do before the last one, as their keys")
    _check_is_read(found, outputs, by)
    return found


def _check_is_read(found: DataFrame, query: DataFrame, by: Variable) -> None:
    """Refuses derivatives that are all 0 for the query does not read the variable.

    Raises:
        VariableError: it does not.
    """
    if found.filter(col(DERIVATIVE) != lit(0.0)).limit(1).count():
        return
    name = ".".join(by.relation)
    is_it = (name, f"public.{name}", f"datafusion.public.{name}")
    is_scanned = any(table in is_it or name.endswith(f".{table}") for table in scans(plan_with_scans(query)))
    # Views are known by their names where they are not written out yet.
    if not is_scanned and not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", logical_plan(query)):
        msg = f"the query does not read {name}.{by.name}: the derivative by it is 0. Name a column that it reads"
        raise VariableError(msg)


def _check_keys(rows: DataFrame, keys: Sequence[str], what: str, remedy: str) -> None:
    """Refuses rows of which several have the same keys.

    Raises:
        ValueError: there are such rows.
    """
    number = f"number_{uuid4().hex}"
    groups = rows.aggregate([col(quoted(key)) for key in keys], [functions.count_star().alias(number)])
    if groups.filter(col(number) > lit(1)).limit(1).count():
        named = f"the columns {', '.join(map(repr, keys))} do not tell" if keys else "no column tells"
        msg = f"{named} the rows of {what} apart: {remedy}"
        raise ValueError(msg)


def _names(frame: DataFrame, what: str) -> list[str]:
    """Returns the names of the columns of a query."""
    names: list[str] = frame.schema().names
    check_names(names, what)
    _check_no_derivative(names[:-1], what)
    return names


def _check_no_derivative(keys: Sequence[str], what: str) -> None:
    if DERIVATIVE in keys:
        msg = f"{what} has a key called {DERIVATIVE!r}, as the derivatives are: give it another name"
        raise ValueError(msg)


def _vector_of(frame: DataFrame, keys: Sequence[str], what: str, of: str) -> str:
    """Returns the column of a query that has a vector, beside the keys of what it belongs to."""
    *own, vector = _names(frame, what)
    if set(own) != set(keys):
        wanted, found = (", ".join(map(repr, [*names, vector])) for names in (keys, own))
        msg = f"{what} must have the keys of {of} and then one column: {wanted}, not {found}"
        raise ValueError(msg)
    return vector


def _listed(columns: Sequence[str]) -> str:
    return "".join(f"{quoted(column)}, " for column in columns)


def _joined(relation: str, alias: str, other: str, keys: Sequence[str]) -> str:
    """Returns the join of rows that have the same keys, which may be NULL."""
    same = " AND ".join(f"({other}.{quoted(key)} IS NOT DISTINCT FROM {alias}.{quoted(key)})" for key in keys)
    return f"JOIN {relation} AS {alias} ON {same}" if keys else f"CROSS JOIN {relation} AS {alias}"
