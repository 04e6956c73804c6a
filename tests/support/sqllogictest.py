"""DataFusion's own suite of SQL: where it is, and the statements of its files.

It is what the crate `datafusion-sqllogictest` carries: in cargo's folder, if cargo can fetch it, or in the folder that
XQL_FFI_SQLLOGICTEST names, with `.slt` files of any project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_CRATE = "datafusion-sqllogictest"


@dataclass(frozen=True)
class Record:
    """A statement of a file."""

    place: str
    sql: str


def corpus() -> Path:
    """Where the files are. Skips where they cannot be had."""
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


def records(path: Path) -> Iterator[Record]:
    """The statements of a file and of those that it includes, up to the line that ends it.

    A statement is what stands between the line that says what is expected and the result.
    """
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        words = line.split()
        if line.startswith("halt"):
            return
        if line.startswith("include "):
            for included in sorted(path.parent.glob(words[1])):
                yield from records(included)
        elif words and words[0] in ("statement", "query") and not line.startswith(" "):
            taken = []
            for _, part in lines:
                if part.strip() in ("", "----"):
                    break
                taken.append(part)
            yield Record(f"{path.name}:{number}", "\n".join(taken))
