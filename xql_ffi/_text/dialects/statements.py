"""Statements of a host without calls of the operators."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from xql_ffi._calls import OPERATORS, STOP, may_differentiate
from xql_ffi._errors import HostError
from xql_ffi._text import library
from xql_ffi._text.dialects import foreign, laterals, recursions
from xql_ffi._text.dialects.columns import Columns
from xql_ffi._text.dialects.edits import Edit, Place, binding, closing, edited, item_end, needed, place
from xql_ffi._text.dialects.host import Host
from xql_ffi._text.dialects.host_scope import HostScope, check_functions
from xql_ffi._text.dialects.names import Names
from xql_ffi._text.dialects.reading import CALL, datafusion_text, datafusion_tree, parameters
from xql_ffi._text.dialects.source_fragments import SourceFragments
from xql_ffi._text.dialects.sources import Sources
from xql_ffi._text.dialects.writing import host_tree


@dataclass(frozen=True)
class Call:
    """A call of an operator, as it was written."""

    place: Place
    name: str
    # The columns that it names, by their names as the host compares them.
    columns: Mapping[tuple[str, ...], exp.Column]


def expand(text: str, host: Host, known: HostScope, rules: Sequence[Any]) -> str:
    """Returns the statements of a text without calls. A text without calls is given back as it is.

    Raises:
        HostError: the host does not have what would have to be written, or a statement cannot be read.
        ValueError: a statement is wrong, or has no derivative.
    """
    if not may_differentiate(text):
        return text
    check_functions(known.own, text)
    edits = []
    for tokens in _statements(host.tokens(text)):
        if not _has_call(tokens):
            continue
        start, end = tokens[0].start, tokens[-1].end + 1
        statement = Statement(text[start:end], host, known, rules)
        edits.append(Edit(start, end, statement.expanded()))
    made = edited(text, edits)
    check_functions(known.own, made)
    return made


def differentiate(expression: str, wrt: str, table: str, host: Host, known: HostScope, rules: Sequence[Any]) -> str:
    """Returns the derivative of an expression by a column of a table.

    Raises:
        HostError: the host does not have what would have to be written, or the expression cannot be read.
        ValueError: the expression is wrong, or has no derivative.
    """
    start = "SELECT "
    # A comment at the end of the expression ends with its line.
    text = f"{start}grad({expression}\n, {wrt}\n) AS d FROM {host.text(host.identifier(table))}"
    statement = Statement(text, host, known, rules)
    _, calls = statement.read()
    item = statement.tree.selects if isinstance(statement.tree, exp.Select) else []
    is_one = len(item) == 1 and isinstance(item[0], exp.Alias) and item[0].this.meta.get(CALL) == 0
    if not is_one or len(item[0].this.expressions) != 2:
        msg = f"{expression} is not one expression"
        raise HostError(msg)
    found = statement.derivatives(calls)
    if found is None:
        msg = f"the derivative of {expression} reads more than the columns of one row: use a whole statement"
        raise HostError(msg)
    return host.text(found[0])


def _statements(tokens: list[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _has_call(tokens: Sequence[Token]) -> bool:
    pairs = zip(tokens, [*tokens[1:]], strict=False)
    return any(a.text.lower() in OPERATORS and b.token_type is TokenType.L_PAREN for a, b in pairs)


class Statement:
    """A statement with calls."""

    def __init__(self, text: str, host: Host, known: HostScope, rules: Sequence[Any]) -> None:
        """A statement of a host."""
        self._host = host
        self._known = known
        self._rules = rules
        self._text = text
        tokens = host.tokens(text)
        start, end = _query(tokens)
        # Without what stands around the query of an INSERT and the like, whose columns have no names then.
        self._before, self._after = text[: tokens[start].start], text[tokens[end - 1].end + 1 :]
        self._query = text[tokens[start].start : tokens[end - 1].end + 1]
        self._is_insert = tokens[0].token_type is TokenType.INSERT
        self._tokens = host.tokens(self._query)
        self._sources = Sources(host, known)
        self.tree = self._parsed(self._query)
        self._names = self._new_names()
        # Columns that have the host's names, by their numbers.
        self._renamed: dict[int, str] = {}

    def _parsed(self, query: str) -> exp.Expr:
        tree = self._host.parsed(query)
        foreign.simplify(tree)
        self._sources.read(tree)
        return tree

    def _new_names(self) -> Names:
        return Names(self._host, {**self._known.names, **self._sources.columns})

    def _read(self, tree: exp.Expr, names: Names, words: tuple[str, SourceFragments] | None = None) -> exp.Expr:
        floats = frozenset(self._known.floats) - self._sources.not_floats
        tree = foreign.left_out(tree)
        tree = laterals.resolved(tree, self._host, self._columns)
        tree = recursions.typed(tree, self._host, self._types, self._planned)
        return datafusion_tree(tree, self._host, names, floats, words)

    def _columns(self, query: exp.Query) -> frozenset[str] | None:
        """Returns the names of the columns of a query as the host compares them, where these can be known."""
        written = query.copy()
        self._sources.write(written)
        found = self._known.columns(self._host.text(written))
        if found is None:
            planned = self._planned(query)
            found = None if planned is None else planned.names
        return None if found is None else frozenset(map(self._host.key, found))

    def _types(self, query: exp.Query) -> list[str] | None:
        """Returns the types of the columns of a query in the host, where that can be asked."""
        query = query.copy()
        self._sources.write(query)
        return self._known.types(self._host.text(query))

    def _planned(self, query: exp.Query) -> pa.Schema | None:
        """Returns the columns of a query as DataFusion takes them."""
        floats = frozenset(self._known.floats) - self._sources.not_floats
        read = datafusion_tree(foreign.left_out(query), self._host, self._new_names(), floats)
        try:
            return library.columns(self._known.catalog, datafusion_text(read), self._rules)
        except ValueError:  # it may read a table that the statement is yet to make
            return None

    def expanded(self) -> str:
        """Returns the text of the statement without calls.

        Raises:
            HostError: the host does not have what would have to be written.
            ValueError: the statement is wrong, or has no derivative.
        """
        asked, calls = self.read()
        if not calls:
            return self._text
        # This comes first: it names a view that cannot be read, which otherwise would be missing.
        derivatives = self.derivatives(calls)
        wanted = library.columns(self._known.catalog, asked, self._rules)
        text = self._spliced(calls, derivatives) if derivatives is not None else self._written_anew(calls)
        self._check(text, wanted)
        return self._before + text + self._after

    def read(self) -> tuple[str, list[Call]]:
        """Returns the statement as DataFusion's, and its outer calls by their numbers."""
        for node, name in foreign.found(self.tree):
            around = node.find_ancestor(exp.Anonymous, exp.Query)
            while isinstance(around, exp.Anonymous) and not _is_operator(around):
                around = around.find_ancestor(exp.Anonymous, exp.Query)
            if isinstance(around, exp.Anonymous):
                raise HostError(f"{self._host.name} has {name}, and DataFusion has not: {around.name} cannot take it")
        outer = [node for node in self.tree.find_all(exp.Anonymous) if _is_operator(node) and not _is_inner(node)]
        self._variables = [column for node in outer for column in _variables(node)]
        calls = []
        for number, node in enumerate(sorted(outer, key=lambda node: int(node.meta["start"]))):
            node.meta[CALL] = number
            found = sorted(node.find_all(exp.Column), key=_start, reverse=True)
            # That which is written first counts.
            columns = {self._names.path(column): column for column in found}
            calls.append(Call(place(self._tokens, int(node.meta["start"])), node.name.lower(), columns))
        self._sources.check_variables(self.tree, self._variables)
        tree = self._read(self.tree, self._names)
        self._has_parameters = bool(parameters(tree))
        mark = "_call"
        while mark in self._query:
            mark += "_"
        for node in tree.find_all(exp.Anonymous):
            if CALL in node.meta:
                if parameters(node):
                    raise HostError(f"what {node.name.lower()} differentiates has a parameter, {_NO_PARAMETER}")
                node.set("this", f"{node.name.lower()}{mark}{node.meta[CALL]}_")
        parts = re.split(rf"{mark}(\d+)_\(", datafusion_text(tree))
        self._asked = parts[0]
        # The numbers of the calls by where they start.
        self._starts: dict[int, int] = {}
        for digits, part in zip(parts[1::2], parts[2::2], strict=True):
            number = int(digits)
            self._starts[len(self._asked) - len(calls[number].name)] = number
            self._asked += "(" + part
        return self._asked, calls

    def derivatives(self, calls: list[Call]) -> dict[int, exp.Expr] | None:
        """Returns the texts that replace the calls; None if the query has to be rewritten as a whole."""
        edits = library.edits(self._known.catalog, self._asked, self._rules)
        self._named = [(start, text) for start, end, text in edits if start == end]
        if _anew(edits) is not None:
            return None
        found: dict[int, exp.Expr] = {}
        for start, end, text in edits:
            number = self._starts.get(start)
            if number is None or start == end or calls[number].name == STOP:
                continue
            made = host_tree(text, self._names, self._known.words, calls[number].columns)
            # What needs parentheses where DataFusion has it may do without where it goes.
            made = made.this if isinstance(made, exp.Paren) else made
            if found.setdefault(number, made) != made:
                msg = f"one call of {calls[number].name} has several derivatives: write one call for each"
                raise HostError(msg)
        missing = [call.name for number, call in enumerate(calls) if call.name != STOP and number not in found]
        if missing:
            msg = (
                f"{self._host.name} and DataFusion read the place of a call of {missing[0]} differently: put the call "
                "into a subquery"
            )
            raise HostError(msg)
        return found

    def _spliced(self, calls: list[Call], derivatives: dict[int, exp.Expr]) -> str:
        edits = []
        for number, call in enumerate(calls):
            name, opening, end = (
                self._tokens[token] for token in (call.place.name, call.place.opening, call.place.closing)
            )
            if call.name == STOP:
                edits += [Edit(name.start, opening.end + 1, "("), Edit(end.start, end.end + 1, ")")]
                continue
            tree = derivatives[number]
            text = self._host.text(tree)
            if binding(tree) < needed(self._tokens, call.place):
                text = f"({text})"
            edits.append(Edit(name.start, end.end + 1, text))
        if not self._is_insert and self._host.names_freely:
            for at, text in self._named:
                number = self._starts[max(start for start in self._starts if start < at)]
                last = self._tokens[item_end(self._tokens, calls[number].place)].end + 1
                column = text.removeprefix(' AS "').removesuffix('"').replace('""', '"')
                edits.append(Edit(last, last, f" AS {self._host.text(self._host.identifier(column))}"))
        return edited(self._query, edits)

    def _written_anew(self, calls: list[Call]) -> str:
        """Returns the query from DataFusion's plan of it, in which the host's expressions keep their words."""
        if self._has_parameters:
            raise HostError(f"this statement is written anew, and has a parameter, {_NO_PARAMETER}")
        tree = self.tree.copy()
        ends = foreign.ends(tree)
        self._sources.keep(tree)
        self._sources.check_variables(tree, self._variables)
        tree = self._read(tree, self._names, (self._query, self._known.words))
        for node in tree.find_all(exp.Anonymous):
            if CALL in node.meta:
                node.set("this", node.name.lower())
        anew = _anew(library.edits(self._known.catalog, datafusion_text(tree), self._rules))
        if anew is None:
            raise HostError("xql-ffi reads the statement differently where its expressions keep their words")
        tree = host_tree(anew, self._names, self._known.words)
        self._sources.write(tree)
        foreign.end(tree, ends, self._host)
        columns = Columns(self._host, self._known, self.tree, self._without(calls))
        columns.name(tree)
        self._renamed = columns.named
        return columns.typed(tree)

    def _without(self, calls: list[Call]) -> str:
        """Returns the query with a number in the place of each call."""
        edits = []
        for call in calls:
            name, opening, end = (
                self._tokens[token] for token in (call.place.name, call.place.opening, call.place.closing)
            )
            if call.name == STOP:
                edits += [Edit(name.start, opening.end + 1, "("), Edit(end.start, end.end + 1, ")")]
            else:
                edits.append(Edit(name.start, end.end + 1, "CAST(NULL AS DOUBLE)"))
        return edited(self._query, edits)

    def _check(self, text: str, wanted: pa.Schema) -> None:
        """Refuses a text with other columns than the statement."""
        tree = self._read(self._parsed(text), self._new_names())
        again = datafusion_text(tree)
        made = library.columns(self._known.catalog, again, self._rules)
        names = [field.name for field in wanted]
        for number, name in self._renamed.items():
            names[number] = name
        shown = [
            [(self._shown(name), _kind(field.type)) for name, field in zip(named, schema, strict=True)]
            for named, schema in ((names, wanted), ([field.name for field in made], made))
        ]
        if shown[0] != shown[1] or any(_is_operator(node) for node in tree.find_all(exp.Anonymous)):
            columns = [", ".join(f"{field.name} {field.type}" for field in schema) for schema in (wanted, made)]
            name = self._host.name
            msg = f"the statement has the columns {columns[0]}, and its text for {name} would have {columns[1]}"
            raise HostError(msg)

    def _shown(self, name: str) -> str:
        """Returns a column's name as far as it matters."""
        longest = self._host.longest_name
        is_cut = longest is not None and len(name.encode()) > longest - 4
        is_named = self._host.names_freely and not self._is_insert and not is_cut
        return self._host.key(name) if is_named else ""


