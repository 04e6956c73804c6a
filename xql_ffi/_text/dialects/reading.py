"""Translates the statements of a host to SQL of DataFusion."""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot import exp

from xql_ffi._calls import OPERATORS
from xql_ffi._errors import HostError
from xql_ffi._text.dialects.datafusion import FUNCTIONS, words
from xql_ffi._text.dialects.host import DATAFUSION, Host, arguments, head
from xql_ffi._text.dialects.names import Names
from xql_ffi._text.dialects.source_fragments import SourceFragments, keep

# What stands for the number of a call of an operator among the properties of a node.
CALL = "call"


def datafusion_tree(
    tree: exp.Expr, host: Host, names: Names, floats: Collection[str], words: tuple[str, SourceFragments] | None = None
) -> exp.Expr:
    """Returns the tree of a statement of a host as one of DataFusion.

    Args:
        tree: the statement, which stays as it is.
        host: whose SQL it is.
        names: learns the names in it.
        floats: the names of columns that are floats in every table.
        words: the text of the statement, and what learns its words, if expressions are to keep them.
    """
    root = exp.Paren(this=tree.copy())
    _treat_nulls(root)
    if host.float_literal is not None:
        _decimals(root)
    if words is not None:
        keep(root, *words)
    floats = frozenset(floats) - _named(root, host)
    for node in reversed(list(root.walk())):
        if node is not root and (read := _read(node, host, floats)) is not node:
            node.replace(read)
    for number, parameter in enumerate(parameters(root)):
        if not parameter.args.get("this"):
            parameter.set("this", f"_{number}")
    names.read(root)
    made: exp.Expr = root.this
    return made


def _treat_nulls(root: exp.Expr) -> None:
    """Writes what a function does with NULL behind its call, ``lag(x, 1) IGNORE NULLS``, wherever a host has it."""
    for usual in list(root.find_all(exp.RespectNulls)):
        usual.replace(usual.this)
    for treatment in list(root.find_all(exp.IgnoreNulls)):
        call = treatment.parent
        if isinstance(call, exp.Anonymous):
            treatment.replace(treatment.this)
            inside = call.parent if isinstance(call.parent, exp.Filter) else call
            outside = exp.IgnoreNulls()
            outside.meta.update(inside.meta)
            inside.replace(outside)
            outside.set("this", inside)


def _decimals(root: exp.Expr) -> None:
    """Makes numbers with a point decimals, as the host does, where they are all that a column has."""
    values = [item for select in root.find_all(exp.Select) for item in select.expressions]
    values += [
        item for row in root.find_all(exp.Tuple) if isinstance(row.parent, exp.Values) for item in row.expressions
    ]
    for value in values:
        nodes = list(value.unalias().walk())
        casts = [node for node in nodes if isinstance(node, exp.Cast)]
        if not all(isinstance(node, _OF_LITERALS) for node in nodes) or any(not _is_decimal(cast.to) for cast in casts):
            continue
        for literal in nodes:
            is_cast = isinstance(literal.parent, exp.Cast)
            if isinstance(literal, exp.Literal) and not is_cast and (kind := decimal_of(literal)) is not None:
                decimal = exp.cast(literal.copy(), kind)
                decimal.meta.update(literal.meta)
                literal.replace(decimal)


_OF_LITERALS = (
    *(exp.Literal, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div),
    *(exp.Cast, exp.DataType, exp.DataTypeParam),
)


def _is_decimal(kind: exp.DataType) -> bool:
    return kind.this is exp.DataType.Type.DECIMAL


def decimal_of(literal: exp.Literal) -> exp.DataType | None:
    """Returns the type of a number with a point where that is a decimal; nothing for another one."""
    if literal.is_string or not (digits := re.fullmatch(r"0*(\d*)\.(\d*)", literal.this)):
        return None
    precision = max(len(digits[1]) + len(digits[2]), 1)
    return exp.DataType.build(f"DECIMAL({precision}, {len(digits[2])})") if precision <= _MOST_DIGITS else None


_MOST_DIGITS = 38


