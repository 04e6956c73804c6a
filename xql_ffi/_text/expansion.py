"""Derivatives as plain SQL, for sessions and engines that know nothing of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from xql_ffi._calls import may_differentiate
from xql_ffi._errors import translated
from xql_ffi._expressions import shown
from xql_ffi._rules import checked_rules
from xql_ffi._special import SIGNATURES
from xql_ffi._text import library
from xql_ffi._text.catalog import Session, Tables, answer, catalog, check_tables, is_duckdb, is_session, other_engine
from xql_ffi._text.shadowed_functions import check_own_functions
from xql_ffi._values import for_datafusion, for_duckdb

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from xql_ffi._rules import Rule

# Those that are tested. Others are written as sqlglot has them.
DIALECTS = ("datafusion", "bigquery", "duckdb", "polars", "postgres", "spark", "sqlite")

Columns: TypeAlias = Iterable[str] | Mapping[str, pa.DataType] | pa.Schema


def expand_sql(
    sql: str, tables: Tables, *, dialect: str | None = None, rules: Iterable[Rule] = (), functions: bool = False
) -> str:
    """Returns a statement without ``grad``, ``jvp``, ``vjp`` and ``stop_gradient``.

    >>> import pyarrow as pa
    >>> import xql_ffi
    >>> tables = {"t": pa.schema({"x": pa.float64(), "y": pa.float64()})}
    >>> xql_ffi.expand_sql("SELECT grad(sin(x) * y, x) AS d FROM t -- by x", tables)
    'SELECT y * cos(x) AS d FROM t -- by x'

    A derivative that reads nothing but what stands beside it takes the place of its call; all else stays as it is
    written, comments included. A query whose derivatives see through relations is written anew, with a common table
    expression for what several of its parts read. A statement without a call stays as it is, and so does one that has
    been expanded. A script of several statements is expanded statement by statement.

    Args:
        sql: one statement, or several with semicolons between them.
        tables: the session that has the tables, views and functions, of DataFusion or DuckDB; or a mapping of the
            names of tables, as SQL has them, to their pyarrow schemas, and of the names of views to their queries.
        dialect: whose SQL the statement is, and the text that comes back: ``"datafusion"``, ``"duckdb"`` or another one
            of `DIALECTS`, or any that sqlglot writes. By default that of the session.
        rules: derivatives of functions that have none, or other ones.
        functions: whether ``erf``, ``lgamma`` and so on are those that `register` brings with ``functions=True``, which
            the session then has to have. Those of another dialect are the host's own, as far as it has them.

    Raises:
        TypeError: the statement is not a string, the tables are not a session or a mapping, or the rules are not a list
            of rules.
        ValueError: the statement is wrong, or has a call without derivative or one that cannot be written as text; or
            the dialect is not known.
    """
    _check_text(sql, "a statement")
    check_tables(tables)
    natives = [rule._native() for rule in checked_rules(rules, "expand_sql")]
    if (dialect or _dialect_of(tables)) == "datafusion":
        return _expanded(sql, tables, natives, functions=functions)
    text: str = _texts().expand(sql, tables, dialect or _dialect_of(tables), natives)
    return text


def sql(
    session: Session, statement: str, *, rules: Iterable[Rule] = (), functions: bool = False, **parameters: Any
) -> Any:
    """Runs a statement with derivatives on a session that knows nothing of them.

    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = SessionContext()
    >>> _ = ctx.from_pydict({"x": [3.0]}, name="t")
    >>> xql_ffi.sql(ctx, "SELECT grad(x * x, x) AS d FROM t").to_pydict()
    {'d': [6.0]}

    Args:
        session: a session of the ``datafusion`` package, or one that wraps it, as xarray-sql's, or a DuckDB connection.
        statement: one statement, as ``session.sql`` takes it.
        rules: derivatives of functions that have none, or other ones.
        functions: whether ``erf``, ``lgamma`` and so on are special functions, as for `expand_sql`.
        parameters: what ``session.sql`` takes besides, ``param_values={"a": 3.0}`` or ``a=3.0`` for ``$a`` in a session
            of DataFusion, ``params=[3.0]`` for ``?`` in one of DuckDB. Scalars and arrays of NumPy are values like
            others.

    Returns:
        What ``session.sql`` returns.

    Raises:
        TypeError: this is no such session; else as for `expand_sql`.
        ValueError: as for `expand_sql`.
    """
    if isinstance(session, str):
        msg = f"xql_ffi.sql takes the session first, xql_ffi.sql(session, statement); {shown(session)} is a string"
        raise TypeError(msg)
    if not is_session(session):
        msg = (
            "xql_ffi.sql takes a session of datafusion or a DuckDB connection; "
            f"{shown(session)} is neither. {other_engine(session)}"
        )
        raise TypeError(msg)
    text = expand_sql(statement, session, rules=rules, functions=functions)
    values = for_duckdb(parameters) if is_duckdb(session) else for_datafusion(parameters)
    try:
        return session.sql(text, **values)
    except Exception as error:
        # A statement that does something is executed here, and may meet what has no derivative.
        if refused := translated(str(error)):
            raise refused from None
        raise


def differentiate_sql(
    expression: str,
    wrt: str,
    columns: Columns,
    *,
    dialect: str = "datafusion",
    rules: Iterable[Rule] = (),
    functions: bool = False,
) -> str:
    """Returns the derivative of an expression, as text.

    >>> import xql_ffi
    >>> xql_ffi.differentiate_sql("sin(x) * y", "x", ["x", "y"])
    'y * cos(x)'

    Args:
        expression: an expression in SQL.
        wrt: the column to differentiate by, as SQL names it.
        columns: all columns that the expression may read, by their names, which are exactly these: their names alone
            if all are Float64, a mapping of names to types, or a pyarrow schema.
        dialect: whose SQL the expression is, and the text that comes back, as for `expand_sql`.
        rules: derivatives of functions that have none, or other ones.
        functions: whether ``erf``, ``lgamma`` and so on are special functions, as for `expand_sql`.

    Raises:
        TypeError: the expression or the column is not a string, or the rules are not a list of rules.
        ValueError: the expression is wrong or has no derivative that can be written as text.
    """
    _check_text(expression, "an expression")
    _check_text(wrt, "a column")
    if isinstance(columns, str):
        msg = f"the columns must be a list of names; {columns!r} is one name: write [{columns!r}]"
        raise TypeError(msg)
    schema = columns if isinstance(columns, pa.Schema) else None
    if schema is None:
        typed = columns if isinstance(columns, Mapping) else dict.fromkeys(columns, pa.float64())
        for name in typed:
            if not isinstance(name, str):
                msg = f"columns must be names, a mapping of names to types or a pyarrow schema; {name!r} is not a name"
                raise TypeError(msg)
        schema = pa.schema(list(typed.items()))
    natives = [rule._native() for rule in checked_rules(rules, "differentiate_sql")]
    tables = {_TABLE: schema}
    if dialect != "datafusion":
        derivative: str = _texts().differentiate(expression, wrt, _TABLE, tables, dialect, natives)
        return derivative
    made = _catalog(tables, functions=functions)
    return _asked(made, tables, lambda: library.differentiate(made, expression, wrt, _TABLE, natives))


_TABLE = "inputs"


def _texts() -> ModuleType:
    """Returns the module that reads and writes the SQL of other hosts.

    It is imported here, for sqlglot takes long to import, and statements of DataFusion do without it.
    """
    from xql_ffi._text.dialects import texts

    return texts


def _expanded(sql: str, tables: Tables, natives: Sequence[Any], *, functions: bool) -> str:
    """Returns the text of statements of DataFusion."""
    has_functions = not isinstance(tables, Mapping) and may_differentiate(sql)
    try:
        made = _catalog(tables, sql, functions=functions)
        text = _asked(made, tables, lambda: library.expand(made, sql, natives))
    except ValueError:
        if has_functions:
            # This tells more than what has come of it.
            check_own_functions(tables, sql)
        raise
    if has_functions:
        check_own_functions(tables, sql, text)
    return text


def _catalog(tables: Tables, text: str = "", *, functions: bool) -> Any:
    """Returns the catalog of tables, and of functions by their names."""
    made = catalog(tables, text)
    if functions:
        library.add_special(made, SIGNATURES)
    return made


def _asked(made: Any, tables: Tables, make: Callable[[], str]) -> str:
    return library.learning(make, lambda unknown: answer(made, tables, unknown))


def _dialect_of(tables: object) -> str:
    return "duckdb" if is_duckdb(tables) else "datafusion"


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        msg = f"{what} must be a string of SQL; {shown(text)} is not one"
        raise TypeError(msg)
