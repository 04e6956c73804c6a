"""The tables that statements of a host name, as the native library takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from xql_ffi._calls import OPERATORS
from xql_ffi._errors import HostError, MissingRuleError
from xql_ffi._expressions import quoted
from xql_ffi._lacking import way_without
from xql_ffi._special import SIGNATURES
from xql_ffi._text import catalog, library
from xql_ffi._text.dialects.duckdb import DUCKDB
from xql_ffi._text.dialects.duckdb_types import duckdbs_null
from xql_ffi._text.dialects.host import DATAFUSION, Host
from xql_ffi._text.dialects.host_scope import HostScope, check_functions
from xql_ffi._text.dialects.macros import Macro, is_computing
from xql_ffi._text.dialects.source_fragments import SourceFragments
from xql_ffi._text.dialects.views import STORED, Relation, definition, over_stored
from xql_ffi._text.library import UnknownFunctionError


def known(tables: Any, host: Host) -> HostScope:
    """Collects what is known of the tables of a session, or of a mapping of names to schemas.

    Raises:
        TypeError: it is neither, or a table is given by something else than its schema or the query of a view.
        ValueError: a name or a schema is wrong, or the query of a view cannot be read.
    """
    if isinstance(tables, Mapping):
        return _known(_given(tables, host), host, _nothing(host))
    if catalog.is_duckdb(tables):
        asked = replace(
            _nothing(host),
            own=_own_functions(tables),
            databases=_databases(tables),
            macros=_macros(tables),
            source=lambda text: tables.sql(f"SELECT * FROM {text} LIMIT 0").to_arrow_table().schema,
            described=lambda query: _described(tables, query),
        )
        return _known(_of_duckdb(tables, asked.macros), DUCKDB, asked)
    catalog.check_tables(tables)
    return _known(_of_session(tables), DATAFUSION, _nothing(host))


def _nothing(host: Host) -> HostScope:
    """Returns what is known without tables."""
    made = library.catalog()
    library.add_special(made, host.same_names & SIGNATURES.keys())
    if host.rereads:
        library.let_reread(made)
    return HostScope(made, {}, (), SourceFragments(host))


def _described(connection: Any, query: str) -> list[tuple[str, str]]:
    found = connection.sql(query)
    return list(zip(found.columns, map(str, found.types), strict=True))


def _known(relations: Iterable[Relation], source: Host, asked: HostScope) -> HostScope:
    made, host = asked.catalog, asked.words.host
    names: dict[str, str] = {}
    floats: dict[str, bool] = {}
    views = []
    tables, paths = set(), set()
    places = {source.schema: DATAFUSION.schema, source.catalog: DATAFUSION.catalog}
    for relation in relations:
        keys = [host.key(part) for part in relation.path]
        tables.add(keys[-1])
        paths |= {tuple(keys), (*keys[:-1], keys[-1] + STORED)} if relation.generated else {tuple(keys)}
        names.update(zip(keys, relation.path, strict=True))
        keys = [places.get(key, key) if number + 1 < len(keys) else key for number, key in enumerate(keys)]
        name = ".".join(quoted(key) for key in keys)
        if relation.columns is not None:
            fields = [_known_field(field, host) for field in relation.columns]
            names.update((host.key(field.name), field.name) for field in relation.columns)
            for field in fields:
                floats[field.name] = floats.get(field.name, True) and pa.types.is_floating(field.type)
            if relation.generated:
                views.append((name, over_stored(relation, relation.columns, source)))
                fields = [
                    known
                    for known, given in zip(fields, relation.columns, strict=True)
                    if given.name not in relation.generated
                ]
                keys[-1] += STORED
                name = ".".join(quoted(key) for key in keys)
            library.add_table(made, name, pa.schema(fields))
        elif relation.query is not None:
            views.append((name, relation))
        else:
            library.add_opaque(made, name, relation.reason)
    # Whether a column is a float is known of all tables before the first view is read.
    columns = {name for name, is_float in floats.items() if is_float}
    named = {key: name for key, name in names.items() if key != name}
    queries = {host.key(relation.path[-1]): relation.query for _, relation in views if relation.query is not None}
    found = replace(asked, names=named, floats=columns, tables=tables, paths=paths, views=queries)
    for name, relation in views:
        try:
            check_functions(found.own, relation.query or "")
            library.add_view(made, name, definition(relation, source, found))
        except HostError as error:
            library.add_opaque(made, name, str(error))
    return found


def _known_field(field: pa.Field, host: Host) -> pa.Field:
    """Returns a column by its name as the host compares it, of a type that the host has."""
    is_single = not host.has_single and pa.types.is_float32(field.type)
    return pa.field(host.key(field.name), pa.float64() if is_single else field.type, field.nullable)


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
    """Yields the relations of a session of datafusion."""
    for path, table in catalog.relations(session):
        if isinstance(table, pa.Schema):
            yield Relation(path, columns=table)
        elif table is None:
            yield Relation(path, reason=catalog.UNKNOWN_VIEW)
        else:
            yield Relation(path, query=table)


def _of_duckdb(connection: Any, macros: Sequence[Macro]) -> Iterator[Relation]:
    """Yields the relations of a DuckDB connection."""
    ((catalog, schema),) = connection.sql("SELECT current_database(), current_schema()").fetchall()
    here = {catalog: DUCKDB.catalog, "temp": DUCKDB.catalog}
    columns = "database_name, schema_name, table_name, column_name"
    query = f"SELECT {columns} FROM duckdb_columns() WHERE NOT is_nullable"
    never_null = set(connection.sql(query).fetchall())
    query = f"SELECT {columns}, generation_expression FROM duckdb_columns() WHERE is_generated"
    generated = connection.sql(query).fetchall()
    tables = "SELECT database_name, schema_name, table_name, '' FROM duckdb_tables() WHERE NOT internal"
    views = "SELECT database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal"
    for *path, query in connection.sql(f"{tables} UNION ALL {views}").fetchall():
        place = (here.get(path[0], path[0]), DUCKDB.schema if path[1] == schema else path[1], path[2])
        name = ".".join(quoted(part) for part in path)
        if query and not _reads_files(query, macros):
            yield Relation(place, query=query)
            continue
        if query and not _is_all(query):
            yield Relation(place, reason=_NO_TABLE)
            continue
        made = connection.sql(f"SELECT * FROM {name} LIMIT 0").to_arrow_table().schema
        fields = [field.with_nullable((*path, field.name) not in never_null) for field in made]
        computed = {name: expression for *table, name, expression in generated if table == path}
        yield Relation(place, columns=pa.schema(fields), generated=computed)


def _databases(connection: Any) -> frozenset[str]:
    """Returns the attached databases, as far as their names alone tell them from schemas of the current one."""
    others = "SELECT lower(database_name) FROM duckdb_databases() WHERE NOT internal"
    schemas = "SELECT lower(schema_name) FROM duckdb_schemas() WHERE database_name = current_database()"
    return frozenset(name for (name,) in connection.sql(f"{others} EXCEPT {schemas}").fetchall())


def _macros(connection: Any) -> list[Macro]:
    """Returns the table macros of a database."""
    columns = "lower(schema_name), lower(function_name), parameters, macro_definition"
    query = f"SELECT {columns} FROM duckdb_functions() WHERE function_type = 'table_macro' AND NOT internal"
    found = connection.sql(query).fetchall()
    return [Macro(schema, name, tuple(parameters), definition) for schema, name, parameters, definition in found]


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


def _reads_files(query: str, macros: Sequence[Macro]) -> bool:
    """Returns whether a view reads what a function gives, as read_parquet."""
    try:
        tree = DUCKDB.parsed(query)
    except HostError:
        return True
    tables = list(tree.find_all(exp.Table))
    is_given = not tables or any(not isinstance(table.this, exp.Identifier) for table in tables[1:] or tables)
    return is_given and not is_computing(tree, macros)


def _is_all(query: str) -> bool:
    """Returns whether a view has the columns as they are."""
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
    kinds = (
        "SELECT bool_and(stability = 'CONSISTENT'), bool_or(function_type = 'aggregate') FROM duckdb_functions() "
        "WHERE lower(function_name) = ?"
    )
    ((is_stable, is_aggregate),) = tables.sql(kinds, params=[own.lower()]).fetchall()
    if is_aggregate:
        library.add_function(made, call, None, is_volatile=False)
        msg = (
            f"{own} is an aggregate that only {host.name} has, and a statement with derivatives cannot have it: "
            "compute it in a table or a statement of its own"
        )
        raise HostError(msg)
    try:
        field = tables.sql(f"SELECT {here} AS v LIMIT 0").to_arrow_table().schema.field("v")
    except Exception as error:
        library.add_function(made, call, None, is_volatile=False)
        if (way := way_without(own, "DuckDB")) is not None and "does not exist" in str(error):
            raise MissingRuleError(way) from None
        msg = f"the session cannot plan {here}: {library.plain(str(error))}"
        raise ValueError(msg) from error
    library.add_function(made, call, field, is_volatile=is_stable is False)
