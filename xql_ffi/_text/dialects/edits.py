"""Finds the calls of a statement, and edits the text around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from xql_ffi._errors import HostError


class Binding(IntEnum):
    """How tightly the outermost operator of a text binds, as far as it matters here."""

    OPEN = 0
    SUM = 1
    PRODUCT = 2
    CLOSED = 3


@dataclass(frozen=True)
class Edit:
    """A part of a text and what takes its place."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Returns a text with other parts."""
    parts, done = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*parts, text[done:]])


@dataclass(frozen=True)
class Place:
    """A call by its tokens: its name, its parentheses."""

    name: int
    opening: int
    closing: int


def place(tokens: Sequence[Token], start: int) -> Place:
    """Returns the place of a call whose name starts at a character.

    Raises:
        HostError: there is none.
    """
    name = next((number for number, token in enumerate(tokens) if token.start == start), None)
    if name is None or name + 1 >= len(tokens) or tokens[name + 1].token_type is not TokenType.L_PAREN:
        msg = "xql-ffi does not find the place of a call in the statement"
        raise HostError(msg)
    return Place(name, name + 1, closing(tokens, name + 1))


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Returns the token that closes what another one opens."""
    depth = 0
    for number in range(opening, len(tokens)):
        depth += _DEPTH.get(tokens[number].token_type, 0)
        if depth == 0:
            return number
    msg = "xql-ffi does not find the end of a call in the statement"
    raise HostError(msg)


def item_end(tokens: Sequence[Token], call: Place) -> int:
    """Returns the last token of the item of `SELECT` that has a call."""
    enclosing = call.name
    while enclosing > 0 and tokens[enclosing].token_type not in _ITEM_STARTS:
        enclosing -= 1
        if tokens[enclosing].token_type in (TokenType.R_PAREN, TokenType.R_BRACKET):
            enclosing = _opening(tokens, enclosing)
    depth = sum(_DEPTH.get(token.token_type, 0) for token in tokens[enclosing + 1 : call.name])
    end = call.name
    while end < len(tokens):
        kind = tokens[end].token_type
        if depth == 0 and (kind in _AFTER_ITEM or kind in _CLOSING):
            break
        depth += _DEPTH.get(kind, 0)
        end += 1
    return end - 1


def _opening(tokens: Sequence[Token], closed: int) -> int:
    depth = 0
    for number in range(closed, -1, -1):
        depth -= _DEPTH.get(tokens[number].token_type, 0)
        if depth == 0:
            return number
    return 0


def binding(tree: exp.Expr) -> Binding:
    """How tightly the outermost operator of an expression binds."""
    if isinstance(tree, (exp.Add, exp.Sub)):
        return Binding.SUM
    if isinstance(tree, (exp.Mul, exp.Div)):
        return Binding.PRODUCT
    # The host may write some functions as operators.
    if isinstance(tree, (exp.Anonymous, exp.Column, exp.Literal, exp.Paren, exp.Case, exp.Cast, exp.Null, exp.Boolean)):
        return Binding.CLOSED
    return Binding.OPEN


def needed(tokens: Sequence[Token], call: Place) -> Binding:
    """How tightly a text has to bind that takes the place of a call."""
    before = [token.token_type for token in tokens[max(call.name - 2, 0) : call.name]]
    after = tokens[call.closing + 1].token_type if call.closing + 1 < len(tokens) else None
    return max(_on_left(before), _on_right(after))


def _on_left(before: list[TokenType]) -> Binding:
    kind = before[-1] if before else None
    if kind is None or kind in _OPENING or kind in _BEFORE:
        return Binding.OPEN
    if kind in _COMPARING:
        return Binding.SUM
    # A sign in front of it is no difference.
    if kind is TokenType.PLUS or (kind is TokenType.DASH and len(before) > 1 and before[0] in _ENDS_OPERAND):
        return Binding.PRODUCT
    return Binding.CLOSED


def _on_right(kind: TokenType | None) -> Binding:
    if kind is None or kind in _CLOSING or kind in _AFTER_ITEM or kind in _AFTER:
        return Binding.OPEN
    if kind in _COMPARING or kind in (TokenType.PLUS, TokenType.DASH):
        return Binding.SUM
    return Binding.PRODUCT if kind in (TokenType.STAR, TokenType.SLASH) else Binding.CLOSED


_OPENING = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE))
_CLOSING = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE))
_DEPTH = {**dict.fromkeys(_OPENING, 1), **dict.fromkeys(_CLOSING, -1)}
_ITEM_STARTS = frozenset((TokenType.SELECT,))
_ENDS_OPERAND = frozenset(
    (*_CLOSING, TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.END)
)
_COMPARING = frozenset(
    (
        *(TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE),
        *(TokenType.AND, TokenType.OR, TokenType.NOT),
    )
)
_BEFORE = frozenset(
    (
        *(TokenType.COMMA, TokenType.SEMICOLON, TokenType.SELECT, TokenType.DISTINCT, TokenType.WHERE),
        *(TokenType.HAVING, TokenType.QUALIFY, TokenType.ON, TokenType.ORDER_BY, TokenType.GROUP_BY),
        *(TokenType.PARTITION_BY, TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.RETURNING),
    )
)
_AFTER = frozenset((TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.END, TokenType.ASC, TokenType.DESC))
_AFTER_ITEM = frozenset(
    (
        *(TokenType.COMMA, TokenType.SEMICOLON, TokenType.ALIAS, TokenType.FROM, TokenType.WHERE),
        *(TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY, TokenType.WINDOW, TokenType.ORDER_BY),
        *(TokenType.SORT_BY, TokenType.CLUSTER_BY, TokenType.DISTRIBUTE_BY, TokenType.LIMIT, TokenType.OFFSET),
        *(TokenType.FETCH, TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT, TokenType.INTO),
    )
)
