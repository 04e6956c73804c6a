"""These tests are for the stock wheel of DataFusion 55."""

from collections.abc import Iterator

import pytest

from support.stock import ON_STOCK
from xql_ffi import _native

collect_ignore_glob = [] if ON_STOCK else ["test_*.py"]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Whatever a test does, no table, function or plan stays on its way between the host and the library."""
    before = _native.crossings()
    yield
    assert _native.crossings() <= before
