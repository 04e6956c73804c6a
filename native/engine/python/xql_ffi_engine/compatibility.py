"""Whether the engine may take the place of the native module of ``datafusion``."""

import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

DATAFUSION_VERSION = "54.0.0"
SWITCH = "XQL_FFI_ENGINE"


def obstacle(package: Sequence[str] | None) -> str | None:
    """Say why the engine cannot serve the ``datafusion`` package at these directories, or ``None`` if it can."""
    if os.environ.get(SWITCH) == "0":
        return f"it is switched off by {SWITCH}=0"
    installed = installed_version(package or [])
    if installed is None:
        return "datafusion is not installed as a distribution"
    if installed != DATAFUSION_VERSION:
        return f"it is for datafusion {DATAFUSION_VERSION}, and datafusion {installed} is installed"
    return None


def installed_version(package: Sequence[str]) -> str | None:
    """Give the version of the distribution that lies beside the package."""
    beside = [str(Path(directory).parent) for directory in package]
    for distribution in metadata.distributions(name="datafusion", path=beside):
        return distribution.version
    return None
