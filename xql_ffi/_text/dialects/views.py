"""Views of a host, whose queries are read as DataFusion's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from xql_ffi._expressions import quoted
from xql_ffi._text import library
from xql_ffi._text.dialects import recursions
from xql_ffi._text.dialects.host import DATAFUSION, Host
from xql_ffi._text.dialects.host_scope import HostScope
from xql_ffi._text.dialects.macros import inlined, is_computing
from xql_ffi._text.dialects.names import Names
from xql_ffi._text.dialects.reading import datafusion_text, datafusion_tree
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
    # What columns of a table are computed of others, in the SQL of `host`.
    generated: Mapping[str, str] = field(default_factory=dict)


# Behind the name of a table, what stands for the columns of it that are stored.
STORED = " stored"


def over_stored(relation: Relation, columns: pa.Schema, source: Host) -> Relation:
    """Returns a table with columns that are computed of others, as a view of those that are stored."""
    generated = {source.key(name): source.parsed(text) for name, text in relation.generated.items()}

    def computed(node: exp.Expr) -> exp.Expr:
        """It may read others that are computed."""
        found = generated.get(source.key(node.name)) if isinstance(node, exp.Column) else None
        return node if found is None else exp.paren(found.transform(computed))

    items = []
    for name in columns.names:
        column = quoted(name)
        is_computed = source.key(name) in generated
        items.append(
            f"{source.text(generated[source.key(name)].transform(computed))} AS {column}" if is_computed else column
        )
    return replace(relation, query=f"SELECT {', '.join(items)} FROM {quoted(relation.path[-1] + STORED)}")


def definition(relation: Relation, source: Host, known: HostScope) -> str:
    """Returns the query of a view in the SQL of a host as DataFusion's."""
    query = relation.query or ""
    if source is DATAFUSION:
        return query
    tree = source.parsed(query)
    renamed = relation.renamed
    if isinstance(tree, exp.Create):
        if isinstance(tree.this, exp.Schema):
            renamed = tuple(column.name for column in tree.this.expressions)
        tree = tree.expression
    if is_computing(tree, known.macros):
        query = source.text(inlined(tree, known.macros, source))
        tree = source.parsed(query)
    _place(tree, relation.path, source, known)
    kept = (query, known.words) if source is known.words.host else None

    def planned(query: exp.Query) -> pa.Schema | None:
        try:
            return library.columns(known.catalog, datafusion_text(_read(query, source, known)), ())
        except (ValueError, UnknownFunctionError):  # it may read a view that is not known yet
            return None

    tree = recursions.typed(tree, source, lambda query: known.types(source.text(query)), planned)
    text = datafusion_text(_read(tree, source, known, kept))
    if not renamed:
        return text
    columns = ", ".join(quoted(source.key(column)) for column in renamed)
    return f"SELECT * FROM ({text}) AS renamed({columns})"


def _place(tree: exp.Expr, path: tuple[str, ...], source: Host, known: HostScope) -> None:
    """Names the tables in full that a view of another schema or database reads there."""
    place = path[:-1]
    if len(place) < 2 or place == (source.catalog, source.schema):
        return
    named = frozenset(source.key(cte.alias) for cte in tree.find_all(exp.CTE))
    for table in tree.find_all(exp.Table):
        name = source.key(table.name)
        if not table.db and name not in named and (*map(source.key, place), name) in known.paths:
            if place[0] != source.catalog:
                table.set("catalog", exp.to_identifier(place[0], quoted=True))
            table.set("db", exp.to_identifier(place[1], quoted=True))


def _read(tree: exp.Expr, source: Host, known: HostScope, kept: Any = None) -> exp.Expr:
    return datafusion_tree(tree, source, Names(source, {}), list(known.floats), kept)
