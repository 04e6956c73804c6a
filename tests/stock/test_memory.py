"""What a plan that runs in the library needs of its session: memory, for which the pool of the session accounts."""

import contextlib
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

import xql_ffi

ROWS = 20_000
BY_ROW = """
    WITH h AS (SELECT k, SUM(x * x) AS v FROM t GROUP BY k)
    SELECT k, x, grad((SELECT SUM(v * v) FROM h), x) AS d FROM t"""
SORTED = f"{BY_ROW} ORDER BY d DESC, x"
# Nothing of it runs in the library. It needs the memory of its groups.
OF_HOST = "SELECT COUNT(*) AS n FROM (SELECT x, COUNT(*) FROM t GROUP BY x)"
POOLS: dict[str, Callable[[RuntimeEnvBuilder, int], RuntimeEnvBuilder]] = {
    "greedy": RuntimeEnvBuilder.with_greedy_memory_pool,
    "fair": RuntimeEnvBuilder.with_fair_spill_pool,
}
EXHAUSTED = "Resources exhausted"


def made(pool: str = "greedy", size: int | None = None) -> SessionContext:
    config = SessionConfig({"datafusion.execution.sort_spill_reservation_bytes": "65536"})
    runtime = RuntimeEnvBuilder() if size is None else POOLS[pool](RuntimeEnvBuilder(), size)
    ctx = SessionContext(config.with_target_partitions(2).with_batch_size(1024), runtime)
    numbers = range(ROWS)
    table = pa.table({"k": [i % 5000 for i in numbers], "x": [1.0 + i for i in numbers]})
    ctx.register_record_batches("t", [table.to_batches(max_chunksize=1024)])
    return xql_ffi.register(ctx)


def rows(ctx: SessionContext, statement: str = BY_ROW) -> pa.Table:
    return pa.Table.from_batches(ctx.sql(statement).collect())


@pytest.fixture(scope="module")
def right() -> pa.Table:
    return rows(made(), SORTED)


def once_there(ctx: SessionContext, statement: str) -> pa.Table:
    """The rows, once the tasks of a statement that has failed are gone: nobody waits for them."""
    for _ in range(100):
        with contextlib.suppress(Exception):
            return rows(ctx, statement)
        time.sleep(0.02)
    return rows(ctx, statement)


def is_right(found: pa.Table, right: pa.Table) -> bool:
    return bool(found.sort_by([("d", "descending"), ("x", "ascending")]).equals(right))


@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_that_is_too_small_is_an_error_and_the_session_goes_on(pool: str) -> None:
    ctx = made(pool, 1 << 20)
    for _ in range(10):
        with pytest.raises(Exception, match=EXHAUSTED):
            rows(ctx)
        assert once_there(ctx, OF_HOST).to_pydict() == {"n": [ROWS]}


@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_that_is_large_enough_has_all_of_it_back_after_each_statement(pool: str, right: pa.Table) -> None:
    """Half of the pool does not do."""
    with pytest.raises(Exception, match=EXHAUSTED):
        rows(made(pool, 3 << 19), SORTED)
    ctx = made(pool, 3 << 20)
    for _ in range(20):
        assert is_right(rows(ctx, SORTED), right)


def test_threads_share_a_pool(right: pa.Table) -> None:
    ctx = made("greedy", 9 << 20)
    begun = threading.Barrier(4)

    def outcome(_: int) -> bool | str:
        begun.wait()
        try:
            return is_right(rows(ctx), right)
        except Exception as error:
            return str(error)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            outcomes = list(threads.map(outcome, range(4)))
            assert all(found is True or EXHAUSTED in str(found) for found in outcomes), outcomes
            assert is_right(once_there(ctx, BY_ROW), right)


def test_a_stream_that_is_left_holds_nothing(right: pa.Table) -> None:
    ctx = made("greedy", 1 << 22)
    for _ in range(10):
        stream = ctx.sql(SORTED).execute_stream()
        assert next(stream) is not None
        del stream
        gc.collect()
        assert is_right(once_there(ctx, SORTED), right)


def test_a_relation_that_a_plan_has_computed_is_accounted_for() -> None:
    """While the stream is there the pool lends less."""
    ctx = made("greedy", 1 << 21)
    stream = ctx.sql(SORTED).execute_stream()
    assert next(stream) is not None
    with pytest.raises(Exception, match=EXHAUSTED):
        rows(ctx, SORTED)
    del stream


def test_the_limit_of_a_session_can_change(right: pa.Table) -> None:
    ctx = made()
    assert is_right(rows(ctx), right)
    ctx.sql("SET datafusion.runtime.memory_limit = '1M'").collect()
    with pytest.raises(Exception, match=EXHAUSTED):
        rows(ctx)
    ctx.sql("SET datafusion.runtime.memory_limit = '1G'").collect()
    assert is_right(rows(ctx), right)


def test_a_sort_spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so to the folder of the system for temporary files, and leaves nothing there."""
    long = f"""
        WITH g AS ({BY_ROW}) SELECT x, d, s.value AS s, repeat('a', 100) || s.value AS w
        FROM g CROSS JOIN generate_series(1, 10) AS s ORDER BY w, x"""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ctx = made("greedy", 24 << 20)
    stream = ctx.sql(long).execute_stream()
    first = next(stream)
    assert any(tmp_path.iterdir())
    found = pa.Table.from_batches([first.to_pyarrow(), *(batch.to_pyarrow() for batch in stream)])
    del stream
    assert found.equals(rows(made(), long))
    for _ in range(100):
        if not (left := list(tmp_path.iterdir())):
            break
        time.sleep(0.02)
    assert not left
