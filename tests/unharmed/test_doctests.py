"""The examples in the documentation of `datafusion` end with the engine as they end with the stock module."""

from pathlib import Path

from support.processes import json_of

_SCRIPT = str(Path(__file__).with_name("doctests.py"))


def test_documentation_of_datafusion() -> None:
    stock: dict[str, str] = json_of([_SCRIPT], engine=False)
    engine: dict[str, str] = json_of([_SCRIPT], engine=True)
    assert list(stock.values()).count("passed") > 1900
    assert engine == stock
