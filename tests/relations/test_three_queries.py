"""Queries in which a value is computed below the call, per row of a table of parameters: where rows must be matched."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from datafusion import SessionContext, col, lit
from datafusion import functions as f

from support.cases import assert_no_call, plans, query
from support.compare import Rows, assert_same_rows, rows_of
from xql_ffi import grad_capsule

X, Y = [0.5, 1.0, -1.5, 2.0], [2.0, -1.5, 0.25, 3.0]
W, B = [0.75, -1.25], [0.5, 2.0]
MEAN = [sum(2 * (w * x + b - y) * x for x, y in zip(X, Y, strict=True)) / len(X) for w, b in zip(W, B, strict=True)]
NO_OFFSET = [sum(2 * (w * x - y) * x for x, y in zip(X, Y, strict=True)) / len(X) for w in W]

Register = Callable[[SessionContext], SessionContext]


@dataclass(frozen=True)
class Query:
    """A query with the columns `n` and `d`, by which its rows are ordered from outside."""

    ctes: str
    select: str
    expected: Rows

    def sql(self, head: str = "") -> str:
        return f"{f'WITH {self.ctes} ' if self.ctes else ''}{head}{self.select}"


QUERIES = {
    "prediction_in_a_cte": Query(
        "m AS (SELECT n, y, w, w * x + b AS pred FROM d CROSS JOIN params)",
        "SELECT n, AVG(grad(power(pred - y, 2), w)) AS d FROM m GROUP BY n",
        list(enumerate(MEAN)),
    ),
    "gradient_of_an_average": Query(
        "",
        "SELECT n, grad(AVG(power(w * x - y, 2)), w) AS d FROM d CROSS JOIN params GROUP BY n, w",
        list(enumerate(NO_OFFSET)),
    ),
    "expression_that_is_a_group_key": Query(
        "",
        "SELECT CAST(x * 2 AS BIGINT) AS n, grad(x * x, x) AS d FROM d GROUP BY x * x, x",
        [(int(2 * x), 2 * x) for x in sorted(X)],
    ),
}


TABLES = {"d": {"x": X, "y": Y}, "params": {"n": [0, 1], "w": W, "b": B}}


Run = Callable[[SessionContext, Query], Any]


def _scalar_subquery(ctx: SessionContext, q: Query) -> Any:
    return query(ctx, f"SELECT n, (SELECT SUM(d) FROM ({q.sql()}) AS r WHERE r.n = l.n) AS d "
                      f"FROM ({q.sql()}) AS l ORDER BY n")  # fmt: skip


def _recursive_term(ctx: SessionContext, q: Query) -> Any:
    """The query is evaluated in every iteration, and what it gives is added to the zeros that came before."""
    ctes = f"{q.ctes}, " if q.ctes else ""
    return query(
        ctx,
        f"""WITH RECURSIVE {ctes}result AS (
              SELECT 0 AS step, CAST(n AS BIGINT) AS n, CAST(0 AS DOUBLE) AS d FROM ({q.select}) AS start
              UNION ALL
              SELECT result.step + 1, result.n, result.d + r.d / 4
              FROM result JOIN ({q.select}) AS r ON result.n = r.n WHERE result.step < 4)
            SELECT n, d FROM result WHERE step = 4 ORDER BY n""",
    )


def _explain(ctx: SessionContext, q: Query) -> Any:
    assert_no_call(plans(ctx, q.sql()).values())
    return query(ctx, f"{q.sql()} ORDER BY n")


POSITIONS: dict[str, Run] = {
    "correlated_scalar_subquery": _scalar_subquery,
    "recursive_term": _recursive_term,
    "explain": _explain,
}


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("name", QUERIES)
def test_in_position(session: SessionContext, name: str, position: str) -> None:
    found = POSITIONS[position](session, QUERIES[name])
    assert found.schema.names == ["n", "d"]
    assert_same_rows(rows_of(found), QUERIES[name].expected)


def test_dataframes(session: SessionContext) -> None:
    grad = grad_capsule()
    frame = session.sql("SELECT * FROM d CROSS JOIN params")
    m = frame.select(col("n"), col("y"), col("w"), (col("w") * col("x") + col("b")).alias("pred"))
    loss = (col("pred") - col("y")) * (col("pred") - col("y"))
    slopes = m.aggregate([col("n")], [f.avg(grad(loss, col("w"))).alias("d")]).sort(col("n"))
    assert_same_rows(rows_of(slopes.to_arrow_table()), list(enumerate(MEAN)))
    keyed = m.aggregate([col("n"), col("w")], [f.avg(loss).alias("loss")])
    slope = keyed.select(col("n"), grad(col("loss") * lit(1.0), col("w")).alias("d")).sort(col("n"))
    assert_same_rows(rows_of(slope.to_arrow_table()), list(enumerate(MEAN)))
