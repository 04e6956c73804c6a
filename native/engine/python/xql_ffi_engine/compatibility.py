"""Whether the engine may take the place of the native module of ``datafusion``."""

import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

DATAFUSION_VERSION = "54.0.0"
SWITCH = "XQL_FFI_ENGINE"
ON, OFF = ("", "1", "on", "true", "yes"), ("0", "off", "false", "no")


def obstacle(package: Sequence[str] | None) -> str | None:
    """Say why the engine cannot serve the ``datafusion`` package at these directories, or ``None`` if it can."""
    value = os.environ.get(SWITCH, "")
    if value.strip().lower() in OFF:
        return f"it is switched off by {SWITCH}={value}"
    if value.strip().lower() not in ON:
        return f"{SWITCH}={value} is neither on ({', '.join(ON[1:])}) nor off ({', '.join(OFF)})"
    try:
        installed = metadata.distribution("datafusion")
    except metadata.PackageNotFoundError:
        return "datafusion is not installed as a distribution"
    if installed.version != DATAFUSION_VERSION:
        return f"it is for datafusion {DATAFUSION_VERSION}, and datafusion {installed.version} is installed"
    directory = Path(str(installed.locate_file("datafusion"))).resolve()
    if directory not in [Path(part).resolve() for part in package or ()]:
        return (
            f"datafusion is imported from elsewhere than {directory}, where version {DATAFUSION_VERSION} is installed"
        )
    return None
