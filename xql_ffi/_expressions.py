"""Looking at expressions of the DataFrame API."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from reprlib import repr as shortened
from typing import ParamSpec, TypeVar

from datafusion import Expr, SessionContext
from datafusion.unparser import Dialect, Unparser

_P = ParamSpec("_P")
_R = TypeVar("_R")


def of_expressions(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Returns a function that takes expressions, and says so where it is called as one of JAX is: with a function."""

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for given in (*args[:1], *(kwargs[name] for name in ("expr", "exprs") if name in kwargs)):
            if callable(given):
                raise _no_expression(given, function.__name__)
        return function(*args, **kwargs)

    return checked


def _no_expression(function: object, taker: str) -> TypeError:
    """Returns the error for a function of Python, as the functions of JAX with these names take them."""
    return TypeError(
        f"{taker} takes expressions over columns; {shown(function)} is not one. Where that of JAX makes a function of "
        "a function, this makes an expression of an expression: grad(f(col('x')), 'x') is the derivative of f by the "
        "column x, and a frame computes it, df.select(...). A function of parameters, with its gradient, is "
        "xql_ffi.objective"
    )


def check_expression(arg: object, taker: str) -> None:
    """Raises a `TypeError` if this is not an expression."""
    if callable(arg):
        raise _no_expression(arg, taker)
    if not isinstance(arg, Expr):
        msg = f"{taker} takes expressions; {shown(arg)} is not one: "
        if not isinstance(arg, str):
            msg += f"write lit({arg!r})" if isinstance(arg, int | float) else "write col(name) or lit(number)"
        elif arg.isidentifier():
            msg += f"write col({arg!r})"
        else:
            msg += 'make it of columns, as in col("x") * col("x"), or write the query in SQL'
        raise TypeError(msg)


def shown(given: object) -> str:
    """Returns an argument in a message: its value if that is short, and else its class."""
    if given is None or isinstance(given, str | int | float):
        return shortened(given)
    kind = type(given)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"an object of {module}{kind.__qualname__}"


def parts(expression: Expr) -> Iterator[Expr]:
    """Yields an expression and all that it is made of, subqueries aside."""
    ahead = [expression]
    while ahead:
        part = ahead.pop()
        yield part
        if part.variant_name() not in ("Column", "Literal"):  # they are their own operands
            with suppress(RuntimeError):  # subqueries and placeholders have none
                ahead += part.rex_call_operands()


def in_sql(expression: Expr) -> str:
    """Returns an expression over columns without a table, in SQL.

    >>> from datafusion import col, lit
    >>> in_sql(lit(1.0) / (lit(1.0) + col("x")))
    '(1.0 / (1.0 + x))'

    Raises:
        ValueError: a column is named with its table.
    """
    names = []
    for part in parts(expression):
        if part.variant_name() == "Column":
            name = part.to_variant().name()
            if part.to_variant().relation() is not None:
                msg = f"{part.canonical_name()} is a column of a table: name it without, col({name!r})"
                raise ValueError(msg)
            names.append(quoted(name))
    # DataFusion writes plans in SQL: SELECT <expression> AS <name> FROM (SELECT ...)
    columns = ", ".join(f"CAST(NULL AS DOUBLE) AS {name}" for name in sorted(set(names))) or "NULL"
    frame = SessionContext().sql(f"SELECT {columns}").select(expression.alias("the_expression"))
    sql = Unparser(Dialect.default()).plan_to_sql(frame.logical_plan())
    return sql.removeprefix("SELECT ").partition(" AS the_expression FROM ")[0]


def quoted(name: str) -> str:
    """Returns a name in SQL, as it is."""
    return '"' + name.replace('"', '""') + '"'
