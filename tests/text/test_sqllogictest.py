"""Statements without a call, from DataFusion's own suite of SQL, come back byte for byte.

The corpus is what the crate `datafusion-sqllogictest` carries: in cargo's folder, if cargo can fetch it, or in the
folder that XQL_FFI_SQLLOGICTEST names, with `.slt` files of any project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import xql_ffi

_CRATE = "datafusion-sqllogictest"


def _folder() -> Path:
    """Where the corpus is. Skips where it cannot be had."""
    if given := os.environ.get("XQL_FFI_SQLLOGICTEST"):
        return Path(given)
    if not shutil.which("cargo"):
        pytest.skip(f"there is no cargo to fetch {_CRATE} with: set XQL_FFI_SQLLOGICTEST to a folder of .slt files")
    if not _fetched():
        # It shows a crate by fetching it, and nothing that it depends on.
        shown = subprocess.run(
            ["cargo", "info", "--color=never", f"{_CRATE}@54.0.0"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if not _fetched():
            pytest.skip(f"cargo does not fetch {_CRATE}: {shown.stderr.strip()[-300:]}")
    return _fetched()[-1]


def _fetched() -> list[Path]:
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    return sorted(home.glob(f"registry/src/*/{_CRATE}-*/test_files"))


def _statements(text: str) -> Iterator[str]:
    """The statements of a file: what stands between the line that says what is expected and the result."""
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        if line.split(" ")[0].strip() in ("statement", "query"):
            taken = []
            for part in lines:
                if part.strip() in ("", "----"):
                    break
                taken.append(part)
            yield "".join(taken)


def test_they_come_back_byte_for_byte() -> None:
    statements = [s for path in sorted(_folder().rglob("*.slt*")) for s in _statements(path.read_text())]
    assert len(statements) > 1000
    changed = [statement for statement in statements if xql_ffi.expand_sql(statement, {}) != statement]
    assert not changed
    print(f"{len(statements)} statements")
