"""Shows the steps of recursive queries and the values of objectives while they run."""

from __future__ import annotations

import atexit
import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from xql_ffi import _observer
from xql_ffi._engine import is_active, is_engine, way_out
from xql_ffi._errors import MissingEngineError
from xql_ffi._progress.events import Step
from xql_ffi._progress.log import Lines
from xql_ffi._progress.tqdm import Bars, tqdm_here

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self


@functools.cache
def _stop_with_python() -> None:
    """Has the engine call nobody once Python ends: a thread of a query that came back to it would end the process."""
    from xql_ffi_engine import _engine

    atexit.register(_engine.stop_observing)


class progress:  # noqa: N801, it is called like a function
    """Shows the steps of recursive queries and prepared statements and the calls of objectives in a ``with`` block.

    In a terminal they are bars of tqdm, one for each query and each objective, with the steps per second and the values
    of columns, and in a notebook the same as widgets, by ``tqdm.auto``. Without tqdm, which
    ``pip install "xql-ffi[progress]"`` installs, and where ``sys.stderr`` is a file, they are lines: the first step,
    the last one and some between. What cannot be shown or written ends no query.

    >>> from datafusion import SessionContext
    >>> from xql_ffi import register
    >>> ctx = register(SessionContext())
    >>> halves = '''
    ...     WITH RECURSIVE halves AS (
    ...         SELECT 1.0 AS x UNION ALL SELECT x / 2 FROM halves WHERE x > 0.2)
    ...     SELECT MIN(x) AS least FROM halves'''
    >>> with progress(watch="x", total=3):
    ...     frame = ctx.sql(halves).to_pydict()

    A function gets each `Step` instead:

    >>> losses = []
    >>> with progress(lambda step: losses.append(step.rows["x"][0].as_py())):
    ...     frame = ctx.sql(halves).to_pydict()
    >>> losses
    [1.0, 0.5, 0.25, 0.125]

    An exception of the function ends the query, or the call of the objective, and leaves the block. On DataFusion 55
    the block watches the sessions that are registered: the others tell nothing. Of blocks in one another the innermost
    is told.

    Args:
        callback: a function that is called with each `Step`: of a query in a thread of DataFusion, of an objective in
            the thread that calls it. Nothing is shown then.
        watch: the columns whose values are shown, one or several, such as ``"loss"``, or ``"value"`` of an objective.
            Of a column with several values in a step these are the least and the largest. Without it, the columns are
            shown that have one value in all rows of the step.
        total: the number of the last step, where it is known: bars are as long then, and say the time that is left.
        every: the seconds between two lines on ``sys.stderr``.

    Raises:
        TypeError: the callback cannot be called, or a column is not given by its name, or the total is not an integer.
        MissingEngineError: nothing can be shown, when the block begins: the ``datafusion`` of this process does not
            differentiate, and so tells no steps, and DuckDB, whose objectives would be shown, is not imported.
    """

    _active: list[progress] = []  # noqa: RUF012, all objects share it
    _pauses = 0
    _lock = threading.Lock()

    def __init__(
        self,
        callback: Callable[[Step], object] | None = None,
        *,
        watch: str | Sequence[str] | None = None,
        total: int | None = None,
        every: float = 1.0,
    ) -> None:
        if callback is not None and not callable(callback):
            msg = f"progress takes a function of one argument, a Step; {callback!r} cannot be called"
            raise TypeError(msg)
        names = [watch] if isinstance(watch, str) else watch
        if names is not None and not (isinstance(names, Sequence) and all(isinstance(name, str) for name in names)):
            msg = f"watch takes the name of a column, or several; {watch!r} is neither"
            raise TypeError(msg)
        if total is not None and not isinstance(total, int):
            msg = f"total takes the number of the last step; {total!r} is not an integer"
            raise TypeError(msg)
        self._callback, self._watched, self._total, self._every = callback, names, total, every
        self._error: BaseException | None = None
        self._started = 0.0
        self._shown: Bars | Lines | None = None
        self._objectives: dict[object, _Calls] = {}
        # By prepared steps how many there were before, and how often they have run.
        self._prepared: dict[object, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        """Begins to watch."""
        if not is_active() and "duckdb" not in sys.modules:
            msg = (
                "the datafusion of this process tells no steps of recursive queries. Read the rows as they come, "
                f"for batch in frame.execute_stream(), or {way_out()}"
            )
            raise MissingEngineError(msg)
        self._started, self._error, self._shown = time.monotonic(), None, None
        if self._callback is None:
            tqdm = tqdm_here()
            self._shown = Bars(tqdm, self._watched, self._total) if tqdm else Lines(self._watched, self._every)
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
        if self._shown is not None:
            self._shown.close()
        self._objectives.clear()
        self._prepared.clear()
        if error is not None and self._error is not None:
            raise self._error from None

    @classmethod
    def _watch(cls) -> None:
        """Sets the innermost block as the observer of the library that plans the queries of this process."""
        innermost = cls._active[-1] if cls._active else None
        if is_engine():
            from xql_ffi_engine import _engine

            _stop_with_python()
            _engine.observe(None if innermost is None or cls._pauses else innermost._observe)
        elif is_active():
            if innermost is not None and cls._pauses:
                _observer.pause()
            else:
                _observer.observe(innermost)

    @classmethod
    def _pause(cls, change: int) -> None:
        """Stops notifications for statements that are planned during a pause."""
        with cls._lock:
            cls._pauses += change
            if cls._active:
                cls._watch()

    def _observe(self, query: str, number: int, batches: list[pa.RecordBatch]) -> None:
        """Takes the rows of a step of a query."""
        if self not in self._active or not batches:
            return
        try:
            self._tell(Step(query, number, pa.Table.from_batches(batches), time.monotonic() - self._started))
        except BaseException as error:
            self._error = error
            raise

    def _called(self, objective: object, value: float | None, gradient: NDArray[np.float64] | None) -> None:
        """Takes what a call of an objective gave."""
        with self._lock:
            calls = self._objectives.setdefault(objective, _Calls(len(self._objectives)))
            calls.number += 1
            calls.value = calls.value if value is None else value
            calls.gradient_norm = calls.gradient_norm if gradient is None else _norm(gradient)
            step = calls.last(time.monotonic() - self._started)
        self._tell(step)

    def _stepped(self, prepared: object, values: Mapping[str, object]) -> None:
        """Takes what a prepared step gave."""
        with self._lock:
            place, number = self._prepared.get(prepared, (len(self._prepared), 0))
            self._prepared[prepared] = place, number + 1
        name = "prepared" if place == 0 else f"prepared {place + 1}"
        rows = pa.table({column: pa.array([value]) for column, value in values.items()})
        self._tell(Step(name, number + 1, rows, time.monotonic() - self._started))

    def _tell(self, step: Step) -> None:
        if self._callback is not None:
            self._callback(step)
        elif self._shown is not None:
            self._shown.show(step)


@dataclass
class _Calls:
    """The calls of an objective in a block."""

    # How many objectives were called before it.
    place: int
    number: int = 0
    value: float | None = None
    gradient_norm: float | None = None

    def last(self, seconds: float) -> Step:
        name = "objective" if self.place == 0 else f"objective {self.place + 1}"
        columns = {"value": self.value, "gradient_norm": self.gradient_norm}
        rows = pa.table({column: pa.array([number], pa.float64()) for column, number in columns.items()})
        return Step(name, self.number, rows, seconds, "call")


def _norm(gradient: NDArray[np.float64]) -> float:
    import numpy as np

    with np.errstate(all="ignore"):
        return float(np.linalg.norm(gradient))


def called(objective: object, value: float | None = None, gradient: NDArray[np.float64] | None = None) -> None:
    """Notifies the innermost block, if there is one, of a call of an objective and of its result."""
    with progress._lock:
        innermost = progress._active[-1] if progress._active else None
    if innermost is not None:
        innermost._called(objective, value, gradient)


def stepped(prepared: object, values: Mapping[str, object]) -> None:
    """Tells the innermost block, if there is one, that a prepared step has run, and of its values."""
    with progress._lock:
        innermost = progress._active[-1] if progress._active else None
    if innermost is not None:
        innermost._stepped(prepared, values)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Stops notifications for queries that are planned in the block, such as those by which objectives run."""
    progress._pause(+1)
    try:
        yield
    finally:
        progress._pause(-1)
