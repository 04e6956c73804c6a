"""The SQL of a host: its names, its functions and operators, and what it lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from xql_ffi._errors import HostError
from xql_ffi._text.dialects.datafusion import XqlDataFusion, words
from xql_ffi._text.dialects.first_value import First

# What stands for where an expression was written among the properties of a node.
SPAN = "span"

# A kind of node with the name of a function and the number of arguments.
Head: TypeAlias = tuple[type[exp.Expr], str, int]

# Functions with a syntax of their own. All others are read as calls of names.
_SYNTAX = ("CAST", "TRY_CAST", "SAFE_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")

# Words that are names in DataFusion and may not be in another host. Quotes around a name do no harm.
_RESERVED = words(
    """
    add all alter analyse analyze and anti any array as asc asof asymmetric at authorization autoincrement between
    binary both by case cast check collate collation column commit concurrently constraint create cross cube current
    current_catalog current_date current_role current_schema current_time current_timestamp current_user default
    deferrable delete desc describe distinct do drop else end escape except exists false fetch filter first
    following for foreign freeze from full function glob grant group grouping groups hash having ilike in index
    initially inner inout insert intersect interval into is isnull join key lambda last lateral leading left like
    limit localtime localtimestamp lookup match merge natural new no not nothing notnull null nulls of off offset on
    only or order out outer over overlaps partition pivot pivot_longer pivot_wider placing positional preceding
    primary proto qualify raise range recursive references respect returning right rollup row rows sample select
    semi session_user set show similar some struct summarize symmetric system_user table tablesample then to
    trailing transaction treat trim true unbounded union unique unnest unpack unpivot update user using value values
    variadic verbose view when where window with within
    """
)


def not_finite(kind: str, infinity: str) -> dict[str, str]:
    """NaN and the infinities where texts are converted to floats, whose type has this name."""
    return {
        value: f"CAST('{text}' AS {kind})"
        for value, text in {"nan": "NaN", "inf": infinity, "-inf": f"-{infinity}"}.items()
    }


@dataclass(frozen=True)
class Lack:
    """A kind of node that a host does not have, and what to do."""

    kind: type[exp.Expr]
    advice: str
    # Which of them.
    which: Callable[[exp.Expr], bool] = lambda _node: True


@dataclass(frozen=True)
class Host:
    """A host's SQL, as far as it differs from DataFusion's. It has a field for each way to differ, so many fields.

    The tables have expressions on both sides, whose columns stand for arguments: ``"signum(x)": "sign(x)"``.
    """

    name: str
    # sqlglot's dialect.
    syntax: type[Dialect]
    # What a table is in that is named without schema.
    catalog: str
    schema: str
    # Functions that are DataFusion's by name and meaning, of any arguments.
    same: str
    # Functions of another name, of any arguments: DataFusion's name, and the host's.
    renamed: Mapping[str, str] = field(default_factory=dict)
    # Further names that the host has for functions of DataFusion.
    aliases: Mapping[str, str] = field(default_factory=dict)
    # Aggregates that are called otherwise than the window functions of their name.
    aggregates: Mapping[str, str] = field(default_factory=dict)
    # DataFusion's expressions, and the host's.
    written: Mapping[str, str] = field(default_factory=dict)
    # Further expressions of the host, and DataFusion's.
    read: Mapping[str, str] = field(default_factory=dict)
    # Functions of DataFusion that the host does not have, and what to do. Those in no table are refused as well.
    refused: Mapping[str, str] = field(default_factory=dict)
    # What of the syntax the host does not have.
    lacks: tuple[Lack, ...] = ()
    # Functions that give the words of what they are called with.
    of_words: frozenset[str] = frozenset()
    # How the first value of a group in an order is written, if not as an aggregate with an order.
    first: First | None = None
    # Whether the quotient of two integers is a float.
    divides_to_float: bool = False
    # How a float is written of these digits, `{}`, where a literal with a point is a decimal.
    float_literal: str | None = None
    # NaN and the infinities.
    not_finite: Mapping[str, str] = field(default_factory=dict)
    # Whether a common table expression can be said to be computed once.
    materializes: bool = False
    # Whether a recursive term may read the rows of the last iteration several times, and aggregate them.
    rereads: bool = False
    # Whether items of SELECT may read others by the names that these have there.
    reads_aliases: bool = False
    # Whether the planner writes out the columns of subqueries wherever they are read.
    writes_out: bool = False
    # Whether IGNORE NULLS stands behind the arguments of a function, within its parentheses.
    treats_nulls_inside: bool = False
    # Whether an aggregate may have a FILTER.
    has_filter: bool = True
    # Whether there are floats of 32 bits.
    has_single: bool = True
    # Whether integers may be unsigned.
    has_unsigned: bool = False
    # Whether VALUES may stand in FROM with names for its columns.
    has_values: bool = True
    # How long a name may be.
    longest_name: int | None = None
    # Whether the columns of a result may have any name.
    names_freely: bool = True

    @cached_property
    def dialect(self) -> Dialect:
        """Sqlglot's dialect."""
        return self.syntax()

    @cached_property
    def same_names(self) -> frozenset[str]:
        """Functions that are DataFusion's by name and meaning."""
        return words(self.same)

    @cached_property
    def named_in_datafusion(self) -> dict[str, str]:
        """The names in DataFusion of the functions of the host."""
        inverse = {theirs: ours for renamed in (self.renamed, self.aggregates) for ours, theirs in renamed.items()}
        return {**{name: name for name in self.same_names}, **inverse, **self.aliases}

    @cached_property
    def to_datafusion(self) -> dict[Head, Template]:
        """The expressions in DataFusion of those of the host."""
        inverse = {theirs: ours for ours, theirs in self.written.items() if is_call(self.parsed(theirs))}
        return _templates({**inverse, **self.read}, self, DATAFUSION)

    @cached_property
    def from_datafusion(self) -> dict[Head, Template]:
        """The expressions in the host of those of DataFusion."""
        return _templates(self.written, DATAFUSION, self)

    def tokens(self, text: str) -> list[Token]:
        """Returns the tokens of a text.

        Raises:
            HostError: it cannot be read.
        """
        try:
            return list(self._tokenizer(dialect=self.dialect).tokenize(text))
        except SqlglotError as error:
            msg = f"the statement cannot be read as SQL of {self.name}: {_plain(error)}"
            raise HostError(msg) from error

    def parsed(self, text: str) -> exp.Expr:
        """Returns the tree of a text that has one statement or expression.

        Raises:
            HostError: it cannot be read.
        """
        read = self._parser(dialect=self.dialect, error_level=ErrorLevel.RAISE)
        try:
            trees: list[exp.Expr | None] = read.parse(self.tokens(text), text)
        except SqlglotError as error:
            msg = f"the statement cannot be read as SQL of {self.name}: {_plain(error)}"
            raise HostError(msg) from error
        if len(trees) != 1 or trees[0] is None:
            msg = f"{text!r} is not a single statement"
            raise HostError(msg)
        return trees[0]

    def text(self, tree: exp.Expr, *, pretty: bool = False) -> str:
        """Returns the text of a tree.

        Raises:
            HostError: the host has no words for part of it.
        """
        settings: dict[str, Any] = {"unsupported_level": ErrorLevel.RAISE, "comments": False, "pretty": pretty}
        write = self._generator(dialect=self.dialect, normalize_functions=False, **settings)
        try:
            text: str = write.generate(tree, copy=True)
        except SqlglotError as error:
            msg = f"sqlglot cannot write this as SQL of {self.name}: {_plain(error)}"
            raise HostError(msg) from error
        return text

    def key(self, name: str, *, quoted: bool = True) -> str:
        """Returns a name as it is compared with others."""
        strategy = self.dialect.normalization_strategy
        if strategy is NormalizationStrategy.CASE_INSENSITIVE:
            return name.lower()
        if strategy is NormalizationStrategy.CASE_INSENSITIVE_UPPERCASE:
            return name.upper()
        if quoted or strategy is NormalizationStrategy.CASE_SENSITIVE:
            return name
        return name.upper() if strategy is NormalizationStrategy.UPPERCASE else name.lower()

    def identifier(self, name: str) -> exp.Identifier:
        """Returns a name, in quotes where it needs them."""
        is_plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and self.key(name, quoted=False) == self.key(
            name, quoted=True
        )
        return exp.to_identifier(name, quoted=not is_plain or name.lower() in _RESERVED)

    @cached_property
    def _tokenizer(self) -> Any:
        # Otherwise what follows EXPLAIN would be one token.
        return type("Tokenizer", (self.syntax.tokenizer_class,), {"COMMANDS": set()})

    @cached_property
    def _generator(self) -> Any:
        kind = self.syntax.generator_class
        transforms = {
            **kind.TRANSFORMS,
            exp.Not: _negation,
            exp.Paren: _parentheses,
            exp.Boolean: _truth,
            Worded: _words,
        }
        if self.treats_nulls_inside:
            transforms[exp.IgnoreNulls] = _ignoring_nulls
        return type("Generator", (kind,), {"TRANSFORMS": transforms, "VALUES_AS_TABLE": self.has_values})

    @cached_property
    def _parser(self) -> Any:
        syntax = self.syntax.parser_class.FUNCTION_PARSERS
        kept = {name: syntax[name] for name in _SYNTAX if name in syntax}
        # A function may be called as what GROUP BY has.
        names = {*self.syntax.parser_class.FUNC_TOKENS, TokenType.CUBE, TokenType.ROLLUP}
        settings: dict[str, Any] = {"FUNCTIONS": {}, "FUNCTION_PARSERS": kept, "FUNC_TOKENS": names}
        for name in (f"_parse_{kind}" for kind in _READING):
            settings[name] = _placing(getattr(self.syntax.parser_class, name))
        return type("Parser", (self.syntax.parser_class,), settings)


