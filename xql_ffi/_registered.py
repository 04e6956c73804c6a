"""Sessions of the stock wheel as they are once registered: errors of this package, and the options ``xql.*``.

A registered session, its frames and their streams are objects of subclasses that are called as the classes of
``datafusion``.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from datafusion import DataFrame, RecordBatchStream, SessionContext
from datafusion.plan import LogicalPlan

from xql_ffi import _native
from xql_ffi._errors import translated

# Methods that plan or run something besides those whose names have no underscores.
_SPECIAL = {"__arrow_c_stream__", "__getitem__", "__iter__", "__next__", "__repr__", "_repr_html_"}
_OPTION = re.compile(r"\s*SET\s+xql\.(?P<key>\w+)\s*(?:=|TO)\s*'?(?P<value>\w+)'?\s*;?\s*", re.IGNORECASE)
# Statements whose names matter: those with derivatives, and views, of which others may be taken.
_TELLING = re.compile(r"grad|jvp|vjp|view", re.IGNORECASE)


def adopt(ctx: SessionContext) -> None:
    """Makes a session one whose errors are those of this package."""
    if not hasattr(type(ctx), "_xql_ffi_adopted"):
        ctx.__class__ = _subclass(type(ctx))


_SUBCLASSES: dict[type, type] = {}


def _subclass(cls: type) -> type:
    """The subclass of a class of ``datafusion``, or of a user's own class of sessions, which is made once."""
    if cls not in _SUBCLASSES:
        _SUBCLASSES[cls] = _made(cls)
    return _SUBCLASSES[cls]


def _made(cls: type) -> type:
    methods = {
        name: _method(stock)
        for name, stock in inspect.getmembers(cls, inspect.isfunction)
        if name in _SPECIAL or not name.startswith("_")
    }
    if "sql" in methods and issubclass(cls, SessionContext):
        methods["sql"] = _sql(methods["sql"])
    if issubclass(cls, DataFrame):
        methods["optimized_logical_plan"] = _method(_optimized_logical_plan)
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), {**methods, **named, "_xql_ffi_adopted": True})


def _method(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        exception = None
        try:
            made = stock(self, *args, **kwargs)
        except StopIteration:
            raise
        except Exception as error:
            query = kwargs.get("query", args[0] if args else None)
            exception = translated(str(error), query if isinstance(query, str) else None)
            if exception is None:
                raise
        # Here it has no other exception as its context.
        if exception is not None:
            raise exception
        if type(made) in (DataFrame, RecordBatchStream):
            made.__class__ = _subclass(type(made))
            # The codecs of a session work for as long as the session is there.
            made._xql_ffi_session = getattr(self, "_xql_ffi_session", self)
        return made

    return method


def _optimized_logical_plan(self: Any) -> LogicalPlan:
    """The plan that is executed, with the derivatives, as `DataFrame.optimized_logical_plan` gives it without any."""
    ctx = self._xql_ffi_session
    return LogicalPlan.from_bytes(ctx, _native.optimized(ctx.session_id(), self.logical_plan().to_bytes(ctx)))


def _sql(stock: Callable[..., Any]) -> Callable[..., Any]:
    """``SessionContext.sql`` that tells the planner what the plan will not say, and knows ``SET xql.*``."""

    @functools.wraps(stock)
    def method(self: SessionContext, query: str, *args: Any, **kwargs: Any) -> Any:
        if isinstance(query, str):
            if found := _OPTION.fullmatch(query):
                _native.set_option(self.session_id(), found["key"].lower(), found["value"].lower())
                return self.empty_table()
            if _TELLING.search(query) and "\0" not in query:
                _native.note_statement(self.session_id(), query)
        return stock(self, query, *args, **kwargs)

    return method
