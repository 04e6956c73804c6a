"""Whole Jacobians and Hessians as relations: a row for each pair of a row of the result and one of the variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, overload
from uuid import uuid4

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext, col

from xql_ffi import _gradients
from xql_ffi._columns import Columns, Path
from xql_ffi._engine import is_active, way_out
from xql_ffi._errors import MissingEngineError
from xql_ffi._expressions import quoted
from xql_ffi._gradients import Grad, by_relation, check_registered, in_parts, schema_of
from xql_ffi._loss import check_one_column, frame_of, viewed

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# The column with the derivatives.
DERIVATIVE = "d"


@dataclass(frozen=True)
class Jacobian:
    """The derivatives of the rows of a query by the rows of a relation.

    Attributes:
        pairs: the pairs of rows whose derivative is not 0, in no particular order: the keys of the row of the query, as
            ``of_k``, those of the row of the relation, as ``by_k``, and the derivative ``d``, a DOUBLE.
        rows: the rows of the query, their keys and the value, ordered by the keys.
        columns: the rows of the relation, their keys and the variable, ordered by the keys.
    """

    pairs: pa.Table
    rows: pa.Table
    columns: pa.Table

    def matrix(self) -> csr_array:
        """Returns the derivatives as a sparse matrix of SciPy, of shape (len(rows), len(columns)).

        Raises:
            ValueError: the keys do not tell the rows of the query, or those of the relation, apart.
            ImportError: SciPy is not installed.
        """
        from scipy.sparse import coo_array

        places = [_places(self.pairs, side, prefix) for side, prefix in ((self.rows, "of_"), (self.columns, "by_"))]
        values = self.pairs[DERIVATIVE].to_numpy()
        return coo_array((values, tuple(places)), shape=(len(self.rows), len(self.columns))).tocsr()


@dataclass(frozen=True)
class Hessian:
    """The second derivatives of a value by the rows of relations.

    Attributes:
        blocks: by pairs of the columns as they were given, the derivatives of the gradient by the first one's rows, by
            the rows of the second. Of a pair in both orders, the one in the order in which they were given is there.
    """

    blocks: Mapping[tuple[str, str], Jacobian]

    def matrix(self) -> csr_array:
        """Returns all second derivatives as a symmetric sparse matrix of SciPy, the columns one after the other.

        Raises:
            ValueError: keys do not tell the rows of a relation apart.
            ImportError: SciPy is not installed.
        """
        from scipy.sparse import block_array

        names = list(dict.fromkeys(name for name, _ in self.blocks))
        matrices = {pair: block.matrix() for pair, block in self.blocks.items()}
        blocks = [[matrices[a, b] if (a, b) in matrices else matrices[b, a].T for b in names] for a in names]
        return block_array(blocks, format="csr")


@overload
def jacobian(exprs: Sequence[Expr], wrt: Columns, *, grad: Grad | None = None) -> list[list[Expr]]: ...
@overload
def jacobian(
    ctx: SessionContext, query: str | DataFrame, wrt: str, *, keys: Sequence[str] | None = None
) -> Jacobian: ...
def jacobian(*args: Any, **options: Any) -> Any:
    """Returns the derivatives of several expressions by columns, or those of the rows of a query by rows of a relation.

    >>> from datafusion import SessionContext, col
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> df = ctx.from_pydict({"x": [3.0], "y": [2.0]})
    >>> rows = jacobian([(col("x") * col("y")).alias("area"), col("x") + col("y")], ["x", "y"])
    >>> df.select(*rows[0], *rows[1]).to_pydict()
    {'d_area_x': [2.0], 'd_area_y': [3.0], 'd_1_x': [1.0], 'd_1_y': [1.0]}

    Of rows it is sparse, a relation of the pairs whose derivative is not 0. One statement computes it:

    >>> w = ctx.from_pydict({"k": [1, 2, 3], "val": [3.0, 4.0, 5.0]}, name="w")
    >>> found = jacobian(ctx, "SELECT a.k, a.val * b.val AS val FROM w a JOIN w b ON b.k = a.k + 1", "w.val")
    >>> found.pairs.sort_by([("of_k", "ascending"), ("by_k", "ascending")]).to_pydict()
    {'of_k': [1, 1, 2, 2], 'by_k': [1, 2, 2, 3], 'd': [4.0, 3.0, 5.0, 4.0]}
    >>> found.matrix().toarray()
    array([[4., 3., 0.],
           [0., 5., 4.]])

    Args:
        args: expressions and the columns to differentiate by, as `gradient` takes them; or a session, a query in SQL
            or as a DataFrame, and the column to differentiate by, with its relation: ``"w.val"``. The last column of
            the query is differentiated, the others are the keys of its rows.
        options: ``grad``, the operator for expressions if it has rules of your own; or ``keys``, the columns that tell
            the rows of the relation apart, by default all that are not floats.

    Returns:
        Of expressions, a row for each, of one expression for each column, called ``d_f_x`` for what has the alias
        ``f`` or is the column ``f``, and ``d_0_x``, by its number, for what has no name. Of a query, a `Jacobian`:
        without pairs if it does not vary.

    Raises:
        TypeError: an argument is none of these.
        ValueError: no column is given, or one twice, or two derivatives would bear one name; there is no such relation
            or column; or the session has no ``grad``.
        MissingEngineError: the ``datafusion`` of this process does not differentiate.
        VariableError: the rows are computed by iterations, which have no derivative for each of their rows.
    """
    if "ctx" in options or (args and hasattr(args[0], "sql")):
        return _of_rows(*args, **options)
    return _gradients.jacobian(*args, **options)


@overload
def hessian(expr: Expr, wrt: Columns, *, grad: Grad | None = None) -> list[list[Expr]]: ...
@overload
def hessian(
    ctx: SessionContext,
    loss: str | DataFrame,
    wrt: str | Sequence[str],
    *,
    keys: Mapping[str, Sequence[str]] | None = None,
) -> Hessian: ...
def hessian(*args: Any, **options: Any) -> Any:
    """Returns the second derivatives of an expression by pairs of columns, or those of a value by rows of relations.

    >>> from datafusion import SessionContext, col
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> df = ctx.from_pydict({"x": [3.0], "y": [2.0]})
    >>> rows = hessian(col("x") * col("x") * col("y"), ["x", "y"])
    >>> df.select(*rows[0], *rows[1]).to_pydict()
    {'d_x_x': [4.0], 'd_x_y': [6.0], 'd_y_x': [6.0], 'd_y_y': [0.0]}

    The matrix of expressions is symmetric, so an element below the diagonal is the expression of the one above it under
    another name: DataFusion evaluates them once. For one of each pair, take ``rows[i][i:]``.

    >>> w = ctx.from_pydict({"k": [1, 2, 3], "val": [3.0, 4.0, 5.0]}, name="w")
    >>> hessian(ctx, "SELECT SUM(a.val * b.val) FROM w a JOIN w b ON b.k = a.k + 1", "w.val").matrix().toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])

    Args:
        args: an expression and the column or columns to differentiate by, as `gradient` takes them; or a session, a
            query of one row and one column, in SQL or as a DataFrame, and the columns with their relations.
        options: ``grad``, the operator for an expression, if it has rules of your own; or ``keys``, for the columns of
            relations, ``{"w.val": ["k"]}``, the columns that tell the rows apart, by default all that are not floats.

    Returns:
        Of an expression, a row for each column, of one expression for each column, called ``d_x_y`` for the columns
        ``x`` and ``y``. Of a query, a `Hessian`. Each pair of its columns is a statement.

    Raises:
        TypeError: an argument is none of these.
        ValueError: as those of `jacobian`.
        MissingEngineError: the ``datafusion`` of this process does not differentiate.
        VariableError: the gradient is of what iterations compute.
    """
    if "ctx" in options or (args and hasattr(args[0], "sql")):
        return _of_value(*args, **options)
    return _gradients.hessian(*args, **options)


@dataclass(frozen=True)
class Variable:
    """A column of a relation, and the keys of its rows."""

    relation: Path
    name: str
    keys: Sequence[str]

    @property
    def table(self) -> str:
        """The relation in SQL."""
        return in_parts(self.relation)


def variable(ctx: SessionContext, wrt: str, keys: Sequence[str] | None) -> Variable:
    """Finds the column that a name such as ``"w.val"`` gives, with the keys of its rows.

    Raises:
        TypeError: it is not a name.
        ValueError: there is no such relation, or it lacks the column or a key.
    """
    found = list(by_relation(wrt))
    if len(found) != 1:
        msg = f"one column with its relation is differentiated by, such as 'w.val'; {wrt!r} has {len(found)}"
        raise TypeError(msg)
    ((relation, name),) = found
    schema = schema_of(ctx, relation)
    if missing := [each for each in (name, *(keys or ())) if each not in schema.names]:
        msg = f"{'.'.join(relation)} has no column {missing[0]!r}, only {', '.join(map(repr, schema.names))}"
        raise ValueError(msg)
    if keys is None:
        keys = [field.name for field in schema if field.name != name and not pa.types.is_floating(field.type)]
    return Variable(relation, name, keys)


def _of_rows(ctx: SessionContext, query: str | DataFrame, wrt: str, *, keys: Sequence[str] | None = None) -> Jacobian:
    check_rows(ctx, "jacobian")
    frame = frame_of(ctx, query)
    with viewed(ctx, frame, uuid4().hex) as view:
        return _differentiated(ctx, view, frame.schema().names, variable(ctx, wrt, keys))


def _of_value(
    ctx: SessionContext,
    loss: str | DataFrame,
    wrt: str | Sequence[str],
    *,
    keys: Mapping[str, Sequence[str]] | None = None,
) -> Hessian:
    check_rows(ctx, "hessian")
    frame = frame_of(ctx, loss)
    check_one_column(names := frame.schema().names)
    wanted = [wrt] if isinstance(wrt, str) else list(wrt)
    if unknown := [name for name in keys or () if name not in wanted]:
        msg = f"keys are of columns that are differentiated by: {', '.join(wanted)}, not {unknown[0]}"
        raise ValueError(msg)
    variables = {name: variable(ctx, name, (keys or {}).get(name)) for name in wanted}
    tag = uuid4().hex
    blocks = {}
    with viewed(ctx, frame, tag) as view:
        for a, b in combinations_with_replacement(variables, 2):
            of = variables[a]
            selected = "".join(f"{quoted(key)}, " for key in of.keys)
            gradient = f"grad((SELECT {quoted(names[0])} FROM {view}), {quoted(of.name)})"
            query = f"(SELECT {selected}{gradient} AS g_{tag} FROM {of.table})"
            blocks[a, b] = _differentiated(ctx, query, [*of.keys, f"g_{tag}"], variables[b])
    return Hessian(blocks)


def _differentiated(ctx: SessionContext, query: str, names: Sequence[str], by: Variable) -> Jacobian:
    """Returns the derivatives of the last column of a query."""
    check_names(names, "the query")
    *keys, value = names
    derivative = f"grad(o.{quoted(value)}, b.{quoted(by.name)})"
    selected = [f"o.{quoted(key)} AS {quoted(f'of_{key}')}" for key in keys]
    selected += [f"b.{quoted(key)} AS {quoted(f'by_{key}')}" for key in by.keys]
    pairs = f"""SELECT {", ".join([*selected, f"{derivative} AS {DERIVATIVE}"])}
        FROM {query} AS o CROSS JOIN {by.table} AS b WHERE {derivative} <> 0"""
    columns = ", ".join(map(quoted, [*by.keys, by.name]))
    rows = _ordered(ctx, f"SELECT * FROM {query} AS o", keys)
    return Jacobian(ctx.sql(pairs).to_arrow_table(), rows, _ordered(ctx, f"SELECT {columns} FROM {by.table}", by.keys))


def _ordered(ctx: SessionContext, query: str, keys: Sequence[str]) -> pa.Table:
    """Returns the rows of a query in the order of keys. DataFusion loses rows where it orders those of OFFSET again."""
    frame = ctx.sql(query).cache()
    rows = frame.to_arrow_table()
    if _are_in_order(rows, keys):
        return rows
    return frame.sort(*(col(quoted(key)).sort(nulls_first=False) for key in keys)).to_arrow_table()


def _are_in_order(rows: pa.Table, keys: Sequence[str]) -> bool:
    """Whether rows are known to be in the order of keys, as those of a grid often are: sorting them takes longer."""
    import numpy as np

    are = np.ones(max(len(rows) - 1, 0), bool)
    for key in reversed(keys):
        column = rows[key]
        if column.null_count or not pa.types.is_integer(column.type):
            return False
        values = column.to_numpy()
        before, after = values[:-1], values[1:]
        are = (before < after) | ((before == after) & are)
    return bool(are.all())


def _places(pairs: pa.Table, side: pa.Table, prefix: str) -> Any:
    """Returns the positions in the rows of one side of the rows of pairs."""
    import numpy as np

    keys = side.column_names[:-1]
    if not keys and len(side) <= 1:
        return np.zeros(len(pairs), np.int64)
    codes = np.zeros((len(side) + len(pairs), len(keys)), np.int64)
    for number, key in enumerate(keys):
        kind = side[key].type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        values = pa.chunked_array([*side[key].cast(kind).chunks, *pairs[f"{prefix}{key}"].cast(kind).chunks], kind)
        codes[:, number] = values.combine_chunks().dictionary_encode("encode").indices.to_numpy()
    count, of_rows = 0, np.zeros(len(codes), np.int64)
    if keys:
        different, of_rows = np.unique(codes, axis=0, return_inverse=True)
        count = len(different)
    places = np.full(count, -1, np.int64)
    own = of_rows.ravel()[: len(side)]
    if len(np.unique(own)) < len(side):
        named = f"the columns {', '.join(map(repr, keys))} do not tell"
        msg = f"{named} the rows apart" if keys else "there is no column that tells the rows apart"
        raise ValueError(f"{msg}: name or select columns that do, as the keys of a matrix")
    places[own] = np.arange(len(side))
    found = places[of_rows.ravel()[len(side) :]]
    if (found < 0).any():
        msg = "the query has other rows each time it is computed: the pairs have keys that its rows do not have"
        raise ValueError(msg)
    return found


def check_names(names: Sequence[str], what: str) -> None:
    """Raises a `ValueError` if a query has two columns of one name."""
    if repeated := [name for name in names if names.count(name) > 1]:
        msg = f"{what} has two columns called {repeated[0]!r}: give one of them another name, AS ..."
        raise ValueError(msg)


def check_rows(ctx: SessionContext, name: str) -> None:
    """Raises an error if a session does not differentiate, which the function of this name has to do.

    Raises:
        MissingEngineError: no session of this process does.
        ValueError: this one does not.
    """
    if not is_active():
        msg = f"{name} of rows needs sessions that differentiate. {way_out()}"
        raise MissingEngineError(msg)
    check_registered(ctx)
