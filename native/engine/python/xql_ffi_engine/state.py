"""What has become of the engine in this process."""

import importlib.util
import sys

from xql_ffi_engine import MODULE, Finder, compatibility, loader


def is_active() -> bool:
    """Say whether datafusion is imported and runs on the engine."""
    return isinstance(getattr(sys.modules.get(MODULE), "__loader__", None), loader.Loader)


def status() -> str:
    """Say whether datafusion runs on the engine, and if not, why."""
    if is_active():
        return f"active: datafusion {compatibility.DATAFUSION_VERSION} runs on {loader.shared_object()}"
    package = importlib.util.find_spec("datafusion")
    if package is None:
        return "inactive: datafusion is not installed"
    obstacle = compatibility.obstacle(package.submodule_search_locations)
    if obstacle is None and loader.shared_object() is None:
        obstacle = "its shared object is missing"
    if obstacle is not None:
        return f"inactive: {obstacle}"
    if MODULE in sys.modules:
        return "inactive: datafusion was imported before the engine could take effect; start Python again"
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        return (
            "inactive: xql_ffi_engine.pth was not processed; call xql_ffi_engine.install() before importing datafusion"
        )
    return "ready: datafusion is not imported yet and will run on the engine"
