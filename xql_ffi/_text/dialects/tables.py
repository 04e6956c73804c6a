"""The tables that statements of a host name, as the native library takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from xql_ffi._calls import OPERATORS
from xql_ffi._errors import HostError, MissingRuleError
from xql_ffi._expressions import quoted
from xql_ffi._lacking import way_without
from xql_ffi._text import catalog, library
from xql_ffi._text.dialects.duckdb import DUCKDB
from xql_ffi._text.dialects.duckdb_types import duckdbs_null
from xql_ffi._text.dialects.host import DATAFUSION, Host
from xql_ffi._text.dialects.known import Known
from xql_ffi._text.dialects.names import Names
from xql_ffi._text.dialects.reading import datafusion_text, datafusion_tree
from xql_ffi._text.dialects.statements import check_functions
from xql_ffi._text.dialects.words import Words
from xql_ffi._text.library import UnknownFunctionError


@dataclass(frozen=True)
class Relation:
    """A table or a view."""

    # Its name, in full or as far as it is given.
    path: tuple[str, ...]
    # The columns of a table, the query of a view in the SQL of `host`, or why neither is known.
    columns: pa.Schema | None = None
    query: str | None = None
    reason: str = ""
    # The names of a view's columns where it gives them itself.
    renamed: tuple[str, ...] = ()


def known(tables: Any, host: Host) -> Known:
    """What is known of the tables of a session, or of a mapping of names to schemas.

    Raises:
        TypeError: it is neither, or a table is given by something else than its schema or the query of a view.
        ValueError: a name or a schema is wrong, or the query of a view cannot be read.
    """
    if isinstance(tables, Mapping):
        return _known(_given(tables, host), host, host)
    if catalog.is_duckdb(tables):
        found = _known(_of_duckdb(tables), DUCKDB, host, _own_functions(tables))
        return replace(
            found,
            source=lambda text: tables.sql(f"SELECT * FROM {text} LIMIT 0").to_arrow_table().schema,
            described=lambda query: _described(tables, query),
        )
    catalog.check_tables(tables)
    return _known(_of_session(tables), DATAFUSION, host)


def _described(connection: Any, query: str) -> list[tuple[str, str]]:
    found = connection.sql(query)
    return list(zip(found.columns, map(str, found.types), strict=True))


def _known(relations: Iterable[Relation], source: Host, host: Host, own: Mapping[str, str] | None = None) -> Known:
    made = library.catalog()
    if host.rereads:
        library.let_reread(made)
    names: dict[str, str] = {}
    floats: dict[str, bool] = {}
    views = []
    tables = set()
    words = Words(host)
    places = {source.schema: DATAFUSION.schema, source.catalog: DATAFUSION.catalog}
    for relation in relations:
        keys = [host.key(part) for part in relation.path]
        tables.add(keys[-1])
        names.update(zip(keys, relation.path, strict=True))
        keys = [places.get(key, key) if number + 1 < len(keys) else key for number, key in enumerate(keys)]
        name = ".".join(quoted(key) for key in keys)
        if relation.columns is not None:
            fields = [_known_field(field, host) for field in relation.columns]
            names.update((host.key(field.name), field.name) for field in relation.columns)
            for field in fields:
                floats[field.name] = floats.get(field.name, True) and pa.types.is_floating(field.type)
            library.add_table(made, name, pa.schema(fields))
        elif relation.query is not None:
            views.append((name, relation))
        else:
            library.add_opaque(made, name, relation.reason)
    # Whether a column is a float is known of all tables before the first view is read.
    columns = {name for name, is_float in floats.items() if is_float}
    for name, relation in views:
        try:
            check_functions(own or {}, relation.query or "")
            library.add_view(made, name, _definition(relation, source, columns, words))
        except HostError as error:
            library.add_opaque(made, name, str(error))
    named = {key: name for key, name in names.items() if key != name}
    return Known(made, named, columns, words, own or {}, tables)


def _known_field(field: pa.Field, host: Host) -> pa.Field:
    """A column by its name as the host compares it, of a type that the host has."""
    is_single = not host.has_single and pa.types.is_float32(field.type)
    return pa.field(host.key(field.name), pa.float64() if is_single else field.type, field.nullable)


def _definition(relation: Relation, source: Host, floats: Iterable[str], words: Words) -> str:
    """The query of a view as DataFusion's."""
    query = relation.query or ""
    if source is DATAFUSION:
        return query
    tree = source.parsed(query)
    renamed = relation.renamed
    if isinstance(tree, exp.Create):
        if isinstance(tree.this, exp.Schema):
            renamed = tuple(column.name for column in tree.this.expressions)
        tree = tree.expression
    kept = (query, words) if source is words.host else None
    text = datafusion_text(datafusion_tree(tree, source, Names(source, {}), list(floats), kept))
    if not renamed:
        return text
    columns = ", ".join(quoted(source.key(column)) for column in renamed)
    return f"SELECT * FROM ({text}) AS renamed({columns})"


def _given(tables: Mapping[Any, Any], host: Host) -> Iterator[Relation]:
    for name, table in tables.items():
        parts = [part for part in exp.to_table(name, dialect=host.syntax).parts if isinstance(part, exp.Identifier)]
        path = tuple(host.key(part.name, quoted=bool(part.args.get("quoted"))) for part in parts)
        if isinstance(table, str):
            yield Relation(path, query=table)
        elif isinstance(table, pa.Schema):
            yield Relation(path, columns=table)
        else:
            raise TypeError(catalog.no_table(name, table))


