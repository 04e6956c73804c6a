"""Runs work of the native library so that Ctrl-C can interrupt it.

Python answers signals in its main thread, between two of its instructions. A call of the native library is one of
them, be it ever so long. So another thread makes it, and the main thread waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from xql_ffi import _library

_ffi, _lib = _library.ffi, _library.lib

_Made = TypeVar("_Made")

# How long a signal may wait where it does not end the wait itself, in seconds.
_PATIENCE = 0.1


def interruptible(work: Callable[[], _Made]) -> _Made:
    """Returns the result of the work. Ctrl-C ends the work at its next step, and the wait for it at once."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    interruption = _ffi.gc(_lib.xql_ffi_interruption_new(), _lib.xql_ffi_interruption_free)
    made: list[_Made] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        _lib.xql_ffi_interruption_watch(interruption)
        try:
            made.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="xql-ffi-text", daemon=True).start()
    try:
        while not done.wait(_PATIENCE):
            pass
    except BaseException:
        _lib.xql_ffi_interruption_interrupt(interruption)
        raise
    if failed:
        raise failed[0]
    return made[0]
