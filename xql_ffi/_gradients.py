"""Gradients and Hessians as expressions of the DataFrame API, and gradients by the rows of relations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from uuid import uuid4

from datafusion import DataFrame, Expr, SessionContext, col, lit

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


@dataclass(frozen=True)
class Gradients:
    """A value and its derivatives by the rows of relations.

    Attributes:
        value: the value; None where it is NULL.
        by: for each relation, by its name as it was given, its columns and the derivative by each row, ``d_val`` for
            the column ``val``. The rows are in no particular order.
    """

    value: float | None
    by: Mapping[str, DataFrame]


def gradients(ctx: SessionContext, loss: str | DataFrame, wrt: str | Sequence[str]) -> Gradients:
    """A value and its derivatives by the rows of the relations that it reads.

    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> w = ctx.from_pydict({"k": [1, 2], "val": [3.0, 4.0]}, name="w")
    >>> found = gradients(ctx, "SELECT SUM(val * val) FROM w", "w.val")
    >>> found.value, found.by["w"].sort("k").to_pydict()
    (25.0, {'k': [1, 2], 'val': [3.0, 4.0], 'd_val': [6.0, 8.0]})

    All of it is one statement, executed once, by this call: the loss is computed once for its value and for all
    derivatives, which are one sweep. The rows of the relations and their derivatives are then in memory.

    Args:
        ctx: the session. Its function ``grad`` differentiates, with the rules that it was registered with.
        loss: a query of one row and one column, in SQL or as a DataFrame of this session.
        wrt: the columns to differentiate by, with their relation: ``"w.val"``. Names are read as `gradient` reads them.

    Returns:
        The value, and a DataFrame for each relation.

    Raises:
        TypeError: the loss is no SQL and no DataFrame, or a column is no name.
        ValueError: the loss has more columns than one; there is no such relation or column; no column is given, or one
            twice, or one without its relation; a relation has a column already that is called as a derivative is; or no
            ``grad`` is registered.
    """
    frame = ctx.sql(loss) if isinstance(loss, str) else loss
    # xarray-sql has DataFrames of its own, around those of DataFusion.
    if not hasattr(frame, "into_view"):
        msg = f"the loss is a query in SQL or a DataFrame, and {loss!r} is neither"
        raise TypeError(msg)
    if len(names := frame.schema().names) != 1:
        msg = f"the loss is one value, and the query has the columns {', '.join(map(repr, names))}: select one"
        raise ValueError(msg)
    relations = _relations(ctx, wrt)
    _check_registered(ctx)
    tag = uuid4().hex
    ctx.register_view(f"loss_{tag}", frame)
    try:
        all_rows = ctx.sql(_statement(relations, f"(SELECT {_quoted(names[0])} FROM loss_{tag})", tag)).cache()
    finally:
        ctx.deregister_table(f"loss_{tag}")
    (row,) = all_rows.filter(col(f"part_0_{tag}") == lit(0)).select(col(f"value_{tag}").alias("value")).to_pylist()
    by = {}
    for number, relation in enumerate(relations, start=1):
        names = [*relation.columns, *relation.derivatives()]
        columns = [col(f"c{n}_{number}_{tag}").alias(name) for n, name in enumerate(names)]
        by[relation.name] = all_rows.filter(col(f"part_{number}_{tag}") == lit(number)).select(*columns)
    return Gradients(row["value"], by)


@dataclass(frozen=True)
class _Relation:
    """A relation, its columns, and those to differentiate by."""

    name: str
    columns: Sequence[str]
    variables: Sequence[str]

    def derivatives(self) -> list[str]:
        """What the derivatives are called."""
        return [f"d_{variable}" for variable in self.variables]

    def sql(self) -> str:
        return ".".join(_quoted(part) for part in self.name.split("."))


def _relations(ctx: SessionContext, wrt: str | Sequence[str]) -> list[_Relation]:
    """The relations of columns, each with all of its columns and those to differentiate by."""
    variables: dict[str, list[str]] = {}
    for column in named_columns(wrt).values():
        relation, name = column.to_variant().relation(), column.to_variant().name()
        if relation is None:
            msg = f"the column {name!r} is named without its relation: write '<table>.{name}'"
            raise ValueError(msg)
        variables.setdefault(relation, []).append(name)
    relations = []
    for relation, names in variables.items():
        try:
            columns = ctx.table(relation).schema().names
        except (KeyError, RuntimeError) as error:
            msg = f"the session has no table called {relation!r} to differentiate by"
            raise ValueError(msg) from error
        for name in names:
            if name not in columns:
                msg = f"{relation} has no column {name!r} to differentiate by, only {', '.join(map(repr, columns))}"
                raise ValueError(msg)
            if f"d_{name}" in columns:
                msg = f"{relation} has a column d_{name} already, as the derivative by {name} is called: rename it"
                raise ValueError(msg)
        relations.append(_Relation(relation, columns, names))
    return relations


def _statement(relations: Sequence[_Relation], loss: str, tag: str) -> str:
    """The value, and the rows of the relations with their derivatives, under names that nothing else has.

    No two parts have a row in common, so that the join has the rows of one after those of the other:

        SELECT (loss), r1.inp, r1.val, grad((loss), r1.val), r2.out, r2.val, grad((loss), r2.val), ...
        FROM (SELECT 0 AS part) r0
        FULL JOIN (SELECT *, 1 AS part FROM w1) r1 ON r0.part = r1.part
        FULL JOIN (SELECT *, 2 AS part FROM w2) r2 ON r0.part = r2.part

    One node of the plan asks for all, in which the planner sees what they have in common.
    """
    columns = [f"{loss} AS value_{tag}", f"r0.part_0_{tag}"]
    parts = [f"(SELECT 0 AS part_0_{tag}) r0"]
    for number, relation in enumerate(relations, start=1):
        part = f"part_{number}_{tag}"
        columns.append(f"r{number}.{part}")
        read = [f"r{number}.{_quoted(name)}" for name in relation.columns]
        read += [f"grad({loss}, r{number}.{_quoted(name)})" for name in relation.variables]
        columns += [f"{expression} AS c{n}_{number}_{tag}" for n, expression in enumerate(read)]
        rows = f"SELECT *, {number} AS {part} FROM {relation.sql()}"
        parts.append(f"FULL JOIN ({rows}) r{number} ON r0.part_0_{tag} = r{number}.{part}")
    return f"SELECT {', '.join(columns)} FROM {' '.join(parts)}"


def _check_registered(ctx: SessionContext) -> None:
    try:
        ctx.udf("grad")
    except Exception as error:
        msg = "the session has no function called grad: register it with xql_ffi.register(ctx)"
        raise ValueError(msg) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


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
