"""Environments with other versions of `datafusion`."""

import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import distribution
from pathlib import Path

import pytest

import xql_ffi


def with_datafusion(version: str, folder: Path) -> Path:
    """The interpreter of a new environment with this version and this `xql_ffi`. Skips where none can be made."""
    uv = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if uv is None:
        pytest.skip("there is no uv to make an environment with")
    variables = {name: value for name, value in os.environ.items() if name not in ("UV_CONSTRAINT", "VIRTUAL_ENV")}
    python = folder / "bin" / "python"
    wanted = (f"datafusion=={version}", "pyarrow", "cffi", "typing-extensions")
    commands = (["venv", "--python", sys.executable, str(folder)], ["pip", "install", "--python", str(python), *wanted])
    for command in commands:
        made = subprocess.run([uv, *command, "--quiet"], env=variables, capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"no environment with datafusion {version}: {made.stderr.strip()}")
    (packages,) = folder.glob("lib/python*/site-packages")
    metadata = Path(str(distribution("xql-ffi").locate_file("")))
    for source in (Path(xql_ffi.__file__).parent, *metadata.glob("xql_ffi-*.dist-info")):
        (packages / source.name).symlink_to(source)
    return python


def shared(version: str, folder: Path) -> Path:
    """The interpreter of the one environment with this version for all processes of a test run."""
    environment, done, none = (folder / f"datafusion-{version}{end}" for end in ("", ".done", ".none"))
    try:
        folder.joinpath(f"datafusion-{version}.begun").mkdir(parents=True)
    except FileExistsError:
        return _made_by_another(environment, done, none)
    try:
        python = with_datafusion(version, environment)
    except pytest.skip.Exception as skipped:
        none.write_text(str(skipped))
        raise
    done.touch()
    return python


def _made_by_another(environment: Path, done: Path, none: Path) -> Path:
    end = time.monotonic() + 300
    while not done.exists():
        if none.exists() or time.monotonic() > end:
            pytest.skip(none.read_text() if none.exists() else f"{environment.name} is not made in five minutes")
        time.sleep(0.2)
    return environment / "bin" / "python"
