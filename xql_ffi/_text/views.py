"""Which tables the views of a session of DataFusion read.

A view holds the table that had a name when the view was made. The text of its query has the name alone, which another
table may have had since, by ``CREATE OR REPLACE TABLE``. A session does not say which table a plan reads: files are
known by their paths, and tables in memory by where their rows are.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from xql_ffi._expressions import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

Path = tuple[str, str, str]


class Held(NamedTuple):
    """A table that a view reads."""

    schema: pa.Schema
    # What tells it from others. Nobody knows which table it is if this is empty.
    known_by: str
    # Whether it is the one that has its name now.
    is_named: bool


def named_in(text: str, queries: Mapping[Path, str]) -> dict[Path, str]:
    """Those of the views whose names are in a text, or in the queries of others that are."""
    found: dict[Path, str] = {}
    texts = [text]
    while texts:
        read = texts.pop()
        more = {path: query for path, query in queries.items() if path not in found and _has_name(read, path[-1])}
        found |= more
        texts += more.values()
    return found


def _has_name(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def held_tables(session: Any, queries: Mapping[Path, str]) -> dict[Path, dict[str, Held] | None]:
    """The tables that each view reads, by their names in SQL; none of a view that is not what its query gives now."""
    tables: dict[Path, dict[str, Held] | None] = {}
    below: dict[Path, list[Path]] = {}
    for path, query in queries.items():
        try:
            plan, tables[path] = _read_by(session, path, query)
            below[path] = [other for other in queries if other != path and _is_below(other, plan)]
        except Exception:  # a query that the session does not plan any more, or a session that shows no plans
            tables[path] = None
    # The text of a view reads the views below it as they are now.
    return {
        path: None if any(_differ(read, tables[other]) for other in below.get(path, ())) else read
        for path, read in tables.items()
    }


def _is_below(path: Path, plan: str) -> bool:
    return re.search(rf"SubqueryAlias: (?:.*\.)?{re.escape(path[-1])}$", plan, re.MULTILINE) is not None


def _differ(read: dict[str, Held] | None, below: dict[str, Held] | None) -> bool:
    if read is None or below is None:
        return True
    return any(read[name].known_by != below[name].known_by for name in read.keys() & below.keys())


# What a statement that makes a view has before the query.
MADE = re.compile(
    r'CREATE\s(?:\w+\s)*?VIEW\s+(?:IF NOT EXISTS\s+)?(?:"(?:[^"]|"")*"|[^\s"(])+\s*(\([^()]*\)\s*)?AS\s+', re.IGNORECASE
)
_SCAN = re.compile(r"^\s*TableScan: (.*)$", re.MULTILINE)
_IN_MEMORY = re.compile(r"DataSourceExec: partitions=\d+, partition_sizes=\[[\d, ]*\]\s*$")


def _read_by(session: Any, path: Path, query: str) -> tuple[str, dict[str, Held] | None]:
    """Returns the plan of a view, and the tables that it reads."""
    # Below are a projection and the name of the view.
    plan = session.sql(f"SELECT * FROM {_in_sql(path)}").logical_plan().inputs()[0].inputs()[0]
    made = MADE.match(query)
    if made and made[1]:
        # It gives the columns other names.
        plan = plan.inputs()[0]
    now = session.sql(query[made.end() :] if made else query)
    frame = session.create_dataframe_from_logical_plan(plan)
    shown = plan.display_indent()
    if plan != now.logical_plan() and frame.optimized_logical_plan() != now.optimized_logical_plan():
        return shown, None
    # A function of rows gives the same ones at any time.
    leaves = ((leaf.display(), leaf) for leaf in _leaves(plan))
    scans = {scan: leaf for scan, leaf in leaves if _SCAN.match(scan) and not scan.endswith("()")}
    read = {_name(leaf): _held(session, _name(leaf), leaf) for leaf in scans.values()}
    # Of those in subqueries a plan shows the names alone.
    for hidden in set(_SCAN.findall(shown)):
        if f"TableScan: {hidden}" not in scans and not hidden.endswith("()"):
            name = _in_sql(hidden.split("."))
            read[name] = Held(session.sql(f"SELECT * FROM {name}").schema(), "", is_named=False)
    return shown, read


def _in_sql(path: Iterable[str]) -> str:
    return ".".join(map(quoted, path))


def _leaves(plan: Any) -> Iterator[Any]:
    if not plan.inputs():
        yield plan
    for below in plan.inputs():
        yield from _leaves(below)


def _name(scan: Any) -> str:
    return _in_sql(part for part in scan.to_variant().fqn() if part is not None)


def _held(session: Any, name: str, scan: Any) -> Held:
    frame = session.create_dataframe_from_logical_plan(scan)
    found = _known_by(session, scan)
    now = session.sql(f"SELECT * FROM {name}").logical_plan()
    named = _known_by(session, next(_leaves(now)))
    if not found or not named:
        return Held(frame.schema(), "", is_named=False)
    return Held(frame.schema(), found, is_named=found == named)


def _known_by(session: Any, scan: Any) -> str:
    """Returns a key that identifies the table of a scan as long as it exists; nothing if there is none."""
    try:
        told = scan.to_bytes(session)
    except Exception:  # only tables of files can be written
        told = str(_places(session, scan) or "").encode()
    return hashlib.sha256(told).hexdigest() if told else ""


def _places(session: Any, scan: Any) -> list[tuple[int, ...]]:
    """Where the rows of a table in memory are; nowhere if it has none, or if they are computed."""
    frame = session.create_dataframe_from_logical_plan(scan)
    if not _IN_MEMORY.match(frame.execution_plan().display_indent()):
        return []
    # Rows that are copied are in another place each time. The first copy is held meanwhile.
    read = [frame.collect(), frame.collect()]
    first, second = (sorted(map(_place, batches)) for batches in read)
    return first if first == second and any(len(place) > 1 for place in first) else []


def _place(batch: pa.RecordBatch) -> tuple[int, ...]:
    """Returns the number of rows, and where the columns are."""
    buffers = [(column.offset, buffer) for column in batch.columns for buffer in column.buffers() if buffer]
    return (batch.num_rows, *(part for offset, buffer in buffers for part in (offset, buffer.address)))
