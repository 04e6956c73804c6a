"""What is said to be left to `--all` is there, and the rest is daily."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.daily import PARTS, PARTS_ON_STOCK, Part, is_daily

TESTS = Path(__file__).parents[1]
# By file, the names of its tests.
NAMES = {
    path.relative_to(TESTS).as_posix(): re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
    for path in TESTS.glob("*/test_*.py")
}


@pytest.mark.parametrize("part", [*PARTS, *PARTS_ON_STOCK], ids=lambda part: part.tests)
def test_each_part_is_there_and_has_a_reason(part: Part) -> None:
    files, _, name = part.tests.partition("::")
    found = [names for file, names in NAMES.items() if re.match(files, file)]
    assert found
    # What says something of parameters alone begins with anything.
    assert not name.startswith("test_") or any(part.has(f"{file}::{test}[") for file in NAMES for test in NAMES[file])
    assert part.why


def test_a_new_test_is_daily() -> None:
    assert is_daily("tests/by_row/test_new.py::test_new", on_stock=False)
    assert is_daily("tests/stock/test_new.py::test_new", on_stock=True)


def test_a_share_is_taken() -> None:
    part = Part("a/", 4, "")
    taken = [number for number in range(400) if part.takes(f"a/test_b.py::test_c[{number}]")]
    assert 60 < len(taken) < 140
