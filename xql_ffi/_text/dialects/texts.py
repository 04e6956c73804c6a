"""Statements and expressions of a host without calls of the operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from xql_ffi._errors import DifferentiationError, HostError
from xql_ffi._text import library
from xql_ffi._text.dialects import statements
from xql_ffi._text.dialects.host import Host
from xql_ffi._text.dialects.host_scope import HostScope
from xql_ffi._text.dialects.hosts import host_of
from xql_ffi._text.dialects.tables import answer, known


def expand(sql: str, tables: Any, dialect: str, rules: Sequence[Any]) -> str:
    """Returns the statements of a text without calls."""
    host = host_of(dialect)
    return _asked(tables, host, lambda found: statements.expand(sql, host, found, rules))


def differentiate(expression: str, wrt: str, table: str, tables: Any, dialect: str, rules: Sequence[Any]) -> str:
    """Returns the derivative of an expression by a column of a table."""
    host = host_of(dialect)
    return _asked(tables, host, lambda found: statements.differentiate(expression, wrt, table, host, found, rules))


def _asked(tables: Any, host: Host, make: Callable[[HostScope], str]) -> str:
    found = known(tables, host)
    try:
        return library.learning(lambda: make(found), lambda unknown: answer(found.catalog, tables, host, unknown))
    except DifferentiationError as error:
        if lacked := _LACKED.match(str(error)):
            msg = (
                f"{host.name} has no function for {lacked[1]}, which the derivative calls: hand over a rule without it"
            )
            raise HostError(msg) from error
        raise
    except ValueError as error:
        # Words of DataFusion's, which has read the statement.
        raise HostError(str(error)) from error


# A special function that the host does not have.
_LACKED = re.compile(r"the derivative calls (\w+), and nothing says")
