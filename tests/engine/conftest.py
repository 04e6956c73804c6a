"""Running Python programs of their own, because what is tested happens when Python starts or imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest


class Run(Protocol):
    """Run a program and give what it prints."""

    def __call__(self, program: str, *options: str, **environment: str) -> str: ...


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run programs in a directory of their own."""

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
