"""Calls of the API of `datafusion` give with the engine what they give with the stock module."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.own_rules import OWN_RULES
from support.processes import json_of
from support.stock import ON_STOCK, XARRAY
from unharmed.probe import PROBES

_SCRIPT = str(Path(__file__).with_name("probe.py"))


@dataclass(frozen=True)
class Results:
    """What the probes gave."""

    stock: dict[str, Any]
    engine: dict[str, Any]


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Results:
    """Those of the probes that have a test in this run."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
    names = [str(test.callspec.params["name"]) for test in tests if test.function is test_same_result]
    return Results(*(json_of([_SCRIPT, *names], engine=engine) for engine in (False, True)))


@pytest.mark.skipif(ON_STOCK, reason="there is one module, in which sessions are registered")
def test_the_two_modules_are_two(results: Results) -> None:
    """Else the comparison would be of the stock module with itself."""
    assert results.stock["module"] != results.engine["module"]
    assert Path(results.stock["module"]).parent.name == "datafusion"


@pytest.mark.parametrize("name", [name for name in PROBES if XARRAY or not name.startswith("xarray_")])
def test_same_result(results: Results, name: str) -> None:
    stock = results.stock[name]
    assert ("error" in stock) == name.startswith("sql_error_"), stock
    engine = results.engine[name]
    if name == "sql_explain_verbose":
        _leave_out_rules(engine)
    assert _difference(engine, stock) is None


def _leave_out_rules(explained: dict[str, Any]) -> None:
    """Leaves out the steps of the rules that are in every session of the engine, which change nothing here."""
    if ON_STOCK:
        return
    steps, plans = explained["result"]["columns"]
    kept = [number for number, step in enumerate(steps) if not step.endswith(OWN_RULES)]
    assert len(kept) < len(steps)
    assert {plans[number] for number in range(len(steps)) if number not in kept} == {"SAME TEXT AS ABOVE"}
    explained["result"]["columns"] = [[column[number] for number in kept] for column in (steps, plans)]


def _difference(engine: Any, stock: Any, where: str = "") -> str | None:
    """Where two results first differ, and how."""
    if isinstance(engine, dict) and isinstance(stock, dict):
        parts = {key: (engine.get(key, "missing"), stock.get(key, "missing")) for key in sorted({*engine, *stock})}
    elif isinstance(engine, list) and isinstance(stock, list) and len(engine) == len(stock):
        parts = {str(number): pair for number, pair in enumerate(zip(engine, stock, strict=True))}
    else:
        return None if engine == stock else f"{where}: {engine!r} on the engine, {stock!r} on the stock module"
    return next((found for key, pair in parts.items() if (found := _difference(*pair, f"{where}[{key!r}]"))), None)
