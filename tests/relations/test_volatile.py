"""What is volatile in an aggregate or window function is drawn once: its derivative is over the same rows."""

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.errors import Refused, assert_refused, refusals
from support.tables import T

ROWS = "(SELECT w, CAST(value AS DOUBLE) AS x FROM (SELECT 2.0 AS w) AS p CROSS JOIN generate_series(1, 40)) AS r"

# Each is proportional to w, so that its derivative is the value by w.
AGGREGATES = [
    "sum(w * x) FILTER (WHERE random() < 0.5)",
    "avg(w * x) FILTER (WHERE random() < 0.5 AND x > 3)",
    "max(w * x) FILTER (WHERE random() < 0.5)",
    "sum(w * x) FILTER (WHERE x > 40 * (SELECT random()))",
    "first_value(w * x ORDER BY random())",
    "last_value(w * x ORDER BY floor(random() * 3), x DESC)",
    "covar_pop(w * x, random())",
    "regr_slope(w * x, random())",
    "sum(w * x * random())",
    "avg(w * CASE WHEN random() < 0.5 THEN x ELSE 1 END)",
]
WINDOWS = [
    "sum(w * x) OVER (ORDER BY random())",
    "sum(w * x) OVER (PARTITION BY floor(random() * 2))",
    "sum(w * x) FILTER (WHERE random() < 0.5) OVER (ORDER BY x)",
    "first_value(w * x) OVER (ORDER BY random())",
    "lag(w * x) OVER (ORDER BY random())",
    "max(w * x) OVER (ORDER BY random() ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "min(w * x * random()) OVER (ORDER BY x)",
]
RELATIONS = {
    "distinct_on": f"SELECT DISTINCT ON (x % 5) w, w * x AS s FROM {ROWS} ORDER BY x % 5, random()",
    "join_condition": f"SELECT w, w * x AS s FROM {ROWS} JOIN generate_series(1, 3) ON random() < 0.5",
    "filter": f"SELECT w, w * x AS s FROM {ROWS} WHERE random() < 0.5",
    "order": f"SELECT w, w * x AS s FROM {ROWS} ORDER BY random() LIMIT 5",
    "column": f"SELECT w, w * d AS s FROM (SELECT w, random() AS d FROM {ROWS}) AS q",
    "subquery": f"SELECT w, w * d AS s FROM (SELECT w, (SELECT random()) AS d FROM {ROWS}) AS q",
    "aggregates_of_one_order": "SELECT w, s FROM (SELECT w, first_value(w * x ORDER BY random()) - "
    f"first_value(w * x ORDER BY random()) AS s FROM {ROWS} GROUP BY w) AS q",
}
STATEMENTS = [
    *(f"SELECT w, {aggregate} AS s FROM {ROWS} GROUP BY w" for aggregate in AGGREGATES),
    *(f"SELECT w, {window} AS s FROM {ROWS}" for window in WINDOWS),
    *RELATIONS.values(),
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=[*AGGREGATES, *WINDOWS, *RELATIONS])
def test_drawn_once(ctx: SessionContext, statement: str) -> None:
    found = query(ctx, f"SELECT s / w AS slope, grad(s, w) AS d FROM ({statement}) AS m")
    assert_same_rows([(d,) for _, d in rows_of(found)], [(slope,) for slope, _ in rows_of(found)])


def test_names_of_columns_stay(ctx: SessionContext) -> None:
    aggregate = "sum(r.w * r.x) FILTER (WHERE random() < Float64(0.5))"
    found = query(
        ctx, f'SELECT *, grad("{aggregate}", w) AS d FROM (SELECT w, {AGGREGATES[0]} FROM {ROWS} GROUP BY w) AS q'
    )
    assert found.column_names == ["w", aggregate, "d"]


CASES = [
    Refused("factor", "SELECT grad(x * random(), x) FROM t", ["volatile", "draw another value"]),
    Refused(
        "factor_read_twice",
        "SELECT jvp(greatest(x, y) * x, x, random(), y, 1.0) FROM t",
        ["volatile", "draw another value"],
    ),
    Refused("subquery", "SELECT grad(x * (SELECT random()), x) FROM t", ["volatile", "draw another value"]),
    Refused(
        "subquery_below",
        "SELECT grad(p, x) FROM (SELECT x, x * (SELECT random()) AS p FROM t) AS m",
        ["volatile", "draw another value"],
    ),
    Refused(
        "condition",
        "SELECT grad(p, x) FROM (SELECT x, CASE WHEN random() < 0.5 THEN x ELSE x * x END AS p FROM t) AS m",
        ["volatile", "draw another value"],
    ),
    Refused(
        "key",
        "SELECT grad(p, x) FROM (SELECT x, x * random() AS p FROM t GROUP BY x, x * random()) AS m",
        ["volatile", "draw another value"],
    ),
]


@refusals(CASES)
def test_refused(ctx: SessionContext, case: Refused) -> None:
    assert_refused(ctx, case)


def test_a_factor_that_is_read_once(ctx: SessionContext) -> None:
    found = query(ctx, "SELECT x, vjp(CASE WHEN x > 1 THEN x * x ELSE 3 * x END, x, random()) AS d FROM t")
    drawn = [d / (2 * x if x > 1 else 3.0) for x, d in zip(*found.to_pydict().values(), strict=True)]
    assert len({*drawn}) == len(drawn) == len(T)
    assert all(0 <= number < 1 for number in drawn)


def test_two_draws_are_two(ctx: SessionContext) -> None:
    found = query(ctx, "SELECT jvp(x - y, x, random(), y, random()) AS d FROM t")
    drawn = found["d"].to_pylist()
    assert len({*drawn}) == len(drawn) == len(T)
    assert all(0 < abs(d) < 1 for d in drawn)
