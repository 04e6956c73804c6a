"""The native library that this process works with.

The one that comes with this package is for DataFusion 55. That for DataFusion 54 is a part of the engine, and is taken
wherever both are installed, also if the engine is switched off.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import datafusion

from xql_ffi import _plugin

ENGINE = "xql_ffi_engine"


def _of_engine() -> Any:
    """Returns the library that the engine has, if it is for the ``datafusion`` of this process and of this release."""
    if importlib.util.find_spec(ENGINE) is None:
        return None
    from xql_ffi_engine import loader

    path = loader.shared_object()
    if path is None:
        return None
    found = _plugin.ffi.dlopen(path)
    # Engines of before had none of it.
    release = getattr(found, "xql_ffi_release", None)
    fits = release is not None and _plugin.ffi.string(release()) == _plugin.ffi.string(_plugin.lib.xql_ffi_release())
    return found if fits and _major(found) == datafusion.__version__.partition(".")[0] else None


def _major(library: Any) -> str:
    return str(library.xql_ffi_datafusion_version())


ffi = _plugin.ffi
_engine = _of_engine()
is_of_engine = _engine is not None
lib = _engine or _plugin.lib
