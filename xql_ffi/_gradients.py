"""Gradients and Hessians as expressions of the DataFrame API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from datafusion import Expr, col

from xql_ffi._operators import DifferentialOperator, check_expression, grad_capsule

Grad = Callable[[Expr, Expr], Expr]
Columns = str | Expr | Sequence[str | Expr]


def value_and_grad(expr: Expr, wrt: Columns, *, grad: Grad | None = None) -> list[Expr]:
    """An expression followed by its derivatives, ready for ``df.select(*...)``.

    >>> from datafusion import SessionContext, col
    >>> df = SessionContext().from_pydict({"x": [3.0], "y": [2.0]})
    >>> df.select(*value_and_grad(col("x") * col("x") * col("y"), ["x", "y"])).to_pydict()
    {'value': [18.0], 'd_x': [12.0], 'd_y': [9.0]}

    Args:
        expr: what to differentiate. Its column is called ``value``, unless it has an alias.
        wrt: the column or columns to differentiate by, as `gradient` takes them.
        grad: the operator, if it has rules of your own: ``grad_capsule(rules=[...])``.

    Returns:
        The expression, then what `gradient` gives.

    Raises:
        TypeError: an argument is no expression or column.
        ValueError: no column is given, or one twice, or two derivatives would bear one name.
    """
    derivatives = gradient(expr, wrt, grad=grad)
    return [expr if expr.variant_name() == "Alias" else expr.alias("value"), *derivatives]


def gradient(expr: Expr, wrt: Columns, *, grad: Grad | None = None) -> list[Expr]:
    """The derivatives of an expression by columns.

    Args:
        expr: what to differentiate.
        wrt: the column or columns to differentiate by, by name or as ``col(...)``.
        grad: the operator, if it has rules of your own: ``grad_capsule(rules=[...])``.

    A name is read as ``col(name)`` reads it: ``"x"``, or with its table, ``"t.x"``; in lower case unless it is in
    double quotes, which a name with a point in it needs too: ``"X"`` is the column ``x``, and ``'"X"'`` or ``'t."X"'``
    the column ``X``.

    Returns:
        One expression for each column, in their order, called ``d_x`` for the column ``x``. If two columns have one
        name, those of ``u.x`` and ``v.x`` are called ``d_u_x`` and ``d_v_x``.

    Raises:
        TypeError: an argument is no expression or column.
        ValueError: no column is given, or one twice, or two derivatives would bear one name, as those by ``u.x`` and
            ``v.x`` beside one by ``u_x``.
    """
    columns = named_columns(wrt)
    operator = grad or _plain_grad()
    check_expression(expr, "gradient")
    return [operator(expr, column).alias(f"d_{name}") for name, column in columns.items()]


def hessian(expr: Expr, wrt: Columns, *, grad: Grad | None = None) -> list[list[Expr]]:
    """The second derivatives of an expression by pairs of columns.

    >>> from datafusion import SessionContext, col
    >>> df = SessionContext().from_pydict({"x": [3.0], "y": [2.0]})
    >>> rows = hessian(col("x") * col("x") * col("y"), ["x", "y"])
    >>> df.select(*rows[0], *rows[1]).to_pydict()
    {'d_x_x': [4.0], 'd_x_y': [6.0], 'd_y_x': [6.0], 'd_y_y': [0.0]}

    The matrix is symmetric, so an element below the diagonal is the expression of the one above it under another
    name: DataFusion evaluates them once. For one of each pair, take ``rows[i][i:]``.

    Args:
        expr: what to differentiate.
        wrt: the column or columns to differentiate by, as `gradient` takes them.
        grad: the operator, if it has rules of your own: ``grad_capsule(rules=[...])``.

    Returns:
        A row for each column, of one expression for each column, called ``d_x_y`` for the columns ``x`` and ``y``.

    Raises:
        TypeError: an argument is no expression or column.
        ValueError: no column is given, or one twice, or two derivatives would bear one name, as those by ``a`` and
            ``b_a`` and by ``a_b`` and ``a``.
    """
    columns = list(named_columns(wrt).items())
    _check_distinct([f"{row}_{name}" for row, _ in columns for name, _ in columns])
    operator = grad or _plain_grad()
    check_expression(expr, "hessian")
    first = [operator(expr, column) for _, column in columns]
    upper = [[operator(derivative, column) for _, column in columns[i:]] for i, derivative in enumerate(first)]
    return [
        [upper[min(i, j)][abs(i - j)].alias(f"d_{row}_{name}") for j, (name, _) in enumerate(columns)]
        for i, (row, _) in enumerate(columns)
    ]


@cache
def _plain_grad() -> DifferentialOperator:
    return grad_capsule()


def named_columns(wrt: Columns) -> dict[str, Expr]:
    """The columns by the names that their derivatives bear.

    Raises:
        TypeError: one is no column.
        ValueError: there is none, or one twice, or two would bear one name.
    """
    listed = [wrt] if isinstance(wrt, str | Expr) else list(wrt)
    if not listed:
        msg = "name at least one column to differentiate by"
        raise ValueError(msg)
    columns = [_column(column) for column in listed]
    full = [(column.to_variant().relation(), column.to_variant().name()) for column in columns]
    for column, name in zip(columns, full, strict=True):
        if full.count(name) > 1:
            msg = f"the column {column.canonical_name()} is given more than once: name each to differentiate by once"
            raise ValueError(msg)
    short = [name for _, name in full]
    names = [
        name if relation is None or short.count(name) == 1 else f"{relation.replace('.', '_')}_{name}"
        for relation, name in full
    ]
    _check_distinct(names)
    return dict(zip(names, columns, strict=True))


def _check_distinct(names: Sequence[str]) -> None:
    """Raises a `ValueError` if two derivatives would bear one name."""
    for name in names:
        if names.count(name) > 1:
            msg = (
                f"two derivatives would be called d_{name}: rename a column first, "
                "df.with_column_renamed(name, new_name), or take them in two calls"
            )
            raise ValueError(msg)


def _column(column: object) -> Expr:
    if isinstance(column, str):
        return col(column)
    if isinstance(column, Expr) and column.variant_name() == "Column":
        return column
    msg = (
        f"one differentiates by a column, and {column!r} is none: give its name or col(name). To differentiate by an "
        "expression, compute it first, df.with_column(name, ...)"
    )
    raise TypeError(msg)
