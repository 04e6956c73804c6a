"""The tables and functions that a statement names, as the native library takes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from xql_ffi._calls import may_differentiate
from xql_ffi._errors import DifferentiationError, MissingRuleError
from xql_ffi._expressions import quoted, shown
from xql_ffi._lacking import way_without
from xql_ffi._text import library
from xql_ffi._text.library import UnknownFunctionError
from xql_ffi._text.shadowed_functions import check_own_functions
from xql_ffi._text.views import Held, Path, held_tables, named_in

if TYPE_CHECKING:
    from collections.abc import Iterator


class Session(Protocol):
    """What a session of the ``datafusion`` package has, of any version, what wraps one, and a DuckDB connection."""

    def sql(self, query: str) -> Any:
        """Plans a statement, and executes it where it does something."""


Tables = Mapping[str, "pa.Schema | str"] | Session


def is_duckdb(tables: object) -> bool:
    """Returns whether this is a DuckDB connection, or the module, which has one."""
    name = tables.__name__ if isinstance(tables, ModuleType) else type(tables).__module__
    return name.partition(".")[0] in ("duckdb", "_duckdb")


# The dialects of connections that run no statements of ours, by the modules of their classes.
_DIALECTS = {
    "google": "bigquery",
    "polars": "polars",
    "psycopg": "postgres",
    "psycopg2": "postgres",
    "pyspark": "spark",
    "sqlite3": "sqlite",
}


def is_session(tables: object) -> bool:
    """Returns whether this is a session of the ``datafusion`` package, or a DuckDB connection."""
    return hasattr(tables, "catalog_names") or is_duckdb(tables)


def other_engine(given: object) -> str:
    """Returns advice for an object that is no session of datafusion."""
    if is_duckdb(given):
        return "Run statements on a DuckDB connection by xql_ffi.sql(connection, statement)"
    dialect = _DIALECTS.get(type(given).__module__.partition(".")[0], "...")
    return (
        "For another engine, write the text of a statement, and run it there: "
        f'expand_sql(statement, {{"t": schema}}, dialect="{dialect}")'
    )


def check_tables(tables: object) -> None:
    """Checks that tables are those of a session, or a mapping of names.

    Raises:
        TypeError: they are neither.
    """
    if not isinstance(tables, Mapping) and not is_session(tables):
        msg = (
            "the tables must be a session of datafusion, a DuckDB connection or a mapping of names to pyarrow schemas; "
            f"{shown(tables)} is none of them. {other_engine(tables)}"
        )
        raise TypeError(msg)


def no_table(name: str, given: object) -> str:
    """Returns the reason why an argument is no table."""
    advice = (
        f'write {{"{name}": table.schema}}'
        if isinstance(getattr(given, "schema", None), pa.Schema)
        else (f'write {{"{name}": pyarrow.schema({{"x": pyarrow.float64()}})}}')
    )
    return f"the table {name!r} must be a pyarrow schema or the query of a view; {shown(given)} is neither: {advice}"


def catalog(tables: Tables, text: str = "") -> Any:
    """Returns the catalog of a session of datafusion, or of tables by their names, for a text of statements.

    Raises:
        TypeError: a table is given by something else than its schema or the query of a view.
        ValueError: a name or a schema is wrong.
    """
    made = library.catalog()
    if isinstance(tables, Mapping):
        for name, table in tables.items():
            if isinstance(table, str):
                library.add_view(made, name, table)
            elif isinstance(table, pa.Schema):
                library.add_table(made, name, table)
            else:
                raise TypeError(no_table(name, table))
        return made
    queries = {}
    for path, table in relations(tables):
        name = ".".join(quoted(part) for part in path)
        if isinstance(table, pa.Schema):
            library.add_table(made, name, table)
        elif table:
            queries[path] = table
        else:
            library.add_opaque(made, name, UNKNOWN_VIEW)
    read = named_in(text, queries) if may_differentiate(text) else {}
    held = held_tables(tables, read)
    for path, query in queries.items():
        _add_view(made, path, query, tables, held.get(path, {}))
    return made


def _add_view(made: Any, path: Path, query: str, session: Session, held: dict[str, Held] | None) -> None:
    name = ".".join(quoted(part) for part in path)
    try:
        check_own_functions(session, query)
    except DifferentiationError as error:
        library.add_opaque(made, name, str(error))
        return
    if held is None:
        library.add_opaque(made, name, CHANGED_VIEW)
        return
    library.add_view(made, name, query)
    for table, found in held.items():
        if not found.is_named:
            library.add_held(made, name, table, found.known_by, found.schema)


def relations(session: Any) -> Iterator[tuple[tuple[str, str, str], pa.Schema | str | None]]:
    """The names in full of tables with their columns, and of views with their queries as far as these are known."""
    found = list(_tables(session))
    definitions = _definitions(session) if any(table.kind == "view" for _, table in found) else {}
    for path, table in found:
        yield path, definitions.get(path) if table.kind == "view" else table.schema


UNKNOWN_VIEW = (
    "the session does not say which query computes this view, and a derivative has to look through it: make the view "
    "with CREATE VIEW, or write its query in its place"
)

CHANGED_VIEW = (
    "the session has this view as it was made, and its query would give another one now, since what it reads has been "
    "made anew: make the view anew as well, by CREATE OR REPLACE VIEW"
)


def _tables(session: Any) -> Iterator[tuple[tuple[str, str, str], Any]]:
    """Yields the tables of a session with their names in full."""
    for path in table_names(session):
        catalog_name, schema_name, name = path
        yield path, session.catalog(catalog_name).schema(schema_name).table(name)


def table_names(session: Any) -> Iterator[tuple[str, str, str]]:
    """Yields the names in full of the tables and views of a session."""
    for catalog_name in sorted(session.catalog_names()):
        found = session.catalog(catalog_name)
        for schema_name in sorted(found.names()):
            if schema_name != "information_schema":
                yield from ((catalog_name, schema_name, name) for name in sorted(found.schema(schema_name).names()))


def _definitions(session: Session) -> dict[tuple[str, str, str], str]:
    """Returns the queries of views by their names, as far as the session knows them.

    It tells them in its information schema alone, which is switched on for that moment where it is off.
    """
    was_on = _columns(session, "SELECT 1 AS one FROM information_schema.views LIMIT 0") is not None
    if not was_on:
        session.sql(f"SET {_INFORMATION_SCHEMA} = true")
    try:
        columns = _columns(session, _VIEWS) or {}
    finally:
        if not was_on:
            session.sql(f"SET {_INFORMATION_SCHEMA} = false")
    found = zip(*columns.values(), strict=True)
    return {(catalog, schema, name): query for catalog, schema, name, query in found if query}


_INFORMATION_SCHEMA = "datafusion.catalog.information_schema"
_VIEWS = "SELECT table_catalog, table_schema, table_name, definition FROM information_schema.views"


def _columns(session: Session, query: str) -> dict[str, list[str]] | None:
    """Returns the columns that a query gives; None if it is refused, as one of a schema that is switched off is."""
    try:
        columns: dict[str, list[str]] = session.sql(query).to_pydict()
    except Exception:  # datafusion has no class of its own for that
        return None
    return columns


def answer(made: Any, tables: Tables, asked: UnknownFunctionError) -> None:
    """Adds what a call of a function gives that the native library does not know.

    Raises:
        MissingRuleError: there is no such function, and it is known what to do without.
        ValueError: there is no such function.
    """
    way = way_without(asked.name)
    if isinstance(tables, Mapping):
        if way is not None:
            raise MissingRuleError(way)
        msg = f"there is no function called {asked.name}: hand over the session that has it instead of the mapping"
        raise ValueError(msg)
    try:
        field = tables.sql(f"SELECT {asked.call} AS v").schema().field("v")
    except Exception as error:
        library.add_function(made, asked.call, None, is_volatile=False)
        if way is not None and "Invalid function" in str(error):
            raise MissingRuleError(way) from None
        msg = f"the session cannot plan {asked.call}: {library.plain(str(error))}"
        raise ValueError(msg) from error
    library.add_function(made, asked.call, field, is_volatile=_is_volatile(tables, asked))


def _is_volatile(session: Session, asked: UnknownFunctionError) -> bool:
    """Returns whether each call of a function may give something else: then the planner does not make one of two."""
    if not asked.arguments:
        return True
    columns = [f"a{number}" for number in range(len(asked.arguments))]
    source = ", ".join(f"{argument} AS {column}" for argument, column in zip(asked.arguments, columns, strict=True))
    call = f"{asked.name}({', '.join(columns)})"
    query = f"SELECT {call} AS u, {call} IS NULL AS v FROM (SELECT {source} FROM (VALUES (1), (2)) AS t(i) LIMIT 2)"
    return "__common_expr" not in session.sql(query).optimized_logical_plan().display_indent()
