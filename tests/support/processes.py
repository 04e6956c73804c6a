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
    arguments: Sequence[str],
    *,
    engine: bool,
    environment: Mapping[str, str] | None = None,
    python: str | Path = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """Runs an interpreter, by default that of the tests, with `arguments`, the modules of `tests/` at hand."""
    variables = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "0", **(environment or {})}
    variables.pop("XQL_FFI_ENGINE", None)
    if not engine:
        variables["XQL_FFI_ENGINE"] = "0"
    return subprocess.run(
        [python, *arguments], env=variables, cwd=TESTS, capture_output=True, text=True, check=False, timeout=300
    )


def run_in_terminal(script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script, with the engine, in a pseudo-terminal that does not know its size, and gives what it shows."""
    spawned = f"""
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn([sys.executable, "-c", {script!r}])))
"""
    return run_python(["-c", spawned], engine=True, environment={"COLUMNS": "100"})


def json_of(
    arguments: Sequence[str],
    *,
    engine: bool,
    environment: Mapping[str, str] | None = None,
    python: str | Path = sys.executable,
) -> Any:
    """What the process prints last, as JSON. Fails when the process does."""
    process = run_python(arguments, engine=engine, environment=environment, python=python)
    assert process.returncode == 0, f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
    return json.loads(process.stdout.splitlines()[-1])
