"""The results of statements as the rows of tables and as values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def check_fits(name: str, given: pa.Schema, table: pa.Schema) -> None:
    """Checks that a table can have the columns that a statement gives.

    Raises:
        ValueError: it has other columns, or a column is of a type that the table has no place for.
    """
    for column in given.names:
        if column not in table.names:
            msg = f"the statement of {name} gives a column {column!r}, which the table has not: it has {_listed(table)}"
            raise ValueError(msg)
        if given.names.count(column) > 1:
            msg = f"the statement of {name} gives two columns called {column!r}"
            raise ValueError(msg)
    for field in table:
        if field.name not in given.names:
            gives = _listed(given)
            msg = f"the statement of {name} gives no column {field.name!r}, which the table has: it gives {gives}"
            raise ValueError(msg)
        of = given.field(field.name).type
        if not _is_kept(of, field.type):
            msg = (
                f"the statement of {name} gives the column {field.name!r} as {of}, and the table has it as "
                f"{field.type}: write CAST(... AS ...)"
            )
            raise ValueError(msg)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(map(repr, schema.names))


def _is_kept(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the values of a type have a place in another one: numbers of the same kind, integers as floats, texts."""
    if given == wanted or pa.types.is_null(given):
        return True
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_floating(given) or pa.types.is_integer(given))
    return bool((pa.types.is_integer(given) and pa.types.is_integer(wanted)) or (_is_text(given) and _is_text(wanted)))


def _is_text(of: pa.DataType) -> bool:
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of))


def fitted(name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows that a statement gives, as rows of its table.

    Raises:
        ValueError: a value has no place in the table.
    """
    columns = []
    for field in schema:
        column = rows.column(field.name)
        try:
            column = column.cast(field.type)
        except pa.ArrowInvalid as error:
            msg = f"the column {field.name!r} of {name} has a value that is no {field.type}: {error}"
            raise ValueError(msg) from None
        if not field.nullable and column.null_count:
            msg = f"the column {field.name!r} of {name} is NOT NULL, and the statement gives NULL"
            raise ValueError(msg)
        columns.append(column)
    return pa.table(columns, schema=schema)


def appended(before: pa.Table, rows: pa.Table) -> pa.Table:
    """Returns the rows of a table with more after them.

    A step that adds a row each time would make as many chunks, and each step goes through all of them. So a chunk is
    copied together with those behind it that have at least half as many rows, which leaves a logarithm of their number.
    """
    chunks = [*before.to_batches(), *rows.combine_chunks().to_batches()]
    while len(chunks) > 1 and chunks[-2].num_rows <= 2 * chunks[-1].num_rows:
        together = pa.Table.from_batches(chunks[-2:], before.schema).combine_chunks()
        chunks[-2:] = together.to_batches()
    return pa.Table.from_batches(chunks, before.schema)


def value_of(name: str, rows: pa.Table) -> Any:
    """Returns the value that a query of one row gives, None of a query of none.

    Raises:
        ValueError: it gives several rows.
    """
    if rows.num_rows > 1:
        msg = f"{name} must be one value; its query gives {rows.num_rows} rows: aggregate them"
        raise ValueError(msg)
    return rows.column(0)[0].as_py() if rows.num_rows else None
