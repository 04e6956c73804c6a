"""The first rows of recursive queries, whose types all other rows have.

A host that keeps decimals rounds each step to the digits that the first rows have: to one where these are ``CASE
WHEN id = 0 THEN 0.2 ELSE 0.3 END``, which DataFusion takes for floats. DuckDB's ``sign(x)`` is an integer. So where
DataFusion would have floats and the host has not, the first rows are read as what they are in the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from xql_ffi._errors import HostError
from xql_ffi._text.dialects.host import SPAN, Host
from xql_ffi._text.dialects.reading import decimal_of
from xql_ffi._text.dialects.scopes import alone

# The types of the columns of a query: as the host names them, and as DataFusion has them. None if they are not known.
Described: TypeAlias = Callable[[exp.Query], list[str] | None]
Planned: TypeAlias = Callable[[exp.Query], pa.Schema | None]


def typed(tree: exp.Expr, host: Host, described: Described, planned: Planned) -> exp.Expr:
    """Returns a tree of a host in which the first rows of recursive queries have the types that they have there.

    Args:
        tree: a statement, which stays as it is.
        host: whose SQL it is.
        described: the types of a query in the host.
        planned: those that DataFusion gives it.

    Raises:
        HostError: the type of a column cannot be written.
    """
    if host.float_literal is None or not any(_recursions(tree)):
        return tree
    tree = tree.copy()
    for cte in list(_recursions(tree)):
        first = cte.this.left.unnest()
        query = alone(first, cte)
        found = planned(query)
        kinds = described(query) or _decimals(planned(_as_decimals(query)))
        for number, kind in enumerate(kinds):
            if _differs(kind, found.field(number).type if found is not None else None):
                _cast(first, number, kind, cte, host)
    return tree


def _differs(kind: str, found: pa.DataType | None) -> bool:
    """Whether the host has no float where DataFusion has one, a float where that has a decimal, or another decimal."""
    if found is None:
        return kind.startswith("DECIMAL")
    if pa.types.is_decimal(found):
        return kind in _FLOATS or (kind.startswith("DECIMAL") and kind != f"DECIMAL({found.precision},{found.scale})")
    return pa.types.is_floating(found) and re.match(_NO_FLOATS, kind) is not None


_FLOATS = ("DOUBLE", "FLOAT")
# Numbers that are not floats.
_NO_FLOATS = r"DECIMAL|U?(?:TINY|SMALL|BIG|HUGE)?INT"


def _recursions(tree: exp.Expr) -> Iterator[exp.CTE]:
    """Yields the recursive queries of a tree."""
    for cte in tree.find_all(exp.CTE):
        steps = cte.this.unnest()
        if isinstance(steps, exp.SetOperation) and any(
            table.name.lower() == cte.alias.lower() for table in steps.right.find_all(exp.Table)
        ):
            yield cte


def _as_decimals(query: exp.Query) -> exp.Query:
    """Returns a query whose numbers with a point are decimals."""
    query = query.copy()
    for literal in list(query.find_all(exp.Literal)):
        if not isinstance(literal.parent, exp.Cast) and (kind := decimal_of(literal)) is not None:
            literal.replace(exp.cast(literal.copy(), kind))
    return query


def _decimals(schema: pa.Schema | None) -> list[str]:
    """Returns the types of decimals among columns."""
    types = [] if schema is None else [field.type for field in schema]
    return [f"DECIMAL({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else "" for kind in types]


def _cast(first: exp.Expr, number: int, kind: str, cte: exp.CTE, host: Host) -> None:
    """Makes a column of the first rows what it is in the host."""
    for items in _rows(first):
        if any(item.is_star or item.find(exp.Columns) for item in items[: number + 1]):
            msg = (
                f"column {number + 1} of the first rows of {cte.alias} is {kind} in {host.name}, to which all "
                "others are rounded: write the columns down, and CAST(... AS DOUBLE) there"
            )
            raise HostError(msg)
        item = items[number]
        value = item.this if isinstance(item, exp.Alias) else item
        made: exp.Expr = exp.cast(value.copy(), kind, dialect=host.syntax)
        if SPAN in value.meta:
            made.meta[SPAN] = value.meta[SPAN]
        value.replace(exp.alias_(made, value.this.copy()) if value is item and isinstance(item, exp.Column) else made)


def _rows(query: exp.Expr) -> Iterator[list[exp.Expr]]:
    """Yields the values of the columns of a query, in each of its branches."""
    query = query.unnest()
    if isinstance(query, exp.SetOperation):
        yield from _rows(query.left)
        yield from _rows(query.right)
    elif isinstance(query, exp.Select):
        source = query.args.get("from_")
        if source is not None and isinstance(source.this, exp.Values) and query.is_star:
            yield from _rows(source.this)
        else:
            yield query.expressions
    elif isinstance(query, exp.Values):
        yield from (row.expressions for row in query.expressions if isinstance(row, exp.Tuple))
