"""The words of a host that expressions keep where a query is written anew from DataFusion's reading.

DataFusion types literals, casts and roundings otherwise than a host does. So an expression of the host is read as
``"∂ 3"(expression, part, ...)``: what DataFusion takes it for, and the parts of it that are columns, aggregates,
queries and calls. The native library writes ``"∂ 3"(part, ...)`` again, and the words of number 3 take its place, with
these parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from xql_ffi._calls import OPERATORS, STOP
from xql_ffi._errors import HostError
from xql_ffi._text.dialects.datafusion import AGGREGATES
from xql_ffi._text.dialects.host import SPAN, Host, Worded, closed
from xql_ffi._text.dialects.laterals import STANDS_FOR_NAME

# Expressions by what the planner knows them by.
Keys: TypeAlias = dict[str, exp.Expr]

# What functions that stand for words are called by: this, and the number of the words.
_MARK = "∂ "


class SourceFragments:
    """The words of expressions by their numbers: what stands between their parts."""

    def __init__(self, host: Host) -> None:
        """No words of a host."""
        self.host = host
        self._numbers: dict[tuple[object, ...], int] = {}
        self._words: list[list[str]] = []

    def number(self, pieces: list[str]) -> int:
        """Returns the number of words, which is the same where only the layout differs."""
        key = tuple(self._tokens(piece) for piece in pieces)
        if key not in self._numbers:
            self._numbers[key] = len(self._words)
            self._words.append(pieces)
        return self._numbers[key]

    def written(self, call: exp.Anonymous) -> exp.Expr:
        """Returns the expression that a call of DataFusion's text stands for."""
        pieces = self._words[int(call.name.removeprefix(_MARK))]
        return Worded(this=Worded.BETWEEN.join(pieces), expressions=[closed(part) for part in call.expressions])

    def _tokens(self, piece: str) -> tuple[tuple[TokenType, str], ...]:
        # What stands in quotes of any kind is longer than its text.
        tokens = self.host.tokens(piece)
        return tuple((t.token_type, t.text.lower() if t.end - t.start < len(t.text) else t.text) for t in tokens)


def has_words(call: exp.Anonymous) -> bool:
    """Returns whether a call of DataFusion's text stands for words."""
    return call.name.startswith(_MARK)


def keep(root: exp.Expr, text: str, words: SourceFragments) -> None:
    """Puts calls in the place of the expressions in a tree that keep their words.

    Args:
        root: a statement of the host that is not yet read as DataFusion's.
        text: the statement as it was written.
        words: learns the words.

    Raises:
        HostError: an expression cannot keep its words.
    """
    _Keeper(text, words).structure(root)


class _Keeper:
    """Goes through a statement."""

    def __init__(self, text: str, words: SourceFragments) -> None:
        self._text = text
        self._words = words
        self._host = words.host

    def structure(self, node: exp.Expr) -> exp.Expr:
        """Goes through queries and what else stands around values, and returns what has taken the place of a node."""
        if isinstance(node, _NO_VALUES) or _is_plain(node):
            return node
        if _is_operator(node):
            # What is differentiated is read as the calculus has it.
            inside = list(_queries(node))
        elif self._is_value(node):
            return self._kept(node)
        else:
            # What a table function is called with says which table it is.
            inside = [
                part for part in node.iter_expressions() if not isinstance(node, exp.Table) or part is not node.this
            ]
        for part in inside:
            if not _is_argument(part, node):
                self.structure(part)
        return node

    def _is_value(self, node: exp.Expr) -> bool:
        is_connecting = isinstance(node, _CONNECTING)
        if isinstance(node, exp.Not):
            # In `x IS NOT NULL` it is no word of its own.
            is_connecting = SPAN in node.this.meta or self._is_part(node.this)
        return isinstance(node, (exp.Condition, exp.Interval)) and not is_connecting and not self._is_part(node)

    def _is_part(self, node: exp.Expr) -> bool:
        """Returns whether the planner has to see what an expression is."""
        if isinstance(node, exp.Anonymous):
            if isinstance(node.parent, _CALLING) and node.arg_key == "this":
                return True
            name = node.name.lower()
            known = self._host.named_in_datafusion.get(name, name)
            return known in AGGREGATES or name in ("unnest", STOP) or _is_operator(node)
        if isinstance(node, (exp.In, exp.EQ, exp.NEQ)):
            members = [node.args.get("query"), node.args.get("expression")]
            return any(isinstance(member, (exp.Query, exp.Any, exp.All)) for member in members)
        if node.meta.get(STANDS_FOR_NAME):
            return True
        if isinstance(node, exp.Bracket):
            # DataFusion has an aggregate for an element of a list of all values.
            return self._is_part(node.this.unnest())
        return isinstance(node, _PARTS)

    def _kept(self, node: exp.Expr) -> exp.Expr:
        """Returns the call that replaces an expression which keeps its words."""
        for call in node.find_all(exp.Anonymous):
            if call.name.lower() in self._host.of_words:
                msg = (
                    f"{self._host.text(call)} gives words of the statement, and a derivative that sees through "
                    "relations is in a query with other words: write what it gives, as a text"
                )
                raise HostError(msg)
        keys = _keys(node)
        # The planner finds a key of a grouping again by its words.
        pieces = self._pieces(keys.get(_shape(node), node), keys) if keys else self._pieces(node, keys)
        parts = [self.structure(part) for part in self._parts(node, keys)]
        call = exp.Anonymous(this=exp.to_identifier(f"{_MARK}{self._words.number(pieces)}", quoted=True))
        node.replace(call)
        call.set("expressions", [node, *(part.copy() for part in parts)])
        return call

    def _pieces(self, node: exp.Expr, keys: Keys) -> list[str]:
        """Returns the words of an expression: what stands between its parts."""
        start, end = self._span(node)
        pieces = []
        for first, last in map(self._span, self._parts(node, keys)):
            pieces.append(self._text[start:first])
            start = last
        return [*pieces, self._text[start:end]]

    def _parts(self, node: exp.Expr, keys: Keys) -> list[exp.Expr]:
        """Returns the parts of an expression, in the order in which they are written."""
        return sorted(self._parts_in(node, _variables(node), keys), key=self._span)

    def _parts_in(self, node: exp.Expr, variables: Collection[str], keys: Keys) -> Iterator[exp.Expr]:
        for inside in node.iter_expressions():
            is_column = isinstance(inside, exp.Column) and not (inside.name in variables and not inside.table)
            if is_column or self._is_part(inside) or (keys and _shape(inside) in keys):
                yield inside
            elif not isinstance(inside, exp.Column):
                yield from self._parts_in(inside, variables, keys)

    def _span(self, node: exp.Expr) -> tuple[int, int]:
        found: tuple[int, int] | None = node.meta.get(SPAN)
        if found is None and isinstance(node, exp.Column):
            # A column that is read before what follows it, as in `x::INT`.
            places = [part.meta for part in node.parts]
            if all("start" in place for place in places):
                return min(place["start"] for place in places), max(place["end"] for place in places) + 1
        if found is None:
            msg = (
                f"{self._host.text(node)} cannot keep its words beside a derivative that sees through relations: "
                "compute it in a table, and read that"
            )
            raise HostError(msg)
        return found


