"""Statements of DataFusion's own suite of SQL give on the engine what they give on the stock module."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.own_rules import OWN_RULES
from support.processes import run_python
from support.seed import SEED
from support.sqllogictest import corpus

# Functions that a session of Python does not have.
_NOT_OF_PYTHON = "spark"

# Files of a process.
_TOGETHER = 30
# The steps of EXPLAIN VERBOSE that only the engine has. They change nothing.
_OWN = re.compile(rf"^logical_plan after ({'|'.join(OWN_RULES)}), SAME TEXT AS ABOVE\n?", re.MULTILINE)
_FAILED = re.compile(r"\w*(Error|Exception): ")

Outcomes = dict[str, list[list[str]]]


def _outcomes(files: Sequence[str], folder: Path, *, engine: bool) -> Outcomes:
    """What files give in processes of their own, in a copy of the corpus, since they write files as well."""
    shutil.copytree(corpus(), folder / corpus().name)
    found: Outcomes = {}
    for start in range(0, len(files), _TOGETHER):
        some = files[start : start + _TOGETHER]
        process = run_python(["-m", "load.outcomes", str(folder), *some], engine=engine)
        assert process.returncode == 0, f"exit code {process.returncode}\n{process.stderr[-2000:]}"
        found.update(map(json.loads, process.stdout.splitlines()))
    return found


def test_the_engine_gives_what_the_stock_module_gives(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    root = corpus().parent
    all_files = [
        str(path.relative_to(root)) for path in sorted(corpus().rglob("*.slt")) if _NOT_OF_PYTHON not in path.parts
    ]
    number = min(pytestconfig.getoption("sqllogictest"), len(all_files))
    files = sorted(random.Random(SEED).sample(all_files, number))
    stock = _outcomes(files, tmp_path / "first", engine=False)
    engine = _outcomes(files, tmp_path / "other", engine=True)
    assert stock.keys() == engine.keys() == {*files}
    suspects = [name for name in files if stock[name] != engine[name]]
    # What is another in each run, as times are, says nothing. Plans show folders, whose names are of one length.
    again = _outcomes(suspects, tmp_path / "again", engine=False) if suspects else {}
    different, compared, failed = [], sum(map(len, stock.values())), 0
    for name in files:
        failed += sum(bool(_FAILED.match(outcome)) for _, _, outcome in stock[name])
        for one, other, repeated in zip(stock[name], engine[name], again.get(name, stock[name]), strict=True):
            if one == repeated and one != [*other[:2], _OWN.sub("", other[2])]:
                different.append("\n".join([*one, "-- on the engine:", other[2]]))
    print(f"{compared} statements of {len(files)} files, {failed} of them errors")
    assert compared > 50 * len(files) / 10
    assert not different, f"{len(different)} of {compared} statements differ:\n" + "\n\n".join(different[:20])
