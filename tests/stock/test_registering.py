"""The ways to register a session, and what a session is afterwards."""

import ctypes
import gc
import threading
from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext, udaf, udf
from datafusion.user_defined import Accumulator

import xql_ffi
from xql_ffi import _native
from xql_ffi._planner import planner

STATEMENT = "SELECT k, grad((SELECT SUM(x * x) FROM t), x) AS g FROM t ORDER BY k"
EXPECTED = [{"k": 0, "g": 1.0}, {"k": 1, "g": 4.0}]


def with_rows(ctx: SessionContext) -> SessionContext:
    ctx.from_pydict({"k": [0, 1], "x": [0.5, 2.0]}, name="t")
    return ctx


def extended(*extensions: Any) -> SessionContext:
    ctx: Any = SessionContext()
    made: SessionContext = ctx.with_extensions(*extensions)
    return made


def test_register() -> None:
    ctx = SessionContext()
    assert xql_ffi.register(ctx) is ctx
    assert isinstance(ctx, SessionContext)
    assert with_rows(ctx).sql(STATEMENT).to_pylist() == EXPECTED
    assert xql_ffi.engine_status().startswith("active")


def test_extension() -> None:
    ctx = with_rows(extended(xql_ffi.Extension()))
    assert ctx.sql(STATEMENT).to_pylist() == EXPECTED


def test_extension_with_rules() -> None:
    rule = xql_ffi.rule("half(x)", "0.5")
    ctx = with_rows(extended(xql_ffi.Extension([rule])))
    ctx.register_udf(udf(lambda x: x, [pa.float64()], pa.float64(), "immutable", "half"))
    assert ctx.sql("SELECT grad(half(x), x) AS g FROM t").to_pydict() == {"g": [0.5, 0.5]}


def test_objectives_and_handles_of_an_extended_session() -> None:
    ctx = with_rows(extended(xql_ffi.Extension()))
    objective = xql_ffi.objective(ctx, "SELECT SUM(x * x) FROM t", "t.x")
    value, gradient = objective(objective.start)
    assert (value, gradient.tolist()) == (4.25, [1.0, 4.0])
    assert ctx.enable_url_table().sql(STATEMENT).to_pylist() == EXPECTED


def test_one_operator() -> None:
    ctx = with_rows(SessionContext())
    ctx.register_udf(xql_ffi.grad_capsule())
    assert ctx.sql(STATEMENT).to_pylist() == EXPECTED


def test_twice() -> None:
    ctx = with_rows(xql_ffi.register(xql_ffi.register(SessionContext())))
    assert ctx.sql(STATEMENT).to_pylist() == EXPECTED


def test_frames_outlive_the_session() -> None:
    frame = with_rows(xql_ffi.register(SessionContext())).sql(STATEMENT)
    gc.collect()
    assert frame.to_pylist() == EXPECTED
    stream = with_rows(xql_ffi.register(SessionContext())).sql(STATEMENT).execute_stream()
    gc.collect()
    assert sum(batch.to_pyarrow().num_rows for batch in stream) == 2


def test_threads_share_a_session() -> None:
    ctx = with_rows(xql_ffi.register(SessionContext()))
    found: list[object] = []

    def work() -> None:
        for _ in range(5):
            try:
                found.append(ctx.sql(STATEMENT).to_pylist())
            except Exception as error:
                found.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [EXPECTED] * 80


def test_the_option() -> None:
    ctx = with_rows(xql_ffi.register(SessionContext()))
    other = with_rows(xql_ffi.register(SessionContext()))

    def is_shared(of: SessionContext) -> bool:
        return "SharedScanExec" in str(of.sql(f"EXPLAIN {STATEMENT}").to_pydict())

    assert is_shared(ctx)
    ctx.sql("SET xql.share_relations = false")
    assert not is_shared(ctx)
    assert is_shared(other)
    assert ctx.sql(STATEMENT).to_pylist() == EXPECTED
    with pytest.raises(ValueError, match=r"there is no option xql\.nothing"):
        ctx.sql("SET xql.nothing = 1")


def test_errors_are_typed() -> None:
    ctx = with_rows(xql_ffi.register(SessionContext()))
    with pytest.raises(xql_ffi.VariableError, match="must be a column"):
        ctx.sql("SELECT grad(x * x, 'x') FROM t").collect()


