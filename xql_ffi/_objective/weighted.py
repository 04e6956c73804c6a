"""The Jacobian of the numbers that a query gives, by way of a loss: their sum, each times a weight.

The derivatives of that sum by the parameters, where one weight is 1 and all others are 0, are a row of the Jacobian.
Its derivatives by the weights are the numbers; those of them along one parameter are a column.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from xql_ffi._loss import stripped
from xql_ffi._objective.parameters import Relation

if TYPE_CHECKING:
    from xql_ffi._objective.curvature import Matrix
    from xql_ffi._objective.host import Host
    from xql_ffi._objective.parameters import Vector

    Values = Mapping[str, Mapping[str, pa.Array]]


@dataclass(frozen=True)
class Weighted:
    """A loss that is the sum of the numbers of a query, each times a weight.

    Attributes:
        rows: the rows of the query.
        loss: the sum.
        weights: the relation of the weights, which has a row for each row of the query, and a column for each column
            of numbers.
    """

    rows: pa.Table
    loss: str
    weights: Relation


def quantities(host: Host, sql: str, values: Values) -> Weighted:
    """Weighs the floats that a query gives. Rows are told apart by all of their columns.

    Raises:
        ValueError: the query has no row or no column of floats, a NULL among these, or two equal rows.
    """
    rows = host.collect(sql, values)
    floats = [place for place, kind in enumerate(rows.schema.types) if pa.types.is_floating(kind)]
    if not floats or not rows.num_rows:
        msg = f"the query gives no number: it has {rows.num_rows} rows, and {len(floats)} columns of floats"
        raise ValueError(msg)
    columns = ", ".join(f"c{place}" for place in range(rows.num_columns))
    # What is rounded decides of an order only where nothing else does.
    order = ", ".join(f"c{place}" for place in sorted(range(rows.num_columns), key=floats.__contains__))
    number = f"ROW_NUMBER() OVER (ORDER BY {order})" if rows.num_rows > 1 else "CAST(1 AS BIGINT)"
    numbered = f"SELECT {number} AS k, {columns} FROM ({stripped(sql)}\n) AS q({columns})"
    if rows.num_rows > 1:
        names, rows = rows.schema.names, host.collect(numbered, values).sort_by("k").drop_columns(["k"])
        rows = rows.rename_columns(names)
        _check_different(rows)
    for place in floats:
        if rows.column(place).null_count:
            msg = f"the query gives NULL in the column {rows.schema.names[place]!r}, which has no derivative"
            raise ValueError(msg)
    keys = pa.table({"k": pa.array(range(1, rows.num_rows + 1), pa.int64())})
    return _weighted(rows, numbered, keys, [f"c{place}" for place in floats])


def _check_different(rows: pa.Table) -> None:
    """Raises a `ValueError` if two rows one after the other are equal."""
    for one, other in itertools.pairwise(rows.to_pylist()):
        if one == other:
            msg = f"two rows of the query are equal, {one}: select what tells them apart as well"
            raise ValueError(msg)


def observations(host: Host, sql: str, values: Values) -> Weighted:
    """Weighs the losses of observations: of a query whose last column is the loss, and the others say of which one.

    The rows are those other columns, and ``loss`` and ``size``, the sums of the losses and of their sizes.

    Raises:
        ValueError: the query has one column only, the last one has no floats, or another one has NULL.
    """
    query = stripped(sql)
    schema = host.collect(f"SELECT * FROM ({query}\n) AS q LIMIT 0", values).schema
    if len(schema.names) < 2 or not pa.types.is_floating(schema.types[-1]):
        msg = (
            f"scores has the columns {schema.names}: write a query of the loss of each row as its last column, a "
            "float, after those that say of which observation or cluster the row is: SELECT i, <loss> FROM ..."
        )
        raise ValueError(msg)
    keys = [f"k{place}" for place in range(len(schema.names) - 1)]
    named = f"SELECT * FROM ({query}\n) AS q({', '.join([*keys, 'c'])})"
    sums = (
        f"SELECT {', '.join(keys)}, SUM(c) AS loss, SUM(abs(c)) AS size FROM ({named}) AS s GROUP BY {', '.join(keys)}"
    )
    rows = host.collect(sums, values)
    for key, name in zip(keys, schema.names, strict=False):
        if rows.column(key).null_count:
            msg = f"the column {name!r} of scores has NULL, which says of no observation that a row is of it"
            raise ValueError(msg)
    return _weighted(rows, named, rows.select(keys), ["c"])


def _weighted(rows: pa.Table, query: str, keys: pa.Table, columns: list[str]) -> Weighted:
    """Weighs columns of a query whose rows have these keys."""
    import numpy as np

    name = f"weights_{uuid4().hex}"
    weights = {f"w{place}": np.ones(keys.num_rows) for place in range(len(columns))}
    sums = " + ".join(f"SUM(u.w{place} * q.{column})" for place, column in enumerate(columns))
    same = " AND ".join(f"q.{key} = u.{key}" for key in keys.schema.names)
    table = pa.table([*keys.columns, *weights.values()], names=[*keys.schema.names, *weights])
    relation = Relation(name, table, list(weights), {each: np.ones(keys.num_rows, dtype=bool) for each in weights})
    return Weighted(rows, f"SELECT {sums} FROM ({query}) AS q JOIN {name} AS u ON {same}", relation)


def jacobian(
    gradient: Callable[[Vector], Vector], hvp: Callable[[Vector, Vector], Vector], x: Vector, count: int
) -> Matrix:
    """Returns the derivatives of numbers by parameters, in whichever mode takes fewer calls.

    Args:
        gradient: the gradient of the weighted sum, by the parameters and then by the weights.
        hvp: its Hessian times a vector.
        x: the parameters.
        count: how many numbers there are.

    Returns:
        A matrix of the shape (count, n), by column of the query, then by row.
    """
    import numpy as np

    n = len(x)
    if count <= n:
        return np.array([gradient(np.concatenate([x, weights]))[:n] for weights in np.eye(count)])
    point, still = np.concatenate([x, np.ones(count)]), np.zeros(count)
    columns = [hvp(point, np.concatenate([unit, still]))[n:] for unit in np.eye(n)]
    return np.stack(columns, axis=1)
