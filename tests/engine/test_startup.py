"""What the ``.pth`` file costs and risks when Python starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import xql_ffi_engine

if TYPE_CHECKING:
    from collections.abc import Callable

PTH = Path(xql_ffi_engine.__file__).parent.parent / "xql_ffi_engine.pth"


def test_one_module_is_imported(run: Callable[..., str]) -> None:
    names = run("import sys; print(*sorted(sys.modules))").split()
    assert [name for name in names if name.startswith("xql_ffi_engine")] == ["xql_ffi_engine"]
    assert not {"datafusion", "importlib.metadata", "pathlib", "pyarrow", "typing"} & set(names)


def test_it_takes_no_time() -> None:
    def microseconds() -> int:
        command = [sys.executable, "-X", "importtime", "-c", ""]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        (line,) = (line for line in report.splitlines() if line.endswith(" xql_ffi_engine"))
        return int(line.split("|")[1])

    assert min(microseconds() for _ in range(10)) < 5000


@pytest.mark.parametrize("package", [None, "", "raise RuntimeError", "def install(): 1 / 0", "def"])
def test_what_is_left_of_the_package_does_no_harm(run: Callable[..., str], tmp_path: Path, package: str | None) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / PTH.name).write_text(PTH.read_text())
    if package is not None:
        (site / "xql_ffi_engine").mkdir()
        (site / "xql_ffi_engine" / "__init__.py").write_text(package)
    assert run(f"import site; site.addsitedir({str(site)!r}); print('started')", "-S") == "started"
