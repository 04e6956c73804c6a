"""What a host is: an engine with tables, for which statements are expanded and which runs the texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from datafusion import SessionContext


class RefusedError(Exception):
    """`expand_sql` has refused a statement, for a reason that it names."""


class HostError(Exception):
    """The host has refused a text, or failed at it."""


@dataclass(frozen=True)
class Ran:
    """What a text gives: the columns as the host declares them, and the rows."""

    declared: pa.Schema
    table: pa.Table

    def schema(self) -> pa.Schema:
        """The columns that are declared, as a DataFrame of DataFusion has them."""
        return self.declared

    def to_arrow_table(self) -> pa.Table:
        """The rows, as a DataFrame of DataFusion gives them."""
        return self.table

    def collect(self) -> pa.Table:
        """The rows: the text has been run already."""
        return self.table


class Host(Protocol):
    """An engine."""

    # As the tests and the table of the docs call it.
    name: str
    dialect: str

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        """Begins anew, with these tables alone."""

    def expand(self, statement: str) -> str:
        """The text of a statement for this host. Raises RefusedError."""

    def run(self, text: str) -> Ran:
        """Runs one text. Raises HostError."""

    def close(self) -> None:
        """Ends what runs for it."""


def statement_on(host: Host, statement: str) -> Ran:
    """Expands a statement and runs its text."""
    return host.run(host.expand(statement))


def tables_of(register: Callable[[SessionContext], None]) -> dict[str, pa.Table]:
    """The tables that a function registers with a session."""
    ctx = SessionContext()
    register(ctx)
    schema = ctx.catalog().schema()
    return {name: ctx.table(name).to_arrow_table() for name in sorted(schema.names())}


def declared(schema: pa.Schema, types: Mapping[pa.DataType, str]) -> str:
    """The columns of a table as CREATE TABLE has them; what has no type here is text."""
    nullable = {True: "", False: " NOT NULL"}
    return ", ".join(f'"{f.name}" {types.get(f.type, "TEXT")}{nullable[f.nullable]}' for f in schema)
