"""The knowledge about a session that reading its statements needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from xql_ffi._errors import HostError
from xql_ffi._text.dialects.macros import Macro
from xql_ffi._text.dialects.source_fragments import SourceFragments
from xql_ffi._text.shadowed_functions import called


@dataclass(frozen=True)
class HostScope:
    """What is known of the tables that statements name: of a mapping less, so that it has fields that may be empty."""

    # The native library's catalog.
    catalog: Any
    # Names as the host has them, by how it compares them.
    names: Mapping[str, str]
    # Names of columns that are floats in every table.
    floats: Collection[str]
    # The words that expressions keep, those of views and then those of statements.
    words: SourceFragments
    # Functions of the database that have names of the host's own, and why no statement with derivatives may call them.
    own: Mapping[str, str] = field(default_factory=dict)
    # Names of tables, as the host compares them.
    tables: Collection[str] = ()
    # Databases whose tables may be named without a schema, as the host compares their names.
    databases: Collection[str] = ()
    # The table macros of the database.
    macros: Sequence[Macro] = ()
    # The queries of views, by their names as the host compares them.
    views: Mapping[str, str] = field(default_factory=dict)
    # Names of tables in full, as far as they are known.
    paths: Collection[tuple[str, ...]] = ()
    # What columns a file or a call of a table function in FROM has, where that can be asked.
    source: Callable[[str], pa.Schema] | None = None
    # The names and types of the columns of a query, where that can be asked.
    described: Callable[[str], list[tuple[str, str]]] | None = None

    def columns(self, query: str) -> list[str] | None:
        """Returns the names of the columns of a query in the host, where these can be asked."""
        found = self._asked(query)
        return None if found is None else [name for name, _ in found]

    def types(self, query: str) -> list[str] | None:
        """Returns the types of the columns of a query in the host, where these can be asked."""
        found = self._asked(query)
        return None if found is None else [kind for _, kind in found]

    def _asked(self, query: str) -> list[tuple[str, str]] | None:
        if self.described is None:
            return None
        try:
            return self.described(query)
        except Exception:  # the query may read a table that is yet to be made
            return None


def check_functions(own: Mapping[str, str], text: str) -> None:
    """Refuses a text that calls a function of the database that has the name of one of the host's.

    Raises:
        HostError: there is such a call.
    """
    for name in sorted(called(text).intersection(own)):
        msg = f"{own[name]}: give the function of the database another name"
        raise HostError(msg)
