"""Detects whether this process' ``datafusion`` can differentiate."""

import warnings
from pathlib import Path

import datafusion

from xql_ffi import _library, _session
from xql_ffi._errors import MissingEngineError

INSTALL = 'pip install "xql-ffi[engine]"'
# The version whose sessions need no engine.
STOCK = 55


def engine_status() -> str:
    """Says in a sentence whether queries of this process are differentiated, and if not, what to do."""
    if _session.is_supported():
        return f"active: sessions of datafusion {datafusion.__version__} differentiate by its own extension points"
    if datafusion.__version__.startswith(f"{STOCK}."):
        return (
            f"inactive: the library in {Path(_library.__file__).parent} is not for datafusion {STOCK}, as that of a "
            "checkout is not; run `pip install xql-ffi` and start Python in another folder"
        )
    if not _is_for_engine():
        return (
            f"inactive: this xql-ffi is for sessions of datafusion {STOCK}, and datafusion {datafusion.__version__} is "
            f'installed; run `pip install "datafusion=={STOCK}.*"`'
        )
    try:
        import xql_ffi_engine
    except ImportError:
        return (
            f"inactive: it is not installed; run `{INSTALL}` and start Python again. The wheel of datafusion 54 alone "
            f"does not let a function of another library simplify its calls; that of {STOCK} needs no engine"
        )
    status: str = xql_ffi_engine.status()
    if not _library.is_of_engine and not status.startswith("inactive"):
        return f"inactive: it is of another release than xql-ffi; run `{INSTALL}` and start Python again"
    return status


def _is_for_engine() -> bool:
    """Returns whether this is the major version of ``datafusion`` that there is an engine for."""
    return datafusion.__version__.startswith("54.")


def is_active() -> bool:
    """Returns whether sessions of this process' ``datafusion`` differentiate."""
    return _session.is_supported() or is_engine()


def is_engine() -> bool:
    """Returns whether ``datafusion`` runs on the engine in this process."""
    try:
        import xql_ffi_engine
    except ImportError:
        return False
    active: bool = xql_ffi_engine.is_active()
    return active and _library.is_of_engine


def way_out() -> str:
    """Returns advice on how to make the sessions of this process differentiate."""
    status = engine_status()
    if not _is_for_engine():
        return status.rpartition("; ")[2]
    return (
        f"install the engine (`{INSTALL}`), leave XQL_FFI_ENGINE unset and start Python again. The engine is {status}"
    )


def check_engine(operator: str) -> None:
    """Raises a `MissingEngineError` if calls of an operator would not be differentiated."""
    if not is_active():
        msg = (
            f"the datafusion of this process does not differentiate {operator}. Run the statement as plain SQL, "
            f"xql_ffi.sql(ctx, statement), or {way_out()}"
        )
        raise MissingEngineError(msg)


def warn_without_engine(registered: str) -> None:
    """Warns if calls of what has just been registered will not be differentiated."""
    if not is_active():
        msg = (
            f"{registered} are registered, but the datafusion of this process does not differentiate them. Run "
            "statements by xql_ffi.sql(ctx, statement), or activate the engine. "
            f"The engine is {engine_status()}"
        )
        warnings.warn(msg, stacklevel=3)
