"""Polars orders by the column of SELECT that has the name of a key, whatever table the key names."""

import pytest

from xql_ffi import HostError
from xql_ffi._text.dialects.names import Names
from xql_ffi._text.dialects.polars import POLARS
from xql_ffi._text.dialects.source_fragments import SourceFragments
from xql_ffi._text.dialects.writing import host_tree


def test_another_column_of_the_name_is_refused() -> None:
    with pytest.raises(HostError, match="Polars orders by the column of SELECT"):
        host_tree("SELECT -t.id AS id FROM t ORDER BY t.id", Names(POLARS, {}), SourceFragments(POLARS))


@pytest.mark.parametrize(
    "query", ["SELECT t.id AS id FROM t ORDER BY t.id", "SELECT -t.id AS id, row_number() OVER (ORDER BY t.id) FROM t"]
)
def test_the_same_column_is_not(query: str) -> None:
    assert POLARS.text(host_tree(query, Names(POLARS, {}), SourceFragments(POLARS))) == query
