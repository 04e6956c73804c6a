"""Hosts for the tests."""

from collections.abc import Callable, Iterator

import pytest

from hosts.every import HOSTS, SAIL
from hosts.host import Host

# Expressions of one test. All hosts get the same ones in turn, for what JAX says of them is computed once.
EXPRESSIONS = 25
# Plans of one test.
PLANS = 100
# Of the sizes that are asked for, each host gets one of so many.
_SHARE = {"conformance": 40, "plans": 30}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives tests their part of what is generated, and for each part the hosts."""
    for name, option, size in (("expressions", "conformance", EXPRESSIONS), ("plans", "plans", PLANS)):
        if name in metafunc.fixturenames:
            number = metafunc.config.getoption(option) // _SHARE[option]
            parts = [range(start, min(start + size, number)) for start in range(0, number, size)]
            metafunc.parametrize(name, parts, ids=[f"{part.start}" for part in parts])
    if "host" in metafunc.fixturenames:
        # Sail reads some statements otherwise, and has a test of its own for these.
        generated = {"plans", "expressions"} & set(metafunc.fixturenames)
        has_sail = generated and SAIL in metafunc.config.getoption("scale_out")
        names = [name for name in HOSTS if name != SAIL or has_sail]
        metafunc.parametrize("host", names, indirect=True)


@pytest.fixture(scope="session")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Host]]:
    """Hosts by name, each begun once."""
    own = tmp_path_factory.getbasetemp()
    # All processes of a test run share one folder.
    folder = (own.parent if own.name.startswith("popen-") else own) / "hosts"
    known: dict[str, Host] = {}

    def begin(name: str) -> Host:
        if name not in known:
            known[name] = HOSTS[name](folder)
        return known[name]

    yield begin
    for host in known.values():
        host.close()


@pytest.fixture
def host(request: pytest.FixtureRequest, begun: Callable[[str], Host]) -> Host:
    """Each host in turn."""
    return begun(request.param)
