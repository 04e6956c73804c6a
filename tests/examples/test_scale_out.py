"""`examples/scale_out.py` on workers of each engine, over few rows."""

import re
import subprocess

import pytest

from support import scale_out


def run(config: pytest.Config, engine: str, *arguments: str) -> str:
    """What the script prints."""
    python = scale_out.interpreter(config, engine)
    command = [str(python), "examples/scale_out.py", "--engine", engine, "--rows", "10000", "--steps", "3", *arguments]
    done = subprocess.run(command, cwd=scale_out.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("engine", ["sail", "ballista"])
def test_the_workers_give_what_one_machine_gives(request: pytest.FixtureRequest, engine: str) -> None:
    printed = run(request.config, engine, "--workers", "2")
    assert sum(line.startswith("  step ") for line in printed.splitlines()) == 4
    found = dict(re.findall(r"^  (calibration|gradient by row): (\d\.\de[-+]\d\d)$", printed, re.MULTILINE))
    assert set(found) == {"calibration", "gradient by row"}
    assert all(float(difference) < 1e-9 for difference in found.values())
