"""A plugin of pytest for run.py: what each test takes and reaches, or the tests that a fault meets, until one fails."""

import ctypes
import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import xql_ffi
import xql_ffi_engine
from mutants.faults import FORGET, REACHED, RECORDED, RUNNING, WANTED
from support import verdict

# By test: whether it passes, its seconds, and the places that it reaches.
recorded: dict[str, tuple[bool, float, list[int]]] = {}
# By file: the places that fixtures of all its tests reach.
of_fixtures: dict[str, set[int]] = {}


class Places:
    """The places that have been reached since this was asked before."""

    def __init__(self, path: str) -> None:
        # The plugin has the calculus, and the engine, where the analyzer rules run, has it again.
        folders = (Path(xql_ffi.__file__).parent / "_plugin", Path(xql_ffi_engine.__file__).parent)
        libraries = [ctypes.CDLL(str(library)) for folder in folders for library in folder.glob("*.so")]
        self._forget = [getattr(library, FORGET) for library in libraries]
        self._path = Path(path)

    def taken(self) -> set[int]:
        """The numbers of the places."""
        places = set(map(int, self._path.read_text().split())) if self._path.exists() else set()
        self._path.write_text("")
        for forget in self._forget:
            forget()
        return places


places = Places(os.environ[REACHED]) if REACHED in os.environ else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Notes what a test takes and reaches."""
    if places is None:
        Path(os.environ[RUNNING]).write_text(item.nodeid)
        return (yield)
    places.taken()
    recorded[item.nodeid] = (True, 0.0, [])
    start = time.monotonic()
    result = yield
    passed, _, reached = recorded[item.nodeid]
    recorded[item.nodeid] = (passed, time.monotonic() - start, sorted({*reached, *places.taken()}))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Notes what a fixture of several tests reaches."""
    if places is None or fixturedef.scope == "function":
        return (yield)
    before = places.taken()
    result = yield
    item = request._pyfuncitem.nodeid
    of_fixtures.setdefault(item.partition("::")[0], set()).update(places.taken())
    passed, seconds, reached = recorded[item]
    recorded[item] = (passed, seconds, [*reached, *before])
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes that a test fails."""
    if report.failed and places is not None:
        recorded[report.nodeid] = (False, *recorded[report.nodeid][1:])


def pytest_sessionfinish() -> None:
    """Writes down what has been noted."""
    if places is None:
        return
    for name, (passed, seconds, reached) in recorded.items():
        everywhere = of_fixtures.get(name.partition("::")[0], set())
        recorded[name] = (passed, seconds, sorted({*reached, *everywhere}))
    Path(os.environ[RECORDED]).write_text(json.dumps(recorded))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Takes the tests that are wanted, and has those of random statements end with the first finding."""
    if places is not None:
        return
    wanted = {name: number for number, name in enumerate(json.loads(Path(os.environ[WANTED]).read_text()))}
    items[:] = sorted((item for item in items if item.nodeid in wanted), key=lambda item: wanted[item.nodeid])
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        judge = vars(module).get("Judge")
        if isinstance(judge, type) and issubclass(judge, verdict.Judge):
            module.Judge = ending_at_once(judge)
        elif module.__name__.endswith("test_conformance"):
            module.Judge.smallest = lambda judge, disagreement: disagreement


def ending_at_once(judge: type[Any]) -> type[Any]:
    """A judge of statements who fails a test instead of giving what is wrong."""

    def ending(self: object, *arguments: object, **options: object) -> None:
        if (finding := judge.judge(self, *arguments, **options)) is not None:
            pytest.fail(str(finding), pytrace=False)

    return type("Ending", (judge,), {"judge": ending})
