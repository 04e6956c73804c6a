"""Sessions whose `datafusion` forwards no simplify: the query fails with the way out, and nothing crashes."""

import json
import sysconfig
from pathlib import Path

import datafusion
import pytest

import xql_ffi
from support.errors import assert_says
from support.processes import TESTS, json_of

_SCRIPT = str(Path(__file__).with_name("without_engine.py"))
_FIX = [r"xql_ffi\.sql\(ctx, \.\.\.\)", r"pip install \"xql-ffi\[engine\]\"", "XQL_FFI_ENGINE"]
STATEMENTS = [
    "SELECT grad(x * x, x) AS d FROM t",
    "SELECT id FROM t WHERE grad(x * x, x) > 0",
    "SELECT SUM(grad(x * x, x)) AS d FROM t",
    "SELECT jvp(x * y, x, 1.0, y, 2.0) AS d FROM t",
    "SELECT vjp(x * y, x, 2.0) AS d FROM t",
    "SELECT grad(grad(x * x, x), x) AS d FROM t",
    "WITH RECURSIVE r AS (SELECT 1.0 AS x UNION ALL SELECT x - grad(x * x, x) FROM r WHERE x > 0.5) SELECT x FROM r",
    "INSERT INTO w SELECT grad(x * x, x) FROM t",
    "SELECT id FROM u WHERE EXISTS (SELECT 1 FROM v WHERE v.id = u.id AND grad(u.x * v.x, u.x) > 0)",
    "dataframe",
]


CONSTANTS = {
    "SELECT grad(x, 1) AS d FROM t": r"grad\(x, 1\): grad's second argument must be a column; 1 is a number",
    "SELECT jvp(x * y, x, 1.0, NULL, 2.0) AS d FROM t": "the variables of jvp must be columns; NULL is a constant",
    "SELECT vjp(x * x, 'x', 1.0) AS d FROM t": "vjp's second argument must be a column; 'x' is a string",
}


def _outcomes(
    *, engine: bool, environment: dict[str, str] | None = None, options: tuple[str, ...] = ()
) -> dict[str, str]:
    outcomes: dict[str, str] = json_of(
        [*options, _SCRIPT, json.dumps([*STATEMENTS, *CONSTANTS])], engine=engine, environment=environment
    )
    return outcomes


@pytest.fixture(scope="module")
def switched_off() -> dict[str, str]:
    return _outcomes(engine=False)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_switched_off(switched_off: dict[str, str], statement: str) -> None:
    assert_says(switched_off[statement], [*_FIX, "XQL_FFI_ENGINE", "grad|jvp|vjp"])


@pytest.mark.parametrize("statement", CONSTANTS)
def test_a_constant_is_no_column_with_or_without_engine(switched_off: dict[str, str], statement: str) -> None:
    assert_says(switched_off[statement], [CONSTANTS[statement], "Name a column of the query|Write x without quotes"])
    assert "nothing differentiated" not in switched_off[statement]


def test_functions_of_expressions_say_it_at_once(switched_off: dict[str, str]) -> None:
    assert_says(
        switched_off["function"],
        [
            r"^the datafusion of this process does not differentiate grad\.",
            r"pip install \"xql-ffi\[engine\]\"",
            "XQL_FFI_ENGINE=0",
        ],
    )


def test_functions_that_run_queries_say_it_at_once(switched_off: dict[str, str]) -> None:
    assert_says(
        switched_off["gradients"],
        [r"^gradients needs sessions that differentiate\. Without them, write a statement for each table"],
    )
    assert_says(switched_off["objective"], [r"^objective needs sessions that differentiate: install the engine"])
    assert_says(switched_off["verify"], ["^the datafusion of this process does not differentiate grad"])
    for name in ("gradients", "verify"):
        assert_says(switched_off[name], [r"xql_ffi\.sql\(ctx, statement\)", "XQL_FFI_ENGINE=0"])


def test_registering_warns_at_once(switched_off: dict[str, str]) -> None:
    (warned,) = json.loads(switched_off["warned"])
    expected = "grad, jvp and vjp are registered, but the datafusion of this process does not differentiate them. Run "
    assert (
        warned["text"]
        == f"{expected}statements by xql_ffi.sql(ctx, statement), or activate the engine. The engine is "
        + (switched_off["status"])
    )
    assert warned["file"] == "without_engine.py"


def test_messages_say_which_kind_they_are_of(switched_off: dict[str, str]) -> None:
    for statement in STATEMENTS:
        _, found, said = switched_off[statement].partition("MissingEngineError: ")
        assert found
        assert len(said) <= 300
        # What works in this process comes first.
        assert 0 < said.index("xql_ffi.sql(ctx, ...)") < said.index("pip install")
    for statement in CONSTANTS:
        assert "VariableError: " in switched_off[statement]


def test_the_rest_of_the_session_works(switched_off: dict[str, str]) -> None:
    assert switched_off["registered"] == "['grad', 'jvp', 'vjp']"
    assert switched_off["plain"] == "{'id': [1]}"
    assert "XQL_FFI_ENGINE" in switched_off["status"]


def test_missing() -> None:
    """Without the `.pth` file of the engine, as after uninstalling it."""
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(xql_ffi.__file__).parent.parent)}
    outcomes = _outcomes(engine=True, environment={"XQL_TEST_PATHS": json.dumps(sorted(paths))}, options=("-S",))
    for statement in STATEMENTS:
        assert_says(outcomes[statement], _FIX)
    assert outcomes["plain"] == "{'id': [1]}"
    assert_says(outcomes["warned"], ["are registered, but", "start Python again"])


def test_other_version(tmp_path: Path) -> None:
    """With a `datafusion` that is not of the engine's version."""
    (tmp_path / "datafusion").symlink_to(Path(datafusion.__file__).parent)
    metadata = tmp_path / "datafusion-54.99.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: datafusion\nVersion: 54.99.0\n")
    outcomes = _outcomes(engine=True, environment={"PYTHONPATH": f"{tmp_path}:{TESTS}"})
    assert outcomes["version"] == "54.99.0"
    for statement in STATEMENTS:
        assert_says(outcomes[statement], [*_FIX, r"engine_status\(\)"])
    assert_says(outcomes["status"], [r"54\.99\.0", r"54\.0\.0"])
    assert_says(outcomes["warned"], [r"54\.99\.0", r"54\.0\.0", r"xql_ffi\.sql\(ctx, statement\)"])
    assert outcomes["plain"] == "{'id': [1]}"
