"""What recursive queries compute, shown while they run."""

from __future__ import annotations

import atexit
import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from xql_ffi import _observer
from xql_ffi._engine import is_active, is_engine, way_out
from xql_ffi._errors import MissingEngineError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

SHOWN_COLUMNS = 8
SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Step:
    """A step of a recursive query.

    Attributes:
        query: the name of the query, ``fit`` in ``WITH RECURSIVE fit AS ...``.
        number: 0 for the rows before ``UNION ALL``, then 1, 2 and so on.
        rows: the rows that the step computed.
        seconds: since the ``with`` block began.
    """

    query: str
    number: int
    rows: pa.Table
    seconds: float

    def __str__(self) -> str:
        """The step in a line: the columns that have one value in all rows, as a loss has."""
        shown = [f"{name}={value}" for name, value in self._values() if name != "step"]
        return f"{self.query} step {self.number}: {', '.join([*shown, f'{self.seconds:.1f} s'])}"

    def _values(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        if not self.rows.num_rows:
            return found
        for name, column in zip(self.rows.column_names, self.rows.columns, strict=True):
            # A column of a type that pyarrow cannot show is none to end a query for.
            with contextlib.suppress(Exception):
                if _has_one_value(column) and (text := _shown(column)) is not None:
                    found.append((name, text))
        return found[:SHOWN_COLUMNS]


def _has_one_value(column: pa.ChunkedArray) -> bool:
    """Whether all rows of a column have the same, where NaN is the same as NaN."""
    if pa.types.is_dictionary(column.type):
        # Two dictionaries may have one value at different places, and one may have it twice. Not all can be decoded.
        with contextlib.suppress(pa.ArrowNotImplementedError):
            column = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks])
    try:
        return int(pc.count_distinct(column, mode="all").as_py()) == 1
    except pa.ArrowNotImplementedError:
        # Every type can be compared: here each row with the next one.
        return bool(column.slice(1).equals(column.slice(0, len(column) - 1)))


def _shown(column: pa.ChunkedArray) -> str | None:
    """The first value of a column, in a line."""
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


@functools.cache
def _stop_with_python() -> None:
    """Has the engine call nobody once Python ends: a thread of a query that came back to it would end the process."""
    from xql_ffi_engine import _engine

    atexit.register(_engine.stop_observing)


class progress:  # noqa: N801, it is called like a function
    """Shows the steps of recursive queries that are executed in a ``with`` block, such as those of a training loop.

    >>> from datafusion import SessionContext
    >>> from xql_ffi import register
    >>> ctx = register(SessionContext())
    >>> losses = []
    >>> with progress(lambda step: losses.append(step.rows["x"][0].as_py())):
    ...     frame = ctx.sql('''
    ...         WITH RECURSIVE halves AS (
    ...             SELECT 1.0 AS x UNION ALL SELECT x / 2 FROM halves WHERE x > 0.2)
    ...         SELECT MIN(x) AS least FROM halves''').to_pydict()
    >>> losses
    [1.0, 0.5, 0.25, 0.125]

    An exception of the callback ends the query and leaves the block. On DataFusion 55 the block watches the sessions
    that are registered: the others tell nothing.

    Args:
        callback: a function that is called with each `Step`, in a thread of DataFusion. Without one, `progress` writes
            the first step, the last one and some between to ``sys.stderr``; what cannot be written ends no query.
        every: the seconds between two lines on ``sys.stderr``.

    Raises:
        MissingEngineError: the ``datafusion`` of this process does not differentiate, and so tells no steps.
    """

    _active: list[progress] = []  # noqa: RUF012, all objects share it
    _lock = threading.Lock()

    def __init__(self, callback: Callable[[Step], object] | None = None, *, every: float = 1.0) -> None:
        if callback is not None and not callable(callback):
            msg = f"progress takes a function of one argument, a Step; {callback!r} cannot be called"
            raise TypeError(msg)
        self._callback = callback or self._print
        self._every = every
        self._error: BaseException | None = None
        self._started = self._printed = 0.0
        self._waiting: Step | None = None

    def __enter__(self) -> Self:
        """Begins to watch."""
        if not is_active():
            msg = (
                "the datafusion of this process tells no steps of recursive queries. Read the rows as they come, "
                f"for batch in frame.execute_stream(), or {way_out()}"
            )
            raise MissingEngineError(msg)
        self._started, self._printed, self._error = time.monotonic(), -self._every, None
        with self._lock:
            self._active.append(self)
            self._watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends to watch."""
        with self._lock:
            self._active.remove(self)
            self._watch()
        if self._waiting is not None:
            _write(self._waiting)
            self._waiting = None
        if error is not None and self._error is not None:
            raise self._error from None

    @classmethod
    def _watch(cls) -> None:
        """Has the innermost block told, by the library that plans the queries of this process."""
        innermost = cls._active[-1] if cls._active else None
        if is_engine():
            from xql_ffi_engine import _engine

            _stop_with_python()
            _engine.observe(None if innermost is None else innermost._observe)
        else:
            _observer.observe(innermost)

    def _observe(self, query: str, number: int, batches: list[pa.RecordBatch]) -> None:
        if self not in self._active or not batches:
            return
        try:
            step = Step(query, number, pa.Table.from_batches(batches), time.monotonic() - self._started)
            self._callback(step)
        except BaseException as error:
            self._error = error
            raise

    def _print(self, step: Step) -> None:
        if step.seconds - self._printed < self._every:
            self._waiting = step
            return
        self._printed, self._waiting = step.seconds, None
        _write(step)


def _write(step: Step) -> None:
    """Writes a step to ``sys.stderr``, which may be closed, or take no such characters."""
    with contextlib.suppress(OSError, ValueError):
        print(step, file=sys.stderr, flush=True)
