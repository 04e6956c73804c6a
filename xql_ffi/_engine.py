"""Whether this process' ``datafusion`` can differentiate."""

import warnings

import datafusion

from xql_ffi import _session
from xql_ffi._errors import MissingEngineError

INSTALL = 'pip install "xql-ffi[engine]"'


def engine_status() -> str:
    """Says in a sentence whether queries of this process are differentiated, and if not, what to do."""
    if _session.is_supported():
        return f"active: sessions of datafusion {datafusion.__version__} differentiate by its own extension points"
    try:
        import xql_ffi_engine
    except ImportError:
        return (
            f"inactive: it is not installed; run `{INSTALL}` and start Python again. The datafusion wheel alone "
            "does not let a function of another library simplify its calls"
        )
    status: str = xql_ffi_engine.status()
    return status


def is_active() -> bool:
    """Whether sessions of this process' ``datafusion`` differentiate."""
    return _session.is_supported() or is_engine()


def is_engine() -> bool:
    """Whether ``datafusion`` runs on the engine in this process."""
    try:
        import xql_ffi_engine
    except ImportError:
        return False
    active: bool = xql_ffi_engine.is_active()
    return active


def check_engine(operator: str) -> None:
    """Raises a `MissingEngineError` if calls of an operator would not be differentiated."""
    if not is_active():
        msg = (
            f"the datafusion of this process does not differentiate {operator}. Run the statement as plain SQL, "
            f"xql_ffi.sql(ctx, statement), or install the engine (`{INSTALL}`), leave XQL_FFI_ENGINE unset and start "
            f"Python again. The engine is {engine_status()}"
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
