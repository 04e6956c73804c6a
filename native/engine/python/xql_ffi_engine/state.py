"""What has become of the engine in this process."""

import importlib.util
import sys

from xql_ffi_engine import compatibility, loader


def is_active(module: str) -> bool:
    """Say whether this module is imported and is the engine."""
    return isinstance(getattr(sys.modules.get(module), "__loader__", None), loader.Loader)


def status(module: str, *, installed: bool) -> str:
    """Say whether this module is the engine, and if not, why; ``installed`` says whether the finder is."""
    if is_active(module):
        return f"active: datafusion {compatibility.DATAFUSION_VERSION} runs on {loader.shared_object()}"
    package = importlib.util.find_spec("datafusion")
    if package is None:
        return "inactive: datafusion is not installed"
    obstacle = compatibility.obstacle(package.submodule_search_locations)
    if obstacle is None and loader.shared_object() is None:
        obstacle = "its shared object is missing"
    if obstacle is not None:
        return f"inactive: {obstacle}"
    if module in sys.modules:
        return "inactive: datafusion was imported before the engine could take effect; start Python again"
    if not installed:
        return (
            "inactive: xql_ffi_engine.pth was not processed; call xql_ffi_engine.install() before importing datafusion"
        )
    return "ready: datafusion is not imported yet and will run on the engine"
