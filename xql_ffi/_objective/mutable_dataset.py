"""A table whose rows are those of the moment at which a plan runs, and a plan that runs again and again.

DataFusion asks a data set for its rows when the plan is executed. A node of a plan may keep what it has computed, as a
hash join keeps a side of it: a plan that is executed again gives the rows of the first time. What runs a part of a plan
afresh, with everything in it reset, is a recursive query. So the statement is the recursive term of an endless one,
each iteration of which is a turn: it runs when its rows are asked for, and reads the tables as they are then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset


class MutableDataset(dataset.InMemoryDataset):  # type: ignore[misc]
    """A data set of one batch, in the place of which another may be put at any time."""

    def __init__(self, rows: pa.Table) -> None:
        super().__init__(rows)
        self.put(rows)

    def put(self, rows: pa.Table) -> None:
        """Lets what runs from now on read these rows."""
        batches = rows.combine_chunks().to_batches()
        self._batch = batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)

    def rows(self) -> pa.Table:
        """Returns the rows of this moment."""
        return pa.Table.from_batches([self._batch])

    def scanner(self, columns: Sequence[str] | None = None, **_: Any) -> Any:
        """Returns an object that shows DataFusion the columns of a scan."""
        return _Scanner(self._batch if columns is None else self._batch.select(columns))

    def get_fragments(self, *_: Any, **__: Any) -> Iterator[Any]:
        """One part, which looks for its rows when it is read."""
        return iter([_Fragment(self)])

    def read(self, columns: Sequence[str] | None, condition: pc.Expression | None) -> pa.RecordBatch:
        """Returns the rows of this moment for which a condition holds."""
        batch = self._batch
        if condition is not None:
            if isinstance(condition, pa.Scalar):  # DataFusion hands over TRUE as well
                condition = pc.scalar(bool(condition.as_py()))
            kept = _comparable(batch).filter(condition).column(_NUMBER)
            batch = batch.take(kept.combine_chunks())
        return batch if columns is None else batch.select(columns)


_NUMBER = "∂number"


def _comparable(batch: pa.RecordBatch) -> pa.Table:
    """The rows with their numbers, such that pyarrow compares them as DataFusion does: NaN is the largest number."""
    columns = [
        pc.if_else(pc.is_nan(column), pa.scalar(float("inf"), column.type), column)
        if pa.types.is_floating(column.type)
        else column
        for column in batch.columns
    ]
    numbers = pa.array(range(batch.num_rows), pa.int64())
    return pa.table([*columns, numbers], names=[*batch.schema.names, _NUMBER])


class _Fragment:
    """The part of a live table that DataFusion keeps in a plan."""

    def __init__(self, of: MutableDataset) -> None:
        self._of = of

    def scanner(self, schema: pa.Schema, columns: Sequence[str] | None = None, **asked: Any) -> _Scanner:
        """Returns the rows of this moment."""
        return _Scanner(self._of.read(columns, asked.get("filter")))


class _Scanner:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch, self.projected_schema = batch, batch.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return iter([self._batch])


class RecursiveStepper:
    """An endless recursive query, of which a turn is taken at a time."""

    def __init__(self, stream: Any, rows: int | str) -> None:
        """Begins a query.

        Args:
            stream: its rows, of which the first is that of the static term.
            rows: how many rows every turn has, or the column that says so in each row of a turn, of which there is one
                at least. No further row is asked for: that would begin the next turn.
        """
        self._stream, self._rows = iter(stream), rows
        self._taken(1)

    def turn(self) -> pa.Table:
        """Returns the rows of the next turn."""
        return self._taken(self._rows)

    def _taken(self, rows: int | str) -> pa.Table:
        batches: list[pa.RecordBatch] = []
        while isinstance(rows, str) or rows > 0:
            batches.append(next(self._stream).to_pyarrow())
            if isinstance(rows, str):
                rows = batches[-1].column(rows)[0].as_py() if batches[-1].num_rows else rows
            if not isinstance(rows, str):
                rows -= batches[-1].num_rows
        if rows < 0:
            msg = "the loss must be one value; the query has several rows: aggregate them"
            raise ValueError(msg)
        return pa.Table.from_batches(batches)
