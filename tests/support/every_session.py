"""Registers every session that a process makes, where sessions of DataFusion's own wheel differentiate.

The engine for DataFusion 54 is in every session anyway, unless XQL_FFI_ENGINE says otherwise, which counts here too. As
a plugin of pytest, ``-p support.every_session``, it does so for the tests of other projects.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

from datafusion import SessionContext

_within = threading.local()


def register_every_session() -> None:
    """Has sessions registered that are made from now on."""
    from support.stock import ON_STOCK

    if not ON_STOCK or os.environ.get("XQL_FFI_ENGINE") == "0":
        return
    import xql_ffi

    stock = SessionContext.__init__

    @functools.wraps(stock)
    def initialized(self: SessionContext, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        # Registering makes sessions of its own.
        if not getattr(_within, "registering", False):
            _within.registering = True
            try:
                xql_ffi.register(self)
            finally:
                _within.registering = False

    SessionContext.__init__ = initialized  # type: ignore[method-assign]


def pytest_configure() -> None:
    """Begins before any test is imported."""
    register_every_session()
