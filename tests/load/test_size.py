"""Statements that are deep, wide or long are planned in time that grows as DataFusion's own does, or refused in words.

What is planned runs in a process of its own, since a stack that overflows ends the process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pytest

from support.processes import run_python

# A statement of four times the size may take four times as long, or as many times as long as one without derivatives
# takes DataFusion, and so many times that.
_MORE = 2.0
# What is measured is at least so many seconds.
_SHORT = 0.05

# The size of a shape in the normal run.
_SIZES = {
    "terms of a sum": 300,
    "arguments of greatest": 400,
    "branches of CASE": 400,
    "conditions": 250,
    "columns of expressions": 240,
    "columns of a table": 1200,
    "calls": 240,
    "CTEs one on another": 64,
    "layers by row": 16,
}

_DEEP = ("functions in one another", "Horner's scheme", "CASE in one another")

Outcomes = dict[str, Mapping[str, object]]


def _planned(cases: Iterable[str]) -> Outcomes:
    """The outcomes of cases. Fails with the case in which the process ended."""
    listed = list(cases)
    process = run_python(["-m", "load.planned", *listed], engine=True)
    found: Outcomes = dict(map(json.loads, process.stdout.splitlines()))
    assert process.returncode == 0, (
        f"{listed[len(found)]} ends the process: {process.returncode} {process.stderr[-500:]}"
    )
    assert [*found] == listed
    return found


def _seconds(outcome: Mapping[str, object]) -> float:
    assert "error" not in outcome, outcome["error"]
    return float(str(outcome["seconds"]))


@pytest.fixture(scope="module")
def factor(pytestconfig: pytest.Config) -> int:
    """How many times the normal size statements have."""
    given: int = pytestconfig.getoption("size")
    return given


@pytest.fixture(scope="module")
def seconds(factor: int) -> Mapping[str, float]:
    """The processor seconds of all shapes in a quarter of their size and in all of it, planned in one process."""
    sizes = [(name, n) for name, size in _SIZES.items() for n in (1, size * factor // 4, size * factor)]
    cases = [f"{path}:{name}:{n}:0" for name, n in sizes for path in ("without", "engine", "text")]
    return {case: max(_SHORT, _seconds(outcome)) for case, outcome in _planned(cases).items()}


@pytest.mark.parametrize("path", ["engine", "text"])
@pytest.mark.parametrize("name", _SIZES)
def test_the_time_grows_as_without_derivatives(name: str, path: str, factor: int, seconds: Mapping[str, float]) -> None:
    size = _SIZES[name] * factor
    without, ours = (
        seconds[f"{way}:{name}:{size}:0"] / seconds[f"{way}:{name}:{size // 4}:0"] for way in ("without", path)
    )
    assert ours <= _MORE * max(4.0, without), f"{ours:.1f} times for 4 times the size, {without:.1f} without: {seconds}"


def test_frames() -> None:
    """The DataFrame API, whose expressions no parser limits."""
    cases = [
        "frame:functions in one another:100:0",
        "frame:terms of a sum:300:0",
        "frame:variables of a gradient:200:0",
        "frame:frames one on another:64:0",
        "frame:functions in one another:40:256",
        "frame:frames one on another:16:256",
    ]
    for outcome in _planned(cases).values():
        assert _seconds(outcome) < 60


@pytest.mark.parametrize("path", ["engine", "text"])
def test_the_depth_that_a_session_reads_by_default_fits_a_small_stack(path: str) -> None:
    cases = [f"{path}:{name}:40:256" for name in _DEEP]
    cases += [f"{path}:CTEs one on another:16:256", f"{path}:layers by row:16:256"]
    for outcome in _planned(cases).values():
        assert _seconds(outcome) < 60


# DataFusion's parser, which stops in the middle of a CASE, takes what follows for a mistake.
_TOO_DEEP = {"CASE in one another": "ParserError"}


@pytest.mark.parametrize("stack", [0, 256])
def test_two_thousand_levels_are_refused(stack: int) -> None:
    by_engine = [f"{path}:{name}:2000:{stack}" for path in ("without", "engine") for name in _DEEP]
    as_text = [f"text:{name}:2000:{stack}" for name in _DEEP]
    found = _planned([*by_engine, *as_text])
    for case in by_engine:
        said = _TOO_DEEP.get(case.split(":")[1], "RecursionLimitExceeded (current limit: 50)")
        assert said in str(found[case]["error"]), case
    for case in as_text:
        said = _TOO_DEEP.get(
            case.split(":")[1], "deeper than 300 levels: make parts of its expressions columns of a CTE"
        )
        assert said in str(found[case]["error"]), case


def test_a_hundred_levels_where_a_session_is_told_to_read_them() -> None:
    cases = [f"deep-engine:{name}:100:{stack}" for name in _DEEP for stack in (0, 2048)]
    for outcome in _planned(cases).values():
        assert _seconds(outcome) < 60
