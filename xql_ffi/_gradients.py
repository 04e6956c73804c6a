"""Gradients and Hessians as expressions of the DataFrame API, and gradients by the rows of relations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from uuid import uuid4

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext, col, lit
from datafusion import functions as f

from xql_ffi import _functions as functions
from xql_ffi._columns import Columns, Path, check_distinct, named_columns, paths
from xql_ffi._engine import is_active, way_out
from xql_ffi._errors import MissingEngineError, VariableError
from xql_ffi._expressions import check_expression, of_expressions, quoted
from xql_ffi._loss import (
    called,
    check_one_column,
    frame_of,
    in_its_part,
    in_own_rows,
    may_read,
    part_of_row,
    plan_with_scans,
    selected_beside,
    unread,
    viewed,
)

Grad = Callable[[Expr, Expr], Expr]
# For each relation where its columns and its derivatives stand in the rows of all of them.
Places = Sequence[Sequence[int]]


@of_expressions
def value_and_grad(expr: Expr, wrt: Columns, *, grad: Grad | None = None) -> list[Expr]:
    """Returns an expression followed by its derivatives, ready for ``df.select(*...)``.

    >>> from datafusion import SessionContext, col
    >>> from xql_ffi import register
    >>> df = register(SessionContext()).from_pydict({"x": [3.0], "y": [2.0]})
    >>> df.select(*value_and_grad(col("x") * col("x") * col("y"), ["x", "y"])).to_pydict()
    {'value': [18.0], 'd_x': [12.0], 'd_y': [9.0]}

    Args:
        expr: what to differentiate. Its column is called ``value``, unless it has an alias.
        wrt: the column or columns to differentiate by, as `gradient` takes them.
        grad: the operator, if it has rules of your own: ``grad_capsule(rules=[...])``.

    Returns:
        The expression, then what `gradient` returns.

    Raises:
        TypeError: an argument is not an expression or a column.
        ValueError: no column is given, or one twice, or two derivatives would bear one name.
    """
    derivatives = gradient(expr, wrt, grad=grad)
    return [expr if expr.variant_name() == "Alias" else expr.alias("value"), *derivatives]


@of_expressions
def gradient(expr: Expr, wrt: Columns, *, grad: Grad | None = None) -> list[Expr]:
    """Returns the derivatives of an expression by columns.

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
        TypeError: an argument is not an expression or a column.
        ValueError: no column is given, or one twice, or two derivatives would bear one name, as those by ``u.x`` and
            ``v.x`` beside one by ``u_x``.
    """
    columns = named_columns(wrt)
    operator = grad or functions.grad
    check_expression(expr, "gradient")
    return [operator(expr, column).alias(f"d_{name}") for name, column in columns.items()]


@of_expressions
def hessian(expr: Expr, wrt: Columns, *, grad: Grad | None = None) -> list[list[Expr]]:
    """Returns the second derivatives of an expression by pairs of columns.

    >>> from datafusion import SessionContext, col
    >>> from xql_ffi import register
    >>> df = register(SessionContext()).from_pydict({"x": [3.0], "y": [2.0]})
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
        TypeError: an argument is not an expression or a column.
        ValueError: no column is given, or one twice, or two derivatives would bear one name, as those by ``a`` and
            ``b_a`` and by ``a_b`` and ``a``.
    """
    columns = list(named_columns(wrt).items())
    check_distinct([f"{row}_{name}" for row, _ in columns for name, _ in columns])
    operator = grad or functions.grad
    check_expression(expr, "hessian")
    first = [operator(expr, column) for _, column in columns]
    upper = [[operator(derivative, column) for _, column in columns[i:]] for i, derivative in enumerate(first)]
    return [
        [upper[min(i, j)][abs(i - j)].alias(f"d_{row}_{name}") for j, (name, _) in enumerate(columns)]
        for i, (row, _) in enumerate(columns)
    ]


@of_expressions
def jacobian(exprs: Sequence[Expr], wrt: Columns, *, grad: Grad | None = None) -> list[list[Expr]]:
    """Returns the derivatives of several expressions by columns.

    >>> from datafusion import SessionContext, col
    >>> from xql_ffi import register
    >>> df = register(SessionContext()).from_pydict({"x": [3.0], "y": [2.0]})
    >>> rows = jacobian([(col("x") * col("y")).alias("area"), col("x") + col("y")], ["x", "y"])
    >>> df.select(*rows[0], *rows[1]).to_pydict()
    {'d_area_x': [2.0], 'd_area_y': [3.0], 'd_1_x': [1.0], 'd_1_y': [1.0]}

    Args:
        exprs: what to differentiate.
        wrt: the column or columns to differentiate by, as `gradient` takes them.
        grad: the operator, if it has rules of your own: ``grad_capsule(rules=[...])``.

    Returns:
        A row for each expression, of one expression for each column, called ``d_f_x`` for what has the alias ``f`` or
        is the column ``f``, and ``d_0_x``, by its number, for what has no name.

    Raises:
        TypeError: an argument is not an expression or a column.
        ValueError: no column is given, or one twice, or two derivatives would bear one name.
    """
    if isinstance(exprs, Expr):
        msg = "jacobian takes a list of expressions: write jacobian([f, g], ...), or gradient(f, ...) for one"
        raise TypeError(msg)
    columns = named_columns(wrt)
    names = []
    for number, expr in enumerate(exprs):
        check_expression(expr, "jacobian")
        names.append(_name(expr) or str(number))
    check_distinct([f"{row}_{name}" for row in names for name in columns])
    operator = grad or functions.grad
    return [
        [operator(expr, column).alias(f"d_{row}_{name}") for name, column in columns.items()]
        for row, expr in zip(names, exprs, strict=True)
    ]


@of_expressions
def hvp(expr: Expr, wrt: Columns, vector: Sequence[Expr | float], *, grad: Grad | None = None) -> list[Expr]:
    """Returns the Hessian of an expression times a vector, without the Hessian.

    >>> from datafusion import SessionContext, col
    >>> from xql_ffi import register
    >>> df = register(SessionContext()).from_pydict({"x": [3.0], "y": [2.0]})
    >>> df.select(*hvp(col("x") * col("x") * col("y"), ["x", "y"], [1.0, col("y")])).to_pydict()
    {'hvp_x': [16.0], 'hvp_y': [6.0]}

    Args:
        expr: what to differentiate.
        wrt: the column or columns to differentiate by, as `gradient` takes them.
        vector: an expression or a number for each column. It counts as constant.
        grad: the operator, if it has rules of your own: ``grad_capsule(rules=[...])``.

    Returns:
        One expression for each column, in their order, called ``hvp_x`` for the column ``x``.

    Raises:
        TypeError: an argument is not an expression or a column.
        ValueError: no column is given, or one twice, or the vector has more or fewer components than there are columns.
    """
    columns = named_columns(wrt)
    check_expression(expr, "hvp")
    if len(vector) != len(columns):
        msg = f"the vector of hvp must have a component for each column: {len(columns)}, not {len(vector)}"
        raise ValueError(msg)
    operator = grad or functions.grad
    terms = []
    for column, component in zip(columns.values(), vector, strict=True):
        factor = lit(float(component)) if isinstance(component, int | float) else functions.stop_gradient(component)
        terms.append(operator(expr, column) * factor)
    along = reduce(add, terms)
    return [operator(along, column).alias(f"hvp_{name}") for name, column in columns.items()]


def _name(expr: Expr) -> str | None:
    """Returns the name of a column, or of an expression that has been given one."""
    if expr.variant_name() == "Column":
        name: str = expr.to_variant().name()
        return name
    return expr.schema_name() if expr.variant_name() == "Alias" else None


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
    """Returns a value and its derivatives by the rows of the relations that it reads.

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
        TypeError: the loss is neither SQL nor a DataFrame, or a column is not given by its name.
        MissingEngineError: the ``datafusion`` of this process does not differentiate.
        VariableError: the loss does not read one of the columns, or one is no column of floats.
        ValueError: the loss has more columns than one; there is no such relation or column; no column is given, or one
            twice, or one without its relation; a relation has a column already that is called as a derivative is; or no
            ``grad`` is registered.
    """
    if not is_active():
        msg = (
            "gradients needs sessions that differentiate. Without them, write a statement for each table, SELECT *, "
            "grad((SELECT l FROM loss), val) FROM w, and run it as plain SQL, xql_ffi.sql(ctx, statement). "
            f"Or {way_out()}"
        )
        raise MissingEngineError(msg)
    frame = frame_of(ctx, loss)
    check_one_column(names := frame.schema().names)
    relations = _relations(ctx, wrt)
    places = _places(relations)
    check_registered(ctx)
    tag = uuid4().hex
    with viewed(ctx, frame, tag) as view:
        value = f"(SELECT {quoted(names[0])} FROM {view})"
        all_rows = ctx.sql(_statement(relations, places, value, tag)).cache()
        _check_all_are_read(ctx, value, _still(all_rows, relations, places, tag))
    part = col(f"part_{tag}")
    (row,) = all_rows.filter(part == lit(0)).select(col(f"value_{tag}").alias("value")).to_pylist()
    by = {}
    for number, (relation, own) in enumerate(zip(relations, places, strict=True), start=1):
        names = zip(own, [*relation.columns, *relation.derivatives()], strict=True)
        by[relation.name] = all_rows.filter(part == lit(number)).select(*(_at(n, tag).alias(name) for n, name in names))
    return Gradients(row["value"], by)


@dataclass(frozen=True)
class _Relation:
    """A relation, its columns, and those to differentiate by."""

    path: Path
    schema: pa.Schema
    variables: Sequence[str]

    @property
    def name(self) -> str:
        """The name of the relation, as the caller wrote it."""
        return ".".join(self.path)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = self.schema.names
        return names

    def derivatives(self) -> list[str]:
        """The names of the derivatives."""
        return [f"d_{variable}" for variable in self.variables]


def in_parts(relation: Path) -> str:
    """Returns a relation in SQL, each part of its name in quotes."""
    return ".".join(map(quoted, relation))


def by_relation(wrt: str | Sequence[str]) -> list[tuple[Path, str]]:
    """Returns the columns to differentiate by, each with its relation before it.

    Raises:
        ValueError: a column is named without its relation, or a relation in two ways.
    """
    found = paths(wrt)
    relations = {relation for relation, _ in found}
    for relation, name in found:
        if not relation:
            msg = f"the column {name!r} is named without its relation: write '<table>.{name}'"
            raise ValueError(msg)
        for other in relations - {relation}:
            if other[-len(relation) :] == relation:
                msg = (
                    f"{'.'.join(relation)} and {'.'.join(other)} may be one relation, by whose rows each would have "
                    "derivatives of its own: name both with their schemas, or one relation in one way"
                )
                raise ValueError(msg)
    return found


def schema_of(ctx: SessionContext, relation: Path) -> pa.Schema:
    """Returns the schema of a relation to differentiate by.

    Raises:
        ValueError: the session has no such table.
    """
    try:
        return ctx.table(in_parts(relation)).schema()
    except (KeyError, RuntimeError) as error:
        msg = f"the session has no table called {'.'.join(relation)!r} to differentiate by"
        raise ValueError(msg) from error


def _relations(ctx: SessionContext, wrt: str | Sequence[str]) -> list[_Relation]:
    """Returns the relations of columns, each with all of its columns and those to differentiate by."""
    variables: dict[Path, list[str]] = {}
    for relation, name in by_relation(wrt):
        variables.setdefault(relation, []).append(name)
    relations = []
    for relation, names in variables.items():
        schema = schema_of(ctx, relation)
        for name in names:
            if name not in schema.names:
                has = ", ".join(map(repr, schema.names))
                msg = f"{'.'.join(relation)} has no column {name!r} to differentiate by, only {has}"
                raise ValueError(msg)
            if f"d_{name}" in schema.names:
                called_so = f"has a column d_{name} already, as the derivative by {name} is called: rename it"
                msg = f"{'.'.join(relation)} {called_so}"
                raise ValueError(msg)
            if not pa.types.is_floating(kind := schema.field(name).type):
                column = f"the column {'.'.join(relation)}.{name} is {kind}"
                msg = f"the variable must be a column of floats; {column}. Convert it in the table, or in a view of it"
                raise VariableError(msg)
        relations.append(_Relation(relation, schema, names))
    return relations


def _places(relations: Sequence[_Relation]) -> Places:
    """For each relation where its columns and its derivatives stand in the rows of all of them.

    Columns of one type stand in one place, so that there are no more than one relation has, and not those of all.
    """
    numbers: dict[object, int] = {}
    places = []
    for number, relation in enumerate(relations):
        types: list[object] = [field.type if _is_plain(field) else (number, field.name) for field in relation.schema]
        types += [("derivative by", relation.schema.field(name).type) for name in relation.variables]
        nth = [types[:n].count(each) for n, each in enumerate(types)]
        places.append([numbers.setdefault(key, len(numbers)) for key in zip(types, nth, strict=True)])
    return places


def _is_plain(field: pa.Field) -> bool:
    """Returns whether a column of several tables is of this type if each of theirs is."""
    of = field.type
    return not field.metadata and (pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_boolean(of))


def _at(place: int, tag: str) -> Expr:
    """Returns a column of the rows of all relations."""
    return col(f"c{place}_{tag}")


def _statement(relations: Sequence[_Relation], places: Places, loss: str, tag: str) -> str:
    """Returns the value, and the rows of the relations with their derivatives, under names that nothing else has.

    SELECT (loss), coalesce(r0.part, r1.part, r2.part), coalesce(r1.inp, r2.out), coalesce(r1.val, r2.val),
        coalesce(CASE WHEN r1.part IS NOT NULL THEN grad((loss), r1.val) END, CASE ...), ...
    FROM ...                                                               as `selected_beside` has it
    """
    columns: dict[int, list[str]] = {}
    for number, (relation, own) in enumerate(zip(relations, places, strict=True), start=1):
        read = [f"r{number}.{quoted(name)}" for name in relation.columns]
        derivatives = [f"grad({loss}, r{number}.{quoted(name)})" for name in relation.variables]
        read += [in_own_rows(derivative, number, tag) for derivative in derivatives]
        for place, expression in zip(own, read, strict=True):
            columns.setdefault(place, []).append(expression)
    selected = [f"{loss} AS value_{tag}", f"{part_of_row(len(relations), tag)} AS part_{tag}"]
    selected += [f"{in_its_part(each)} AS c{place}_{tag}" for place, each in columns.items()]
    tables = [in_parts(relation.path) for relation in relations]
    return f"SELECT {', '.join(selected)} FROM {selected_beside('', tables, tag)}"


def _still(all_rows: DataFrame, relations: Sequence[_Relation], places: Places, tag: str) -> dict[Path, list[str]]:
    """By relation the variables by which all derivatives are 0 or NULL."""
    of = [own[len(relation.columns) :] for relation, own in zip(relations, places, strict=True)]
    moving = sorted({place for own in of for place in own})
    largest = [f.max(f.abs(_at(place, tag))).alias(f"m{place}") for place in moving]
    rows = all_rows.aggregate([col(f"part_{tag}").alias("part")], largest).to_pylist()
    found = {row["part"]: row for row in rows}
    still = {}
    for number, (relation, own) in enumerate(zip(relations, of, strict=True), start=1):
        names = zip(relation.variables, own, strict=True)
        if unmoved := [name for name, place in names if not found.get(number, {}).get(f"m{place}")]:
            still[relation.path] = unmoved
    return still


def _check_all_are_read(ctx: SessionContext, value: str, still: Mapping[Path, Sequence[str]]) -> None:
    """Checks that a loss reads the variables by which all derivatives are 0, as they may be.

    Raises:
        VariableError: it does not read one of them.
    """
    if not still:
        return
    statement = f"SELECT {value} AS value, {called('zero')} AS zero FROM (SELECT CAST(0 AS DOUBLE) AS zero)"
    plan = plan_with_scans(ctx.sql(statement))
    for relation, variables in still.items():
        # A plan scans no views.
        is_table = ctx.table(in_parts(relation)).logical_plan().display().startswith("TableScan:")
        for variable in variables if is_table else ():
            if not may_read(plan, ".".join(relation), variable):
                raise unread(f"{'.'.join(relation)}.{variable}")


def check_registered(ctx: SessionContext) -> None:
    """Raises a `ValueError` if a session has no function called ``grad``."""
    try:
        ctx.udf("grad")
    except Exception as error:
        msg = "the session has no function called grad: register it with xql_ffi.register(ctx)"
        raise ValueError(msg) from error
