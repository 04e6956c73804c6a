"""The finder that gives ``datafusion`` the engine for its native module."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

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

        if compatibility.obstacle(path) is not None:
            return None
        return loader.spec()


def install() -> None:
    """Put the finder before all others, once."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
