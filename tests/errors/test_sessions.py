"""Sessions that have no function `grad`, and what is no session."""

import sqlite3
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from support.errors import assert_says

STATEMENT = "SELECT grad(x * x, x) AS d FROM t"
TABLES = {"t": pa.schema({"x": pa.float64()})}


@pytest.mark.parametrize("name", ["grad", "jvp", "vjp", "stop_gradient"])
def test_without_registration_the_message_says_what_to_do(name: str) -> None:
    ctx = SessionContext()
    with pytest.raises(xql_ffi.DifferentiationError) as caught:
        ctx.sql(f"SELECT {name}(x, x) FROM (VALUES (1.0)) AS t(x)")
    assert str(caught.value) == (
        f"this session has no function called {name}. Register it, xql_ffi.register(ctx), or run the statement as "
        "plain SQL, xql_ffi.sql(ctx, statement)"
    )


def test_other_functions_that_are_missing_are_what_they_were() -> None:
    with pytest.raises(ValueError, match="Did you mean") as caught:
        SessionContext().sql("SELECT gradient(1.0)")
    assert not isinstance(caught.value, xql_ffi.DifferentiationError)


NO_SESSIONS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "register(duckdb)": (
        lambda: xql_ffi.register(duckdb.connect()),  # type: ignore[type-var]
        ["register takes a session of datafusion", r"by xql_ffi\.sql\(connection, statement\)"],
    ),
    "register(sqlite)": (
        lambda: xql_ffi.register(sqlite3.connect(":memory:")),  # type: ignore[type-var]
        ["register takes a session of datafusion", r"expand_sql\(", 'dialect="sqlite"'],
    ),
    "register(SessionContext)": (
        lambda: xql_ffi.register(SessionContext),  # type: ignore[type-var]
        [r"register takes a session, SessionContext\(\); SessionContext is the class"],
    ),
    "sql(sqlite)": (
        lambda: xql_ffi.sql(sqlite3.connect(":memory:"), STATEMENT),  # type: ignore[arg-type]
        [r"xql_ffi\.sql takes a session of datafusion or a DuckDB connection", 'dialect="sqlite"'],
    ),
    "sql(statement, session)": (
        lambda: xql_ffi.sql(STATEMENT, SessionContext()),  # type: ignore[arg-type]
        [r"takes the session first, xql_ffi\.sql\(session, statement\)"],
    ),
    "expand_sql(frame)": (
        lambda: xql_ffi.expand_sql(STATEMENT, SessionContext().from_pydict({"x": [1.0]})),  # type: ignore[arg-type]
        [r"an object of datafusion\.dataframe\.DataFrame is none of them"],
    ),
    "expand_sql(table)": (
        lambda: xql_ffi.expand_sql(STATEMENT, {"t": pa.table({"x": [1.0]})}),
        [r"an object of pyarrow\.lib\.Table is neither: write {\"t\": table\.schema}"],
    ),
    "expand_sql(table, dialect)": (
        lambda: xql_ffi.expand_sql(STATEMENT, {"t": ["x"]}, dialect="duckdb"),
        [r"an object of list is neither: write {\"t\": pyarrow\.schema"],
    ),
    "differentiate_sql(pairs)": (
        lambda: xql_ffi.differentiate_sql("x * x", "x", [("x", pa.float64())]),
        ["columns must be names, a mapping of names to types or a pyarrow schema"],
    ),
    "sql(mapping)": (
        lambda: xql_ffi.sql(TABLES, STATEMENT),  # type: ignore[arg-type]
        [r"xql_ffi\.sql takes a session of datafusion or a DuckDB connection"],
    ),
    "expand_sql(sqlite)": (
        lambda: xql_ffi.expand_sql(STATEMENT, sqlite3.connect(":memory:")),  # type: ignore[arg-type]
        ["the tables must be a session of datafusion", "a mapping of names to pyarrow schemas", 'dialect="sqlite"'],
    ),
    "expand_sql(sqlite, dialect)": (
        lambda: xql_ffi.expand_sql(STATEMENT, sqlite3.connect(":memory:"), dialect="sqlite"),  # type: ignore[arg-type]
        ["the tables must be a session of datafusion", 'dialect="sqlite"'],
    ),
}


@pytest.mark.parametrize("name", NO_SESSIONS)
def test_what_is_no_session(name: str) -> None:
    call, says = NO_SESSIONS[name]
    with pytest.raises(TypeError) as caught:
        call()
    assert_says(str(caught.value), says)
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize(
    ("given", "advice"),
    [("x", r"write col\('x'\)"), ("x * x", "or write the query in SQL"), (2, r"write lit\(2\)"), ([], "write col")],
)
def test_what_is_no_expression(given: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=f"grad takes expressions; .* is not one: .*{advice}"):
        xql_ffi.grad(given, "x")
