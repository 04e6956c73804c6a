"""The native module of datafusion, with ``simplify`` of imported scalar functions.

A ``.pth`` file imports this package whenever Python starts. So it is one small file, which imports nothing until it is
asked for the native module of ``datafusion``.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["Finder", "install", "is_active", "status"]

MODULE = "datafusion._internal"


class Finder:
    """Finds the native module of ``datafusion``, and nothing else."""

    def find_spec(
        self,
        fullname: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Give the engine if it fits the installed ``datafusion``."""
        if fullname != MODULE:
            return None
        from xql_ffi_engine import compatibility, loader

        return None if compatibility.obstacle(path) else loader.spec(MODULE)


def install() -> None:
    """Put the finder before all others, once."""
    if not _is_installed():
        sys.meta_path.insert(0, Finder())


def _is_installed() -> bool:
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


def is_active() -> bool:
    """Say whether datafusion is imported and runs on the engine."""
    from xql_ffi_engine import state

    return state.is_active(MODULE)


def status() -> str:
    """Say whether datafusion runs on the engine, and if not, why."""
    from xql_ffi_engine import state

    return state.status(MODULE, installed=_is_installed())
