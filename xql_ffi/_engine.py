"""Whether this process' ``datafusion`` can differentiate."""


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
