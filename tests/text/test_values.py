"""The text of a statement gives on stock modules what the statement gives on the engine."""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from datafusion import SessionContext

import xql_ffi
from support.compare import assert_same_rows
from support.processes import json_of, run_python
from text.cases import STATEMENTS
from text.environments import with_datafusion
from text.hostile import STATEMENTS as HOSTILE
from text.stock import result, with_views
from xql_ffi import _plugin

ALL = {**STATEMENTS, **HOSTILE}
SCRIPT = Path(__file__).with_name("stock.py")


@pytest.fixture(scope="module", params=["54.0.0", "55.0.0"])
def stock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the texts give on a stock module: that of this environment without the engine, or of another one."""
    python = sys.executable
    if request.param != version("datafusion"):
        python = str(with_datafusion(request.param, tmp_path_factory.mktemp("environment") / request.param))
    return json_of([str(SCRIPT), json.dumps(ALL)], engine=False, python=python)


@pytest.fixture(scope="module")
def engine() -> SessionContext:
    return xql_ffi.register(with_views())


@pytest.mark.parametrize("name", ALL)
def test_same_values(name: str, stock: Any, engine: SessionContext) -> None:
    text, wanted = stock[name], result(engine, ALL[name])
    assert "error" not in text, text
    assert text["columns"] == wanted["columns"], text["text"]
    assert_same_rows(text["rows"], wanted["rows"], rel=1e-9, abs_=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_expanding_again_changes_nothing(name: str, stock: Any) -> None:
    assert stock[name].get("again") == stock[name]["text"]


def test_functions_are_kept_from_another_version(tmp_path: Path) -> None:
    """Its module would read their structs as others."""
    other = "55.0.0" if _plugin.lib.xql_ffi_datafusion_version() == 54 else "54.0.0"
    python = with_datafusion(other, tmp_path / "environment")
    script = "import datafusion, xql_ffi; xql_ffi.register(datafusion.SessionContext())"
    process = run_python(["-c", script], engine=False, python=python)
    assert process.returncode == 1
    assert f"MissingEngineError: grad and the like are no functions of datafusion {other}" in process.stderr
    assert "xql_ffi.sql(ctx, statement)" in process.stderr
