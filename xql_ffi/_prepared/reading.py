"""Parses a statement to prepare: its parameters, common table expressions, and derivatives by rows of tables."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from xql_ffi._calls import DERIVATIVES
from xql_ffi._expressions import quoted
from xql_ffi._loss import stripped
from xql_ffi._text.dialects.datafusion import AGGREGATES, XqlDataFusion
from xql_ffi._text.dialects.edits import Edit, closing, edited

_PARAMETER = re.compile(r"\$(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Cte:
    """A common table expression of a statement: its name, its text from the name on, and where that is."""

    name: str
    text: str
    span: tuple[int, int]

    def names(self) -> frozenset[str]:
        """Returns all names in it, in lower case."""
        return names_in(self.text)


@dataclass(frozen=True)
class Call:
    """``grad((SELECT ...), val)`` by a column of a table in ``FROM``.

    Attributes:
        value: the subquery, in parentheses.
        table: the table.
        column: its column.
        span: where the call is in the statement.
        item: where the table is in ``FROM``, with its alias.
        alias: what the table is called there.
    """

    value: str
    table: str
    column: str
    span: tuple[int, int]
    item: tuple[int, int]
    alias: str


@dataclass(frozen=True)
class Read:
    """A statement as it has been read.

    Attributes:
        text: the statement.
        ctes: the common table expressions before it, none if they are recursive or the statement cannot be read.
        body: where it begins after them.
        names: all names in it, in lower case.
        has_subquery: whether it may have a scalar subquery that is not the first argument of a derivative.
        tree: the statement as sqlglot has read it.
        own: the names of all table expressions in it, also of those within others and in subqueries.
    """

    text: str
    ctes: Sequence[Cte] = ()
    body: int = 0
    names: frozenset[str] = frozenset()
    has_subquery: bool = True
    tree: Any = field(default=None, repr=False)
    own: Sequence[str] = ()

    def means_its_own(self, name: str) -> bool:
        """Returns whether a name is that of a table expression before it, which reads nothing of this name."""
        for cte in self.ctes:
            named = name.lower() in names_in(cte.text.partition("(")[2])
            if named or cte.name == name:
                return not named
        return False


def parameters_of(text: str) -> list[str]:
    """Returns the names of the parameters ``$name`` of a statement, each once."""
    return list(dict.fromkeys(found["name"] for token in _tokens(text) if (found := _parameter(token))))


def with_parameters(text: str, row: str, columns: Mapping[str, str]) -> str:
    """Returns a statement that reads its parameters as columns of a table of one row.

    A query of rows gets the table beside what it reads, and what is computed of several rows gets a subquery.

    Args:
        text: the statement.
        row: the table.
        columns: its columns by the parameters.
    """
    tree = _tree(text)
    edits, joined = list[Edit](), set[int]()
    nodes = {} if tree is None else {node.meta["start"]: node for node in _identifiers(tree)}
    for token in _tokens(text):
        if (found := _parameter(token)) is None:
            continue
        column = quoted(columns[found["name"]])
        place = _joinable(nodes.get(token.start))
        if place is None:
            edits.append(Edit(token.start, token.end + 1, f"(SELECT {column} FROM {row} LIMIT 1)"))
        else:
            edits.append(Edit(token.start, token.end + 1, f"{row}.{column}"))
            joined.add(place)
    edits += [Edit(place, place, f"{row} CROSS JOIN ") for place in joined]
    return edited(text, edits)


def _joinable(node: Any) -> int | None:
    """Where the table of the parameters is to be in the query that has one, to its left; None if it can be nowhere."""
    if node is None:
        return None
    query = node.find_ancestor(exp.Select)
    if query is None or not _is_by_row(node, query) or _has_star(query):
        return None
    if not _is_in(node, query, ("expressions", "where")):
        return None
    # What stands to the left of these joins is NULL in some rows.
    if any(join.args.get("side") in ("RIGHT", "FULL") for join in query.args.get("joins") or ()):
        return None
    read = query.args.get("from_")
    return None if read is None or not isinstance(read.this, exp.Table) else _span(read.this)[0]


def read(text: str) -> Read:
    """Reads a statement."""
    text = stripped(text)
    tree = _tree(text)
    if tree is None or not isinstance(tree, exp.Query):
        return Read(text)
    names = names_in(text)
    has_subquery = any(_is_scalar(node) for node in tree.find_all(exp.Subquery))
    own = [_name(cte.args["alias"].this) for cte in tree.find_all(exp.CTE)]
    whole = Read(text, (), 0, names, has_subquery, tree, own)
    given = tree.args.get("with_")
    if given is None or given.args.get("recursive"):
        return whole
    tokens = _tokens(text)
    at = {token.start: number for number, token in enumerate(tokens)}
    ctes, end = [], 0
    for cte in given.expressions:
        name = cte.args["alias"].this
        if (number := at.get(name.meta.get("start"))) is None:
            return whole
        end = closing(tokens, next(i for i in range(number, len(tokens)) if _opens(tokens, i)))
        span = (tokens[number].start, tokens[end].end + 1)
        ctes.append(Cte(_name(name), text[slice(*span)], span))
    return replace(whole, ctes=ctes, body=tokens[end].end + 1)


def _opens(tokens: Sequence[Token], number: int) -> bool:
    """Whether this is the parenthesis before the query of a common table expression: after AS or MATERIALIZED."""
    before = tokens[number - 1].text.upper() if number else ""
    return tokens[number].token_type == TokenType.L_PAREN and before in ("AS", "MATERIALIZED")


def calls(statement: Read, tables: Mapping[str, Collection[str]], unknown: Collection[str]) -> list[Call]:
    """Returns the derivatives of a statement that may be computed beside it, by the rows of tables.

    Args:
        statement: the statement.
        tables: the columns of the tables that may be the variable's.
        unknown: the names of the common table expressions that only this statement has.
    """
    if statement.tree is None:
        return []
    tokens = _tokens(statement.text)
    at = {token.start: number for number, token in enumerate(tokens)}
    found = []
    for node in statement.tree.find_all(exp.Anonymous):
        if str(node.this).lower() != "grad" or (number := at.get(node.meta.get("start"))) is None:
            continue
        call = _call(node, {name: columns for name, columns in tables.items() if name not in statement.own})
        if call is None:
            continue
        table, column, item = call
        end = closing(tokens, number + 1)
        first = closing(tokens, number + 2)
        value = statement.text[tokens[number + 2].start : tokens[first].end + 1]
        if {token.text.lower() for token in tokens[number + 2 : first]} & set(unknown):
            continue
        begin, until = _span(item)
        if (alias := item.args.get("alias")) is not None:
            until = alias.this.meta["end"] + 1
        named = text_of(item, statement.text)
        found.append(Call(value, table, column, (tokens[number].start, tokens[end].end + 1), (begin, until), named))
    return found


def text_of(item: Any, text: str) -> str:
    """Returns the name of a table in ``FROM``, as written."""
    alias = item.args.get("alias")
    name = item.this if alias is None else alias.this
    return text[name.meta["start"] : name.meta["end"] + 1]


def _call(node: Any, tables: Mapping[str, Collection[str]]) -> tuple[str, str, Any] | None:
    """Returns the table and the column by which a call differentiates a subquery, and the table as it is in FROM."""
    if len(node.expressions) != 2:
        return None
    value, variable = node.expressions
    query = node.find_ancestor(exp.Select)
    if not isinstance(value, exp.Subquery) or not isinstance(variable, exp.Column) or query is None:
        return None
    if not _is_by_row(node, query) or not _is_in(node, query, ("expressions", "where")) or _has_star(query):
        return None
    if any(_is_derivative(around) for around in _between(node, query)):
        return None
    # What is in a recursive query may read its last rows.
    if any(with_.args.get("recursive") for with_ in _withs_around(node)):
        return None
    read = query.args.get("from_")
    if read is None or query.args.get("laterals"):
        return None
    joins = query.args.get("joins") or []
    if any(join.args.get("method") or join.args.get("using") for join in joins):
        return None
    items = [read.this, *(join.this for join in joins)]
    if variable.args.get("table") is not None:
        chosen = [item for item in items if _called(item) == _name(variable.args["table"])]
    else:
        if not all(_is_table(item, tables) for item in items):
            return None
        chosen = [item for item in items if _name(variable.this) in tables[_name(item.this)]]
    if len(chosen) != 1 or not _is_table(chosen[0], tables) or variable.args.get("db") is not None:
        return None
    table, column = _name(chosen[0].this), _name(variable.this)
    return (table, column, chosen[0]) if column in tables[table] else None


def _withs_around(node: Any) -> Iterator[Any]:
    while (cte := node.find_ancestor(exp.CTE)) is not None:
        yield cte.parent
        node = cte


def _is_table(item: Any, tables: Collection[str]) -> bool:
    """Returns whether this is a table by its bare name, with or without an alias."""
    if not isinstance(item, exp.Table) or not isinstance(item.this, exp.Identifier):
        return False
    given = {key for key, value in item.args.items() if value}
    alias = item.args.get("alias")
    is_plain = given <= {"this", "alias"} and (alias is None or not alias.args.get("columns"))
    return is_plain and _name(item.this) in tables


def _called(item: Any) -> str | None:
    alias = item.args.get("alias")
    if alias is not None:
        return _name(alias.this) if alias.this is not None else None
    return _name(item.this) if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier) else None


def _is_by_row(node: Any, query: Any) -> bool:
    """Returns whether a part of a query is computed for each of the rows that it reads."""
    if any(_is_aggregate(around) for around in _between(node, query)):
        return True
    is_grouped = any(query.args.get(key) for key in ("group", "having"))
    aggregates = (part for part in query.find_all(exp.Anonymous) if _is_aggregate(part))
    is_where = _is_in(node, query, ("where",))
    return is_where or not (is_grouped or any(part.find_ancestor(exp.Select) is query for part in aggregates))


def _is_derivative(part: Any) -> bool:
    return isinstance(part, exp.Anonymous) and str(part.this).lower() in DERIVATIVES


def _is_aggregate(part: Any) -> bool:
    if not isinstance(part, exp.Anonymous) or str(part.this).lower() not in AGGREGATES:
        return False
    around = part.parent
    while isinstance(around, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        around = around.parent
    return not isinstance(around, exp.Window)


def _is_in(node: Any, query: Any, keys: Sequence[str]) -> bool:
    """Returns whether a part of a query is in one of these clauses."""
    *_, outermost = node, *_between(node, query)
    return outermost.arg_key in keys


def _between(node: Any, query: Any) -> Iterator[Any]:
    """What is around a part of a query and within it, from the inside."""
    while node.parent is not None and node.parent is not query:
        node = node.parent
        yield node


def _has_star(query: Any) -> bool:
    return any(isinstance(part, exp.Star) or isinstance(part.this, exp.Star) for part in query.expressions)


def _is_scalar(node: Any) -> bool:
    """Returns whether a subquery is a value which is not that of a derivative."""
    around = node.parent
    if isinstance(around, exp.From | exp.Join | exp.CTE | exp.Lateral | exp.SetOperation | exp.In | exp.Exists):
        return False
    if _is_derivative(around):
        return around.expressions[0] is not node
    return around is not None


@functools.lru_cache(maxsize=1024)
def names_in(text: str) -> frozenset[str]:
    """Returns all names in a text, in lower case, and its other words."""
    return frozenset(token.text.lower() for token in _tokens(text) if token.token_type != TokenType.STRING)


@functools.lru_cache(maxsize=1024)
def words(text: str) -> tuple[tuple[TokenType, str], ...]:
    """Returns the words of a text, without the spaces and comments between them."""
    return tuple((token.token_type, token.text) for token in _tokens(text))


def _tree(text: str) -> Any:
    """Returns the statement as sqlglot reads it; None if it does not, or not as one statement."""
    try:
        trees = XqlDataFusion().parse(text)
    except SqlglotError:
        return None
    return trees[0] if len(trees) == 1 else None


@functools.lru_cache(maxsize=1024)
def _tokens(text: str) -> Sequence[Token]:
    """The words of a text as sqlglot tells them apart, once for the many that look at them; none if it cannot."""
    try:
        return tuple(XqlDataFusion().tokenize(text))
    except SqlglotError:
        return ()


def _parameter(token: Token) -> re.Match[str] | None:
    return _PARAMETER.fullmatch(token.text) if token.token_type == TokenType.VAR else None


def _identifiers(tree: Any) -> Iterator[Any]:
    return (node for node in tree.find_all(exp.Identifier) if "start" in node.meta)


def _span(item: Any) -> tuple[int, int]:
    """Where the name of a table begins and ends."""
    places = [part.meta for part in item.parts]
    return min(place["start"] for place in places), max(place["end"] for place in places) + 1


def _name(identifier: Any) -> str:
    """Returns a name as DataFusion reads it."""
    name: str = identifier.name
    return name if identifier.args.get("quoted") else name.lower()
