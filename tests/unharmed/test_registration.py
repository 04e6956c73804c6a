"""Registration: every session class, every way to register, every order of imports, threads and lifetimes."""

import gc
import itertools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr
import xarray_sql
from datafusion import SessionConfig, SessionContext, col, udf

import xql_ffi
from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.processes import json_of
from support.sessions import session
from support.tables import TABLES

_SQL = "SELECT grad(a * a * b, a) AS g, jvp(a * b, a, 1.0, b, 2.0) AS j, vjp(a * b, b, 3.0) AS v FROM q"
_EXPECTED = [(12.0, 7.0, 6.0)]
CONTEXTS: list[Callable[[], SessionContext]] = [SessionContext, xarray_sql.XarrayContext, xarray_sql.Context]
CAPSULES = [xql_ffi.grad_capsule, xql_ffi.jvp_capsule, xql_ffi.vjp_capsule]


def _register_each(ctx: SessionContext) -> None:
    for capsule in CAPSULES:
        ctx.register_udf(capsule())


def _register_as_udf(ctx: SessionContext) -> None:
    for capsule in CAPSULES:
        ctx.register_udf(udf(capsule()))


def _register_all(ctx: SessionContext) -> None:
    assert xql_ffi.register(ctx) is ctx


def _register_twice(ctx: SessionContext) -> None:
    _register_each(ctx)
    _register_all(ctx)


def _result(ctx: SessionContext) -> list[tuple[object, ...]]:
    ctx.from_pydict({"a": [2.0], "b": [3.0]}, name="q")
    return rows_of(query(ctx, _SQL))


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("register_", [_register_each, _register_as_udf, _register_all, _register_twice])
def test_registers(context: Callable[[], SessionContext], register_: Callable[[SessionContext], None]) -> None:
    ctx = context()
    register_(ctx)
    assert_same_rows(_result(ctx), _EXPECTED)


def test_sessions_that_do_not_register_know_nothing() -> None:
    xql_ffi.register(SessionContext())
    with pytest.raises(Exception, match="grad"):
        SessionContext().sql("SELECT grad(a, a) FROM (SELECT 1.0 AS a)")


def test_deregistered() -> None:
    ctx = xql_ffi.register(SessionContext())
    ctx.deregister_udf("grad")
    with pytest.raises(Exception, match="grad"):
        ctx.sql("SELECT grad(a, a) FROM (SELECT 1.0 AS a)")
    ctx.register_udf(xql_ffi.grad_capsule())
    assert_same_rows(_result(ctx), _EXPECTED)


def test_one_capsule_in_many_sessions() -> None:
    capsules = [capsule() for capsule in CAPSULES]
    for _ in range(20):
        ctx = SessionContext()
        for capsule in capsules:
            ctx.register_udf(capsule)
        assert_same_rows(_result(ctx), _EXPECTED)


def test_capsules_may_be_dropped_after_registration() -> None:
    ctx = xql_ffi.register(SessionContext())
    gc.collect()
    assert_same_rows(_result(ctx), _EXPECTED)


def test_frames_outlive_session_and_capsule() -> None:
    def frame() -> object:
        ctx = xql_ffi.register(SessionContext())
        return ctx.from_pydict({"x": [1.0, 2.0]}).select(
            xql_ffi.grad_capsule()(col("x") * col("x"), col("x")).alias("d")
        )

    kept = frame()
    gc.collect()
    assert kept.to_pydict() == {"d": [2.0, 4.0]}  # type: ignore[attr-defined]


def test_sessions_made_and_dropped() -> None:
    for _ in range(50):
        ctx = xql_ffi.register(SessionContext())
        assert_same_rows(_result(ctx), _EXPECTED)
        del ctx
    gc.collect()


