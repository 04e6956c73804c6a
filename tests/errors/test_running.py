"""Errors that a derivative raises while its query runs: a sentence that is converted to a number."""

import re
from collections.abc import Callable

import duckdb
import pytest
from datafusion import DataFrame, SessionContext

import xql_ffi
from xql_ffi._errors import translated

SENTENCE = 'rows 1 to 3 of p."W" in one window: the derivative by the row\'s own is not known there'
QUOTED = SENTENCE.replace("'", "''")
RAISED = f"CAST(concat('UnsupportedRelationError: ', '{QUOTED}', substr(k, 2)) AS DOUBLE)"
STATEMENT = f"SELECT grad(x * x, x) AS d, {RAISED} AS e FROM t"

EXECUTE: dict[str, Callable[[DataFrame], object]] = {
    "collect": lambda frame: frame.collect(),
    "to_pandas": lambda frame: frame.to_pandas(),
    "to_pydict": lambda frame: frame.to_pydict(),
    "to_arrow_table": lambda frame: frame.to_arrow_table(),
    "show": lambda frame: frame.show(),
    "cache": lambda frame: frame.cache(),
    "print": repr,
    "a loop over batches": lambda frame: [*frame.execute_stream()],
}


TABLES = {"t": {"x": [1.0], "k": ["a"]}}


@pytest.mark.parametrize("execute", EXECUTE.values(), ids=EXECUTE)
@pytest.mark.parametrize("run", [lambda ctx, query: ctx.sql(query), xql_ffi.sql], ids=["ctx.sql", "xql_ffi.sql"])
def test_the_sentence_is_all_of_the_message(
    run: Callable[[SessionContext, str], DataFrame], execute: Callable[[DataFrame], object], session: SessionContext
) -> None:
    with pytest.raises(xql_ffi.UnsupportedRelationError) as caught:
        execute(run(session, STATEMENT))
    assert str(caught.value) == SENTENCE


def test_of_a_statement_that_is_executed_at_once(session: SessionContext) -> None:
    with pytest.raises(xql_ffi.UnsupportedRelationError) as caught:
        xql_ffi.sql(session, f"CREATE TABLE made AS {STATEMENT}")
    assert str(caught.value) == SENTENCE


def test_of_duckdb() -> None:
    connection = duckdb.connect()
    connection.sql("CREATE TABLE t AS SELECT 1e0 AS x, 'a' AS k")
    with pytest.raises(xql_ffi.UnsupportedRelationError) as caught:
        xql_ffi.sql(connection, f"CREATE TABLE made AS {STATEMENT}")
    assert str(caught.value) == SENTENCE


def test_other_conversions_stay_what_they_are(session: SessionContext) -> None:
    assert translated("Cannot cast string 'a: b' to value of Float64 type") is None
    with pytest.raises(Exception, match=re.escape("Cannot cast string 'a'")) as caught:
        session.sql("SELECT grad(x * x, x), CAST(k AS DOUBLE) FROM t").collect()
    assert not isinstance(caught.value, xql_ffi.DifferentiationError)
