"""Messages that say what to write instead, and that this is right."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from support import sessions
from support.errors import Refused, assert_refused, message_at_planning, refusals

TABLES: dict[str, dict[str, list[float]]] = {
    "t": {"id": [1, 2, 3, 4], "g": [1, 1, 2, 2], "x": [1.0, 4.0, 2.0, -1.0], "y": [0.5, -0.25, 4.0, 1.0]},
    "w": {"k": [1, 2, 3], "val": [0.5, -1.5, 2.0]},
    "p": {"a": [0.75]},
}


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    return sessions.session(TABLES)


# ------------------------------------------------------------------------------------------------------ quoted names

QUOTED = {
    "grad(x * y, 'x')": "x",
    "jvp(x * y, 'x', 1.0)": "x",
    "jvp(x * y, x, 1.0, 'y', 1.0)": "y",
    "vjp(x * y, 'x', 1.0)": "x",
    "grad(x * y, 't.x')": r"t\.x",
    "grad(x * y, 'x + y')": r"x \+ y",
    "grad('x * y', x)": r"x \* y",
    "jvp('x * y', x, 1.0)": r"x \* y",
    "vjp('x * y', x, 1.0)": r"x \* y",
    "vjp(x * y, x, 'y')": "y",
}


@pytest.mark.parametrize("call", QUOTED)
def test_a_name_in_quotes(ctx: SessionContext, call: str) -> None:
    says = rf"Write {QUOTED[call]} without quotes"
    with pytest.raises(xql_ffi.DifferentiationError, match=says):
        ctx.sql(f"SELECT {call} AS d FROM t").execution_plan()
    with pytest.raises(xql_ffi.DifferentiationError, match=says):
        xql_ffi.expand_sql(f"SELECT {call} AS d FROM t", {"t": pa.schema({"x": pa.float64(), "y": pa.float64()})})


@pytest.mark.parametrize("call", ["grad(x * y, 2.5)", "grad(x * y, NULL)", "jvp(x * y, 7, 1.0)"])
def test_what_is_no_name_keeps_its_advice(ctx: SessionContext, call: str) -> None:
    message = message_at_planning(lambda: ctx.sql(f"SELECT {call} AS d FROM t"))
    assert "Name a column of the query" in message
    assert "without quotes" not in message


# -------------------------------------------------------------------------------------- aggregates without a formula

QUANTILES = {
    "approx_median({0})": r"Write median\(x\)",
    "approx_percentile_cont(0.25) WITHIN GROUP (ORDER BY {0})": r"Write percentile_cont\(p\) WITHIN GROUP",
}
CALLS = {
    "forward": "SELECT grad({0}, a) AS d FROM (SELECT g, a, a * x AS v FROM t CROSS JOIN p) GROUP BY a",
    "by row": "SELECT grad((SELECT {0} FROM (SELECT x AS v FROM t)), x) AS d FROM t",
}


@pytest.mark.parametrize("function", QUANTILES)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_quantiles(ctx: SessionContext, call: str, function: str) -> None:
    statement = call.format(function.format("v"))
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=QUANTILES[function]):
        ctx.sql(statement).execution_plan()


PLACES = (
    "WITH r AS (SELECT {0} AS x, ROW_NUMBER() OVER (ORDER BY {0}) - 1 - {1} * (COUNT({0}) OVER () - 1) AS d FROM t)"
)
BETWEEN = "SUM(x * (1 - abs(d))) FILTER (WHERE abs(d) < 1)"


@pytest.mark.parametrize("p", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(
    "rows", ["t", "(SELECT * FROM t UNION ALL SELECT 5, 3, NULL, NULL)", "(SELECT * FROM t WHERE id < 4)"]
)
def test_the_advised_quantile(ctx: SessionContext, p: float, rows: str) -> None:
    """The value is that of DataFusion's own, and the derivative by row the share of each row in it."""
    places = PLACES.format("x", p).replace("FROM t", f"FROM {rows}")
    advised = ctx.sql(f"{places} SELECT {BETWEEN} AS v FROM r").to_pydict()["v"]
    known = ctx.sql(f"SELECT percentile_cont({p}) WITHIN GROUP (ORDER BY x) AS v FROM {rows}").to_pydict()["v"]
    assert advised == pytest.approx(known)
    if rows == "t":
        found = ctx.sql(f"{places} SELECT x, grad((SELECT {BETWEEN} FROM r), x) AS d FROM t ORDER BY x").to_pydict()[
            "d"
        ]
        shares = [max(0.0, 1 - abs(i - p * 3)) for i in range(4)]
        assert found == pytest.approx(shares)


OTHERS = [
    Refused("list", CALLS["forward"].format("array_agg(v)[2]").replace("[2]", ""), ["array_agg"]),
    Refused("distinct", CALLS["forward"].format("SUM(DISTINCT v)"), [r"FROM \(SELECT DISTINCT"]),
    Refused("distinct_by_row", CALLS["by row"].format("AVG(DISTINCT v)"), [r"FROM \(SELECT DISTINCT"]),
]


@refusals(OTHERS)
def test_others(ctx: SessionContext, case: Refused) -> None:
    assert_refused(ctx, case)


# ---------------------------------------------------------------------------------------- a loss beside its variable

LOSS = "loss AS (SELECT SUM(val * val) AS l FROM w)"
BESIDE = {
    "cross join": (f"WITH {LOSS} SELECT grad(l, val) AS d FROM w CROSS JOIN loss", "grad"),
    "the other way round": (f"WITH {LOSS} SELECT grad(l, val) AS d FROM loss CROSS JOIN w", "grad"),
    "join": (f"WITH {LOSS} SELECT grad(loss.l, w.val) AS d FROM w JOIN loss ON true", "grad"),
    "vjp": (f"WITH {LOSS} SELECT vjp(l, val, 1.0) AS d FROM w CROSS JOIN loss", "vjp"),
    "below": (
        "WITH z AS (SELECT k, tanh(val) AS z FROM w), s AS (SELECT SUM(z * val) AS s FROM z JOIN w USING (k)), "
        "loss AS (SELECT sqrt(s * s + 1) AS l FROM s) SELECT grad(l, val) AS d FROM w CROSS JOIN loss",
        "grad",
    ),
    "in a recursion": (
        "WITH RECURSIVE fit AS (SELECT 0 AS step, val FROM w UNION ALL "
        "(WITH loss AS (SELECT SUM(val * val) AS l FROM fit) "
        "SELECT step + 1, val - 0.1 * grad(l, val) FROM fit CROSS JOIN loss WHERE step < 2)) SELECT val AS d FROM fit",
        "grad",
    ),
}


@pytest.mark.parametrize(("statement", "operator"), BESIDE.values(), ids=BESIDE)
def test_a_loss_beside_its_variable(ctx: SessionContext, statement: str, operator: str) -> None:
    """It is the derivative by each row's own cell, as that of the loss as a subquery is."""
    call = re.search(rf"{operator}\((\w+\.)?l, ((?:\w+\.)?val(?:, 1\.0)?)\)", statement)
    assert call
    alone = statement.replace(call[0], f"{operator}((SELECT l FROM loss), {call[2]})")
    alone = re.sub(r" (CROSS )?JOIN loss( ON true)?", "", alone.replace("FROM loss CROSS JOIN w", "FROM w"))
    expected = ctx.sql(alone).to_pydict()["d"]
    assert any(expected)
    assert sorted(ctx.sql(statement).to_pydict()["d"]) == pytest.approx(sorted(expected), rel=1e-14)
