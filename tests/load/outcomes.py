"""Runs files of sqllogictest, and prints all outcomes of a file as a line of JSON: ``outcomes.py FOLDER FILE ...``."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from datafusion import SessionConfig, SessionContext

from support.every_session import register_every_session
from support.sqllogictest import Record, records

# What a text says that is another in each process.
_VARIES = re.compile(r"\nDid you mean '.*?'\?|0x[0-9a-f]{6,}|backtrace:.*", re.IGNORECASE | re.DOTALL)
_ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)
# Lists whose elements are in any order.
_COLLECTED = re.compile(r"(?!\s*explain\b).*\barray_agg\((?![^()]*\border\s+by\b)", re.IGNORECASE | re.DOTALL)
_ELEMENT = re.compile(r"[^\s,\[\]]+")
_INSIDE = re.compile(r"\([^()]*\)")


def outcome(ctx: SessionContext, record: Record) -> str:
    """The columns and rows, or the error. Rows of a statement that orders none are sorted, and so are elements."""
    try:
        batches = ctx.sql(record.sql).collect()
        schema = [f"{field.name}: {field.type}" for field in batches[0].schema] if batches else []
        rows = [row for batch in batches for row in _rows(batch)]
        if _COLLECTED.match(record.sql):
            rows = [", ".join(sorted(_ELEMENT.findall(row))) for row in rows]
    except Exception as error:
        rows, schema = [], [f"{type(error).__name__}: {error}"]
    found = "\n".join([*schema, *(rows if _is_ordered(record.sql) else sorted(rows))])
    return _VARIES.sub("", found).replace(str(Path.cwd()).strip("/"), "")


def _is_ordered(sql: str) -> bool:
    """Whether a statement orders its rows, and not only those of a window or of a subquery."""
    while (outside := _INSIDE.sub("", sql)) != sql:
        sql = outside
    return bool(_ORDERED.search(sql))


def _rows(batch: pa.RecordBatch) -> Iterator[str]:
    """The rows as texts, of Arrow, which has one for values that Python has not."""
    columns = [_values(column) for column in batch.columns]
    for number in range(batch.num_rows):
        yield ", ".join(column[number] for column in columns)


def _values(column: pa.Array) -> list[str]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type) or pa.types.is_large_string(column.type):
        return [str(value) for value in column.to_pylist()]
    return [column.slice(i, 1).to_string(container_window=1000)[1:-1].strip() for i in range(len(column))]


def main() -> None:
    register_every_session()
    os.chdir(sys.argv[1])
    for name in sys.argv[2:]:
        # As the runner of DataFusion makes them.
        ctx = SessionContext(SessionConfig().with_target_partitions(4))
        found = [[record.place, record.sql, outcome(ctx, record)] for record in records(Path(name))]
        print(json.dumps([name, found]), flush=True)


if __name__ == "__main__":
    main()
