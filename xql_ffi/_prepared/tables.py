"""The tables of a session that statements read, as they are now."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from xql_ffi._expressions import quoted
from xql_ffi._objective.mutable_dataset import MutableDataset
from xql_ffi._prepared.reading import names_in
from xql_ffi._session_proxy import undifferentiated
from xql_ffi._text.catalog import relations, table_names
from xql_ffi._text.views import named_in

# A table of files is read by the plan itself, however large it is. The plan shows which files these are.
_OF_FILES = re.compile(r"^\s*DataSourceExec: file_groups=", re.MULTILINE)


class Table:
    """A table of a session, as it was when it was last looked at."""

    def __init__(self, session: Any, name: str) -> None:
        """Looks at a table.

        Raises:
            ValueError: the session has no such table, or it is a view.
        """
        self._session, self._name = session, name
        frame = self._frame()
        if not frame.logical_plan().display().startswith("TableScan:"):
            msg = f"{name} is a view, which has no rows of its own: name the tables that it reads"
            raise ValueError(msg)
        self._files = self._files_of(frame)
        self.schema: pa.Schema = frame.schema()
        self._places: list[tuple[int, ...]] | None = None
        # The rows, of which a table of files has none here.
        self.rows = self.schema.empty_table()
        self.live: MutableDataset | None = None
        if not self._files:
            self._keep(_rows(frame))

    def check_in_memory(self) -> None:
        """Raises a `ValueError` if this is a table of files."""
        if self._files:
            msg = (
                f"{self._name} is a table of files, which a step does not write: make a table in memory of it, "
                f"CREATE TABLE ... AS SELECT * FROM {self._name}"
            )
            raise ValueError(msg)

    def is_current(self) -> bool:
        """Looks at the table again, and takes its rows.

        False if a plan is not for it any more: it has other columns or other files.
        """
        frame = self._frame()
        files = self._files and self._files_of(frame)
        if files != self._files or not frame.schema().equals(self.schema):
            return False
        if not files:
            self._keep(_rows(frame))
        return True

    def _frame(self) -> Any:
        try:
            return undifferentiated(self._session).table(quoted(self._name))
        except (KeyError, RuntimeError) as error:
            msg = f"the session has no table called {self._name!r}"
            raise ValueError(msg) from error

    def _files_of(self, frame: Any) -> str:
        shown = frame.execution_plan().display_indent()
        return shown if _OF_FILES.search(shown) else ""

    def _keep(self, rows: pa.Table) -> None:
        places = _places(rows)
        if self.live is None:
            self.live = MutableDataset(rows)
        elif places is None or places != self._places:
            self.live.put(rows)
        # As long as the rows are here, no others are in their place.
        self.rows, self._places = rows, places


def _rows(frame: Any) -> pa.Table:
    """Returns the rows of a table in their order, by its partitions."""
    batches = [batch for partition in frame.collect_partitioned() for batch in partition]
    # DataFusion 54 keeps rows that were inserted with the fields of the query that they are of, which may not be NULL.
    schema = frame.schema()
    return pa.Table.from_batches(
        [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches], schema
    )


def _places(rows: pa.Table) -> list[tuple[int, ...]] | None:
    """Where the numbers and texts of a table are in memory, where nothing changes them; None of what is nested."""
    places = []
    for column in rows.columns:
        if not (pa.types.is_primitive(column.type) or pa.types.is_string(column.type)):
            return None
        for chunk in column.chunks:
            places.append((len(chunk), chunk.offset, *(each.address if each else 0 for each in chunk.buffers())))
    return places


def words_of(session: Any, statements: Sequence[str]) -> frozenset[str]:
    """Returns all names in statements and in the views that these name, in lower case, and their other words."""
    queries = {path: body for path, body in relations(session) if isinstance(body, str)}
    views = named_in(" ".join(statements), queries)
    return frozenset[str]().union(*map(names_in, [*statements, *views.values()]))


def named_tables(session: Any, words: Collection[str]) -> list[str]:
    """The names among these words, in lower case, by which statements read tables of a session that are no views."""
    handle = undifferentiated(session)
    found = []
    for name in sorted({path[-1] for path in table_names(session) if path[-1].lower() in words}):
        try:
            plan = handle.table(quoted(name)).logical_plan()
        except (KeyError, RuntimeError):  # it is of another schema than that of the session
            continue
        if plan.display().startswith("TableScan:"):
            found.append(name)
    return found
