"""Ctrl-C ends the wait for a query that differentiates, while it is planned and while it is executed.

The wheel of DataFusion 55 looks for signals once a second, the engine ten times. What is planned here is short to
write, for that wheel does not look while it plans by itself, and long to differentiate.
"""

import sys

import pytest

from support.processes import json_of
from support.stock import ON_STOCK

_SCRIPT = """
import json, os, signal, threading, time
import xql_ffi
from datafusion import SessionContext

ctx = xql_ffi.register(SessionContext())
ctx.from_pydict({{f"w{{i}}": [0.1] for i in range(5)}}, name="t")
ctx.from_pydict({{"x": [0.5] * 1000}}, name="d")
fields = [f"sin({{i}} * w0 * w1) * exp(w0 * w2) * tanh(w0 * w3) * ln(1 + w0 * w4)" for i in range(1, 13)]
planned = "SELECT " + ", ".join("grad(" * 6 + field + ", w0)" * 6 for field in fields) + " FROM t"
executed = '''WITH RECURSIVE fit AS (
    SELECT 0 AS step, 0.1 AS w
    UNION ALL
    SELECT step + 1, w - 0.01 * grad(AVG(power(w * x, 2)), w)
    FROM fit CROSS JOIN d WHERE step < 1000000 GROUP BY step, w)
  SELECT MAX(step) FROM fit'''
ctx.sql("SELECT grad(w0 * w0, w0) FROM t").collect()
sent = []
def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.4, interrupt).start()
try:
    found = ctx.sql({statement}).to_pydict()
except KeyboardInterrupt:
    found = time.monotonic() - sent[0]
# What was interrupted ends at its next step.
time.sleep(1)
begun = time.process_time()
time.sleep(0.5)
busy = time.process_time() - begun
again = ctx.sql("SELECT grad(w0 * w0, w0) AS d FROM t").to_pydict()["d"]
print(json.dumps([found, busy, again]), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process there cannot send itself Ctrl-C alone")
@pytest.mark.parametrize("statement", ["planned", "executed"])
def test_ctrl_c_is_answered_soon(statement: str) -> None:
    waited, busy, again = json_of(["-c", _SCRIPT.format(statement=statement)], engine=True)
    assert waited < (2 if ON_STOCK else 1)
    assert busy < 0.1
    assert again == [0.2]


_TEXT = """
import json, os, signal, threading, time
import pyarrow as pa
import xql_ffi

tables = {"t": pa.schema([(f"w{i}", pa.float64()) for i in range(5)])}
calls = [f"grad(sin({i} * w0 * w1) * exp(w0 * w2), w0) AS c{i}" for i in range(1200)]
xql_ffi.expand_sql("SELECT grad(w0 * w0, w0) AS d FROM t", tables)
sent = []
def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(1, interrupt).start()
try:
    found = xql_ffi.expand_sql("SELECT " + ", ".join(calls) + " FROM t", tables)
except KeyboardInterrupt:
    found = time.monotonic() - sent[0]
time.sleep(1)
begun = time.process_time()
time.sleep(0.5)
busy = time.process_time() - begun
again = xql_ffi.expand_sql("SELECT grad(w0 * w0, w0) AS d FROM t", tables)
print(json.dumps([found, busy, again]), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process there cannot send itself Ctrl-C alone")
def test_ctrl_c_is_answered_while_a_text_is_written() -> None:
    waited, busy, again = json_of(["-c", _TEXT], engine=False)
    assert waited < 0.5
    assert busy < 0.1
    assert again == "SELECT 2.0 * w0 AS d FROM t"
