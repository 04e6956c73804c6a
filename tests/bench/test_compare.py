"""What `bench/compare.py` makes of two sets of records, and of programs that write them."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.programs import load

PROGRAM = """
import json, os, sys
counts = os.path.join(os.path.dirname(__file__), "runs")
runs = open(counts).read().split() if os.path.exists(counts) else []
side = "old" if "--commit=abc" in sys.argv else "new"
open(counts, "a").write(side + " ")
record = {"program": "p", "figure": "time", "unit": "ms", "better": "smaller"}
values = {"always": 2.0 if side == "new" else 1.0, "once": 2.0 if side == "new" and len(runs) < 4 else 1.0, "same": 1.0}
records = [{**record, "case": case, "value": value} for case, value in values.items()]
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps({"records": records}))
sys.exit(1)
"""


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    return load("bench/compare")


def record(case: str, value: float, unit: str = "ms", better: str = "smaller") -> dict[str, object]:
    return {"program": "p", "case": case, "figure": "time", "value": value, "unit": unit, "better": better}


def test_the_least_of_the_rounds_counts(compare: ModuleType) -> None:
    rounds = [[record("a", 3.0), record("b", 1.0)], [record("a", 2.0)]]
    assert compare.least(rounds) == {("a", "time"): 2.0, ("b", "time"): 1.0}


@pytest.mark.parametrize(("unit", "better"), [("", "smaller"), ("B", "smaller"), ("ms", "neither")])
def test_what_is_no_time_and_no_memory_is_left_out(compare: ModuleType, unit: str, better: str) -> None:
    assert compare.least([[record("a", 1.0, unit, better)]]) == {}


def test_what_is_above_the_limit(compare: ModuleType) -> None:
    old = {("a", "t"): 100.0, ("b", "t"): 100.0, ("c", "t"): 100.0, ("gone", "t"): 1.0, ("zero", "t"): 0.0}
    new = {("a", "t"): 109.0, ("b", "t"): 111.0, ("c", "t"): 50.0, ("added", "t"): 9.0, ("zero", "t"): 1.0}
    assert compare.Look(old, new).above(1.10) == {("b", "t")}


def test_a_figure_that_is_slower_once_is_noise(compare: ModuleType) -> None:
    key, other = ("a", "t"), ("b", "t")
    first = compare.Look({key: 1.0, other: 1.0}, {key: 2.0, other: 2.0})
    second = compare.Look({key: 1.0, other: 1.0}, {key: 1.0, other: 1.2})
    assert compare.slower(first, second, 1.10) == {other}


def test_programs_run_in_pairs_in_turn(
    compare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setattr(compare, "HERE", tmp_path)
    environments = ["--old", sys.executable, "abc", "--new", sys.executable]
    monkeypatch.setattr(sys, "argv", ["compare", "p", "--rounds=2", *environments])
    assert compare.main() == 1
    assert (tmp_path / "runs").read_text().split() == ["old", "new", "new", "old"] * 2
    output = capsys.readouterr().out
    assert "SLOWER always, time: 1 -> 2, x 2.00, again x 2.00" in output
    assert "slower figures: 1" in output


def test_a_program_that_fails_is_no_figure(
    compare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.py").write_text("raise ValueError('broken')", encoding="utf-8")
    monkeypatch.setattr(compare, "HERE", tmp_path)
    with pytest.raises(SystemExit, match="broken"):
        compare.run("p", sys.executable, tmp_path / "p-0-new.json")
