"""`examples/scale_out.py` on one worker, over few rows."""

import re
import subprocess

import pytest

from support import sail


def test_the_workers_give_what_one_machine_gives(request: pytest.FixtureRequest) -> None:
    python = sail.interpreter(request.config)
    command = [str(python), "examples/scale_out.py", "--workers", "1", "--rows", "10000", "--steps", "3"]
    done = subprocess.run(command, cwd=sail.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("  step ") for line in lines) == 4
    found = dict(re.findall(r"^  (calibration|gradient by row): (\d\.\de[-+]\d\d)$", done.stdout, re.MULTILINE))
    assert set(found) == {"calibration", "gradient by row"}
    assert all(float(difference) < 1e-9 for difference in found.values())
