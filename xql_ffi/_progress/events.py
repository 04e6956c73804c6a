"""A step of what runs, and what of it is shown in a line."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

SHOWN_COLUMNS = 8
SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Step:
    """A step of a recursive query or of prepared statements, or a call of an objective.

    Attributes:
        query: the name of the query, ``fit`` in ``WITH RECURSIVE fit AS ...``. An objective is called ``objective``,
            the next one in the same block ``objective 2``, and so on. So is a prepared step: ``prepared``.
        number: 0 for the rows before ``UNION ALL``, then 1, 2 and so on. The first call of an objective is 1.
        rows: the rows that the step computed. Those of a call are one with the columns ``value`` and ``gradient_norm``,
            as the calls have last given them, and NULL where none has.
            Those of a prepared step are one with its values.
        seconds: since the ``with`` block began.
        unit: ``step``, or ``call`` where it is one of an objective.
    """

    query: str
    number: int
    rows: pa.Table
    seconds: float
    unit: Literal["step", "call"] = "step"

    def __str__(self) -> str:
        """Returns the step in a line: the columns that have one value in all rows, as a loss has."""
        return line(self)


def line(step: Step, watch: Sequence[str] | None = None) -> str:
    """Returns a step in a line, with the values of these columns, or of all that have one value in all rows."""
    shown = ", ".join([*values(step, watch), f"{step.seconds:.1f} s"])
    return f"{step.query} {step.unit} {step.number}: {shown}"


def values(step: Step, watch: Sequence[str] | None = None) -> list[str]:
    """Returns the values of a step, each with the name of its column.

    Args:
        step: the step.
        watch: the columns. One that has several values gives the least and the largest. Without it, these are the
            columns that have one value in all rows.
    """
    found: list[tuple[str, str]] = []
    if not step.rows.num_rows:
        return []
    columns = list(zip(step.rows.column_names, step.rows.columns, strict=True))
    if watch is not None:
        columns = [(name, column) for wanted in watch for name, column in columns if name == wanted]
    for name, column in columns:
        # A column of a type that pyarrow cannot show is none to end a query for.
        with contextlib.suppress(Exception):
            if (text := _text(column, is_watched=watch is not None)) is not None:
                found.append((name, text))
    if watch is None:
        found = [(name, text) for name, text in found[:SHOWN_COLUMNS] if name != "step"]
    return [f"{name}={text}" for name, text in found]


def _text(column: pa.ChunkedArray, *, is_watched: bool) -> str | None:
    if _has_one_value(column):
        return _shown(column)
    return _range(column) if is_watched else None


def _has_one_value(column: pa.ChunkedArray) -> bool:
    """Returns whether all rows of a column have the same, where NaN is the same as NaN."""
    if pa.types.is_dictionary(column.type):
        # Two dictionaries may have one value at different places, and one may have it twice. Not all can be decoded.
        with contextlib.suppress(pa.ArrowNotImplementedError):
            column = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks])
    try:
        return int(pc.count_distinct(column, mode="all").as_py()) == 1
    except pa.ArrowNotImplementedError:
        # Every type can be compared: here each row with the next one.
        return bool(column.slice(1).equals(column.slice(0, len(column) - 1)))


def _range(column: pa.ChunkedArray) -> str | None:
    """Returns the least and the largest value of a column, in a line."""
    ends = (pa.chunked_array([pa.array([end])]) for end in pc.min_max(column).values())
    shown = [_shown(end) for end in ends]
    return None if None in shown else "..".join(map(str, shown))


def _shown(column: pa.ChunkedArray) -> str | None:
    """Returns the first value of a column, in a line."""
    try:
        value = column[0].as_py()
    except Exception:
        # Python has no such value, as it has no nanoseconds. Arrow writes a column of one row with brackets around it.
        text = " ".join(str(column.slice(0, 1)).split()).removeprefix("[ [ ").removesuffix(" ] ]")
    else:
        if value is None:
            return None
        text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."
