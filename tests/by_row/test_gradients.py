"""``gradients``: a value and its derivatives by the rows of relations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from datafusion import DataFrame, SessionContext, col
from datafusion import functions as f

from support.differences import central
from support.sessions import session
from support.stock import ON_STOCK, XARRAY
from xql_ffi import Gradients, UnsupportedRelationError, VariableError, gradients, jacobian, register

NETWORK = """
    WITH h AS (SELECT x.sample, w1.out, tanh(SUM(x.val * w1.val)) AS val
               FROM x JOIN w1 ON x.inp = w1.inp GROUP BY x.sample, w1.out),
         z AS (SELECT h.sample, SUM(h.val * w2.val) AS val FROM h JOIN w2 ON h.out = w2.inp GROUP BY h.sample)
    SELECT AVG(power(z.val - y.val, 2)) AS l FROM z JOIN y ON z.sample = y.sample
"""


@pytest.fixture
def ctx() -> SessionContext:
    draw = np.random.default_rng(1).standard_normal
    sample, inp = (index.ravel().tolist() for index in np.indices((5, 3)))
    x, y = draw(15).tolist(), draw(5).tolist()
    tables = {"x": {"sample": sample, "inp": inp, "val": x}, "y": {"sample": list(range(5)), "val": y}}
    inp, out = (index.ravel().tolist() for index in np.indices((3, 2)))
    w1, w2 = draw(6).tolist(), draw(2).tolist()
    weights = {"w1": {"inp": inp, "out": out, "val": w1}, "w2": {"inp": [0, 1], "val": w2}}
    return session({**tables, **weights})


def value(ctx: SessionContext, loss: str) -> float:
    (row,) = ctx.sql(loss).to_pylist()
    number: float = next(iter(row.values()))
    return number


def differences(ctx: SessionContext, loss: str, table: str, keys: list[str]) -> dict[tuple[int, ...], float]:
    """Derivatives by the cells ``val`` of a table, by differences."""
    found = {}
    for row in ctx.table(table).to_pylist():
        own = " AND ".join(f"{key} = {row[key]}" for key in keys)

        def moved(step: float, own: str = own) -> float:
            cells = f"SELECT {', '.join(keys)}, CASE WHEN {own} THEN val + {step!r} ELSE val END AS val FROM {table}"
            return value(ctx, re.sub(rf"\bJOIN {table} ON", f"JOIN ({cells}) {table} ON", loss))

        found[tuple(row[key] for key in keys)] = float(central(moved))
    return found


def derivatives(frame: DataFrame, keys: list[str]) -> dict[tuple[int, ...], float]:
    return {tuple(row[key] for key in keys): row["d_val"] for row in frame.to_pylist()}


@pytest.mark.parametrize("as_frame", [False, True])
def test_two_layers(ctx: SessionContext, as_frame: bool) -> None:
    found = gradients(ctx, ctx.sql(NETWORK) if as_frame else NETWORK, ["w1.val", "w2.val"])
    assert isinstance(found, Gradients)
    assert found.value == pytest.approx(value(ctx, NETWORK), rel=1e-14)
    assert list(found.by) == ["w1", "w2"]
    for table, keys in (("w1", ["inp", "out"]), ("w2", ["inp"])):
        frame = found.by[table]
        assert frame.schema().names == [*keys, "val", "d_val"]
        expected = differences(ctx, NETWORK, table, keys)
        assert derivatives(frame, keys) == pytest.approx(expected, rel=1e-8, abs=1e-9)
        same = ctx.table(table).sort(*keys).to_pydict()
        assert frame.drop("d_val").sort(*keys).to_pydict() == same


@pytest.mark.parametrize("make", XARRAY)
@pytest.mark.parametrize("as_frame", [False, True])
def test_cells_of_an_xarray_dataset(as_frame: bool, make: Callable[[], Any]) -> None:
    ctx = register(make())
    values = np.array([[1.0, -2.0], [0.5, 3.0]])
    grid = xr.Dataset({"val": (("y", "x"), values)}, {"y": [0, 1], "x": [0, 1]})
    ctx.from_dataset("field", grid, chunks={"y": 2})
    loss = "SELECT SUM(power(val, 3)) FROM field"
    found = gradients(ctx, ctx.sql(loss) if as_frame else loss, "field.val")
    assert found.value == pytest.approx((values**3).sum(), rel=1e-14)
    for row in found.by["field"].to_pylist():
        assert row["d_val"] == pytest.approx(3 * values[row["y"], row["x"]] ** 2, rel=1e-14)


def test_loss_of_the_data_frame_api(ctx: SessionContext) -> None:
    loss = ctx.table("w1").aggregate([], [f.sum(col("val") * col("val")).alias("l")])
    found = gradients(ctx, loss, "w1.val")
    rows = found.by["w1"].to_pylist()
    assert len(rows) == 6
    assert found.value == pytest.approx(sum(row["val"] ** 2 for row in rows), rel=1e-14)
    for row in rows:
        assert row["d_val"] == pytest.approx(2 * row["val"], rel=1e-14)


def test_several_columns_of_one_relation(ctx: SessionContext) -> None:
    ctx.from_pydict({"a": [1.0, 2.0], "b": [3.0, 4.0]}, name="t")
    found = gradients(ctx, "SELECT SUM(a * b * b) FROM t", ["t.a", "t.b"])
    assert found.value == 41.0
    assert found.by["t"].sort("a").to_pydict() == {
        "a": [1.0, 2.0],
        "b": [3.0, 4.0],
        "d_a": [9.0, 16.0],
        "d_b": [6.0, 16.0],
    }


def test_names_that_need_quotes(ctx: SessionContext) -> None:
    ctx.from_pydict({"the key": [1, 2], "Val": [3.0, 4.0]}, name='"My Table"')
    found = gradients(ctx, 'SELECT SUM("Val" * "Val") FROM "My Table"', '"My Table"."Val"')
    frame = found.by["My Table"]
    assert sorted(frame.to_pylist(), key=lambda row: row["the key"]) == [
        {"the key": 1, "Val": 3.0, "d_Val": 6.0},
        {"the key": 2, "Val": 4.0, "d_Val": 8.0},
    ]


def test_tables_that_differ_in_case(ctx: SessionContext) -> None:
    ctx.sql('CREATE TABLE "Up" AS SELECT 1.5 AS "X"').collect()
    ctx.sql("CREATE TABLE up AS SELECT 2.5 AS x").collect()
    found = gradients(ctx, 'SELECT SUM("X" * "X") FROM "Up"', '"Up"."X"')
    assert found.by["Up"].to_pydict() == {"X": [1.5], "d_X": [3.0]}
    found = gradients(ctx, "SELECT SUM(x * x) FROM up", "Up.x")
    assert found.by["up"].to_pydict() == {"x": [2.5], "d_x": [5.0]}


def test_one_relation_under_two_names(ctx: SessionContext) -> None:
    for name in ("w2", "public.w2", 'public."w2"', "Datafusion.public.w2"):
        found = gradients(ctx, "SELECT SUM(val * val) FROM w2", f"{name}.val")
        (frame,) = found.by.values()
        assert all(row["d_val"] == 2 * row["val"] for row in frame.to_pylist())
    for wrt in (["w2.val", "public.w2.val"], ["public.w2.inp", "w2.val"]):
        with pytest.raises(
            ValueError, match=r"w2 and public\.w2 may be one relation, .*: name both with their schemas"
        ):
            gradients(ctx, "SELECT SUM(val * inp) FROM w2", wrt)


@pytest.mark.skipif(ON_STOCK, reason="DataFusion 55 writes such names into a plan as those of a table in a schema")
def test_a_name_with_a_point(ctx: SessionContext) -> None:
    ctx.from_pydict({"k": [1, 2], "val": [3.0, 4.0]}, name='"my.table"')
    for name in ('"my.table"', 'public."my.table"'):
        found = gradients(ctx, 'SELECT SUM(val * val) FROM "my.table"', f"{name}.val")
        assert found.by[name.replace('"', "")].sort("k").to_pydict()["d_val"] == [6.0, 8.0]
        matrix = jacobian(ctx, 'SELECT k, val * val AS v FROM "my.table"', f"{name}.val").matrix()
        assert matrix.toarray().tolist() == [[6.0, 0.0], [0.0, 8.0]]


def test_a_view_that_the_loss_does_not_read(ctx: SessionContext) -> None:
    """The derivatives by its rows are 0, and those by the rows of a table behind it are not."""
    ctx.sql("CREATE VIEW twice AS SELECT inp, 2 * val AS val FROM w2")
    found = gradients(ctx, "SELECT SUM(val * val) FROM w1", ["twice.val", "w1.val"])
    assert found.by["twice"].to_pydict()["d_val"] == [0.0, 0.0]
    assert all(row["d_val"] == 2 * row["val"] for row in found.by["w1"].to_pylist())


def test_null(ctx: SessionContext) -> None:
    ctx.from_pydict({"k": [1, 2], "val": [3.0, None]}, name="t")
    found = gradients(ctx, "SELECT SUM(val * val) FROM t", "t.val")
    assert found.by["t"].sort("k").to_pydict() == {"k": [1, 2], "val": [3.0, None], "d_val": [6.0, None]}
    found = gradients(ctx, "SELECT SUM(val) FROM t WHERE k > 10", "t.val")
    assert found.value is None
    assert found.by["t"].to_pydict()["d_val"] == [None, None]


def test_relation_that_the_loss_does_not_read(ctx: SessionContext) -> None:
    with pytest.raises(VariableError, match=r"the loss does not read w2.val: its derivative would be 0"):
        gradients(ctx, "SELECT SUM(val) FROM w1", ["w1.val", "w2.val"])
    # It is read here, though nothing varies with it.
    found = gradients(ctx, "SELECT SUM(w1.val + 0 * round(w2.val)) FROM w1 CROSS JOIN w2", ["w1.val", "w2.val"])
    assert found.by["w1"].to_pydict()["d_val"] == [2.0] * 6
    assert found.by["w2"].to_pydict()["d_val"] == [0.0] * 2


def test_no_rows(ctx: SessionContext) -> None:
    ctx.sql("CREATE TABLE none (k BIGINT, val DOUBLE)").collect()
    found = gradients(ctx, "SELECT SUM(val) + 1 FROM none", "none.val")
    assert found.value is None
    assert found.by["none"].to_pylist() == []


def test_nothing_is_left_in_the_session(ctx: SessionContext) -> None:
    tables = ctx.catalog().schema().table_names()
    gradients(ctx, NETWORK, "w1.val")
    with pytest.raises(Exception, match="the expression must be a number"):
        gradients(ctx, "SELECT 'x' FROM w1", "w1.val")
    assert ctx.catalog().schema().table_names() == tables


@pytest.mark.parametrize(
    ("loss", "wrt", "error", "message"),
    [
        (3, "w1.val", TypeError, "the loss must be a query in SQL or a DataFrame; 3 is neither"),
        ("SELECT 1.0 AS a, 2.0 AS b", "w1.val", ValueError, "the query has the columns 'a', 'b': select one"),
        ("SELECT SUM(val) FROM w1", "w3.val", ValueError, "the session has no table called 'w3'"),
        ("SELECT SUM(val) FROM w1", "w1.v", ValueError, "w1 has no column 'v' to differentiate by, only 'inp'"),
        ("SELECT SUM(val) FROM w1", "val", ValueError, "'val' is named without its relation: write '<table>.val'"),
        ("SELECT SUM(val) FROM w1", [], ValueError, "name at least one column"),
        ("SELECT SUM(val) FROM w1", ["w1.val", "w1.val"], ValueError, "given more than once"),
        (
            "SELECT SUM(val) FROM w1",
            [7],
            TypeError,
            "a variable must be a column, by name or as col(name); 7 is not one",
        ),
        ("SELECT SUM(val) FROM w1", "w1.inp", Exception, "the variable must be a column of floats"),
        ("SELECT val FROM w1", "w1.val", UnsupportedRelationError, "6 rows of a scalar subquery"),
    ],
)
def test_errors(ctx: SessionContext, loss: str, wrt: str | list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        gradients(ctx, loss, wrt)


def test_column_that_is_called_as_a_derivative(ctx: SessionContext) -> None:
    ctx.from_pydict({"val": [1.0], "d_val": [2.0]}, name="t")
    with pytest.raises(ValueError, match="t has a column d_val already"):
        gradients(ctx, "SELECT SUM(val) FROM t", "t.val")


def test_session_without_grad() -> None:
    stock = session({"t": {"val": [1.0]}}, differentiates=False)
    with pytest.raises(ValueError, match=re.escape("register it with xql_ffi.register(ctx)")):
        gradients(stock, "SELECT SUM(val) FROM t", "t.val")


@pytest.mark.parametrize(
    "statement", ["DROP TABLE kept", "CREATE TABLE made AS SELECT 1.0 AS a", "INSERT INTO kept VALUES (1.0)"]
)
def test_the_loss_changes_nothing(statement: str) -> None:
    ctx = session({"kept": {"x": [1.0, 2.0]}})
    with pytest.raises(Exception, match="not supported"):
        gradients(ctx, statement, "kept.x")
    assert ctx.table("kept").count() == 2
    assert not ctx.table_exist("made")