def _kind(data_type: pa.DataType) -> pa.DataType:
    """Returns a type as far as DataFusion's reading of a column tells it."""
    return pa.int64() if pa.types.is_integer(data_type) else data_type


def _anew(edits: list[tuple[int, int, str]]) -> str | None:
    """Returns the query that is written anew, if that is what is to be done."""
    return next((text for start, _, text in edits if start == 0), None)


_NO_PARAMETER = "of unknown type: write the value in its place, or join a table of one row with it"


def _start(column: exp.Column) -> int:
    return int(column.this.meta.get("start", 0))


def _is_operator(node: exp.Anonymous) -> bool:
    return node.name.lower() in OPERATORS and "start" in node.meta and not isinstance(node.parent, exp.Dot)


def _variables(call: exp.Anonymous) -> list[exp.Column]:
    """Returns the columns by which a call differentiates."""
    arguments = call.expressions[1:2] if call.name.lower() in ("grad", "vjp") else call.expressions[1::2]
    return [argument for argument in arguments if isinstance(argument, exp.Column)]


def _is_inner(node: exp.Anonymous) -> bool:
    """Returns whether a call is part of what another one differentiates."""
    around = node.find_ancestor(exp.Anonymous)
    while around is not None:
        if around.name.lower() in OPERATORS and around.name.lower() != STOP:
            return True
        around = around.find_ancestor(exp.Anonymous)
    return False


_QUERIES = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.FROM, TokenType.VALUES)
_CHANGES = (TokenType.UPDATE, TokenType.DELETE, TokenType.MERGE)


def _query(tokens: list[Token]) -> tuple[int, int]:
    """Returns the tokens of the query that a statement is or has; all of one that has none."""
    kinds = [token.token_type for token in tokens]
    if kinds[0] in _QUERIES or kinds[0] in _CHANGES:
        return 0, len(tokens)
    for start, kind in enumerate(kinds):
        if kind not in (TokenType.SELECT, TokenType.WITH) or kinds[start + 1 : start + 2] == [TokenType.L_PAREN]:
            continue
        if kinds[start - 1] is TokenType.L_PAREN:
            return start, closing(tokens, start - 1)
        return start, next((end for end in range(start, len(tokens)) if _ends_query(tokens, end)), len(tokens))
    return 0, len(tokens)


def _ends_query(tokens: list[Token], at: int) -> bool:
    """Returns whether what is said of an INSERT starts behind its query."""
    is_conflict = tokens[at].text.upper() == "ON" and [t.text.upper() for t in tokens[at + 1 : at + 2]] == ["CONFLICT"]
    return tokens[at].token_type is TokenType.RETURNING or is_conflict
