"""The steps of recursive queries, on their way from the native library to Python."""

from __future__ import annotations

import atexit
import functools
import itertools
import traceback
from typing import Any, Protocol
from weakref import WeakValueDictionary

import pyarrow as pa

from xql_ffi import _library

_ffi, _lib = _library.ffi, _library.lib


class Observer(Protocol):
    """Receives the steps of queries."""

    def _observe(self, query: str, number: int, batches: list[pa.RecordBatch]) -> None:
        """Takes the rows of a step. An exception ends the query."""


# The library knows observers by numbers. A plan may keep a number for longer than the observer is there.
_observers: WeakValueDictionary[int, Observer] = WeakValueDictionary()
_numbers = itertools.count(1)
_NOBODY = 0
_is_observed = False


def observe(observer: Observer | None) -> None:
    """Notifies an observer of the steps of queries that registered sessions of DataFusion 55 plan from now on.

    Queries that are planned by then go on telling theirs, until there is nobody: None.
    """
    global _is_observed
    number = next(_numbers)
    if observer is not None:
        _observers[number] = observer
    _is_observed = observer is not None
    _lib.xql_ffi_observe(_ffi.NULL if observer is None else _callback(), number)


def pause() -> None:
    """Stops notifications for queries that are planned from now on. Earlier queries continue to notify."""
    global _is_observed
    _is_observed = False
    _lib.xql_ffi_observe(_callback(), _NOBODY)


def is_observed() -> bool:
    """Returns whether queries that are planned now are to tell their steps."""
    return _is_observed


@functools.lru_cache(maxsize=1)
def _callback() -> Any:
    """Returns the callback for the library. It lives as long as the process."""
    # Where Python ends, nobody wants to know, and a thread of a query that came back to it would end the process.
    atexit.register(_lib.xql_ffi_stop_observing)
    return _ffi.callback("void(uintptr_t, char *, uintptr_t, void *, char *, uintptr_t)", _tell)


def _tell(number: int, query: Any, step: int, rows: Any, error: Any, size: int) -> None:
    """Notifies an observer of a step.

    The rows are an ``ArrowArrayStream``, and ``size`` bytes of zeros wait for what an exception says.
    """
    try:
        if (observer := _observers.get(number)) is not None:
            batches = list(pa.RecordBatchReader._import_from_c(int(_ffi.cast("uintptr_t", rows))))
            observer._observe(_ffi.string(query).decode(), step, batches)
    except BaseException as exception:
        message = "".join(traceback.format_exception_only(exception)).strip().encode(errors="replace")[: size - 1]
        _ffi.memmove(error, message, len(message))
