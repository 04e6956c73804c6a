"""What package indexes show of the distributions, and the workflow that makes them."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from readme_renderer.markdown import render

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
READMES = [ROOT / "README.md", ROOT / "native/engine/README.md"]


def shown(readme: Path) -> str:
    page = render(readme.read_text(encoding="utf-8"))
    assert page, "it cannot be rendered"
    return page


@pytest.mark.parametrize("readme", READMES, ids=["xql-ffi", "xql-ffi-engine"])
def test_links_and_images_of_a_readme_are_absolute(readme: Path) -> None:
    """An index shows the page alone."""
    found = re.findall(r'(?:href|src)="([^"]*)"', shown(readme))
    relative = [link for link in found if not link.startswith(("https://", "#"))]
    assert relative == []


def test_links_of_the_readme_lead_to_files_that_are_there() -> None:
    page = shown(READMES[0])
    repository = "github.com/xql-ffi/xql-ffi/(?:blob|tree)/main|raw.githubusercontent.com/xql-ffi/xql-ffi/main"
    found = re.findall(rf'(?:href|src)="https://(?:{repository})/([^"#]*)', page)
    assert len(found) > 10
    assert [path for path in found if not (ROOT / path).exists()] == []


def test_the_readme_begins_with_both_ways_to_install() -> None:
    first = READMES[0].read_text(encoding="utf-8")[:1000]
    assert "pip install xql-ffi datafusion" in first
    assert 'pip install "xql-ffi[xarray]"' in first


@pytest.mark.parametrize("name", ["xql-ffi", "xql-ffi-engine"])
def test_metadata_are_complete(name: str) -> None:
    found = metadata.metadata(name)
    for key in ("Summary", "Author", "Keywords", "License-Expression", "Requires-Python"):
        assert found[key], key
    assert found["Description-Content-Type"].startswith("text/markdown")
    assert "LICENSE" in found.get_all("License-File", [])
    urls = {url.partition(",")[0] for url in found.get_all("Project-URL", [])}
    assert urls == {"Homepage", "Documentation", "Repository", "Issues", "Changelog"}
    classifiers = found.get_all("Classifier", [])
    for version in PYTHONS:
        assert f"Programming Language :: Python :: {version}" in classifiers
    assert len(classifiers) == len({*classifiers}) > 10


def test_versions_of_datafusion() -> None:
    """`xql-ffi` alone works with two of them; the engine is for one, and is an extra, alone and with xarray-sql."""
    requirements = [Requirement(text) for text in metadata.requires("xql-ffi") or []]
    (datafusion,) = (r for r in requirements if r.name == "datafusion")
    assert datafusion.marker is None
    assert {version for version in ("53.0.0", "54.0.0", "55.0.0", "56.0.0") if version in datafusion.specifier} == {
        "54.0.0",
        "55.0.0",
    }
    for extra in ("engine", "xarray"):
        (engine,) = (r for r in requirements if r.name == "xql-ffi-engine" and _is_of(r, extra))
        assert not _is_of(engine, "")
        assert Version(metadata.version("xql-ffi-engine")) in engine.specifier
    (xarray_sql,) = (r for r in requirements if r.name == "xarray-sql")
    assert _is_of(xarray_sql, "xarray")


def _is_of(requirement: Requirement, extra: str) -> bool:
    assert requirement.marker is not None
    return requirement.marker.evaluate({"extra": extra})


def test_the_release_workflow_is_one() -> None:
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows")
    checked = subprocess.run(
        [*command, str(ROOT / ".github/workflows/release.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_release_workflow_uses_the_command_of_the_checkout() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert text.count("dev.py wheels") >= 2
    assert all(f'"{version}"' in text for version in PYTHONS)
