"""Fixtures of all tests."""

from collections.abc import Callable, Iterator

import pytest
from datafusion import SessionContext

from support.tables import add_tables


@pytest.fixture(scope="session")
def register() -> Callable[[SessionContext], SessionContext]:
    """`xql_ffi.register`, imported as late as a user may import it: after `datafusion`."""
    import xql_ffi

    return xql_ffi.register


@pytest.fixture(scope="module")
def ctx(register: Callable[[SessionContext], SessionContext]) -> Iterator[SessionContext]:
    """A session with the functions and the tables, shared by the tests of a file: they only read."""
    session = register(SessionContext())
    add_tables(session)
    yield session
