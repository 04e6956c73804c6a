"""When the engine takes the place of datafusion's native module, and when it does not."""

from __future__ import annotations

import importlib.util
import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import datafusion
import pytest

import xql_ffi_engine
from xql_ffi_engine import _engine, compatibility

if TYPE_CHECKING:
    from collections.abc import Callable

ENGINE = Path(xql_ffi_engine.__file__).parent
STOCK = Path(datafusion.__file__).parent
SITE = STOCK.parent

WHICH = """
import datafusion, pathlib, xql_ffi_engine
print(pathlib.Path(datafusion._internal.__file__).parent)
print(xql_ffi_engine.is_active())
print(xql_ffi_engine.status())
"""


def test_the_version_is_the_same_everywhere() -> None:
    assert compatibility.DATAFUSION_VERSION == _engine.DATAFUSION_VERSION
    assert metadata.version("xql-ffi-engine").startswith(f"{_engine.DATAFUSION_VERSION}.post")
    assert f"datafusion=={_engine.DATAFUSION_VERSION}" in (metadata.requires("xql-ffi-engine") or [])


@pytest.mark.parametrize("first", ["", "import pyarrow", "import xql_ffi_engine", "import xarray_sql"])
def test_it_is_active_whatever_is_imported_first(run: Callable[..., str], first: str) -> None:
    directory, active, status = run(first + WHICH).splitlines()
    assert Path(directory) == ENGINE
    assert active == "True"
    assert status.startswith("active: datafusion 54.0.0 runs on ")


def test_it_is_active_in_isolated_mode(run: Callable[..., str]) -> None:
    assert run(WHICH, "-I").splitlines()[1] == "True"


def test_it_is_ready_before_datafusion_is_imported(run: Callable[..., str]) -> None:
    assert run("import xql_ffi_engine; print(xql_ffi_engine.status())").startswith("ready: ")


@pytest.mark.parametrize("value", ["0", "off", "OFF", "False", "no"])
def test_the_switch_turns_it_off(run: Callable[..., str], value: str) -> None:
    directory, active, status = run(WHICH, XQL_FFI_ENGINE=value).splitlines()
    assert Path(directory) == STOCK
    assert active == "False"
    assert status == f"inactive: it is switched off by XQL_FFI_ENGINE={value}"


def test_a_switch_that_cannot_be_read_turns_it_off_and_says_so(run: Callable[..., str]) -> None:
    directory, active, status = run(WHICH, XQL_FFI_ENGINE="offf").splitlines()
    assert Path(directory) == STOCK
    assert active == "False"
    assert status == ("inactive: XQL_FFI_ENGINE=offf is neither on (1, on, true, yes) nor off (0, off, false, no)")


def test_the_switch_works_within_a_program(run: Callable[..., str]) -> None:
    program = "import os; os.environ['XQL_FFI_ENGINE'] = '0'\n"
    assert run(program + WHICH).splitlines()[1] == "False"


def installation(directory: Path, version: str) -> str:
    """Make another installation of datafusion that says it has this version."""
    (directory / "datafusion").symlink_to(STOCK)
    information = directory / f"datafusion-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: datafusion\nVersion: {version}\n")
    return str(directory)


@pytest.mark.parametrize("version", ["54.1.0", "54.0.0.post1", "53.0.0"])
def test_another_version_runs_on_its_own_module(run: Callable[..., str], tmp_path: Path, version: str) -> None:
    path = installation(tmp_path, version)
    directory, active, status = run(WHICH, PYTHONPATH=path).splitlines()
    assert Path(directory) == tmp_path / "datafusion"
    assert active == "False"
    assert status == f"inactive: it is for datafusion 54.0.0, and datafusion {version} is installed"


def test_the_same_version_elsewhere_runs_on_the_engine(run: Callable[..., str], tmp_path: Path) -> None:
    path = installation(tmp_path, "54.0.0")
    assert run(WHICH, PYTHONPATH=path).splitlines()[1] == "True"


def test_metadata_of_another_version_is_heeded(run: Callable[..., str], tmp_path: Path) -> None:
    installation(tmp_path, "54.1.0")
    (tmp_path / "datafusion").unlink()
    directory, active, status = run(WHICH, PYTHONPATH=str(tmp_path)).splitlines()
    assert Path(directory) == STOCK
    assert active == "False"
    assert "datafusion 54.1.0 is installed" in status


def test_a_source_tree_runs_on_its_own_module(run: Callable[..., str], tmp_path: Path) -> None:
    shutil.copytree(STOCK, tmp_path / "datafusion", symlinks=True, ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    for module in STOCK.glob("_internal.*"):
        (tmp_path / "datafusion" / module.name).symlink_to(module)
    directory, _, status = run(WHICH, PYTHONPATH=str(tmp_path)).splitlines()
    assert Path(directory) == tmp_path / "datafusion"
    assert status.startswith("inactive: datafusion is imported from elsewhere")


def test_without_distribution_it_is_inactive(run: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "xql_ffi_engine").symlink_to(ENGINE)
    (tmp_path / "datafusion").mkdir()
    (tmp_path / "datafusion" / "__init__.py").touch()
    program = f"import sys; sys.path.append({str(tmp_path)!r}); import xql_ffi_engine; print(xql_ffi_engine.status())"
    assert run(program, "-S") == "inactive: datafusion is not installed as a distribution"


def test_a_missing_shared_object_leaves_the_stock_module(run: Callable[..., str], tmp_path: Path) -> None:
    shutil.copytree(ENGINE, tmp_path / "xql_ffi_engine", ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    directory, _, status = run(WHICH, PYTHONPATH=str(tmp_path)).splitlines()
    assert Path(directory) == STOCK
    assert status == "inactive: its shared object is missing"


WITHOUT_SITE = f"import sys; sys.path.append({str(SITE)!r})\n"


def test_without_site_it_is_installed_by_hand(run: Callable[..., str]) -> None:
    program = WITHOUT_SITE + "import xql_ffi_engine\nprint(xql_ffi_engine.status())\n"
    assert "xql_ffi_engine.install()" in run(program, "-S")
    program += "xql_ffi_engine.install(); xql_ffi_engine.install()"
    assert run(program + WHICH, "-S").splitlines()[2] == "True"


def test_too_late_is_said(run: Callable[..., str]) -> None:
    program = WITHOUT_SITE + "import datafusion, xql_ffi_engine; xql_ffi_engine.install()"
    status = run(program + WHICH, "-S").splitlines()[2]
    assert status.startswith("inactive: datafusion was imported before")


def test_without_datafusion_it_says_so(run: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "xql_ffi_engine").symlink_to(ENGINE)
    program = f"import sys; sys.path.append({str(tmp_path)!r}); import xql_ffi_engine; print(xql_ffi_engine.status())"
    assert run(program, "-S") == "inactive: datafusion is not installed"


def test_spawned_processes_have_it_too(run: Callable[..., str]) -> None:
    program = """
import multiprocessing

def work(x):
    import datafusion, xql_ffi_engine
    rows = datafusion.SessionContext().sql(f"SELECT {x} + 1 AS y").to_pydict()
    return xql_ffi_engine.is_active(), rows["y"]

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [1, 2]))
"""
    assert run(program) == "[(True, [2]), (True, [3])]"


def test_other_modules_are_not_its_business() -> None:
    assert xql_ffi_engine.Finder().find_spec("datafusion") is None
    assert xql_ffi_engine.Finder().find_spec("_internal") is None
    assert importlib.util.find_spec("datafusion._external") is None
