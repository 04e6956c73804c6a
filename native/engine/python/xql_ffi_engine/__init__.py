"""The native module of datafusion, with ``simplify`` of imported scalar functions.

A ``.pth`` file imports this package whenever Python starts, so what is imported here is kept small.
"""

from xql_ffi_engine.finder import install

__all__ = ["install", "is_active", "status"]


def is_active() -> bool:
    """Say whether datafusion is imported and runs on the engine."""
    from xql_ffi_engine import state

    return state.is_active()


def status() -> str:
    """Say whether datafusion runs on the engine, and if not, why."""
    from xql_ffi_engine import state

    return state.status()
