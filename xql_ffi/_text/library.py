"""Calls the native library for SQL text: catalogs that free themselves, texts, and errors as exceptions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.cffi import ffi as arrow

from xql_ffi import _library
from xql_ffi._errors import translated
from xql_ffi._interruptible import interruptible
from xql_ffi._native import taken, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_ffi, _lib = _library.ffi, _library.lib

# In an error, this is on both sides of the name of a function that is not known, and behind each of its arguments.
_QUESTION = "\x01"

# What DataFusion puts before a message.
_WHERE = re.compile(r"^(?:Error during planning: |Schema error: )+")


class UnknownFunctionError(Exception):
    """The native library asks what the call of a function gives."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        """Asks for the call of a function with these arguments, all in SQL."""
        self.name, self.arguments = name, arguments
        self.call = f"{name}({', '.join(arguments)})"
        super().__init__(self.call)


def learning(make: Callable[[], str], learn: Callable[[UnknownFunctionError], None]) -> str:
    """Repeats work until the native library knows the result types of all calls of the session's functions."""
    while True:
        try:
            return make()
        except UnknownFunctionError as unknown:
            learn(unknown)


def catalog() -> Any:
    """Returns a catalog without tables."""
    return _ffi.gc(_lib.xql_ffi_catalog_new(), _lib.xql_ffi_catalog_free)


def add_table(catalog: Any, name: str, schema: pa.Schema) -> None:
    """Adds a table by its name in SQL."""
    error, struct = _ffi.new("char **"), arrow.new("struct ArrowSchema *")
    schema._export_to_c(_address(struct))
    _check(_lib.xql_ffi_catalog_table(catalog, text(name), _pointer(struct), error), error)


def add_view(catalog: Any, name: str, query: str) -> None:
    """Adds a view by its name in SQL."""
    error = _ffi.new("char **")
    _check(_lib.xql_ffi_catalog_view(catalog, text(name), text(query), error), error)


def add_held(catalog: Any, view: str, table: str, known_by: str, schema: pa.Schema) -> None:
    """Adds a table that a view holds, which is not known to be the one of its name."""
    error, struct = _ffi.new("char **"), arrow.new("struct ArrowSchema *")
    schema._export_to_c(_address(struct))
    names = text(view), text(table), text(known_by)
    _check(_lib.xql_ffi_catalog_held(catalog, *names, _pointer(struct), error), error)


def add_opaque(catalog: Any, name: str, reason: str) -> None:
    """Adds a relation that no statement with derivatives may read."""
    error = _ffi.new("char **")
    _check(_lib.xql_ffi_catalog_opaque(catalog, text(name), text(reason), error), error)


def add_function(catalog: Any, call: str, field: pa.Field | None, *, is_volatile: bool) -> None:
    """Adds what the call of a function gives; nothing if there is no such function."""
    error, struct = _ffi.new("char **"), arrow.new("struct ArrowSchema *")
    if field is not None:
        field._export_to_c(_address(struct))
    pointer = _ffi.NULL if field is None else _pointer(struct)
    _check(_lib.xql_ffi_catalog_function(catalog, text(call), pointer, is_volatile, error), error)


def let_reread(catalog: Any) -> None:
    """Says that recursive terms may read the rows of the last iteration several times."""
    error = _ffi.new("char **")
    _check(_lib.xql_ffi_catalog_rereads(catalog, error), error)


def add_special(catalog: Any, names: Iterable[str]) -> None:
    """Adds the names by which the session has special functions."""
    error = _ffi.new("char **")
    for name in names:
        _check(_lib.xql_ffi_catalog_special(catalog, text(name), error), error)


def expand(catalog: Any, sql: str, rules: Sequence[Any]) -> str:
    """Returns the statements of a text without derivatives.

    Raises:
        UnknownFunctionError: what the call of a function gives is not in the catalog.
        ValueError: a statement is wrong or cannot be written.
    """

    def work() -> str:
        error, listed = _ffi.new("char **"), _ffi.new("xql_ffi_rule *[]", rules)
        return _owned(_lib.xql_ffi_expand(catalog, text(sql), listed, len(rules), error), error, sql)

    return interruptible(work)


def edits(catalog: Any, sql: str, rules: Sequence[Any]) -> list[tuple[int, int, str]]:
    """Returns the edits that remove all calls: the start and the end of each part, and its replacement.

    Raises:
        UnknownFunctionError: what the call of a function gives is not in the catalog.
        ValueError: a statement is wrong or cannot be written.
    """

    def work() -> str:
        error, listed = _ffi.new("char **"), _ffi.new("xql_ffi_rule *[]", rules)
        return _owned(_lib.xql_ffi_edits(catalog, text(sql), listed, len(rules), error), error, sql)

    # Places are counted in bytes.
    encoded, rest = sql.encode(), interruptible(work).encode()
    found = []
    while rest:
        line, _, rest = rest.partition(b"\n")
        start, end, length = map(int, line.split())
        found.append((len(encoded[:start].decode()), len(encoded[:end].decode()), rest[:length].decode()))
        rest = rest[length:]
    return found


def columns(catalog: Any, sql: str, rules: Sequence[Any]) -> pa.Schema:
    """Returns the columns of the query that a statement is or has, with or without calls.

    Raises:
        UnknownFunctionError: what the call of a function gives is not in the catalog.
        ValueError: the statement is wrong.
    """

    def work() -> pa.Schema:
        error, struct = _ffi.new("char **"), arrow.new("struct ArrowSchema *")
        listed = _ffi.new("xql_ffi_rule *[]", rules)
        made = _lib.xql_ffi_columns(catalog, text(sql), listed, len(rules), _pointer(struct), error)
        _check(made, error, sql)
        return pa.Schema._import_from_c(_address(struct))

    return interruptible(work)


def differentiate(catalog: Any, expression: str, wrt: str, table: str, rules: Sequence[Any]) -> str:
    """Returns the derivative of an expression over the columns of a table.

    Raises:
        UnknownFunctionError: what the call of a function gives is not in the catalog.
        ValueError: the expression is wrong or its derivative cannot be written.
    """

    def work() -> str:
        error, listed = _ffi.new("char **"), _ffi.new("xql_ffi_rule *[]", rules)
        given = text(expression), text(wrt), text(table), listed, len(rules), error
        return _owned(_lib.xql_ffi_differentiate(catalog, *given), error)

    return interruptible(work)


def _address(struct: Any) -> int:
    return int(arrow.cast("uintptr_t", struct))


def _pointer(struct: Any) -> Any:
    return _ffi.cast("void *", _address(struct))


def _owned(made: Any, error: Any, query: str | None = None) -> str:
    _check(made != _ffi.NULL, error, query)
    return taken(made)


def _check(done: bool, error: Any, query: str | None = None) -> None:
    """Raises the error of what was made of a query, if it was not done."""
    if done:
        return
    message = taken(error[0])
    if _QUESTION in message:
        _, name, *arguments, _ = message.split(_QUESTION)
        raise UnknownFunctionError(name, arguments)
    raise translated(message, query) or ValueError(plain(message))


def plain(message: str) -> str:
    """Returns a message without what DataFusion puts before it."""
    return _WHERE.sub("", message)