def test_a_function_of_the_user_is_not_datafusions() -> None:
    """Whatever its name: neither is it differentiated as that, nor does a derivative call it."""
    ctx = with_rows(xql_ffi.register(SessionContext()))
    ctx.register_udf(udf(lambda x: pa.compute.multiply(x, 7.0), [pa.float64()], pa.float64(), "immutable", "cos"))
    with pytest.raises(xql_ffi.MissingRuleError, match="cos"):
        ctx.sql("SELECT grad(cos(x), x) FROM t").collect()
    found = ctx.sql("SELECT grad(sin(x), x) AS g, cos(x) AS c FROM t ORDER BY k").to_pylist()
    assert found == [{"g": 0.8775825618903728, "c": 3.5}, {"g": -0.4161468365471424, "c": 14.0}]


class Last(Accumulator):
    def __init__(self) -> None:
        self._value = 0.0

    def state(self) -> list[pa.Scalar]:
        return [pa.scalar(self._value)]

    def update(self, *values: pa.Array) -> None:
        self._value = max([self._value, *values[0].to_pylist()])

    def merge(self, states: list[pa.Array]) -> None:
        self._value = max([self._value, *states[0].to_pylist()])

    def evaluate(self) -> pa.Scalar:
        return pa.scalar(self._value)


def test_functions_of_the_user() -> None:
    ctx = with_rows(xql_ffi.register(SessionContext()))
    ctx.register_udf(udf(lambda x: pa.compute.add(x, 1.0), [pa.float64()], pa.float64(), "stable", "next"))
    ctx.register_udaf(udaf(Last, pa.float64(), pa.float64(), [pa.float64()], "stable", "latest"))
    found = ctx.sql("SELECT latest(next(x)) AS l, SUM(grad(x * x, x)) AS g FROM t").to_pylist()
    assert found == [{"l": 3.0, "g": 5.0}]


def test_tables_of_one_name() -> None:
    """A table that takes the place of another under a view is another one."""
    ctx = with_rows(xql_ffi.register(SessionContext()))
    old = ctx.table("t")
    ctx.register_view("old", old)
    ctx.deregister_table("t")
    ctx.from_pydict({"k": [0, 1], "x": [3.0, 4.0]}, name="t")
    assert ctx.sql("SELECT SUM(x) AS s FROM old").to_pylist() == [{"s": 2.5}]
    assert ctx.sql(STATEMENT).to_pylist() == [{"k": 0, "g": 6.0}, {"k": 1, "g": 8.0}]
    with pytest.raises(xql_ffi.DifferentiationError, match="Register the table itself"):
        ctx.sql("SELECT k, grad((SELECT SUM(x * x) FROM old), x) AS g FROM t").collect()


def test_a_cte_is_not_a_derived_table_of_its_text() -> None:
    ctx = with_rows(xql_ffi.register(SessionContext()))
    ctes = """WITH a AS (SELECT k, 2 * x AS v FROM t), b AS (SELECT k, 2 * x AS v FROM t)
              SELECT grad((SELECT SUM(v * v) FROM a), v) AS g FROM b"""
    derived = """SELECT grad((SELECT SUM(v * v) FROM (SELECT k, 2 * x AS v FROM t) AS p), v) AS g
                 FROM (SELECT k, 2 * x AS v FROM t) AS q ORDER BY 1"""
    assert ctx.sql(ctes).to_pydict() == {"g": [0.0, 0.0]}
    assert ctx.sql(derived).to_pydict() == {"g": [2.0, 8.0]}
    # Where a name has been both, the derivative is refused.
    both = derived.replace("AS q", "AS b")
    with pytest.raises(xql_ffi.UnsupportedRelationError, match="by another name"):
        ctx.sql(both).collect()


@pytest.mark.parametrize("shift", [-8, 8])
def test_a_planner_of_another_layout_is_refused(shift: int) -> None:
    """Nothing of it is called. That of a later DataFusion may be so: its fields lie one further, or one before."""
    ctx: Any = xql_ffi.register(SessionContext())
    found = _native._get_pointer(SessionContext().ctx.__datafusion_query_planner__(), _native.PLANNER)
    size = 1024
    moved = ctypes.create_string_buffer(size)
    ctypes.memmove(ctypes.addressof(moved) + max(shift, 0), found + max(-shift, 0), 512)
    capsule = _native._new_capsule(ctypes.addressof(moved), _native.PLANNER, None)
    with pytest.raises(Exception, match=r"not laid out as that of datafusion 55.*Install a datafusion of this version"):
        planner(ctx._xql_ffi_crossing, capsule)
