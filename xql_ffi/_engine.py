"""Whether this process' ``datafusion`` can differentiate."""

from xql_ffi._errors import MissingEngineError


def engine_status() -> str:
    """Says in a sentence whether queries of this process are differentiated, and if not, what to do."""
    try:
        import xql_ffi_engine
    except ImportError:
        return (
            "no: the engine is not installed; run `pip install xql-ffi-engine` and start a new process. "
            "Without it datafusion cannot let a function of another library simplify its calls"
        )
    status: str = xql_ffi_engine.status()
    return status


def check_engine(operator: str) -> None:
    """Raises a `MissingEngineError` if calls of an operator would not be differentiated."""
    try:
        import xql_ffi_engine

        active = xql_ffi_engine.is_active()
    except ImportError:
        active = False
    if not active:
        msg = (
            f"{operator} is not differentiated by the datafusion of this process. Run the statement as plain SQL, "
            "xql_ffi.sql(ctx, statement), or install the engine that does (`pip install xql-ffi-engine`), leave "
            "XQL_FFI_ENGINE unset, and start a new process. "
            f"Its status is {engine_status()}"
        )
        raise MissingEngineError(msg)
