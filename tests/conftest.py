"""Fixtures of all tests."""

import signal
from collections.abc import Callable

import pytest
from datafusion import SessionContext

import xql_ffi
from support import sessions, stock
from support.seed import SEED
from support.tables import TABLES

# A shell has what it starts in the background ignore Ctrl-C, and with it the processes to which tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Random plans of one test.
CHUNK = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the sizes of the generated suites."""
    parser.addoption(
        "--conformance",
        type=int,
        default=1000,
        metavar="N",
        help="expressions in the conformance suite (default: 1000)",
    )
    parser.addoption(
        "--plans", type=int, default=300, metavar="N", help="plans in the suite of random plans (default: 300)"
    )
    parser.addoption(
        "--hostile",
        type=int,
        default=80,
        metavar="N",
        help="statements of hostile names and texts (default: 80)",
    )
    parser.addoption(
        "--sqllogictest",
        type=int,
        default=5,
        metavar="N",
        help="files of DataFusion's suite of SQL that run on the engine and on the stock module (default: 5)",
    )
    parser.addoption(
        "--size",
        type=int,
        default=1,
        metavar="FACTOR",
        help="how many times the statements of the tests of sizes are as large as in the normal run (default: 1)",
    )
    parser.addoption(
        "--load",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="how long threads plan and run statements in each test of them (default: 1)",
    )
    parser.addoption(
        "--sail", action="store_true", help="run what needs Sail, in an environment of a gigabyte, build/scale-out"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives tests of random plans their numbers, some for each test, so that several processes share them."""
    if "chunk" in metafunc.fixturenames:
        number = metafunc.config.getoption("plans")
        metafunc.parametrize("chunk", [range(start, min(start + CHUNK, number)) for start in range(0, number, CHUNK)])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what differs on the stock wheel."""
    if stock.ON_STOCK:
        stock.mark(items)


def pytest_report_header(config: pytest.Config) -> str:
    """Shows how to generate the same expressions and plans again."""
    numbers = f"{config.getoption('conformance')} expressions, {config.getoption('plans')} plans"
    return f"generated: {numbers}, XQL_FFI_TEST_SEED={SEED}"


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
