"""The environment with Sail, which `dev.py scale-out` makes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def interpreter(config: pytest.Config) -> Path:
    """The interpreter of the environment. Skips where it is not asked for or cannot be made."""
    if not config.getoption("sail"):
        pytest.skip("--sail runs this, in an environment of a gigabyte")
    made = subprocess.run(
        [sys.executable, ROOT / "dev.py", "scale-out", "--help"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no environment with Sail: {made.stderr.strip()}")
    return ROOT / "build" / "scale-out" / "bin" / "python"
