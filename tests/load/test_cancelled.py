"""A statement that ends in the middle leaves nothing behind: its session goes on, its relations are computed anew."""

from __future__ import annotations

import gc
import sys

import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext

from support.processes import json_of
from support.sessions import session

_ROWS = 40_000
# What h computes is read by the loss and by its derivative.
_BY_ROW = """
    WITH h AS (SELECT k, x, x * x AS v FROM t), l AS (SELECT k, SUM(v * v) AS l FROM h GROUP BY k)
    SELECT x, grad((SELECT SUM(l * l) FROM l), x) AS d FROM t"""


def _with_rows(rows: int) -> SessionContext:
    ctx = session(config=SessionConfig().with_target_partitions(2).with_batch_size(512))
    columns = {"k": pa.array([i % 1000 for i in range(rows)]), "x": pa.array([1.0 + i % 3 for i in range(rows)])}
    ctx.register_record_batches("t", [pa.table(columns).to_batches(max_chunksize=512)])
    return ctx


def _checked(found: pa.Table, rows: int) -> None:
    """All derivatives, of (sum over x ** 4) ** 2."""
    sums: dict[int, float] = {}
    for i in range(rows):
        sums[i % 1000] = sums.get(i % 1000, 0.0) + (1.0 + i % 3) ** 4
    by_x: dict[float, set[float]] = {}
    for i in range(rows):
        x = 1.0 + i % 3
        by_x.setdefault(x, set()).add(round(2 * sums[i % 1000] * 4 * x**3, 3))
    assert found.num_rows == rows
    for x, d in zip(*(column.to_pylist() for column in found.columns), strict=True):
        assert round(d, 3) in by_x[x]


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_a_stream_that_is_dropped(batches: int) -> None:
    ctx = _with_rows(_ROWS)
    frame = ctx.sql(_BY_ROW)
    for _ in range(3):
        stream = frame.execute_stream()
        for _ in range(batches):
            assert next(stream) is not None
        del stream
        gc.collect()
    _checked(frame.to_arrow_table(), _ROWS)
    _checked(ctx.sql(_BY_ROW).to_arrow_table(), _ROWS)


def test_one_of_several_partitions_is_dropped() -> None:
    """The others, which read the same relation, end by themselves."""
    ctx = _with_rows(_ROWS)
    frame = ctx.sql(_BY_ROW)
    streams = frame.execute_stream_partitioned()
    first = streams.pop(0)
    del first
    rows = sum(batch.to_pyarrow().num_rows for stream in streams for batch in stream)
    assert rows <= _ROWS
    _checked(frame.to_arrow_table(), _ROWS)


_INTERRUPTED = """
import json, os, signal, threading, time
import xql_ffi
from load.test_cancelled import _session

ctx = _with_rows(200)
long = '''WITH RECURSIVE fit AS (
    SELECT 0 AS step, x, k FROM t
    UNION ALL
    SELECT step + 1, x - 1e-9 * grad((SELECT SUM(x * x) FROM fit), x), k FROM fit WHERE step < 100000000)
  SELECT MAX(step) FROM fit'''
sent = []
def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(1.0, interrupt).start()
try:
    ctx.sql(long).collect()
    found = "it ended"
except KeyboardInterrupt:
    found = time.monotonic() - sent[0]
time.sleep(0.5)
before = time.process_time()
time.sleep(1.0)
busy = time.process_time() - before
again = ctx.sql("SELECT COUNT(grad(x * x, x)) AS n FROM t").to_pydict()["n"]
print(json.dumps([found, busy, again]), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process there cannot send itself Ctrl-C alone")
def test_an_interrupted_gradient_by_row_stops_to_compute() -> None:
    found, busy, again = json_of(["-c", _INTERRUPTED], engine=True)
    assert found < 3, found
    assert busy < 0.5, "it is computed to its end, which nobody waits for"
    assert again == [200]
