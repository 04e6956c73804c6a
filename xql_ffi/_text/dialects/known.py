"""What is known of a session when its statements are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from xql_ffi._text.dialects.words import Words


@dataclass(frozen=True)
class Known:
    """What is known of the tables that statements name."""

    # The native library's catalog.
    catalog: Any
    # Names as the host has them, by how it compares them.
    names: Mapping[str, str]
    # Names of columns that are floats in every table.
    floats: Collection[str]
    # The words that expressions keep, those of views and then those of statements.
    words: Words
    # Functions of the database that have names of the host's own, and why no statement with derivatives may call them.
    own: Mapping[str, str] = field(default_factory=dict)
    # Names of tables, as the host compares them.
    tables: Collection[str] = ()
    # What columns a file or a call of a table function in FROM has, where that can be asked.
    source: Callable[[str], pa.Schema] | None = None
    # The names and types of the columns of a query, where that can be asked.
    described: Callable[[str], list[tuple[str, str]]] | None = None
