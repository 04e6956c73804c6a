"""Names of items that others of the same ``SELECT`` read: ``SELECT x * 2 AS a, a + 1 AS b FROM t``.

DataFusion does not know them. So what they stand for takes their place, unless a column in FROM has the name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from sqlglot import exp

from xql_ffi._text.dialects.host import SPAN, Host
from xql_ffi._text.dialects.scopes import alone

# Among the properties of a node, that it stands for a name.
STANDS_FOR_NAME = "stands for a name"


def resolved(tree: exp.Expr, host: Host, columns: Callable[[exp.Query], Collection[str] | None]) -> exp.Expr:
    """Returns a tree of a host with what such names stand for in their places.

    Args:
        tree: a statement, which stays as it is.
        host: whose SQL it is.
        columns: the names of the columns of a query, as the host compares them; None if they are not known.
    """
    if not host.reads_aliases:
        return tree
    tree = tree.copy()
    for select in list(tree.find_all(exp.Select)):
        aliases = {host.key(item.alias): item for item in select.selects if isinstance(item, exp.Alias)}
        read = [column for part in _reading(select) for column in _own(part) if _key(column, host) in aliases]
        if not read or (known := columns(_all(select))) is None:
            continue
        before: dict[str, exp.Expr] = {}
        for part in _reading(select):
            for column in list(_own(part)):
                key = _key(column, host)
                if key in before and key not in known:
                    column.replace(_standing_for(before[key], column))
            if isinstance(part, exp.Alias):
                before[host.key(part.alias)] = part.this
    return tree


def _reading(select: exp.Select) -> Iterator[exp.Expr]:
    """Yields the parts of a query in which names may be read: first the items, whose names are known from there on."""
    yield from select.selects
    yield from (select.args[part] for part in ("where", "having", "qualify") if select.args.get(part) is not None)


def _own(part: exp.Expr) -> Iterator[exp.Column]:
    """Yields the columns that a part reads by their names alone, but for those of queries in it."""
    if isinstance(part, exp.Column):
        if not part.table:
            yield part
    elif not isinstance(part, exp.Query):
        for inside in part.iter_expressions():
            yield from _own(inside)


def _key(column: exp.Column, host: Host) -> str:
    return host.key(column.name, quoted=bool(column.this.args.get("quoted")))


def _all(select: exp.Select) -> exp.Query:
    """Returns all columns of what a query reads."""
    read = exp.Select(expressions=[exp.Star()])
    for part in ("from_", "joins", "laterals"):
        value = select.args.get(part)
        read.set(part, [each.copy() for each in value] if isinstance(value, list) else value and value.copy())
    if read.args.get("from_") is None:
        read.set("expressions", [exp.alias_(exp.Literal.number(1), "nothing read")])
    return alone(read, select)


def _standing_for(value: exp.Expr, column: exp.Column) -> exp.Expr:
    made: exp.Expr = exp.Paren(this=value.copy())
    made.meta[STANDS_FOR_NAME] = True
    if SPAN in column.meta:
        made.meta[SPAN] = column.meta[SPAN]
    # An item keeps its name.
    return exp.alias_(made, column.this.copy()) if isinstance(column.parent, exp.Select) else made
