"""Fixtures of all tests."""

import signal
from collections.abc import Callable, Iterator

import pytest
from datafusion import SessionContext

import xql_ffi
from support import daily, sessions, stock
from support.errors import internal_names
from support.seed import SEED
from support.tables import TABLES

# A shell has what it starts in the background ignore Ctrl-C, and with it the processes to which tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Random plans of one test.
CHUNK = 100


# What the generated suites consist of, by option.
GENERATED = {
    "conformance": (int, "N", "expressions in the conformance suite"),
    "plans": (int, "N", "plans in the suite of random plans"),
    "hostile": (int, "N", "statements of hostile names and texts"),
    "sqllogictest": (int, "N", "files of DataFusion's suite of SQL that run on the engine and on the stock module"),
    "size": (int, "FACTOR", "how many times the statements of the tests of sizes are as large as in the normal run"),
    "load": (float, "SECONDS", "how long threads plan and run statements in each test of them"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the choice of tests, and the sizes of the generated suites."""
    parser.addoption("--all", action="store_true", help="all tests, and not only the daily ones: support/daily.py")
    for option, (kind, metavar, what) in GENERATED.items():
        sizes = daily.SIZES[option]
        usual = f"default: {sizes.daily}, with --all {sizes.all}"
        parser.addoption(f"--{option}", type=kind, metavar=metavar, help=f"{what} ({usual})")
    parser.addoption(
        "--scale-out",
        action="append",
        choices=("sail", "ballista"),
        default=[],
        help="run what needs this engine, in an environment of a gigabyte, build/scale-out; can be given several times",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Fills in the sizes that are not given."""
    for option, (kind, *_) in GENERATED.items():
        if config.getoption(option) is None:
            size = daily.size(option, everything=config.getoption("all"), on_stock=stock.ON_STOCK)
            setattr(config.option, option, kind(size))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives tests of random plans their numbers, some for each test, so that several processes share them."""
    if "chunk" in metafunc.fixturenames:
        number = metafunc.config.getoption("plans")
        metafunc.parametrize("chunk", [range(start, min(start + CHUNK, number)) for start in range(0, number, CHUNK)])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what differs on the stock wheel, and takes the daily tests unless all are asked for, or some by name."""
    if stock.ON_STOCK:
        stock.mark(items)
    if config.getoption("all") or any("::" in given for given in config.args):
        return
    chosen = [item for item in items if daily.is_daily(item.nodeid, on_stock=stock.ON_STOCK)]
    config.hook.pytest_deselected(items=[item for item in items if item not in {*chosen}])
    items[:] = chosen


def pytest_report_header(config: pytest.Config) -> str:
    """Shows which tests run, and how to generate the same expressions and plans again."""
    which = "all tests" if config.getoption("all") else "the daily tests (--all for all)"
    numbers = f"{config.getoption('conformance')} expressions, {config.getoption('plans')} plans"
    return f"{which}; generated: {numbers}, XQL_FFI_TEST_SEED={SEED}"


# Tests whose statements have columns of their own that are called as those which derivatives add.
OWN_NAMES = ("load/", "hosts/", "relations/test_own_names.py", "text/hostile.py")


@pytest.fixture(scope="session")
def _messages() -> Iterator[list[str]]:
    """The messages of the refusals of a process."""
    messages: list[str] = []
    original = xql_ffi.DifferentiationError.__init__

    def init(self: xql_ffi.DifferentiationError, *args: object) -> None:
        messages.extend(map(str, args))
        original(self, *args)

    xql_ffi.DifferentiationError.__init__ = init  # type: ignore[method-assign, assignment]
    yield messages
    xql_ffi.DifferentiationError.__init__ = original  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def _known_names(request: pytest.FixtureRequest, _messages: list[str]) -> Iterator[None]:
    """Whatever a test has refused, the message has no name of what this package adds to a plan or makes for itself."""
    _messages.clear()
    yield
    if not any(part in request.node.nodeid for part in OWN_NAMES):
        for message in _messages:
            assert not internal_names(message), message


@pytest.fixture(scope="session")
def register() -> Callable[[SessionContext], SessionContext]:
    """Registers grad, jvp and vjp with a session."""
    return xql_ffi.register


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    """A session with the functions and the tables of `support`, shared by the tests of a file: they only read."""
    return sessions.session(TABLES)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> SessionContext:
    """A session of one test, with the functions and the tables that its file calls `TABLES`."""
    return sessions.session(getattr(request.module, "TABLES", None))
