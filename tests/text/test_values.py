"""The text of a statement gives on the stock module what the statement gives on the engine."""

import json
from pathlib import Path
from typing import Any

import pytest
from datafusion import SessionContext

import xql_ffi
from support.compare import assert_same_rows
from support.processes import json_of
from text.cases import STATEMENTS
from text.stock import result, session

SCRIPT = Path(__file__).with_name("stock.py")


@pytest.fixture(scope="module")
def stock() -> Any:
    return json_of([str(SCRIPT), json.dumps(STATEMENTS)], engine=False)


@pytest.fixture(scope="module")
def engine() -> SessionContext:
    return xql_ffi.register(session())


@pytest.mark.parametrize("name", STATEMENTS)
def test_same_values(name: str, stock: Any, engine: SessionContext) -> None:
    text, wanted = stock[name], result(engine, STATEMENTS[name])
    assert "error" not in text, text
    assert text["columns"] == wanted["columns"], text["text"]
    assert_same_rows(text["rows"], wanted["rows"], rel=1e-9, abs_=1e-12)


@pytest.mark.parametrize("name", STATEMENTS)
def test_expanding_again_changes_nothing(name: str, stock: Any) -> None:
    assert stock[name].get("again") == stock[name]["text"]
