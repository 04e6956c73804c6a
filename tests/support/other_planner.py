"""A query planner of another library, which `dev.py build` leaves in the environment of DataFusion 55."""

from __future__ import annotations

import ctypes
import itertools
import sys
from pathlib import Path
from typing import Any

LIBRARY = Path(sys.prefix) / "other_planner.so"
NAME = b"datafusion_query_planner"
_PARTS = (b"datafusion_logical_extension_codec", b"datafusion_physical_extension_codec", NAME)

_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

_NUMBERS = itertools.count(1)


def _loaded() -> Any:
    library = ctypes.CDLL(str(LIBRARY))
    library.other_planner_new.restype = ctypes.c_void_p
    library.other_planner_new.argtypes = [ctypes.c_size_t, ctypes.c_uint8, *[ctypes.c_void_p] * 3]
    library.other_planner_free.argtypes = [ctypes.c_void_p]
    library.other_planner_note.restype = ctypes.c_void_p
    library.other_planner_note.argtypes = [ctypes.c_size_t]
    library.other_planner_note_free.argtypes = [ctypes.c_void_p]
    library.other_planners_alive.restype = ctypes.c_size_t
    return library


_lib: Any = _loaded() if LIBRARY.exists() else None


def alive() -> int:
    """How many planners of the library are not freed yet."""
    return int(_lib.other_planners_alive())


class Other:
    """An extension with a planner, and an object to be installed as one. It notes the plans that it is given.

    Args:
        way: what it does with a plan. It ``delegates``, in the thread in which it is called or ``elsewhere``, or it
            ``plans`` itself, or ``mixes`` nodes of its own with those of the session, or ``refuses``.
        fallback: the planner that it delegates to if it is no extension, which is told.
    """

    def __init__(self, way: str = "delegates", fallback: Any = None) -> None:
        self.way = way
        self.number = next(_NUMBERS)
        self.fallback = fallback
        self._made: list[int] = []

    def __datafusion_session_planner__(self, ctx: Any, fallback: Any) -> Any:
        return self._capsule(ctx.ctx, fallback)

    def __datafusion_query_planner__(self, session: Any) -> Any:
        return self._capsule(session, self.fallback)

    def _capsule(self, session: Any, fallback: Any) -> Any:
        given = (
            session.__datafusion_logical_extension_codec__(),
            session.__datafusion_physical_extension_codec__(),
            fallback,
        )
        parts = [_python.PyCapsule_GetPointer(part, name) for part, name in zip(given, _PARTS, strict=True)]
        made = _lib.other_planner_new(self.number, ord(self.way[0]), *parts)
        assert made
        # Capsules point to it.
        self._made.append(made)
        return _python.PyCapsule_New(made, NAME, None)

    def __del__(self) -> None:
        for made in self._made:
            _lib.other_planner_free(made)

    def notes(self) -> list[str]:
        """The logical plans that it has been given since, and what it has made of each."""
        found = []
        while note := _lib.other_planner_note(self.number):
            found.append(ctypes.string_at(note).decode())
            _lib.other_planner_note_free(note)
        return found