def _read(node: exp.Expr, host: Host, floats: frozenset[str]) -> exp.Expr:
    template = host.to_datafusion.get(head(node) or (exp.Expr, "", 0))
    if template and CALL not in node.meta:
        if any(isinstance(argument, (exp.Distinct, exp.Order, exp.Star)) for argument in arguments(node)):
            msg = f"{node.name} takes no DISTINCT, ORDER BY or * beside a derivative: {host.text(node)}"
            raise HostError(msg)
        return template.of(arguments(node))
    if isinstance(node, exp.Anonymous):
        return _call(node, host)
    if isinstance(node, exp.DataType) and not host.has_single and node.this is exp.DataType.Type.FLOAT:
        return exp.DataType.build("DOUBLE")
    if isinstance(node, exp.Limit) and isinstance(node.parent, exp.Anonymous):
        # The only element of a list is the first one of all.
        first: exp.Expr = node.this
        return first
    if isinstance(node, exp.Column) and re.match(r"[$@]", node.name) and not node.this.args.get("quoted"):
        # SQLite's parameters.
        return exp.Placeholder(this=node.name[1:])
    if isinstance(node, exp.Join) and node.kind in ("SEMI", "ANTI") and not node.side:
        node.set("side", "LEFT")
    if isinstance(node, (exp.EQ, exp.NEQ)) and (member := _member(node)) is not None:
        return member
    if isinstance(node, exp.CTE):
        # DataFusion has no word for it.
        node.set("materialized", None)
    if isinstance(node, exp.Div):
        node.set("typed", True)
        node.set("safe", False)
        if host.divides_to_float and not (is_float(node.this, host, floats) or is_float(node.expression, host, floats)):
            node.this.replace(exp.cast(node.this.copy(), exp.DataType.Type.DOUBLE))
    return node


def _member(node: exp.Binary) -> exp.Expr | None:
    """``IN`` for ``= ANY`` of a query, as DuckDB keeps it in views, and ``NOT IN`` for ``<> ALL``."""
    is_in = isinstance(node, exp.EQ)
    query = node.expression.this if isinstance(node.expression, exp.Any if is_in else exp.All) else None
    if not isinstance(query, (exp.Subquery, exp.Query)):
        return None
    query = query if isinstance(query, exp.Subquery) else exp.Subquery(this=query)
    member = exp.In(this=node.this, query=query)
    return member if is_in else exp.Not(this=member)


def _call(node: exp.Anonymous, host: Host) -> exp.Expr:
    name = node.name.lower()
    if CALL in node.meta:
        return node
    if name in OPERATORS:
        node.set("this", name)
    elif known := host.named_in_datafusion.get(name):
        if known == "percentile_cont" and _orders_otherwise(node):
            # DataFusion takes the quantile of what it orders by.
            msg = f"{host.text(node)}: beside a derivative, a quantile has the order of its own values alone"
            raise HostError(msg)
        node.set("this", known)
    elif name in FUNCTIONS:
        node.set("this", exp.to_identifier(f"{host.name}.{name}", quoted=True))
    return node


def _orders_otherwise(quantile: exp.Anonymous) -> bool:
    """Returns whether a quantile orders by something else than its values."""
    value, *others = quantile.expressions
    return any([key.this for key in other.expressions] != [value] for other in others if isinstance(other, exp.Order))


def is_float(node: exp.Expr, host: Host, floats: frozenset[str]) -> bool:
    """Returns whether an expression is a float by what is seen of it."""
    if isinstance(node, exp.Literal):
        return not node.is_string and not node.this.isdigit()
    if isinstance(node, exp.Column):
        return host.key(node.name, quoted=bool(node.this.args.get("quoted"))) in floats
    if isinstance(node, (exp.Paren, exp.Neg)):
        return is_float(node.this, host, floats)
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return is_float(node.this, host, floats) or is_float(node.expression, host, floats)
    if isinstance(node, exp.Cast):
        return node.to.this in (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT)
    return isinstance(node, exp.Anonymous) and node.name.lower() in _FLOATS


_FLOATS = words("exp ln log log2 log10 sqrt cbrt sin cos tan asin acos atan atan2 sinh cosh tanh power pow avg")


def _named(tree: exp.Expr, host: Host) -> frozenset[str]:
    """Returns the names that a statement gives to columns."""
    given = [alias.args.get("alias") for alias in tree.find_all(exp.Alias)]
    given += [column for alias in tree.find_all(exp.TableAlias) for column in alias.args.get("columns") or []]
    found = []
    for name in given:
        name = name.find(exp.Identifier) if isinstance(name, exp.Expr) else None
        if name is not None:
            found.append(host.key(name.name, quoted=bool(name.args.get("quoted"))))
    return frozenset(found)


def parameters(tree: exp.Expr) -> list[exp.Expr]:
    """Returns the parameters in a tree of DataFusion."""
    return list(tree.find_all(exp.Placeholder, exp.Parameter))


def datafusion_text(tree: exp.Expr) -> str:
    """Returns the text of a tree of DataFusion.

    Raises:
        HostError: DataFusion has no words for part of it.
    """
    return DATAFUSION.text(tree)
