"""Processes that are forked or spawned, and what outlives what."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.processes import run_python

_SPAWNED = """
import multiprocessing
from load.work import STATEMENTS, loaded, result, text_result

def work(name):
    ctx = loaded()
    return result(ctx, STATEMENTS[name]), text_result(ctx, STATEMENTS[name])

if __name__ == "__main__":
    here = {name: work(name) for name in STATEMENTS}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        there = pool.map(work, STATEMENTS)
    assert list(here.values()) == there
    assert all(engine == text for engine, text in there)
    print("the same")
"""

# In the child are neither the threads of the parent nor what they held.
_FORKED = """
import os, sys, xql_ffi
from datafusion import SessionContext

def child(work):
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException as error:
            print(type(error).__name__, str(error)[:60])
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

STATEMENT = "SELECT grad(x * x, x) AS d FROM (VALUES (3.0)) AS t(x)"

def engine():
    print(xql_ffi.register(SessionContext()).sql(STATEMENT).to_pydict())

def text():
    print(xql_ffi.expand_sql(STATEMENT, {}))

child(engine)
child(text)
engine()
child(engine)
child(text)
engine()
"""


def _printed(program: str) -> str:
    process = run_python(["-c", program], engine=True)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_spawned(tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(_SPAWNED, encoding="utf-8")
    process = run_python([str(script)], engine=True)
    assert (process.returncode, process.stdout) == (0, "the same\n"), process.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_forked() -> None:
    """A child of a process that has run statements plans others, and writes texts.

    What DataFusion gives to threads waits without end there, with or without derivatives: these have no rows to share.
    """
    engine, text = "{'d': [6.0]}\n", "SELECT 2.0 * x AS d FROM (VALUES (3.0)) AS t(x)\n"
    assert _printed(_FORKED) == engine + text + engine + engine + text + engine


_FRAMES = """
import gc, threading
from load.work import STATEMENTS, loaded, result, shown

wanted = {name: result(loaded(), sql) for name, sql in STATEMENTS.items()}
frames = {name: loaded().sql(sql) for name, sql in STATEMENTS.items()}
streams = {name: loaded().sql(sql).execute_stream() for name, sql in STATEMENTS.items()}
gc.collect()
found = {}
def work(name):
    found[name] = shown(frames[name].to_arrow_table())
threads = [threading.Thread(target=work, args=[name]) for name in frames]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert found == wanted
import pyarrow as pa
for name, stream in streams.items():
    table = pa.Table.from_batches([batch.to_pyarrow() for batch in stream])
    assert shown(table) == wanted[name], name
print("right")
"""


def test_frames_outlive_their_sessions() -> None:
    assert _printed(_FRAMES) == "right\n"


_ENDS = """
import threading, xql_ffi
from load.work import STATEMENTS, loaded

ctx = loaded()
long = '''
  WITH RECURSIVE r AS (
    SELECT 0 AS s, 1.0 AS x UNION ALL SELECT s + 1, x - 1e-9 * grad(x * x, x) FROM r WHERE s < 1000000000)
  SELECT MAX(s) FROM r'''
started = threading.Event()
def work():
    stream = ctx.sql(long).execute_stream()
    started.set()
    for _ in stream: pass
kept = [ctx.sql(sql) for sql in STATEMENTS.values()]
streams = [ctx.sql(sql).execute_stream() for sql in STATEMENTS.values()]
threading.Thread(target=work, daemon=True).start()
started.wait()
print("ends", flush=True)
"""


def test_the_interpreter_ends_while_a_statement_runs() -> None:
    """With frames and streams alive, and a thread in the middle of a statement."""
    assert _printed(_ENDS) == "ends\n"
