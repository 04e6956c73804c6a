"""`xql_ffi.objective`: values and derivatives against JAX, turn by turn, and what happens to the session."""

from __future__ import annotations

import gc
import importlib
import math
import threading
import time
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext

import xql_ffi
from support import sessions
from support.pages import DOCS, blocks

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

HOSTS = ("datafusion", "duckdb")
Tables = Mapping[str, Mapping[str, Any]]


def host(kind: str, tables: Tables) -> Any:
    """A session of a host with these tables."""
    if kind == "datafusion":
        return sessions.session(tables)
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    for name, columns in tables.items():
        connection.register("given", pa.table(dict(columns)))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        connection.unregister("given")
    return connection


def do(session: Any, statement: str) -> None:
    """Runs a statement that gives nothing."""
    if isinstance(session, SessionContext):
        session.sql(statement).collect()
    else:
        session.execute(statement)


def rows_of(session: Any, table: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = pa.table(session.sql(f"SELECT * FROM {table}").to_arrow_table()).to_pydict()
    return found


@pytest.fixture(params=HOSTS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


RNG = np.random.default_rng(7)


def check(objective: xql_ffi.Objective, model: Any, turns: int = 3, rtol: float = 1e-9) -> None:
    """Compares an objective with a function of JAX, at several points one after the other."""
    compiled, hessian = jax.value_and_grad(model), jax.hessian(model)
    for _ in range(turns):
        x, t = RNG.normal(size=(2, len(objective.start)))
        value, gradient = objective(x)
        expected, slopes = compiled(jnp.asarray(x))
        assert value == pytest.approx(float(expected), rel=rtol, nan_ok=True)
        np.testing.assert_allclose(gradient, slopes, rtol=rtol, atol=1e-12)
        assert objective.value(x) == pytest.approx(float(expected), rel=rtol, nan_ok=True)
        assert objective.jvp(x, t) == pytest.approx(float(slopes @ t), rel=1e-8, abs=1e-12)
        np.testing.assert_allclose(objective.hvp(x, t), hessian(jnp.asarray(x)) @ t, rtol=1e-8, atol=1e-10)


# ---------------------------------------------------------------------------------------------------------- models

X, LABELS = RNG.normal(size=(40, 3)), RNG.integers(0, 2, 40).astype(float)
LONG_X = {"i": np.repeat(np.arange(40), 3), "j": np.tile(np.arange(3), 40), "x": X.ravel()}
DATA = {"x": LONG_X, "y": {"i": np.arange(40), "y": LABELS}}
LOGISTIC = """
    WITH z AS (SELECT x.i, SUM(x.x * w.val) AS z FROM x JOIN w ON x.j = w.j GROUP BY x.i)
    SELECT AVG(ln(1 + exp(z)) - y * z) AS loss FROM z JOIN y ON z.i = y.i"""


def logistic(w: Any) -> Any:
    z = X @ w
    return jnp.mean(jnp.log1p(jnp.exp(z)) - LABELS * z)


def test_logistic_regression(kind: str) -> None:
    session = host(kind, {**DATA, "w": {"j": range(3), "val": [0.5, -1.0, 2.0]}})
    objective = xql_ffi.objective(session, LOGISTIC, "w.val")
    np.testing.assert_array_equal(objective.start, [0.5, -1.0, 2.0])
    check(objective, logistic)
    assert "w.val" in repr(objective)


def test_network_of_two_layers(kind: str) -> None:
    w1 = {"j": np.repeat(np.arange(3), 2), "k": np.tile(np.arange(2), 3), "val": RNG.normal(size=6)}
    session = host(kind, {**DATA, "w1": w1, "w2": {"k": [0, 1], "val": [0.5, -0.5]}})
    loss = """
        WITH h AS (SELECT x.i, w1.k, tanh(SUM(x.x * w1.val)) AS h
                   FROM x JOIN w1 ON x.j = w1.j GROUP BY x.i, w1.k),
             o AS (SELECT h.i, SUM(h.h * w2.val) AS o FROM h JOIN w2 ON h.k = w2.k GROUP BY h.i)
        SELECT AVG(power(o.o - y.y, 2)) AS loss FROM o JOIN y ON o.i = y.i"""

    def model(p: Any) -> Any:
        return jnp.mean((jnp.tanh(X @ p[:6].reshape(3, 2)) @ p[6:] - LABELS) ** 2)

    check(xql_ffi.objective(session, loss, ["w1.val", "w2.val"]), model)


def test_columns_of_a_row(kind: str) -> None:
    session = host(kind, {**DATA, "p": {"b": [0.25], "a": [2.0]}})
    loss = "SELECT AVG(power(a * x + b - i, 2)) FROM x CROSS JOIN p"
    objective = xql_ffi.objective(session, loss, ["p.a", "p.b"])
    np.testing.assert_array_equal(objective.start, [2.0, 0.25])

    def model(p: Any) -> Any:
        return jnp.mean((p[0] * LONG_X["x"] + p[1] - LONG_X["i"]) ** 2)

    check(objective, model)


def test_it_makes_no_difference_on_which_side_one_row_stands() -> None:
    """DataFusion holds the left side of a product: of the data it would take some hundred times as long."""
    data = {"x": RNG.normal(size=10_000)}
    session = host("datafusion", {"d": data, "p": {"a": [2.0]}})
    seconds = []
    for sides in ("p CROSS JOIN d", "d CROSS JOIN p"):
        objective = xql_ffi.objective(session, f"SELECT AVG(power(a * x - 1, 2)) FROM {sides}", ["p.a"])
        check(objective, lambda p: jnp.mean((p[0] * data["x"] - 1) ** 2), turns=1)
        calls = []
        for _ in range(5):
            started = time.process_time()
            objective([1.0])
            calls.append(time.process_time() - started)
        seconds.append(min(calls))
    assert seconds[1] < 10 * seconds[0]


def test_a_product_with_the_hessian_comes_in_few_batches() -> None:
    """DataFusion gives a batch for each row of the left side of a product, which took most of the time of a call."""
    rows = range(500)
    session = host("datafusion", {"w": {"k": rows, "val": [0.5] * len(rows)}})
    objective = xql_ffi.objective(session, "SELECT SUM(k * val * val * val) FROM w", "w.val")
    objective.hvp(objective.start, objective.start)
    taken, loop = Counter[str](), objective._evaluator.host._loops["hvp"]  # type: ignore[attr-defined]

    def counted(stream: Any) -> Any:
        for batch in stream:
            taken["batches"] += 1
            yield batch

    loop._stream = counted(loop._stream)
    found = objective.hvp(objective.start, np.ones(len(rows)))
    np.testing.assert_allclose(found, 3.0 * np.arange(500))
    assert 0 < taken["batches"] <= 20


def test_metadata_of_a_schema_is_named() -> None:
    session = host("datafusion", {"p": {"a": [2.0]}})
    session.from_arrow(pa.table({"x": [1.0]}, metadata={"made by": "pandas"}), name="d")
    with pytest.raises(ValueError, match=r"replace_schema_metadata\(None\)"):
        xql_ffi.objective(session, "SELECT AVG(a * x) FROM p CROSS JOIN d", ["p.a"])


def test_null_and_nan(kind: str) -> None:
    session = host(kind, {"w": {"k": range(4), "val": [1.0, None, 3.0, 4.0], "c": [1.0, 2.0, 3.0, 4.0]}})
    objective = xql_ffi.objective(session, "SELECT SUM(c * val * val) FROM w", "w.val")
    np.testing.assert_array_equal(objective.start, [1.0, 3.0, 4.0])
    check(objective, lambda p: jnp.sum(jnp.array([1.0, 3.0, 4.0]) * p * p))
    assert objective.parameters([7, 8, 9])["w"].to_pydict()["val"] == [7.0, None, 8.0, 9.0]
    value, gradient = objective([math.nan, 1.0, math.inf])
    assert math.isnan(value)
    assert math.isnan(objective.value([math.nan, 1.0, 1.0]))
    np.testing.assert_array_equal(gradient, [math.nan, 6.0, math.inf])
    # What is NaN at one point is not at the next.
    assert objective([1, 1, 1])[0] == 8.0


def test_a_loss_that_is_null_is_nan(kind: str) -> None:
    session = host(kind, {"w": {"val": [1.0, 2.0]}})
    value, gradient = xql_ffi.objective(session, "SELECT SUM(val) FROM w WHERE val > 5", "w.val")([1.0, 2.0])
    assert math.isnan(value)
    assert np.isnan(gradient).all()


def test_floats_of_single_precision(kind: str) -> None:
    session = host(kind, {"w": {"val": pa.array([1.0, 2.0], pa.float32())}})
    objective = xql_ffi.objective(session, "SELECT SUM(val * val * val) FROM w", "w.val")
    assert objective([1, 3])[0] == objective.value([1, 3]) == 28.0
    np.testing.assert_array_equal(objective([1, 3])[1], [3.0, 27.0])
    np.testing.assert_array_equal(objective.hvp([1, 3], [1, 1]), [6.0, 18.0])
    assert objective.parameters([1, 2])["w"].schema.field("val").type == pa.float32()


# The rows that a plan has held in a turn are not those of the next.
TURNS = {
    "order and limit": "SELECT SUM(val) FROM (SELECT val FROM w ORDER BY val DESC LIMIT 2) AS q",
    "scalar subquery": "SELECT SUM(val) FROM w WHERE val >= (SELECT AVG(val) FROM w)",
    "subquery of others": "SELECT SUM(c) * 1.0 FROM d WHERE c > (SELECT AVG(val) FROM w)",
    "in": "SELECT SUM(val) FROM w WHERE k IN (SELECT k FROM w WHERE val > 0)",
    "window": "SELECT SUM(power(m, 2)) FROM (SELECT AVG(val) OVER (ORDER BY k ROWS 1 PRECEDING) AS m FROM w) AS q",
    "maximum": "SELECT SUM(exp(val - (SELECT MAX(val) FROM w))) FROM w",
    "self join": "SELECT SUM(a.val * b.val) FROM w AS a JOIN w AS b ON a.k = b.k + 1",
    "nested loop": "SELECT SUM(a.val * b.val) FROM w AS a JOIN w AS b ON a.val < b.val",
    "left join": "SELECT SUM(coalesce(w.val, 1) * d.c) FROM d LEFT JOIN w ON w.k = d.k AND w.val > 0",
    "union": "SELECT SUM(v * v) FROM (SELECT val AS v FROM w UNION ALL SELECT c AS v FROM d WHERE c > 1) AS q",
    "filter": "SELECT SUM(val) FILTER (WHERE val > 0) FROM w",
    "recursion": """
        WITH RECURSIVE r AS (SELECT 0 AS step, k, val FROM w
                             UNION ALL SELECT step + 1, k, tanh(val + 0.1) FROM r WHERE step < 3)
        SELECT SUM(val) FROM r""",
}


@pytest.mark.parametrize("loss", TURNS.values(), ids=TURNS)
def test_turns_are_as_if_planned_anew(loss: str) -> None:
    session = sessions.session({"w": {"k": range(5), "val": [1.0] * 5}, "d": {"k": range(4), "c": [0.5, 1.5, -1, 2]}})
    objective = xql_ffi.objective(session, loss, "w.val")
    for _ in range(4):
        x = RNG.normal(size=5)
        found, value, along = objective(x), objective.value(x), objective.jvp(x, x)
        session.deregister_table("w")
        session.from_pydict({"k": list(range(5)), "val": x.tolist()}, name="w")
        expected = xql_ffi.gradients(session, loss, "w.val")
        slopes = expected.by["w"].sort("k").to_pydict()["d_val"]
        nan = math.nan if expected.value is None else expected.value
        assert [found[0], value] == pytest.approx([nan, nan], nan_ok=True)
        np.testing.assert_allclose(found[1], np.array(slopes, dtype=float), rtol=1e-12)
        assert along == pytest.approx(float(found[1] @ x), rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("partitions", [1, 4])
def test_partitions(partitions: int) -> None:
    ctx = sessions.session({**DATA}, config=SessionConfig().with_target_partitions(partitions))
    halves = [[pa.record_batch({"j": [2, 0], "val": [1.0, 2.0]})], [pa.record_batch({"j": [1], "val": [3.0]})]]
    ctx.register_record_batches("w", halves)
    objective = xql_ffi.objective(ctx, LOGISTIC, "w.val")
    np.testing.assert_array_equal(objective.start, [1.0, 2.0, 3.0])
    check(objective, lambda p: logistic(p[jnp.array([1, 2, 0])]))


# ---------------------------------------------------------------------------------------- parameters and relations

W: Tables = {"w": {"k": [1, 2, 3], "val": [1.0, 2.0, 3.0], "name": ["a", "b", "c"]}}
SQUARES = "SELECT SUM(k * val * val) FROM w"


def test_where(kind: str) -> None:
    objective = xql_ffi.objective(host(kind, W), SQUARES, "w.val", where="k <> 2")
    np.testing.assert_array_equal(objective.start, [1.0, 3.0])
    value, gradient = objective([10.0, 20.0])
    assert value == 100 + 8 + 1200
    np.testing.assert_array_equal(gradient, [20.0, 120.0])
    np.testing.assert_array_equal(objective.hvp([10.0, 20.0], [1.0, 1.0]), [2.0, 6.0])
    assert objective.parameters([10.0, 20.0])["w"].to_pydict()["val"] == [10.0, 2.0, 20.0]


def test_where_by_relation(kind: str) -> None:
    session = host(kind, {**W, "b": {"v": [5.0]}})
    where = {"w": "w.name = 'b' OR val > 2"}
    objective = xql_ffi.objective(session, "SELECT SUM(val * v) FROM w CROSS JOIN b", ["w.val", "b.v"], where=where)
    np.testing.assert_array_equal(objective.start, [2.0, 3.0, 5.0])


def test_the_session_is_untouched_until_update(kind: str) -> None:
    session = host(kind, {**W, "b": {"v": [5.0]}})
    loss = "SELECT SUM(val * v) FROM w CROSS JOIN b"
    objective = xql_ffi.objective(session, loss, ["w.val", "b.v"])
    objective([1, 1, 1, 1]), objective.jvp([1, 1, 1, 1], [1, 1, 1, 1])
    assert rows_of(session, "w") == {name: list(column) for name, column in W["w"].items()}
    objective.update([7, 8, 9, 10])
    assert rows_of(session, "w") == {"k": [1, 2, 3], "val": [7.0, 8.0, 9.0], "name": ["a", "b", "c"]}
    assert rows_of(session, "b") == {"v": [10.0]}
    objective.update(objective.start)
    assert rows_of(session, "b") == {"v": [5.0]}


def test_update_is_all_or_nothing(kind: str) -> None:
    session = host(kind, {**W, "b": {"v": [5.0]}})
    objective = xql_ffi.objective(session, "SELECT SUM(val * v) FROM w CROSS JOIN b", ["w.val", "b.v"])
    do(session, "INSERT INTO b VALUES (6)")
    with pytest.raises(ValueError, match="b has other rows or columns than when the objective was made"):
        objective.update([7, 8, 9, 10])
    assert rows_of(session, "w")["val"] == [1.0, 2.0, 3.0]
    assert rows_of(session, "b")["v"] == [5.0, 6.0]


def test_an_update_that_fails_midway_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    session = host("datafusion", {**W, "b": {"v": [5.0]}})
    objective = xql_ffi.objective(session, "SELECT SUM(val * v) FROM w CROSS JOIN b", ["w.val", "b.v"])
    register, failed = session.register_record_batches, list[str]()

    def failing(name: str, batches: Any) -> None:
        if name == '"b"' and not failed:
            failed.append(name)
            raise OSError("no space")
        register(name, batches)

    monkeypatch.setattr(session, "register_record_batches", failing)
    with pytest.raises(OSError, match="no space"):
        objective.update([7, 8, 9, 10])
    assert rows_of(session, "w")["val"] == [1.0, 2.0, 3.0]
    assert rows_of(session, "b")["v"] == [5.0]


def test_nothing_is_left_in_the_session(kind: str) -> None:
    session = host(kind, W)
    objective = xql_ffi.objective(session, SQUARES, "w.val")
    objective.hvp([1, 2, 3], [1, 1, 1])
    if kind == "duckdb":
        assert session.execute("SHOW ALL TABLES").fetchall()[0][2] == "w"
        assert len(session.execute("SHOW ALL TABLES").fetchall()) == 1
    else:
        assert session.catalog().schema().names() == {"w"}


def test_a_result_that_is_being_read_stays() -> None:
    connection = host("duckdb", W)
    connection.execute("SELECT k FROM w ORDER BY k")
    xql_ffi.objective(connection, SQUARES, "w.val")([1, 2, 3])
    assert connection.fetchall() == [(1,), (2,), (3,)]


def test_the_primary_key_orders() -> None:
    connection = host("duckdb", {})
    connection.execute("CREATE TABLE w (k INT PRIMARY KEY, val DOUBLE)")
    connection.execute("INSERT INTO w VALUES (3, 30), (1, 10), (2, 20)")
    objective = xql_ffi.objective(connection, SQUARES, "w.val")
    np.testing.assert_array_equal(objective.start, [10.0, 20.0, 30.0])
    objective.update([1, 2, 3])
    assert connection.execute("FROM w").fetchall() == [(3, 3.0), (1, 1.0), (2, 2.0)]


def test_a_batch(kind: str) -> None:
    data = {"b": [0, 0, 1], "y": [1.0, 2.0, 30.0]}
    session = host(kind, {**W, "d": data, "batch": {"b": [0]}})
    loss = "SELECT SUM(val * y) FROM w CROSS JOIN d WHERE d.b = (SELECT b FROM batch)"
    objective = xql_ffi.objective(session, loss, "w.val")
    for number, total in ((0, 3.0), (1, 30.0), (0, 3.0), (1, 30.0)):
        objective.replace("batch", {"b": [number]})
        assert objective([1, 1, 1])[0] == 3 * total
        assert objective.value([1, 1, 1]) == 3 * total
        np.testing.assert_array_equal(objective([1, 1, 1])[1], [total] * 3)
    assert rows_of(session, "batch") == {"b": [0]}


def test_views(kind: str) -> None:
    session = host(kind, W)
    for view in ("v AS SELECT k, val * 2 AS z FROM w", "v2 (a, b) AS SELECT k, z FROM v"):
        do(session, f"CREATE VIEW {view}")
    objective = xql_ffi.objective(session, "SELECT SUM(b * b) FROM v2", "w.val")
    np.testing.assert_array_equal(objective([1, 2, 3])[1], [8.0, 16.0, 24.0])


def test_a_loss_with_a_derivative_in_it(kind: str) -> None:
    objective = xql_ffi.objective(host(kind, W), "SELECT SUM(power(grad(val * val, val), 2)) FROM w", "w.val")
    np.testing.assert_array_equal(objective([1, 2, 3])[1], [8.0, 16.0, 24.0])


def test_a_loss_of_the_dataframe_api() -> None:
    session = host("datafusion", W)
    objective = xql_ffi.objective(session, session.sql(SQUARES), "w.val")
    np.testing.assert_array_equal(objective([1, 2, 3])[1], [2.0, 8.0, 18.0])


def test_rules_of_the_session() -> None:
    ctx = SessionContext()
    sessions.add(ctx, W)
    xql_ffi.register(ctx, rules=[xql_ffi.rule("cbrt(x)", "100.0")])
    np.testing.assert_array_equal(
        xql_ffi.objective(ctx, "SELECT SUM(cbrt(val)) FROM w", "w.val")([1, 2, 3])[1], [100.0] * 3
    )


# ------------------------------------------------------------------------------------------ lifetimes and threads


def test_the_session_may_be_dropped(kind: str) -> None:
    objective = xql_ffi.objective(host(kind, W), SQUARES, "w.val")
    gc.collect()
    assert objective([1, 1, 1])[0] == 6.0
    np.testing.assert_array_equal(objective.hvp([1, 1, 1], [1, 1, 1]), [2.0, 4.0, 6.0])


def test_an_objective_is_freed(kind: str) -> None:
    session = host(kind, W)
    objective = xql_ffi.objective(session, SQUARES, "w.val")
    objective([1, 1, 1])
    gone = weakref.ref(objective)
    del objective
    gc.collect()
    assert gone() is None


def test_threads(kind: str) -> None:
    session = host(kind, {**DATA, "w": {"j": range(3), "val": [0.0] * 3}})
    shared = xql_ffi.objective(session, LOGISTIC, "w.val")
    model, errors = jax.value_and_grad(logistic), []

    def work(seed: int) -> None:
        try:
            own = xql_ffi.objective(session, LOGISTIC, "w.val")
            rng = np.random.default_rng(seed)
            for _ in range(8):
                x = rng.normal(size=3)
                expected = model(jnp.asarray(x))
                for objective in (own, shared):
                    value, gradient = objective(x)
                    assert value == pytest.approx(float(expected[0]))
                    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def resident() -> int:
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_memory_is_flat(kind: str) -> None:
    objective = xql_ffi.objective(host(kind, W), SQUARES, "w.val")

    def calls(number: int) -> None:
        for _ in range(number):
            objective(RNG.normal(size=3))

    # What DataFusion lets go of late is held by then, and counted as held.
    tracemalloc.start()
    calls(300)
    gc.collect()
    before, held = tracemalloc.get_traced_memory()[0], resident()
    calls(300)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000
    assert resident() - held < 20_000


def test_after_an_error_the_next_call_is_right() -> None:
    session = host("datafusion", {"w": {"k": [1, 2], "val": [1.0, 2.0]}})
    loss = "SELECT SUM(val * CAST(CASE WHEN val > 5 THEN 'no number' ELSE '2' END AS DOUBLE)) FROM w"
    objective = xql_ffi.objective(session, loss, "w.val")
    assert objective([1, 2])[0] == 6.0
    with pytest.raises(Exception, match="no number"):
        objective([1, 6])
    assert objective([2, 2])[0] == 8.0


# ---------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("loss", "wrt", "where", "error", "says"),
    [
        (SQUARES, "val", None, ValueError, "named without its table: write '<table>.val'"),
        (SQUARES, "w.other", None, ValueError, "w has no column 'other'"),
        (SQUARES, "u.val", None, ValueError, "no table called 'u'"),
        (SQUARES, [], None, ValueError, "at least one column"),
        (SQUARES, ["w.val", "w.val"], None, ValueError, "given more than once"),
        (SQUARES, "s.w.val", None, ValueError, "named with its schema"),
        (SQUARES, "w.k", None, xql_ffi.VariableError, "w.k is int64. Make it a column of floats"),
        (SQUARES, "w.val", {"u": "k > 1"}, ValueError, "where names 'u'"),
        ("SELECT 1, 2", "w.val", None, ValueError, "the loss must be one value; the query has the columns"),
        ("SELECT 'a' AS a", "w.val", None, xql_ffi.NotNumericError, "the loss must be a number"),
        (3, "w.val", None, TypeError, "the loss .*must be a query in SQL"),
        ("SELECT val FROM w", "w.val", None, Exception, "row"),
        ("SELECT no_such FROM w", "w.val", None, Exception, "no_such"),
        ("DROP TABLE w", "w.val", None, Exception, "DROP|DDL"),
    ],
)
def test_errors(kind: str, loss: Any, wrt: Any, where: Any, error: type[Exception], says: str) -> None:
    session = host(kind, W)
    with pytest.raises(error, match=says):
        xql_ffi.objective(session, loss, wrt, where=where)
    assert rows_of(session, "w")["k"] == [1, 2, 3]


def test_a_relation_that_cannot_be_replaced(kind: str) -> None:
    session = host(kind, W)
    do(session, 'CREATE TABLE "my w" AS SELECT * FROM w')
    for head in ("main", "memory.main", "memory") if kind == "duckdb" else ("public", "datafusion.public"):
        for name, table in (("w", "w"), ("my w", '"my w"')):
            with pytest.raises(ValueError, match=rf"the loss reads {name} by its name in full .* read it as {name}"):
                xql_ffi.objective(session, f"SELECT SUM(q.val) FROM {head}.{table} AS q", f"{table}.val")
    do(session, "CREATE VIEW v AS SELECT * FROM w")
    with pytest.raises(ValueError, match="a view"):
        xql_ffi.objective(session, "SELECT SUM(val) FROM v", "v.val")


def test_a_view_of_a_dataframe() -> None:
    session = host("datafusion", W)
    session.register_view("v", session.sql("SELECT val * 2 AS z FROM w"))
    with pytest.raises(ValueError, match="a view that was made of a DataFrame"):
        xql_ffi.objective(session, "SELECT SUM(z) FROM v", "w.val")


def test_no_derivative(kind: str) -> None:
    objective = xql_ffi.objective(host(kind, W), "SELECT SUM(gamma(val)) FROM w" if kind == "duckdb" else LCM, "w.val")
    assert math.isfinite(objective.value([1, 2, 3]))
    with pytest.raises(xql_ffi.DifferentiationError):
        objective([1, 2, 3])


LCM = "SELECT SUM(CAST(CAST(val AS VARCHAR) AS DOUBLE)) FROM w"


def test_a_hessian_that_is_refused_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = xql_ffi.objective(host("datafusion", W), SQUARES, "w.val")

    def refused(*_: Any) -> None:
        raise xql_ffi.UnsupportedRelationError("no derivative through it")

    monkeypatch.setattr(objective._evaluator.host, "run", refused)
    with pytest.raises(
        xql_ffi.UnsupportedRelationError, match=r"through it\. .* use a method that takes the gradient alone"
    ):
        objective.hvp([1, 2, 3], [1, 1, 1])


def test_a_hessian_through_a_recursion() -> None:
    objective = xql_ffi.objective(host("datafusion", W), TURNS["recursion"], "w.val")
    x, t, h = np.array([0.1, 0.2, 0.3]), np.array([1.0, -1.0, 0.5]), 1e-5
    slopes = [objective(x + side * h * t)[1] for side in (1, -1)]
    np.testing.assert_allclose(objective.hvp(x, t), (slopes[0] - slopes[1]) / (2 * h), rtol=1e-7)


@pytest.mark.parametrize("call", ["__call__", "value", "parameters", "update"])
def test_vectors_of_another_length(call: str) -> None:
    objective = xql_ffi.objective(host("datafusion", W), SQUARES, "w.val")
    with pytest.raises(ValueError, match=r"x must be a vector of 3 numbers, .* it has the shape \(2,\)"):
        getattr(objective, call)([1.0, 2.0])
    with pytest.raises(ValueError, match="t must be a vector of 3 numbers"):
        objective.jvp([1, 2, 3], [1])


def test_other_errors_of_calls() -> None:
    session = host("datafusion", W)
    objective = xql_ffi.objective(session, SQUARES, "w.val")
    with pytest.raises(ValueError, match="w has parameters, which each call brings"):
        objective.replace("w", {"k": [1]})
    session.from_pydict({"b": [0]}, name="batch")
    with pytest.raises(ValueError, match="batch has the columns 'b'"):
        objective.replace("batch", {"c": [1]})
    with pytest.raises(TypeError, match="takes a session of datafusion or a DuckDB connection"):
        xql_ffi.objective({}, SQUARES, "w.val")  # type: ignore[arg-type]
    plain = SessionContext()
    sessions.add(plain, W)
    with pytest.raises(ValueError, match="no function called grad: register it"):
        xql_ffi.objective(plain, SQUARES, "w.val")


def test_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xql_ffi._objective.factory.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install numpy"):
        xql_ffi.objective(host("datafusion", W), SQUARES, "w.val")


# -------------------------------------------------------------------------------------------------------- the page


# All blocks of the page run with those of other pages, but for PyTorch, which may be absent, and the sampling.


def run_block(begin: str, names: dict[str, Any]) -> None:
    """Runs the block of the page that begins so."""
    (block,) = (b for b in blocks("python") if b.page == DOCS / "objective.md" and b.text.startswith(begin))
    exec(block.text, names)


class Counted:
    """An objective that counts how often it is asked for what."""

    def __init__(self, objective: xql_ffi.Objective) -> None:
        self.objective, self.asked = objective, Counter[str]()

    def __call__(self, x: Any) -> Any:
        self.asked["gradient"] += 1
        return self.objective(x)

    def value(self, x: Any) -> float:
        self.asked["value"] += 1
        return self.objective.value(x)

    def hvp(self, x: Any, t: Any) -> Any:
        self.asked["hvp"] += 1
        return self.objective.hvp(x, t)


def counted_logistic() -> Counted:
    return Counted(
        xql_ffi.objective(host("datafusion", {**DATA, "w": {"j": range(3), "val": [0.0] * 3}}), LOGISTIC, "w.val")
    )


POINT = np.array([0.1, -0.2, 0.3])


def test_jax_on_the_page() -> None:
    objective = counted_logistic()
    names: dict[str, Any] = {"objective": objective, "np": np, "jax": jax}
    run_block("import jax.numpy", names)
    expected = jax.grad(lambda x: logistic(jnp.tanh(x)) + 0.01 * jnp.sum(x * x))(POINT)
    np.testing.assert_allclose(names["slopes"], expected, rtol=1e-9)
    sql_loss = names["sql_loss"]
    objective.asked.clear()
    assert sql_loss(jnp.asarray(POINT)) == pytest.approx(float(logistic(POINT)), rel=1e-9)
    assert objective.asked == {"value": 1}
    single = jax.value_and_grad(sql_loss)(jnp.asarray(POINT, jnp.float32))
    assert [each.dtype for each in single] == [jnp.float32, jnp.float32]
    np.testing.assert_allclose(single[1], jax.grad(logistic)(POINT), rtol=1e-5)
    with pytest.raises(ValueError, match="do not support JVP"):
        jax.hessian(sql_loss)(POINT)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(sql_loss, (POINT,), (POINT,))
    with pytest.raises(NotImplementedError, match="vmap is only supported"):
        jax.vmap(sql_loss)(jnp.ones((2, 3)))


def test_sampling_a_posterior() -> None:
    """The moments are within four standard errors of the closed form, at the number of independent draws."""
    effective = pytest.importorskip("numpyro.diagnostics").effective_sample_size
    names: dict[str, Any] = {"SessionContext": SessionContext, "xql_ffi": xql_ffi, "jax": jax}
    for begin in ("import numpy", "import jax.numpy", "from numpyro"):
        run_block(begin, names)
    x, draws = names["x"], names["draws"]
    precision = x.T @ x / 2**2 + np.eye(3)
    mean = np.linalg.solve(precision, x.T @ names["measured"] / 2**2)
    variance = np.diag(np.linalg.inv(precision))
    # The density itself: its slope is zero at the mean, and its Hessian is the precision.
    np.testing.assert_allclose(names["potential"](mean)[1], 0, atol=1e-9)
    hessian = [names["potential"].hvp(mean, each) for each in np.eye(3)]
    np.testing.assert_allclose(hessian, precision, rtol=1e-9, atol=1e-9)
    squares = (draws - mean) ** 2
    of_mean, of_variance = effective(draws[None]), effective(squares[None])
    # Of fewer, the comparison would say little.
    assert min(*of_mean, *of_variance) > 15
    assert (np.abs(names["means"] - mean) < 4 * np.sqrt(variance / of_mean)).all()
    # The variance of the square of a normal number is twice that of its own, squared.
    assert (np.abs(squares.mean(axis=0) - variance) < 4 * variance * np.sqrt(2 / of_variance)).all()
    np.testing.assert_allclose(names["deviations"], draws.std(axis=0))


@pytest.fixture
def on_torch() -> tuple[Any, Any, Any, Any]:
    """PyTorch, the names of its block on the page, and the logistic regression in SQL, counted, and in PyTorch."""
    torch = pytest.importorskip("torch")
    objective = counted_logistic()
    names: dict[str, Any] = {"objective": objective}
    run_block("import torch", names)
    objective.asked.clear()
    data, labels = torch.from_numpy(X), torch.from_numpy(LABELS)

    def pure(w: Any) -> Any:
        z = data.to(w) @ w
        return torch.mean(torch.log1p(torch.exp(z)) - labels.to(w) * z)

    return torch, names, objective, pure


def test_pytorch_trains(on_torch: tuple[Any, Any, Any, Any]) -> None:
    """A loop of PyTorch with the loss in SQL goes the way of the same loop with the loss in PyTorch."""
    torch, names, _, pure = on_torch

    def steps(loss: Any, dtype: Any) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).to(dtype)
        adam = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(20):
            adam.zero_grad()
            value = 2 * loss(model(torch.ones(4, dtype=dtype)))
            value.backward()
            adam.step()
            yield [value.detach(), *(each.grad.clone() for each in model.parameters())]

    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        expected = list(steps(pure, dtype))
        for found, known in zip(steps(names["sql_loss"], dtype), expected, strict=True):
            # `assert_close` compares types and devices as well.
            torch.testing.assert_close(found, known, rtol=tolerance, atol=tolerance)
    assert names["value"] < math.log(2)
    assert names["model"].weight.grad.dtype == torch.float32


def test_pytorch_derivatives(on_torch: tuple[Any, Any, Any, Any]) -> None:
    torch, names, _, pure = on_torch
    sql_loss, x = names["sql_loss"], torch.tensor(POINT, requires_grad=True)

    def through(loss: Any) -> Any:
        return lambda x: torch.exp(3 * loss(torch.tanh(x)))

    assert torch.autograd.gradcheck(through(sql_loss), (x,))
    assert torch.autograd.gradgradcheck(through(sql_loss), (x,))
    for found, known in ((sql_loss, pure), (through(sql_loss), through(pure))):
        hessian = torch.autograd.functional.hessian
        torch.testing.assert_close(found(x), known(x), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(hessian(found, x), hessian(known, x), rtol=1e-9, atol=1e-9)
    # The cotangent of the loss is a constant, but not the point: with a constant gradient these would be wrong.
    slopes = [torch.autograd.grad(loss(x * x), x, create_graph=True)[0] for loss in (sql_loss, pure)]
    found, known = (torch.autograd.grad(each.sum(), x, create_graph=True)[0] for each in slopes)
    torch.testing.assert_close(found, known, rtol=1e-9, atol=1e-9)
    with pytest.raises(NotImplementedError, match="backward or vjp"):
        torch.autograd.grad(found.sum(), x)


def test_pytorch_asks_for_what_is_needed(on_torch: tuple[Any, Any, Any, Any]) -> None:
    torch, names, objective, _ = on_torch
    sql_loss, x = names["sql_loss"], torch.tensor(POINT, requires_grad=True)
    with torch.no_grad():
        assert not sql_loss(x).requires_grad
    sql_loss(x.detach())
    assert objective.asked == {"value": 2}
    objective.asked.clear()
    sql_loss(x).backward()
    assert objective.asked == {"gradient": 1}


# That of PyTorch itself.
@pytest.mark.filterwarnings("ignore:.torch.jit.script:FutureWarning")
def test_pytorch_refuses(on_torch: tuple[Any, Any, Any, Any]) -> None:
    torch, names, _, _ = on_torch
    forward, sql_loss = importlib.import_module("torch.autograd.forward_ad"), names["sql_loss"]
    x = torch.tensor(POINT)
    for point in (x, x.clone().requires_grad_()):
        with forward.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
            sql_loss(forward.make_dual(point, x))
    for transform in (torch.func.grad, torch.func.hessian, torch.func.vmap):
        with pytest.raises(RuntimeError, match="setup_context"):
            transform(sql_loss)(x)


# ----------------------------------------------------------------------------- parameters that the loss does not read

P: Tables = {"p": {"w": [0.5], "b": [2.0]}, "q": {"w": [3.0]}, "t": {"x": [1.0, 2.0], "i": [1, 2]}}
UNREAD = {
    "no relation of it": "SELECT SUM(x * x) FROM t",
    "another column": "SELECT SUM(x * b) FROM t CROSS JOIN p",
    "another relation": "SELECT SUM(x * w) FROM t CROSS JOIN q",
    "the number of rows": "SELECT SUM(x) + (SELECT COUNT(*) FROM p) FROM t",
    "passed on, and not read": "WITH m AS (SELECT * FROM t CROSS JOIN p) SELECT SUM(x * b) FROM m",
    "a CTE that is not read": "WITH m AS (SELECT w * 2 AS v FROM p) SELECT SUM(x) FROM t",
}
READ = {
    "product": "SELECT SUM(x * w) FROM t CROSS JOIN p",
    "by another name": "SELECT SUM(x * r.w) FROM t CROSS JOIN p AS r",
    "in a condition": "SELECT SUM(x) FROM t WHERE x > (SELECT MAX(w) FROM p)",
    "in a condition that holds": "SELECT SUM(CASE WHEN w > 0 THEN x * b ELSE x * w END) FROM t CROSS JOIN p",
    "in a condition that does not hold": "SELECT COALESCE(SUM(x), 0.0) FROM t CROSS JOIN p WHERE w > 10",
    "in a join": "SELECT SUM(x) FROM t JOIN p ON x > w",
    "counted": "SELECT SUM(x) * COUNT(w) FROM t CROSS JOIN p",
    "rounded": "SELECT SUM(x * floor(w)) FROM t CROSS JOIN p",
    "in its order": "SELECT SUM(b) FROM (SELECT b FROM p ORDER BY w LIMIT 1) AS r",
    "in a recursion alone": "WITH RECURSIVE r AS (SELECT CAST(0 AS BIGINT) AS s, w, CAST(1 AS DOUBLE) AS h FROM p "
    "UNION ALL SELECT s + 1, w, h * w FROM r WHERE s < 3) SELECT SUM(h) FROM r",
    "in a subquery of another with the name": "SELECT SUM(w * (SELECT SUM(w) FROM p)) FROM q",
}


@pytest.mark.parametrize("loss", UNREAD.values(), ids=UNREAD)
def test_a_parameter_that_the_loss_does_not_read(kind: str, loss: str) -> None:
    session = host(kind, P)
    for wrt in ("p.w", ["p.b", "p.w"]):
        # What is read of the others is none of this.
        with pytest.raises(xql_ffi.VariableError, match=r"does not read p\.[wb]: its derivative would be 0"):
            xql_ffi.objective(session, loss, wrt)
    if kind == "datafusion":
        with pytest.raises(xql_ffi.VariableError, match=r"does not read p\.w"):
            xql_ffi.gradients(session, loss, "p.w")


@pytest.mark.parametrize("loss", READ.values(), ids=READ)
def test_a_parameter_that_the_loss_reads(kind: str, loss: str) -> None:
    """Even where that has no derivative, or none at this point."""
    session = host(kind, P)
    objective = xql_ffi.objective(session, loss, "p.w")
    value, gradient = objective([0.75])
    assert np.isfinite(value)
    assert gradient.shape == (1,)
    if kind == "datafusion":
        assert xql_ffi.gradients(session, loss, "p.w").value == pytest.approx(objective.value([0.5]))


def test_a_parameter_that_a_view_passes_on_and_the_loss_does_not_read() -> None:
    session = host("datafusion", P)
    do(session, "CREATE VIEW m AS SELECT x, w, b FROM t CROSS JOIN p")
    assert xql_ffi.objective(session, "SELECT SUM(x * b) FROM m", "p.b").value([3.0]) == 9.0
    with pytest.raises(xql_ffi.VariableError, match=r"does not read p\.w"):
        xql_ffi.objective(session, "SELECT SUM(x * b) FROM m", "p.w")


@pytest.mark.parametrize("relation", ["w", "v"])
def test_derivatives_that_are_zero_at_this_point(relation: str) -> None:
    """The loss reads the table, and the view of it, all the same."""
    session = host("datafusion", {"w": {"k": [1, 2], "val": [0.0, 0.0]}})
    do(session, "CREATE VIEW v AS SELECT k, val * 2 AS val FROM w")
    found = xql_ffi.gradients(session, f"SELECT SUM(val * val) FROM {relation}", f"{relation}.val")
    assert found.by[relation].to_pydict()["d_val"] == [0.0, 0.0]


def test_a_parameter_that_only_a_derivative_in_the_loss_reads() -> None:
    session = host("datafusion", {"w": {"val": [1.0, 2.0]}})
    loss = """WITH l AS (SELECT SUM(val * val * val) AS l FROM w),
                   g AS (SELECT grad((SELECT l FROM l), val) AS g FROM w)
              SELECT SUM(g * g) FROM g"""
    np.testing.assert_allclose(xql_ffi.objective(session, loss, "w.val")([1.0, 2.0])[1], [36.0, 288.0])


# ------------------------------------------------------------------- recursions that the host plans with derivatives

RECURSIONS = {
    "first rows of literals": """
        WITH RECURSIVE r AS (SELECT CAST(0 AS BIGINT) AS t, CAST(1 AS DOUBLE) AS h
                             UNION ALL SELECT t + 1, w + b * 0.1 * h FROM r CROSS JOIN p WHERE t < 3)
        SELECT SUM(h) FROM r""",
    "first rows of NULL": """
        WITH RECURSIVE r AS (SELECT CAST(0 AS BIGINT) AS t, CAST(1 AS DOUBLE) AS h, CAST(NULL AS DOUBLE) AS e
                             UNION ALL SELECT t + 1, w + b * 0.1 * h, h * w FROM r CROSS JOIN p WHERE t < 3)
        SELECT SUM(e) FROM r""",
    "a column that only the recursive term reads": """
        WITH RECURSIVE r AS (SELECT CAST(0 AS BIGINT) AS t, CAST(1 AS DOUBLE) AS h, CAST(0 AS DOUBLE) AS u
                             UNION ALL SELECT t + 1, w + h + u, b * 0.1 * h FROM r CROSS JOIN p WHERE t < 3)
        SELECT SUM(h) FROM r""",
    "the last rows twice, in a subquery": """
        WITH RECURSIVE r AS (SELECT CAST(0 AS BIGINT) AS t, i, w * x AS v FROM t CROSS JOIN p
                             UNION ALL
                             SELECT t + 1, i, v - b * 0.1 * (SELECT AVG(v) FROM r) FROM r CROSS JOIN p WHERE t < 3)
        SELECT SUM(v * v) FROM r WHERE t = 3""",
    "the last rows twice, in a join": """
        WITH RECURSIVE r AS (SELECT CAST(0 AS BIGINT) AS t, i, w * x AS v FROM t CROSS JOIN p
                             UNION ALL SELECT one.t + 1, one.i, one.v + b * 0.1 * other.v
                             FROM r AS one JOIN r AS other ON other.i = 3 - one.i CROSS JOIN p WHERE one.t < 3)
        SELECT SUM(v * v) FROM r WHERE t = 3""",
}


@pytest.mark.parametrize("given", ["text", "view"])
@pytest.mark.parametrize("loss", RECURSIONS.values(), ids=RECURSIONS)
def test_recursions(loss: str, given: str) -> None:
    """The value is that of the gradient, and its differences are the gradient."""
    session = host("datafusion", P)
    if given == "view":
        do(session, f"CREATE VIEW loss AS {loss}")
        loss = "SELECT * FROM loss"
    objective = xql_ffi.objective(session, loss, ["p.w", "p.b"])
    for x in RNG.uniform(0.5, 1.5, size=(2, 2)):
        value, gradient = objective(x)
        assert objective.value(x) == value
        steps = 1e-5 * np.eye(2)
        differences = [(objective.value(x + step) - objective.value(x - step)) / 2e-5 for step in steps]
        np.testing.assert_allclose(gradient, differences, rtol=1e-7)
        assert objective.jvp(x, [1.0, 2.0]) == pytest.approx(gradient @ [1.0, 2.0])
