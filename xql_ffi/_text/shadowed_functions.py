"""Functions of a session with names of DataFusion's own functions. The native library would confuse them."""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from typing import Any

from datafusion import SessionConfig, SessionContext

from xql_ffi._calls import OPERATORS
from xql_ffi._errors import DifferentiationError

_CALL = re.compile(r'(\w+)"?\s*\(')
# What the methods of a session for a kind of functions are called by, and the kind in the information schema.
_KINDS = {"udf": "SCALAR", "udaf": "AGGREGATE", "udwf": "WINDOW"}
# A function by its kind in the information schema and its name, with what its overloads give and how it is described.
_Described = dict[tuple[str, str], set[tuple[str | None, str | None]]]


def called(*texts: str) -> frozenset[str]:
    """Returns the names before parentheses; those of called functions are among them."""
    return frozenset(name.lower() for text in texts for name in _CALL.findall(text))


def check_own_functions(session: Any, *texts: str) -> None:
    """Refuses texts that call a function of the session that has the name of one of DataFusion, or of an operator.

    Raises:
        DifferentiationError: there is such a call.
    """
    names = called(*texts)
    found = {kind: sorted(names & frozenset(getattr(session, f"{kind}s")())) for kind in _KINDS if _has(session, kind)}
    for (kind, name), overloads in _CATALOG.describes(session, found).items():
        # An operator takes any types, and the information schema does not know what it gives.
        if name in OPERATORS and any(gives is not None for gives, _ in overloads):
            msg = (
                f"the session has a function {name} of its own, and {name}(...) is a derivative here: register the "
                "function under another name"
            )
            raise DifferentiationError(msg)
        if name in _names() and _descriptions(overloads) != _descriptions(_datafusion().get((kind, name), set())):
            msg = (
                f"the session has a function {name} of its own in the place of DataFusion's, and the derivative would "
                "be that of DataFusion's: register the function under another name"
            )
            raise DifferentiationError(msg)


def _has(session: Any, kind: str) -> bool:
    """Returns whether a session tells of its functions of a kind. What wraps a session may not."""
    return hasattr(session, f"{kind}s") and hasattr(session, kind)


class _Catalog:
    """A session without functions, which says of each that it is given what the information schema has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: SessionContext | None = None

    def describes(self, session: Any, names: dict[str, list[str]]) -> _Described:
        """Returns what is known of functions of a session, by their names for each kind."""
        if not any(names.values()):
            return {}
        with self._lock:
            catalog = self._session = self._session or _without_functions()
            given = [(kind, getattr(session, kind)(name)) for kind, listed in names.items() for name in listed]
            for kind, function in given:
                getattr(catalog, f"register_{kind}")(function)
            described = _described(catalog)
            for kind, function in given:
                getattr(catalog, f"deregister_{kind}")(function.name)
        # A function is described under its other names as well, which the session may have given to others.
        return {(of, name): described[of, name] for of, name in described if name in names[_METHODS[of]]}


_CATALOG = _Catalog()
_METHODS = {kind: method for method, kind in _KINDS.items()}


def _without_functions() -> SessionContext:
    session = SessionContext(SessionConfig().with_information_schema())
    for kind in _KINDS:
        for name in getattr(session, f"{kind}s")():
            getattr(session, f"deregister_{kind}")(name)
    return session


def _described(session: SessionContext) -> _Described:
    columns = session.sql(
        "SELECT function_type, routine_name, data_type, description FROM information_schema.routines"
    ).to_pydict()
    described: _Described = {}
    for kind, name, gives, description in zip(*columns.values(), strict=True):
        if kind in _METHODS:  # others are functions that give a table
            described.setdefault((kind, name), set()).add((gives, description))
    return described


@lru_cache(maxsize=1)
def _datafusion() -> _Described:
    """DataFusion's own functions."""
    return _described(SessionContext(SessionConfig().with_information_schema()))


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(name for _, name in _datafusion())


def _descriptions(overloads: set[tuple[str | None, str | None]]) -> set[str | None]:
    return {description for _, description in overloads}
