"""Calls of the API of `datafusion` give with the engine what they give with the stock module."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.processes import json_of
from unharmed.probe import PROBES

_SCRIPT = str(Path(__file__).with_name("probe.py"))


@dataclass(frozen=True)
class Results:
    """What the probes gave."""

    stock: dict[str, Any]
    engine: dict[str, Any]


@pytest.fixture(scope="module")
def results() -> Results:
    return Results(stock=json_of([_SCRIPT], engine=False), engine=json_of([_SCRIPT], engine=True))


def test_the_two_modules_are_two(results: Results) -> None:
    """Else the comparison would be of the stock module with itself."""
    assert results.stock["module"] != results.engine["module"]
    assert Path(results.stock["module"]).parent.name == "datafusion"


@pytest.mark.parametrize("name", PROBES)
def test_same_result(results: Results, name: str) -> None:
    stock = results.stock[name]
    assert ("error" in stock) == name.startswith("sql_error_"), stock
    assert results.engine[name] == stock