class Worded(exp.Expression):
    """An expression in words of the host that are not looked into, with parts between them."""

    arg_types: ClassVar = {"this": True, "expressions": False}
    # What is between two words, in which no text has it.
    BETWEEN = "\0"


# What reads expressions of values, from the loosest operators to single names.
_READING = ("disjunction", "conjunction", "equality", "range", "bitwise", "unary", "column", "primary", "function")


def _placing(read: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of a parser that says where what it reads was written."""

    def placed(parser: Any, *args: Any, **options: Any) -> Any:
        start = parser._curr
        node = read(parser, *args, **options)
        if isinstance(node, exp.Expr) and start is not None and parser._prev is not None:
            node.meta[SPAN] = start.start, parser._prev.end + 1
        return node

    return placed


def _plain(error: SqlglotError) -> str:
    """Returns the message without the colours of a terminal."""
    return re.sub(r"\x1b\[\d+m", "", str(error))


def _negation(write: Any, node: exp.Not) -> str:
    inside = node.this
    if isinstance(inside, exp.Is) and isinstance(inside.expression, exp.Null):
        return f"{write.sql(inside, 'this')} IS NOT NULL"
    return f"NOT {write.sql(node, 'this')}"


def _truth(_write: Any, node: exp.Boolean) -> str:
    # SQLite's generator would write a number, which is no condition when it is read again.
    return "TRUE" if node.this else "FALSE"


def _ignoring_nulls(write: Any, node: exp.IgnoreNulls) -> str:
    return f"{write.sql(node, 'this').removesuffix(')')} IGNORE NULLS)"


def _words(write: Any, node: Worded) -> str:
    words = node.this.replace("\n", write.SENTINEL_LINE_BREAK) if write.pretty else node.this
    first, *others = words.split(Worded.BETWEEN)
    parts = [write.sql(part) for part in node.expressions]
    return str(first + "".join(part + other for part, other in zip(parts, others, strict=True)))


def _parentheses(write: Any, node: exp.Paren) -> str:
    # Only a query has lines of its own.
    return f"({write.sql(node, 'this')})"


@dataclass(frozen=True)
class Template:
    """An expression with columns that stand for arguments."""

    parameters: tuple[str, ...]
    body: exp.Expr

    def of(self, arguments: list[exp.Expr]) -> exp.Expr:
        """Returns the expression of these arguments, closed."""
        by_name = dict(zip(self.parameters, arguments, strict=True))

        def placed(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and node.name in by_name:
                return closed(by_name[node.name].copy())
            return node

        return closed(self.body.transform(placed))


def closed(node: exp.Expr) -> exp.Expr:
    """Returns an expression that may be an operand of anything."""
    is_closed = isinstance(
        node, (exp.Func, exp.Column, exp.Literal, exp.Paren, exp.Case, exp.Null, exp.Boolean, exp.Subquery)
    )
    is_open = isinstance(node, (exp.Connector, exp.Pow, exp.Star))
    return node if is_closed and not is_open else exp.Paren(this=node)


def head(node: exp.Expr) -> Head | None:
    """By what a node is found in a table."""
    if isinstance(node, exp.Anonymous):
        return exp.Anonymous, node.name.lower(), len(node.expressions)
    if isinstance(node, (exp.Binary, exp.Unary)) and not isinstance(node, exp.Paren):
        return type(node), "", len(arguments(node))
    return None


def arguments(node: exp.Expr) -> list[exp.Expr]:
    """Returns the operands of an operator, or the arguments of a call."""
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    return [node.args[name] for name in ("this", "expression") if node.args.get(name) is not None]


def is_call(node: exp.Expr) -> bool:
    """Returns whether an expression is a call or an operation of different columns, and no more."""
    found = arguments(node)
    names = [argument.name for argument in found if isinstance(argument, exp.Column)]
    return head(node) is not None and len(set(names)) == len(found)


def _templates(table: Mapping[str, str], source: Host, target: Host) -> dict[Head, Template]:
    templates = {}
    for theirs, ours in table.items():
        tree = source.parsed(theirs)
        key = head(tree)
        if key is None:
            msg = f"{theirs} is no call and no operation"
            raise AssertionError(msg)
        templates[key] = Template(tuple(argument.name for argument in arguments(tree)), target.parsed(ours))
    return templates


DATAFUSION = Host(name="datafusion", syntax=XqlDataFusion, catalog="datafusion", schema="public", same="")
