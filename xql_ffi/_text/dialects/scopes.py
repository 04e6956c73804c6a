"""Parts of a statement with what they read of it."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from xql_ffi._calls import OPERATORS, STOP


def alone(part: exp.Query, place: exp.Expr) -> exp.Query:
    """A part of a statement as a query, without calls and with the common table expressions that it may read there."""
    known: dict[str, exp.CTE] = {}
    for table in _before(place):
        known.setdefault(table.alias.lower(), table)
    query = part.copy()
    if known:
        own = query.args.get("with_")
        tables = [table.copy() for table in reversed(known.values())]
        tables += own.expressions if own is not None else []
        query.set("with_", exp.With(expressions=tables, recursive=True))
    for call in list(query.find_all(exp.Anonymous)):
        if call.name.lower() in OPERATORS and call.expressions:
            is_stop = call.name.lower() == STOP
            call.replace(exp.paren(call.expressions[0]) if is_stop else exp.cast(exp.null(), exp.DataType.Type.DOUBLE))
    return query


def _before(place: exp.Expr) -> Iterator[exp.CTE]:
    """Yields the common table expressions that may be read at a place, the next one first."""
    inner = place
    while (around := inner.parent) is not None:
        if isinstance(around, exp.With):
            number = next(number for number, table in enumerate(around.expressions) if table is inner)
            yield from reversed(around.expressions[:number])
        elif (listed := around.args.get("with_")) is not None and listed is not inner:
            yield from reversed(listed.expressions)
        inner = around
