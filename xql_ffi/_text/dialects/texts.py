"""Statements and expressions of a host without calls of the operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xql_ffi import _native_text
from xql_ffi._dialects import statements
from xql_ffi._dialects.host import Host
from xql_ffi._dialects.hosts import host_of
from xql_ffi._dialects.statements import Known
from xql_ffi._dialects.tables import answer, known


def expand(sql: str, tables: Any, dialect: str, rules: Sequence[Any]) -> str:
    """The statements of a text without calls."""
    host = host_of(dialect)
    return _asked(tables, host, lambda found: statements.expand(sql, host, found, rules))


def differentiate(expression: str, wrt: str, table: str, tables: Any, dialect: str, rules: Sequence[Any]) -> str:
    """The derivative of an expression by a column of a table."""
    host = host_of(dialect)
    return _asked(tables, host, lambda found: statements.differentiate(expression, wrt, table, host, found, rules))


def _asked(tables: Any, host: Host, make: Callable[[Known], str]) -> str:
    """What is made of tables, of which it is learnt what functions of the session give."""
    found = known(tables, host)
    while True:
        try:
            return make(found)
        except _native_text.UnknownFunctionError as unknown:
            answer(found.catalog, tables, host, unknown)
