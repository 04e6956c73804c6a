"""Keeps planners from inlining the columns of a subquery into each of their readers.

Some planners do so with every subquery that only computes columns. Queries in one another, each of which reads a column
of the one below several times, then grow exponentially.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

# A query of so many nodes, all written out, is planned in no time.
_LARGEST = 4000

# By name, how many nodes a column has when all is written out.
_Sizes = Mapping[str, int]


def fence(root: exp.Expr) -> None:
    """Adds ``OFFSET 0`` to subqueries, and ``MATERIALIZED`` to common table expressions, that would grow too much."""
    queries: dict[int, _Sizes] = {}
    ctes = {cte.alias: cte for cte in root.find_all(exp.CTE)}
    for node in _inner_first(root):
        if isinstance(node, exp.SetOperation):
            parts = [queries.get(id(_query(part)), {}) for part in (node.left, node.right)]
            names = list(parts[0])
            sums = [sum(pair) for pair in zip(parts[0].values(), parts[1].values(), strict=False)]
            queries[id(node)] = dict(zip(names, sums, strict=False))
        elif isinstance(node, exp.Select):
            queries[id(node)] = _sizes(node, ctes, queries)


def _inner_first(root: exp.Expr) -> list[exp.Query]:
    """Returns the queries of a tree, each after those that it reads."""
    found: list[exp.Query] = []

    def visit(node: exp.Expr) -> None:
        if with_ := node.args.get("with_"):
            visit(with_)
        for name, child in node.args.items():
            if name == "with_":
                continue
            for each in child if isinstance(child, list) else [child]:
                if isinstance(each, exp.Expr):
                    visit(each)
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            found.append(node)

    visit(root)
    return found


def _sizes(select: exp.Select, ctes: Mapping[str, exp.CTE], queries: Mapping[int, _Sizes]) -> _Sizes:
    """How large the columns of a query are; fences what it reads if they are too large."""
    sources = {}
    for source in _sources(select):
        cte = ctes.get(source.name) if isinstance(source, exp.Table) else None
        query = _query(source if cte is None else cte.this)
        is_closed = cte is not None and bool(cte.args.get("materialized"))
        if query is not None and not is_closed and not _is_closed(query):
            sources[source.alias_or_name] = query, cte
    known = {alias: queries.get(id(query), {}) for alias, (query, _) in sources.items()}
    if sum(_size(item, known) for item in select.expressions) > _LARGEST:
        for query, cte in sources.values():
            if cte is not None:
                cte.set("materialized", True)
            else:
                query.set("offset", exp.Offset(expression=exp.Literal.number(0)))
        known = {}
    return {item.alias_or_name: _size(item, known) for item in select.expressions}


def _sources(select: exp.Select) -> list[exp.Expr]:
    """Returns the tables and subqueries that a query reads, those of joins in parentheses included."""
    found: list[exp.Expr] = []

    def visit(node: exp.Expr | None) -> None:
        if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query):
            visit(node.this)
        elif isinstance(node, (exp.Table, exp.Subquery)):
            found.append(node)
        elif isinstance(node, exp.Paren):
            visit(node.this)
        for join in (node.args.get("joins") if node is not None else None) or []:
            visit(join.this)

    start = select.args.get("from_")
    visit(start.this if start is not None else None)
    for join in select.args.get("joins") or []:
        visit(join.this)
    return found


def _query(node: exp.Expr) -> exp.Query | None:
    """Returns the query in parentheses."""
    while isinstance(node, (exp.Subquery, exp.Paren)):
        node = node.this
    return node if isinstance(node, exp.Query) else None


def _is_closed(query: exp.Query) -> bool:
    """Returns whether the query is one that planners do not write out."""
    return any(query.args.get(part) for part in ("group", "distinct", "limit", "offset"))


def _size(expression: exp.Expr, known: Mapping[str, _Sizes]) -> int:
    """Returns the nodes of an expression when the columns that it reads are written out."""
    size = 0
    for node in expression.walk():
        size += 1
        if isinstance(node, exp.Column):
            read = [known[node.table]] if node.table in known else [] if node.table else list(known.values())
            size += sum(sizes.get(node.name, 0) for sizes in read)
    return size
