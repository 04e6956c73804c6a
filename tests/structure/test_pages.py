"""Pages about the code name what is there: modules, and each folder of the checkout and of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-it-works.md").read_text(encoding="utf-8")
SECTIONS = {
    found[1]: found[2] for found in re.finditer(r"^## [^\n]*`(native/[\w-]+)`\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}


def named(section: str) -> list[str]:
    """The modules before the colon of each line of a numbered list, and those in brackets behind a word."""
    lines = re.findall(r"^\d+\. ([^:]*):", section, re.M)
    return [name for line in lines for name in re.findall(r"`(\w+)`", line)]


@pytest.mark.parametrize("crate", SECTIONS)
def test_modules_are_there(crate: str) -> None:
    source = ROOT / crate / "src"
    there = {path.stem for path in source.rglob("*.rs")} | {path.name for path in source.rglob("*") if path.is_dir()}
    assert {*named(SECTIONS[crate])} <= there


def test_modules_are_named() -> None:
    assert {"native/autodiff", "native/relations", "native/text"} <= {*SECTIONS}
    for crate in ("native/autodiff", "native/relations", "native/text"):
        assert len(named(SECTIONS[crate])) >= 5, crate


def test_contributing_has_every_folder() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    crates = [f"native/{manifest.parent.name}" for manifest in ROOT.glob("native/*/Cargo.toml")]
    for folder in [*crates, "xql_ffi", "tests", "examples", "docs", "bench"]:
        assert f"`{folder}`" in table, folder


def test_the_readme_of_the_tests_has_every_folder() -> None:
    text = (ROOT / "tests/README.md").read_text(encoding="utf-8")
    rows = [row.split("|")[2:4] for row in re.findall(r"^\| .*\|$", text, re.M)[1:]]
    python, rust = ({name for row in rows for name in re.findall(r"`([^`]*)`", row[column])} for column in (0, 1))
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/*/test_*.py")}
    assert folders <= {name.partition("/")[0] for name in python}
    for name in python:
        assert [*(ROOT / "tests").glob(name)], name
    for name in rust:
        assert [*(ROOT / "native").glob(name)], name