def test_threads() -> None:
    """Queries of one session planned and run at the same time."""
    ctx = session(TABLES)

    def power(exponent: int) -> list[float]:
        statement = f"SELECT grad(power(x, {exponent}), x) AS d FROM t WHERE x > 0 ORDER BY id"
        found: list[float] = ctx.sql(statement).to_pydict()["d"]
        return found

    exponents = [2 + number % 7 for number in range(64)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(power, exponents))
    for exponent, found in zip(exponents, results, strict=True):
        assert found == pytest.approx([exponent * x ** (exponent - 1) for x in (0.5, 1.0, 2.0, 3.25)])


def test_threads_with_a_session_each() -> None:
    def in_own_session(_: int) -> list[tuple[object, ...]]:
        return _result(xql_ffi.register(SessionContext()))

    with ThreadPoolExecutor(8) as pool:
        for rows in pool.map(in_own_session, range(32)):
            assert_same_rows(rows, _EXPECTED)


def test_configured_session() -> None:
    """Small batches, many partitions, other names for catalog and schema."""
    config = SessionConfig().with_batch_size(2).with_target_partitions(4).with_default_catalog_and_schema("c", "s")
    ctx = session(TABLES, config=config.with_information_schema(True))
    assert query(ctx, "SELECT SUM(grad(x * y, x)) AS d FROM t").to_pydict() == {"d": [2.25]}
    listed = query(ctx, "SELECT DISTINCT routine_name AS n FROM information_schema.routines ORDER BY n").to_pydict()[
        "n"
    ]
    assert {"grad", "jvp", "vjp"} <= set(listed)


@pytest.fixture
def grid() -> xr.Dataset:
    values = np.arange(12, dtype="float32").reshape(3, 4) / 4
    coordinates = {"lat": [-30.0, 0.0, 30.0], "lon": [0.0, 90.0, 180.0, 270.0]}
    return xr.Dataset({"t": (("lat", "lon"), values), "p": (("lat", "lon"), values[::-1] + 1)}, coords=coordinates)


def test_tables_of_xarray_sql(grid: xr.Dataset) -> None:
    """The tables are of another plugin, in the same session."""
    ctx = xarray_sql.XarrayContext()
    ctx.from_dataset("grid", grid, chunks={"lat": 1})
    xql_ffi.register(ctx)
    frame = ctx.sql("SELECT lat, lon, grad(t * t * p, t) AS d FROM grid")
    slopes = frame.to_dataset(dims=["lat", "lon"]).compute().sortby(["lat", "lon"])["d"]
    assert slopes.dtype == np.float32
    np.testing.assert_allclose(slopes.values, 2 * grid["t"].values * grid["p"].values, rtol=1e-6)


def test_tables_of_xarray_sql_after_registration(grid: xr.Dataset) -> None:
    ctx = xql_ffi.register(xarray_sql.XarrayContext())
    ctx.from_dataset("grid", grid, chunks={"lat": 2})
    result = query(ctx, "SELECT AVG(grad(t * t, t)) AS d FROM grid WHERE grad(t * p, t) > 2 AND lat >= 0").to_pydict()
    chosen = grid.where(grid["p"] > 2).sel(lat=slice(0, None))
    assert result["d"][0] == pytest.approx(float((2 * chosen["t"].where(chosen["p"].notnull())).mean()), rel=1e-6)


_ORDER = """
import importlib, json
for name in {order}: importlib.import_module(name)
import datafusion, xarray_sql, xql_ffi
found = []
for make in (datafusion.SessionContext, xarray_sql.XarrayContext):
    ctx = make()
    ctx.register_udf(xql_ffi.grad_capsule())
    ctx.from_pydict({{"x": [3.0]}}, name="q")
    found.append(ctx.sql("SELECT grad(x * x, x) AS d FROM q").to_pydict()["d"])
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    "order",
    list(itertools.permutations(["datafusion", "xarray_sql", "xql_ffi"])),
    ids=lambda order: "-".join(order),
)
def test_every_order_of_imports(order: tuple[str, ...]) -> None:
    assert json_of(["-c", _ORDER.format(order=json.dumps(order))], engine=True) == [[6.0], [6.0]]
