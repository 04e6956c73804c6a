"""Running Python programs of their own, because what is tested happens when Python starts or imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Run a program, with options of Python and variables of the environment, and give what it prints."""

    def run(program: str, *options: str, **environment: str) -> str:
        script = tmp_path / "program.py"
        script.write_text(program)
        inherited = {name: value for name, value in os.environ.items() if name != "XQL_FFI_ENGINE"}
        completed = subprocess.run(
            [sys.executable, *options, str(script)],
            cwd=tmp_path,
            env=inherited | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        assert completed.stderr == ""
        return completed.stdout.strip()

    return run
