"""What recursive queries compute, shown while they run."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from xql_ffi._engine import engine_status, is_engine
from xql_ffi._errors import MissingEngineError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

SHOWN_COLUMNS = 8


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
        found = []
        for name, column in zip(self.rows.column_names, self.rows.columns, strict=True):
            if self.rows.num_rows > 1 and pc.count_distinct(column, mode="all").as_py() != 1:
                continue
            value = column[0].as_py() if self.rows.num_rows else None
            if value is not None:
                found.append((name, f"{value:.6g}" if isinstance(value, float) else str(value)))
        return found[:SHOWN_COLUMNS]


class progress:  # noqa: N801, it is called like a function
    """Shows the steps of recursive queries that are executed in a ``with`` block, such as those of a training loop.

    >>> from datafusion import SessionContext
    >>> ctx = SessionContext()
    >>> losses = []
    >>> with progress(lambda step: losses.append(step.rows["x"][0].as_py())):
    ...     frame = ctx.sql('''
    ...         WITH RECURSIVE halves AS (
    ...             SELECT 1.0 AS x UNION ALL SELECT x / 2 FROM halves WHERE x > 0.2)
    ...         SELECT MIN(x) AS least FROM halves''').to_pydict()
    >>> losses
    [1.0, 0.5, 0.25, 0.125]

    An exception of the callback ends the query and leaves the block.

    Args:
        callback: a function that is called with each `Step`, in a thread of DataFusion. Without one, `progress` writes
            the first step, the last one and some between to ``sys.stderr``.
        every: the seconds between two lines on ``sys.stderr``.

    Raises:
        MissingEngineError: this process has no engine.
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
        if not is_engine():
            msg = (
                "progress needs the engine. Without it, read the rows as they come: "
                f"for batch in frame.execute_stream(). The engine's status is {engine_status()}"
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
            print(self._waiting, file=sys.stderr, flush=True)
            self._waiting = None
        if error is not None and self._error is not None:
            raise self._error from None

    @classmethod
    def _watch(cls) -> None:
        """Has the innermost block told."""
        from xql_ffi_engine import _engine

        _engine.observe(cls._active[-1]._observe if cls._active else None)

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
        print(step, file=sys.stderr, flush=True)
