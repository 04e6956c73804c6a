"""The list of deliberate faults fits the sources: what one replaces is there, once."""

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from mutants.faults import Fault, faults, with_faults

NATIVE = Path(__file__).parents[2] / "native"

BY_FILE: dict[str, list[Fault]] = defaultdict(list)
for fault in faults():
    BY_FILE[fault.file].append(fault)


def test_there_are_faults_of_all_crates() -> None:
    assert len(faults()) > 300
    assert {file.split("/")[0] for file in BY_FILE} == {"autodiff", "contraction", "relations"}


@pytest.mark.parametrize("file", BY_FILE)
def test_faults_fit(file: str) -> None:
    source = (NATIVE / file).read_text()
    with_all = with_faults(file, source, BY_FILE[file])
    assert all(str(fault.number) in with_all for fault in BY_FILE[file])
    # It parses: brackets that a fault leaves open would stop the build of all faults.
    parsed = subprocess.run(["rustfmt", "--edition=2024"], input=with_all, capture_output=True, text=True, check=False)
    assert not parsed.returncode, parsed.stderr
    with pytest.raises(SystemExit, match="not once"):
        with_faults(file, source.replace(BY_FILE[file][0].original, ""), BY_FILE[file])
