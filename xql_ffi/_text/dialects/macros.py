"""Functions in FROM that compute what they give: the table macros of a database, and others that cannot be looked into.

The rows that ``read_parquet`` gives are given. Those of ``CREATE MACRO squares(a) AS TABLE SELECT x, a * x * x AS y
FROM t`` are computed of the table ``t``, as those of a view are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from xql_ffi._errors import HostError
from xql_ffi._text.dialects.host import Host, closed

# Functions of DuckDB that compute what they give from tables, or in words that are not looked into.
_COMPUTING = frozenset(
    ("histogram", "histogram_values", "json_execute_serialized_sql", "python_map_function", "query", "query_table")
)


@dataclass(frozen=True)
class Macro:
    """A table macro, of which a database may have several by one name."""

    schema: str
    name: str
    parameters: tuple[str, ...]
    query: str


def query_of(source: exp.Table, macros: Sequence[Macro], host: Host) -> exp.Query | None:
    """Returns the query that a call in FROM stands for. None if it is of a function whose rows are given.

    Args:
        source: the call, with the schema before it.
        macros: those of the database.
        host: whose SQL it is.

    Raises:
        HostError: the call stands for a query that is not known.
    """
    call, schema = source.this, source.db.lower()
    name, shown = call.name.lower(), host.text(call)
    named = [macro for macro in macros if macro.name == name and schema in ("", macro.schema)]
    arguments = list(call.expressions) if isinstance(call, exp.Anonymous) else []
    if not named:
        if name in _COMPUTING or any(argument.find(exp.Query) for argument in arguments):
            msg = f"{shown} in FROM computes its rows, and xql-ffi does not look into it: write its query in its place"
            raise HostError(msg)
        return None
    fitting = [(macro, given) for macro in named if (given := _given(macro, arguments, host)) is not None]
    if len(fitting) != 1 or any(argument.find(exp.Column) for argument in arguments):
        msg = (
            f"{shown} in FROM is a table macro that leaves out a parameter, or one of several by this name: write "
            "its query in its place"
        )
        raise HostError(msg)
    ((macro, given),) = fitting

    def placed(node: exp.Expr) -> exp.Expr:
        is_parameter = isinstance(node, exp.Column) and not node.table and host.key(node.name) in given
        return closed(given[host.key(node.name)].copy()) if is_parameter else node

    others = [other for other in macros if other is not macro]
    query = inlined(host.parsed(macro.query).transform(placed), others, host)
    return query if isinstance(query, exp.Query) else None


def inlined(tree: exp.Expr, macros: Sequence[Macro], host: Host) -> exp.Expr:
    """Returns a tree with queries in the place of the calls in FROM that stand for them.

    Raises:
        HostError: a call stands for a query that is not known.
    """
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier) and (query := query_of(table, macros, host)) is not None:
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.this.name, quoted=True))
            read = exp.Subquery(this=query, alias=alias)
            read.set("joins", table.args.get("joins"))
            table.replace(read)
    return tree


def is_computing(tree: exp.Expr, macros: Sequence[Macro]) -> bool:
    """Returns whether a tree calls a function in FROM that computes its rows."""
    names = _COMPUTING | {macro.name for macro in macros}
    return any(
        not isinstance(table.this, exp.Identifier) and table.this.name.lower() in names
        for table in tree.find_all(exp.Table)
    )


def _given(macro: Macro, arguments: Sequence[exp.Expr], host: Host) -> dict[str, exp.Expr] | None:
    """Returns the argument of a call for each parameter of a macro. None if it is a call of another one."""
    given = {}
    parameters = [host.key(parameter) for parameter in macro.parameters]
    for number, argument in enumerate(arguments):
        if isinstance(argument, (exp.PropertyEQ, exp.Kwarg)):
            given[host.key(argument.this.name)] = argument.expression
        elif number < len(parameters):
            given[parameters[number]] = argument
        else:
            return None
    return given if sorted(given) == sorted(parameters) else None
