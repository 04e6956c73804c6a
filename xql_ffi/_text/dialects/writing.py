"""Translates DataFusion's text to the SQL of a host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlglot import exp

from xql_ffi._errors import HostError
from xql_ffi._text.dialects.datafusion import FUNCTIONS, words
from xql_ffi._text.dialects.host import DATAFUSION, Host, Worded, arguments, closed, head
from xql_ffi._text.dialects.materialization import fence
from xql_ffi._text.dialects.names import Names
from xql_ffi._text.dialects.reading import decimal_of
from xql_ffi._text.dialects.source_fragments import SourceFragments, has_words


def host_tree(
    text: str, names: Names, words: SourceFragments, columns: Mapping[tuple[str, ...], exp.Column] | None = None
) -> exp.Expr:
    """Returns the tree of DataFusion's text, a query or an expression, as one of a host.

    Args:
        text: what the native library has written.
        names: how names are written.
        words: the words of the host that expressions keep.
        columns: how columns are written, by their names as the host compares them.

    Raises:
        HostError: the host does not have part of it.
    """
    host = words.host
    root = exp.Paren(this=DATAFUSION.parsed(text))
    for order in root.find_all(exp.Order):
        order.set("expressions", [key for ordered in order.expressions for key in _keys(ordered)])
    for window in root.find_all(exp.Window):
        if window.this.name in _OF_NO_FRAME:
            window.set("spec", None)
    for spec in root.find_all(exp.WindowSpec):
        for bound in ("start", "end"):
            if isinstance(spec.args.get(bound), exp.Literal) and spec.args[bound].name == _ALL_ROWS:
                spec.set(bound, "UNBOUNDED")
    for table in root.find_all(exp.Table):
        if isinstance(table.this, exp.Anonymous) and table.alias and not table.args["alias"].columns:
            # The name that DataFusion gives the column of generate_series.
            table.args["alias"].set("columns", [exp.to_identifier("value")])
    for cut in list(root.find_all(exp.Add)):
        if (whole := _uncut(cut)) is not None:
            cut.replace(whole.copy() if isinstance(cut.parent, exp.Paren) else closed(whole.copy()))
    _quantiles(root, host)
    _ignored(root, host)
    _check(root, host)
    for case in reversed(list(root.find_all(exp.Case))):
        if (inside := _certain(case)) is not None:
            case.replace(closed(inside))
    _firsts(root, host)
    _filters(root, host)
    _literals(root, host)
    _materialize(root, host)
    if host.writes_out:
        fence(root)
    for node in reversed(list(root.walk())):
        if isinstance(node, exp.Anonymous) and has_words(node):
            node.replace(exp.Paren(this=words.written(node)))
        elif node is not root and (written := _written(node, host)) is not node:
            node.replace(written)
    for inside in list(root.find_all(exp.Paren)):
        around = (exp.Anonymous, exp.Cast, exp.Alias, *(_AROUND if isinstance(inside.this, Worded) else ()))
        if isinstance(inside.parent, around) and not isinstance(inside.this, exp.Query):
            inside.replace(inside.this)
    paths = [(column, tuple(part.name for part in column.parts)) for column in root.find_all(exp.Column)]
    kept = [(column, columns[path].copy()) for column, path in paths if columns and path in columns]
    names.write(root)
    for column, written in kept:
        column.replace(written)
    made: exp.Expr = root.this
    return made


# What may stand around words without parentheses.
_AROUND = (exp.Paren, exp.Select, exp.Where, exp.Having, exp.Qualify, exp.Join, exp.Group, exp.Ordered, exp.Tuple)


def _check(root: exp.Expr, host: Host) -> None:
    """Refuses what the host does not have."""
    for lack in host.lacks:
        if any(lack.which(node) for node in root.find_all(lack.kind)):
            raise HostError(lack.advice)


def _filters(root: exp.Expr, host: Host) -> None:
    """Writes the rows that an aggregate takes as NULL for all others."""
    for node in list(root.find_all(exp.Filter)) if not host.has_filter else ():
        call, condition = node.this, node.expression.this
        arguments_ = call.expressions
        if len(arguments_) != 1 or isinstance(arguments_[0], (exp.Distinct, exp.Order)):
            msg = f"{host.name} has no FILTER, which {call.name} of several arguments would need"
            raise HostError(msg)
        value = exp.Literal.number(1) if isinstance(arguments_[0], exp.Star) else arguments_[0]
        call.set("expressions", [exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])])
        node.replace(call)


def _ignored(root: exp.Expr, host: Host) -> None:
    """Writes IGNORE NULLS of aggregates as a condition, and that of windows where the host has it."""
    for treatment in list(root.find_all(exp.IgnoreNulls)):
        filtered = treatment.this if isinstance(treatment.this, exp.Filter) else None
        call = filtered.this if filtered is not None else treatment.this
        if not isinstance(treatment.parent, exp.Window):
            value, _, _ = _row_of(call)
            is_there = exp.Not(this=exp.Is(this=closed(value.copy()), expression=exp.null()))
            kept = is_there if filtered is None else exp.and_(filtered.expression.this, is_there)
            treatment.replace(exp.Filter(this=call, expression=exp.Where(this=kept)))
        elif filtered is not None and host.treats_nulls_inside and host.has_filter:
            treatment.replace(filtered)
            filtered.set("this", exp.IgnoreNulls(this=call))


def _quantiles(root: exp.Expr, host: Host) -> None:
    """Writes the order of a quantile beside its arguments, where the host has them there."""
    for within in list(root.find_all(exp.WithinGroup)) if "percentile_cont" in host.renamed else ():
        call, (key,) = within.this, within.expression.expressions
        (part,) = call.expressions
        if key.args.get("desc"):
            part = exp.Order(this=part, expressions=[key])
        call.set("expressions", [key.this.copy(), part])
        within.replace(call)


def _firsts(root: exp.Expr, host: Host) -> None:
    """Writes the value that a group has in the first or another row of an order as the host has it."""
    write = host.first
    if write is None:
        return
    for call in list(root.find_all(exp.Anonymous)):
        if call.name not in _OF_ORDER or isinstance(call.find_ancestor(exp.Window, exp.Select), exp.Window):
            continue
        around = call.parent if isinstance(call.parent, exp.Filter) else None
        condition = around.expression if around else None
        value, keys, number = _row_of(call)
        made = write(value, keys, condition, number) if keys and number > 0 else None
        if made is None:
            which = "first value" if number == 1 else "value in a row"
            msg = f"{host.name} has no {which} of a group in an order"
            raise HostError(msg)
        (around or call).replace(made)


_OF_ORDER = words("first_value last_value nth_value")


def _row_of(call: exp.Anonymous) -> tuple[exp.Expr, list[exp.Ordered], int]:
    """The value that is taken from a row, the keys of the order, and the number of the row in it; 0 for another one."""
    *before, last = call.expressions
    if not isinstance(last, exp.Order):
        return last, [], 0
    if call.name == "nth_value":
        return before[0], last.expressions, int(last.this.this) if isinstance(last.this, exp.Literal) else 0
    return last.this, [_reversed(key) for key in last.expressions] if call.name == "last_value" else last.expressions, 1


def _reversed(key: exp.Ordered) -> exp.Ordered:
    flipped = key.copy()
    flipped.set("desc", not key.args.get("desc"))
    flipped.set("nulls_first", not key.args.get("nulls_first"))
    return flipped


# What holds the values of the smaller ones; of the largest, DataFusion writes none by itself.
_SIGNED = {
    exp.DataType.Type.UTINYINT: exp.DataType.Type.SMALLINT,
    exp.DataType.Type.USMALLINT: exp.DataType.Type.INT,
    exp.DataType.Type.UINT: exp.DataType.Type.BIGINT,
    exp.DataType.Type.UBIGINT: exp.DataType.Type.BIGINT,
}


# Functions whose frame says nothing, which many hosts do not take there.
_OF_NO_FRAME = words("row_number rank dense_rank percent_rank cume_dist ntile lag lead")
# What DataFusion is told instead of UNBOUNDED where it would plan too long, and Spark takes for no number of rows.
_ALL_ROWS = "1000000000000000"


def _written(node: exp.Expr, host: Host) -> exp.Expr:
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        return _special(node, host)
    if isinstance(node, exp.DataType) and not host.has_unsigned and node.this in _SIGNED:
        return exp.DataType.build(_SIGNED[node.this])
    if isinstance(node, exp.Div):
        node.set("typed", host.dialect.TYPED_DIVISION)
        node.set("safe", host.dialect.SAFE_DIVISION)
    template = host.from_datafusion.get(head(node) or (exp.Expr, "", 0))
    if template:
        return template.of(arguments(node))
    return _call(node, host) if isinstance(node, exp.Anonymous) else node


def _call(node: exp.Anonymous, host: Host) -> exp.Expr:
    name = node.name
    if name == "var":
        # DataFusion's first name of it, which hosts do not have.
        name = "var_samp"
        node.set("this", name)
    if host.name != name and name.startswith(f"{host.name}."):
        node.set("this", name.removeprefix(f"{host.name}."))
    elif name in host.aggregates and not isinstance(node.find_ancestor(exp.Window, exp.Select), exp.Window):
        node.set("this", host.aggregates[name])
    elif name in host.renamed:
        node.set("this", host.renamed[name])
    elif name in FUNCTIONS and name not in host.same_names:
        advice = host.refused.get(name)
        msg = f"{host.name} has no function for DataFusion's {name}" + (f": {advice}" if advice else "")
        raise HostError(msg)
    return node


def _certain(node: exp.Case) -> exp.Expr | None:
    """Returns the value behind a condition that always holds, which keeps a column nullable or read in DataFusion."""
    branches = node.args["ifs"]
    if node.this is not None or len(branches) != 1:
        return None
    condition = branches[0].this
    is_draw = isinstance(condition, exp.GTE) and condition.this.name == "random" and condition.expression.name == "0.0"
    return branches[0].args["true"].copy() if is_draw else None


def _uncut(node: exp.Add) -> exp.Expr | None:
    """Returns the place of a quantile, of which DataFusion alone cuts what is beyond the sixth digit."""
    whole = node.this.unnest()
    if not isinstance(whole, exp.Anonymous) or whole.name != "floor":
        return None
    place = whole.expressions[0]
    text = DATAFUSION.text(place)
    cut = f"trunc((({text}) - floor({text})) * 1000000.0) / 1000000.0"
    # Nobody but the derivative of a quantile writes this, however it sets its parentheses.
    is_cut = _without_parentheses(DATAFUSION.text(node.expression)) == _without_parentheses(cut)
    return place if is_cut else None


def _without_parentheses(text: str) -> str:
    return text.replace("(", "").replace(")", "")


def _special(node: exp.Cast, host: Host) -> exp.Expr:
    """NaN or an infinity, or what else is in quotes."""
    value = node.this.name.lower().replace("infinity", "inf").lstrip("+")
    if value not in ("nan", "inf", "-inf") or not host.not_finite:
        return node
    return host.parsed(host.not_finite[value])


def _keys(ordered: exp.Expr) -> Sequence[exp.Expr]:
    """Keys in the place of one that is a struct of them."""
    fields = ordered.this
    if not (isinstance(ordered, exp.Ordered) and isinstance(fields, exp.Anonymous) and fields.name == "named_struct"):
        return [ordered]
    keys = []
    for value in fields.expressions[1::2]:
        key = ordered.copy()
        key.set("this", value.copy())
        keys.append(key)
    return keys


def _materialize(root: exp.Expr, host: Host) -> None:
    """Says that what is read several times is computed once."""
    reads = Counter(table.name for table in root.find_all(exp.Table))
    for cte in root.find_all(exp.CTE) if host.materializes else ():
        is_recursive = any(table.name == cte.alias for table in cte.this.find_all(exp.Table))
        if reads[cte.alias] > 1 and not is_recursive:
            cte.set("materialized", True)


def _literals(root: exp.Expr, host: Host) -> None:
    """Writes floats as floats where the host would take them for decimals."""
    if host.float_literal is None:
        return
    decimals = []
    for cast in list(root.find_all(exp.Cast)):
        if (bare := _bare(cast)) is not None:
            cast.replace(bare)
            decimals.append(bare)
    found = [node for node in root.find_all(exp.Literal) if not node.is_string and not node.this.isdigit()]
    found = [node for node in found if not any(node is decimal for decimal in decimals)]
    exposed = [node for node in found if not _is_beside_float(node)]
    for node in exposed:
        digits = node.this.removesuffix(".0")
        node.replace(host.parsed(host.float_literal.format(digits) if "e" not in digits else digits))


def _bare(cast: exp.Cast) -> exp.Expr | None:
    """Returns a number as it is written without its type, if that is the decimal that the host takes it for."""
    scale = cast.to.expressions[-1].name if cast.to.expressions else ""
    if not isinstance(cast.this, exp.Literal) or cast.this.is_string or not scale.isdigit():
        return None
    whole, _, fraction = cast.this.this.partition(".")
    made = exp.Literal(this=f"{whole}.{fraction.ljust(int(scale), '0')}", is_string=False)
    return made if decimal_of(made) == cast.to else None


def _is_beside_float(node: exp.Expr) -> bool:
    """Returns whether an operand beside a literal makes the host take it for a float."""
    parent = node.parent
    if isinstance(parent, (exp.Paren, exp.Neg)):
        return _is_beside_float(parent)
    if not isinstance(parent, (exp.Binary, exp.Between, exp.In)):
        return False
    return any(is_float(other) for other in parent.iter_expressions() if other is not node)


def is_float(node: exp.Expr) -> bool:
    """Returns whether an expression is a float in a host, if it is one in DataFusion."""
    if isinstance(node, (exp.Paren, exp.Neg)):
        return is_float(node.this)
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return is_float(node.this) or is_float(node.expression)
    if isinstance(node, exp.If):
        return is_float(node.args["true"])
    if isinstance(node, exp.Case):
        beside = [branch.args["true"] for branch in node.args["ifs"]] + [node.args.get("default")]
        return any(is_float(other) for other in beside if other is not None)
    if isinstance(node, exp.Anonymous):
        return not has_words(node) and any(is_float(argument) for argument in node.expressions)
    if isinstance(node, exp.Window):
        return is_float(node.this)
    return isinstance(node, (exp.Column, exp.Cast))
