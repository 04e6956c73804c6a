"""Python in a process of its own, with the engine or with the stock module."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent


def run_python(
    arguments: Sequence[str], *, engine: bool, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the interpreter of the tests with `arguments`, the modules of `tests/` at hand."""
    variables = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "0", **(environment or {})}
    variables.pop("XQL_FFI_ENGINE", None)
    if not engine:
        variables["XQL_FFI_ENGINE"] = "0"
    return subprocess.run(
        [sys.executable, *arguments], env=variables, capture_output=True, text=True, check=False, timeout=300
    )


def json_of(arguments: Sequence[str], *, engine: bool, environment: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
    """What the process prints last, as JSON. Fails when the process does."""
    process = run_python(arguments, engine=engine, environment=environment)
    assert process.returncode == 0, f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
    return json.loads(process.stdout.splitlines()[-1])
