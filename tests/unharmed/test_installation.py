"""What is installed: the stock packages, untouched, with all their requirements satisfied."""

import base64
import hashlib
import importlib.metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from support.processes import json_of

_IMPORTED = "import json, datafusion._internal as native; print(json.dumps(native.__file__))"


def _unmet(name: str, seen: set[str]) -> list[str]:
    """The requirements of a distribution, and of all that it requires, that are not satisfied."""
    if name.lower() in seen:
        return []
    seen.add(name.lower())
    unmet: list[str] = []
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            unmet.append(f"{name} requires {text}, which is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            unmet.append(f"{name} requires {text}, there is {version}")
        unmet += _unmet(requirement.name, seen)
    return unmet


@pytest.mark.parametrize("name", ["xarray-sql", "xql-ffi", "xql-ffi-engine", "datafusion"])
def test_requirements_are_satisfied(name: str) -> None:
    assert _unmet(name, set()) == []


def test_the_versions_that_belong_together() -> None:
    assert importlib.metadata.version("xarray-sql") == "0.6.0"
    assert importlib.metadata.version("datafusion") == "54.0.0"


@pytest.mark.parametrize("name", ["datafusion", "xarray-sql"])
def test_files_are_those_of_the_wheel(name: str) -> None:
    """No file of the package was replaced: each has the hash that its wheel recorded."""
    checked = 0
    for file in importlib.metadata.files(name) or []:
        if file.hash is None:
            continue
        digest = hashlib.new(file.hash.mode, Path(str(file.locate())).read_bytes()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value, str(file)
        checked += 1
    assert checked > 10


def test_the_engine_is_the_native_module_unless_switched_off() -> None:
    stock: str = json_of(["-c", _IMPORTED], engine=False)
    engine: str = json_of(["-c", _IMPORTED], engine=True)
    assert Path(stock).parent.name == "datafusion"
    assert engine != stock


@pytest.mark.parametrize("options", [("-I",), ("-E",), ("-s",), ("-P",), ("-O",)], ids=lambda options: options[0])
def test_options_of_python_do_not_matter(options: tuple[str, ...]) -> None:
    import sys

    if options == ("-P",) and sys.version_info < (3, 11):
        pytest.skip("-P came with Python 3.11")
    engine: str = json_of([*options, "-c", _IMPORTED], engine=True)
    assert Path(engine).parent.name != "datafusion"


@pytest.mark.parametrize("value", ["1", "", "true", "ON", "Yes"])
def test_other_values_of_the_switch_leave_it_on(value: str) -> None:
    engine: str = json_of(["-c", _IMPORTED], engine=True, environment={"XQL_FFI_ENGINE": value})
    assert Path(engine).parent.name != "datafusion"
