"""SQL of a host that DataFusion lacks: ``ASOF JOIN``, ``PIVOT``, samples and the like.

Where a derivative takes the place of its call, they stay as they are written. DataFusion only has to find the
columns and their types, so it reads a statement without them. Where the query is written anew, a query in FROM that
has one of them is a table, if the derivative reads nothing of what that reads; else it is refused by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from xql_ffi._errors import HostError
from xql_ffi._text.dialects.host import Host


def found(tree: exp.Expr) -> Iterator[tuple[exp.Expr, str]]:
    """Yields the constructs in a tree, with what the host calls them."""
    for node in tree.walk():
        if name := _name(node):
            yield node, name


def _name(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Join):
        return f"{node.method} JOIN" if node.method in ("ASOF", "POSITIONAL") else None
    if isinstance(node, exp.Pivot):
        return "UNPIVOT" if node.unpivot else "PIVOT"
    if isinstance(node, exp.Limit):
        options = node.args.get("limit_options")
        return f"LIMIT {node.expression}%" if options is not None and options.args.get("percent") else None
    if isinstance(node, exp.Ordered):
        return "ORDER BY ALL" if _is_all(node) else None
    if isinstance(node, exp.Star):
        return "* RENAME" if node.args.get("rename") else None
    if isinstance(node, exp.CTE):
        return "USING KEY" if node.args.get("key_expressions") else None
    if is_columns(node):
        return "COLUMNS(...)"
    return next((name for kind, name in _NAMES.items() if isinstance(node, kind)), None)


_NAMES: dict[type[exp.Expr], str] = {
    exp.TableSample: "a sample (TABLESAMPLE, USING SAMPLE)",
    exp.Comprehension: "a list comprehension ([... FOR ... IN ...])",
    exp.HistoricalData: "AT (VERSION => ...)",
    exp.PositionalColumn: "a column by its number (#1)",
}


def _is_all(key: exp.Ordered) -> bool:
    return isinstance(key.this, exp.Var) and key.this.name.upper() == "ALL"


def is_columns(node: exp.Expr) -> bool:
    """Returns whether an expression stands for several columns."""
    is_call = isinstance(node, exp.Anonymous) and node.name.lower() == "columns"
    return is_call or (isinstance(node, (exp.Like, exp.ILike, exp.Glob)) and isinstance(node.this, exp.Star))


def left_out(tree: exp.Expr) -> exp.Expr:
    """Returns a tree without those constructs that do not matter for what columns there are, and of which types.

    Raises:
        HostError: one of them matters.
    """
    nodes = [node for node, _ in found(tree)]
    if not nodes:
        return tree
    tree = tree.copy()
    for node, _ in list(found(tree)):
        if isinstance(node, exp.Join):
            is_asof = node.method == "ASOF"
            node.set("method", None)
            if not is_asof:
                # The shorter side is extended by NULL.
                node.set("side", "FULL")
                node.set("on", exp.true())
        elif isinstance(node, exp.CTE):
            raise HostError("a recursive query USING KEY keeps other rows than those of its steps: write it without")
        elif isinstance(node, (exp.TableSample, exp.Limit, exp.HistoricalData)):
            node.pop()
        elif isinstance(node, exp.Star):
            node.set("rename", None)
        elif isinstance(node, (exp.Comprehension, exp.PositionalColumn)):
            node.replace(exp.null())
        elif isinstance(node, exp.Ordered) and node.parent is not None:
            node.parent.pop()
        elif is_columns(node):
            _leave_out_columns(node)
    return tree


def _leave_out_columns(node: exp.Expr) -> None:
    """Puts one column in the place of an item that stands for several."""
    item = node
    while item.parent is not None and not isinstance(item.parent, exp.Select):
        item = item.parent
    is_clause = isinstance(item, (exp.Where, exp.Having, exp.Qualify, exp.Group, exp.Order))
    (node if is_clause else item).replace(exp.null())


def simplify(tree: exp.Expr) -> None:
    """Writes ``* EXCLUDE (x)`` for ``COLUMNS(* EXCLUDE (x))`` where that is an item of its own."""
    for call in list(tree.find_all(exp.Anonymous)):
        is_item = isinstance(call.parent, exp.Select) and is_columns(call) and len(call.expressions) == 1
        if is_item and isinstance(call.expressions[0], exp.Star):
            call.replace(call.expressions[0])


def ends(tree: exp.Expr) -> dict[str, exp.Expr]:
    """Removes from the end of the outermost query an order by all columns and a limit in percent, and returns them."""
    taken = {}
    if isinstance(tree, exp.Query):
        for part in ("order", "limit"):
            value = tree.args.get(part)
            if value is not None and any(_name(node) for node in (value, *value.expressions)):
                taken[part] = value.copy()
                tree.set(part, None)
    return taken


def end(written: exp.Expr, ends: Mapping[str, exp.Expr], host: Host) -> None:
    """Puts what was taken from the end of a query there again.

    Raises:
        HostError: the query ends otherwise.
    """
    for part, value in ends.items():
        if not isinstance(written, exp.Query) or any(written.args.get(end) for end in ("limit", "offset", part)):
            msg = (
                f"{host.text(value)} cannot stand behind this query, which is written anew: put the query into a table"
            )
            raise HostError(msg)
        written.set(part, value.copy())
