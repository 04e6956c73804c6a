"""Loading the engine as the native module of ``datafusion``."""

import importlib.util
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

COMPANION = "xql_ffi_engine._engine"


class Loader(ExtensionFileLoader):
    """Loads ``_internal`` from the engine's shared object and lets the companion extend it."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then extend it."""
        # With super() this method would have a closure, unlike the one of any other loader.
        ExtensionFileLoader.exec_module(self, module)
        from xql_ffi_engine import _engine

        _engine.install(module)


def shared_object() -> str | None:
    """Give the path of the engine's shared object."""
    spec = importlib.util.find_spec(COMPANION)
    return None if spec is None else spec.origin


def spec(module: str) -> ModuleSpec | None:
    """Give the spec that loads the engine as this module."""
    path = shared_object()
    if path is None:
        return None
    return importlib.util.spec_from_file_location(module, path, loader=Loader(module, path))