def _of_session(session: Any) -> Iterator[Relation]:
    """The relations of a session of datafusion."""
    for path, table in catalog.relations(session):
        if isinstance(table, pa.Schema):
            yield Relation(path, columns=table)
        elif table is None:
            yield Relation(path, reason=catalog.UNKNOWN_VIEW)
        else:
            yield Relation(path, query=table)


def _of_duckdb(connection: Any) -> Iterator[Relation]:
    """The relations of a DuckDB connection."""
    ((catalog, schema),) = connection.sql("SELECT current_database(), current_schema()").fetchall()
    here = {catalog: DUCKDB.catalog, "temp": DUCKDB.catalog}
    columns = "SELECT database_name, schema_name, table_name, column_name FROM duckdb_columns() WHERE NOT is_nullable"
    never_null = set(connection.sql(columns).fetchall())
    tables = "SELECT database_name, schema_name, table_name, '' FROM duckdb_tables() WHERE NOT internal"
    views = "SELECT database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal"
    for *path, query in connection.sql(f"{tables} UNION ALL {views}").fetchall():
        place = (here.get(path[0], path[0]), DUCKDB.schema if path[1] == schema else path[1], path[2])
        name = ".".join(quoted(part) for part in path)
        if query and not _reads_files(query):
            yield Relation(place, query=query)
            continue
        if query and not _is_all(query):
            yield Relation(place, reason=_NO_TABLE)
            continue
        made = connection.sql(f"SELECT * FROM {name} LIMIT 0").to_arrow_table().schema
        fields = [field.with_nullable((*path, field.name) not in never_null) for field in made]
        yield Relation(place, columns=pa.schema(fields))


def _own_functions(connection: Any) -> dict[str, str]:
    """Functions of a database that have names of DuckDB's or of operators, and what is wrong with that."""
    own = connection.sql("SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE NOT internal").fetchall()
    if not own:
        return {}
    listed = connection.sql("SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE internal").fetchall()
    duckdbs = {name for (name,) in listed}
    found = {}
    for (name,) in own:
        if name in OPERATORS:
            found[name] = f"the database has a function {name} of its own, and {name}(...) is a derivative here"
        elif name in duckdbs:
            found[name] = (
                f"the database has a function {name} of its own in the place of DuckDB's, and the derivative would be "
                "that of DuckDB's"
            )
    return found


_NO_TABLE = (
    "this view computes its columns from a function that gives a table: make a view of SELECT * of the function, "
    "and another one that computes from it"
)


def _reads_files(query: str) -> bool:
    """Whether a view reads what a function gives, as read_parquet."""
    try:
        tables = list(DUCKDB.parsed(query).find_all(exp.Table))
    except HostError:
        return True
    return not tables or any(not isinstance(table.this, exp.Identifier) for table in tables[1:] or tables)


def _is_all(query: str) -> bool:
    """Whether a view has the columns as they are."""
    try:
        tree = DUCKDB.parsed(query)
    except HostError:
        return False
    select = tree.expression if isinstance(tree, exp.Create) else tree
    return isinstance(select, exp.Select) and all(isinstance(item, exp.Star) for item in select.selects)


def answer(made: Any, tables: Any, host: Host, unknown: UnknownFunctionError) -> None:
    """Adds what a call of a function gives that the native library does not know.

    Raises:
        ValueError: there is no such function.
    """
    name, call = unknown.name, unknown.call
    arguments = DATAFUSION.parsed(f"f({', '.join(unknown.arguments)})").expressions
    if name in ("integer_quotient", "integer_remainder", "bitwise_not"):
        is_float = any(argument.to.this in exp.DataType.REAL_TYPES for argument in arguments)
        field = pa.field("v", pa.float64() if is_float else pa.int64())
        library.add_function(made, call, field, is_volatile=False)
        return
    own = name.strip('"').removeprefix(f"{host.name}.")
    if isinstance(tables, Mapping):
        asked = ", ".join(str(argument.args.get("to", argument)) for argument in arguments)
        msg = f"{host.name} has no function {own}({asked}): hand over the session that has it, if it is yours"
        raise HostError(msg)
    if not catalog.is_duckdb(tables):
        catalog.answer(made, tables, unknown)
        return
    typed = ", ".join(DUCKDB.text(duckdbs_null(argument)) for argument in arguments)
    here = f"{DUCKDB.text(DUCKDB.identifier(own))}({typed})"
    try:
        field = tables.sql(f"SELECT {here} AS v LIMIT 0").to_arrow_table().schema.field("v")
        kinds = (
            "SELECT bool_and(stability = 'CONSISTENT'), bool_or(function_type = 'aggregate') FROM duckdb_functions() "
            "WHERE lower(function_name) = ?"
        )
        ((is_stable, is_aggregate),) = tables.sql(kinds, params=[own.lower()]).fetchall()
    except Exception as error:
        library.add_function(made, call, None, is_volatile=False)
        if (way := way_without(own, "DuckDB")) is not None and "does not exist" in str(error):
            raise MissingRuleError(way) from None
        msg = f"the session cannot plan {here}: {library.plain(str(error))}"
        raise ValueError(msg) from error
    if is_aggregate:
        msg = (
            f"{own} is an aggregate that only {host.name} has, and a statement with derivatives cannot have it: "
            "compute it in a table or a statement of its own"
        )
        raise HostError(msg)
    library.add_function(made, call, field, is_volatile=is_stable is False)