# What has no values of rows.
_NO_VALUES = (
    *(
        exp.Limit,
        exp.Offset,
        exp.Fetch,
        exp.WindowSpec,
        exp.DataType,
        exp.Star,
        exp.Identifier,
        exp.Lateral,
        exp.Unnest,
    ),
    *(exp.TableSample, exp.Var),
)
# What means the same in all hosts.
_CONNECTING = (exp.And, exp.Or, exp.Paren)
_PARTS = (
    *(exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.Query, exp.Exists),
    *(exp.Any, exp.All),
)


# What stands around the function that it says more of.
_CALLING = (exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


def _is_plain(node: exp.Expr) -> bool:
    """Returns whether a value is the same in all hosts, or a number stands for a column."""
    is_ordinal = isinstance(node, exp.Literal) and isinstance(node.parent, (exp.Group, exp.Ordered))
    return is_ordinal or isinstance(node, (exp.Column, exp.Null, exp.Boolean, exp.Placeholder, exp.Parameter))


def _is_argument(node: exp.Expr, call: exp.Expr) -> bool:
    """Whether the planner has to see a number or a text that a function is called with, be an order behind it."""
    is_called = isinstance(call, (exp.Anonymous, exp.Bracket)) or (isinstance(call, exp.Order) and node is call.this)
    return is_called and isinstance(node, (exp.Literal, exp.Neg)) and not node.find(exp.Column)


def _is_operator(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in OPERATORS and node.name.lower() != STOP


def _queries(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the outermost queries in an expression."""
    for inside in node.iter_expressions():
        if isinstance(inside, exp.Query):
            yield inside
        else:
            yield from _queries(inside)


def _variables(node: exp.Expr) -> frozenset[str]:
    """Returns the names of what functions in an expression are given, as in ``list_transform(l, x -> x + 1)``."""
    return frozenset(name.name for function in node.find_all(exp.Lambda) for name in function.expressions)


def _keys(node: exp.Expr) -> Keys:
    """Returns the computed keys by which the rows around an expression are grouped."""
    select = node.find_ancestor(exp.Select)
    group = select.args.get("group") if select is not None else None
    if select is None or group is None:
        return {}
    aliases = {item.alias: item.this for item in select.selects if isinstance(item, exp.Alias)}
    found = {}
    for key in _listed(group):
        meant: exp.Expr | None = key
        if isinstance(key, exp.Column) and not key.table:
            meant = aliases.get(key.name)
        elif isinstance(key, exp.Literal) and key.is_int and 0 < int(key.name) <= len(select.selects):
            meant = select.selects[int(key.name) - 1].unalias()
        if isinstance(meant, exp.Anonymous) and has_words(meant):
            meant = meant.expressions[0]
        meant = meant.unnest() if meant is not None else None
        if meant is not None and SPAN in meant.meta and not isinstance(meant, (exp.Column, exp.Literal)):
            found[_shape(meant)] = meant
    return found


def _shape(node: exp.Expr) -> str:
    """Returns an expression as far as the planner tells it from others."""

    def plain(inside: exp.Expr) -> exp.Expr:
        if isinstance(inside, exp.Anonymous) and has_words(inside):
            inside = inside.expressions[0]
        return exp.column(inside.name) if isinstance(inside, exp.Column) else inside

    return str(node.transform(plain).sql()).lower()


def _listed(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the keys of a grouping and of its sets."""
    for inside in node.iter_expressions():
        if isinstance(inside, (exp.GroupingSets, exp.Rollup, exp.Cube, exp.Tuple, exp.Paren)):
            yield from _listed(inside)
        else:
            yield inside
