"""The environment of `dev.py scale-out`, with Sail and other engines of several workers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PYTHON = ROOT / "build" / "scale-out" / "bin" / "python"


def skip_unless_asked(config: pytest.Config, engine: str) -> None:
    """Skips where nobody has asked for an engine."""
    if engine not in config.getoption("scale_out"):
        pytest.skip(f"--scale-out={engine} runs this, in an environment of a gigabyte")


def interpreter(config: pytest.Config, engine: str) -> Path:
    """The interpreter of the environment with an engine. Skips where it is not asked for."""
    skip_unless_asked(config, engine)
    command: list[str | Path] = [sys.executable, ROOT / "dev.py", "scale-out", "--engine", engine, "--help"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.fail(f"no environment with {engine}: {made.stderr.strip()}")
    return _PYTHON


def worker() -> Path:
    """The interpreter for a worker, which needs nothing of this package."""
    uv = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if uv is None:
        pytest.fail("there is no uv to make an environment with")
    variables = {name: value for name, value in os.environ.items() if name not in ("UV_CONSTRAINT", "VIRTUAL_ENV")}
    commands = [["pip", "install", "--python", str(_PYTHON), "--group", "scale-out"]]
    if not _PYTHON.exists():
        commands.insert(0, ["venv", "--python", sys.executable, str(_PYTHON.parents[1])])
    for command in commands:
        done = subprocess.run(
            [uv, *command, "--quiet"], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.fail(f"no environment with Sail: {done.stderr.strip()}")
    return _PYTHON
