"""Sessions whose `datafusion` forwards no simplify: the query fails with the way out, and nothing crashes."""

import json
import sysconfig
from pathlib import Path

import pytest
from support.errors import assert_says
from support.processes import json_of

_SCRIPT = str(Path(__file__).with_name("without_engine.py"))
_FIX = [r"xql-ffi-engine", r"pip install|XQL_FFI_ENGINE"]
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


def _outcomes(
    *, engine: bool, environment: dict[str, str] | None = None, options: tuple[str, ...] = ()
) -> dict[str, str]:
    outcomes: dict[str, str] = json_of(
        [*options, _SCRIPT, json.dumps(STATEMENTS)], engine=engine, environment=environment
    )
    return outcomes


@pytest.fixture(scope="module")
def switched_off() -> dict[str, str]:
    return _outcomes(engine=False)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_switched_off(switched_off: dict[str, str], statement: str) -> None:
    assert_says(switched_off[statement], [*_FIX, "XQL_FFI_ENGINE", "grad|jvp|vjp"])


def test_the_rest_of_the_session_works(switched_off: dict[str, str]) -> None:
    assert switched_off["registered"] == "['grad', 'jvp', 'vjp']"
    assert switched_off["plain"] == "{'id': [1]}"


def test_missing() -> None:
    """Without the `.pth` file of the engine, as after uninstalling it."""
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(_package_folder())}
    outcomes = _outcomes(engine=True, environment={"XQL_TEST_PATHS": json.dumps(sorted(paths))}, options=("-S",))
    for statement in STATEMENTS:
        assert_says(outcomes[statement], _FIX)
    assert outcomes["plain"] == "{'id': [1]}"


def test_other_version(tmp_path: Path) -> None:
    """With a `datafusion` that is not of the engine's version."""
    metadata = tmp_path / "datafusion-54.99.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: datafusion\nVersion: 54.99.0\n")
    from support.processes import TESTS

    outcomes = _outcomes(engine=True, environment={"PYTHONPATH": f"{tmp_path}:{TESTS}"})
    assert outcomes["version"] == "54.99.0"
    for statement in STATEMENTS:
        assert_says(outcomes[statement], [r"xql-ffi-engine", r"54\.99\.0", r"54\.0\.0"])
    assert outcomes["plain"] == "{'id': [1]}"


def _package_folder() -> Path:
    import xql_ffi

    return Path(xql_ffi.__file__).parent.parent
