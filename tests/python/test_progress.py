"""Recursive queries tell their steps while they run."""

import re
import sys
import threading
from itertools import pairwise

import pytest
from datafusion import SessionContext

import xql_ffi
from support.processes import run_python

NEWTON = """
    WITH RECURSIVE newton AS (
        SELECT 0 AS step, 1.0 AS x
        UNION ALL
        SELECT step + 1, x - (x * x - 2) / grad(x * x - 2, x) FROM newton WHERE step < 6)
    SELECT x FROM newton ORDER BY step DESC LIMIT 1
"""
# The loss is read by nobody.
DESCENT = """
    WITH RECURSIVE fit AS (
        SELECT 0 AS step, 0.5 AS w, CAST(NULL AS DOUBLE) AS loss
        UNION ALL
        SELECT step + 1, w - 0.1 * grad(AVG(power(w * x - 1, 2)), w), AVG(power(w * x - 1, 2))
        FROM fit CROSS JOIN d WHERE step < 5 GROUP BY step, w)
    SELECT MAX(step) AS steps FROM fit
"""
# The parameters are rows, and every step reads them several times.
BY_ROW = """
    WITH RECURSIVE fit AS (
        SELECT 0 AS step, k, val, CAST(NULL AS DOUBLE) AS loss FROM w
        UNION ALL (
        WITH loss AS (SELECT AVG(power(s.y - 1, 2)) AS v
                      FROM (SELECT SUM(fit.val * e.x) AS y FROM fit JOIN e ON fit.k = e.k GROUP BY e.s) AS s)
        SELECT step + 1, k, val - 0.05 * grad((SELECT v FROM loss), val), (SELECT v FROM loss) FROM fit WHERE step < 3))
    SELECT step, k, val, loss FROM fit ORDER BY step, k
"""


TABLES = {
    "d": {"x": [1.0, 2.0]},
    "w": {"k": [1, 2], "val": [0.5, -1.0]},
    "e": {"s": [1, 1, 2, 2], "k": [1, 2, 1, 2], "x": [0.5, -1.0, 2.0, 3.0]},
}


def steps_of(session: SessionContext, query: str) -> list[xql_ffi.Step]:
    told: list[xql_ffi.Step] = []
    with xql_ffi.progress(told.append):
        session.sql(query).collect()
    return told


def test_every_step_is_told_once(session: SessionContext) -> None:
    told = steps_of(session, NEWTON)
    assert [(step.query, step.number) for step in told] == [("newton", number) for number in range(7)]
    assert [step.rows["step"].to_pylist() for step in told] == [[number] for number in range(7)]
    assert told[-1].rows["x"].to_pylist() == session.sql(NEWTON).to_pydict()["x"]
    assert all(a.seconds <= b.seconds for a, b in pairwise(told))


def test_columns_that_the_query_does_not_read_are_told(session: SessionContext) -> None:
    told = steps_of(session, DESCENT)
    losses = [step.rows["loss"][0].as_py() for step in told]
    assert losses[0] is None
    assert losses[1] == pytest.approx(0.125)
    assert losses[1:] == sorted(losses[1:], reverse=True)
    assert told[0].rows.column_names == ["step", "w", "loss"]


def test_rows_of_a_step(session: SessionContext) -> None:
    expected = session.sql(BY_ROW).to_arrow_table()
    told = steps_of(session, BY_ROW)
    assert len(told) == 4
    for step in told:
        rows = step.rows.sort_by("k").to_pylist()
        assert rows == [row for row in expected.to_pylist() if row["step"] == step.number]


def test_a_step_as_a_line(session: SessionContext) -> None:
    _, first, *_ = steps_of(session, BY_ROW)
    assert re.fullmatch(r"fit step 1: loss=\d\.\d+, \d+\.\d s", str(first)), str(first)


def test_lines(session: SessionContext, capsys: pytest.CaptureFixture[str]) -> None:
    with xql_ffi.progress(every=0.0):
        session.sql(NEWTON).collect()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"newton step {number}" for number in range(7)]
    assert "x=1.41421" in lines[-1]
    with xql_ffi.progress(every=1000.0):
        session.sql(NEWTON).collect()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["newton step 0", "newton step 6"]


def test_results_are_the_same(session: SessionContext) -> None:
    for query in (NEWTON, DESCENT, BY_ROW):
        expected = session.sql(query).to_pydict()
        with xql_ffi.progress(lambda step: None):
            assert session.sql(query).to_pydict() == expected


def test_plans_outside_of_the_block_are_as_ever(session: SessionContext) -> None:
    before = str(session.sql(NEWTON).execution_plan())
    with xql_ffi.progress(lambda step: None):
        inside = str(session.sql(NEWTON).execution_plan())
    assert "ObservedExec: newton" in inside
    assert "ObservedExec" not in before
    assert str(session.sql(NEWTON).execution_plan()) == before


def test_a_frame_from_before_the_block(session: SessionContext) -> None:
    frame = session.sql(NEWTON)
    told: list[xql_ffi.Step] = []
    with xql_ffi.progress(told.append):
        frame.collect()
    assert len(told) == 7


def test_nobody_is_told_after_the_block(session: SessionContext) -> None:
    told: list[xql_ffi.Step] = []
    with xql_ffi.progress(told.append):
        stream = session.sql(NEWTON).execute_stream()
    assert len(list(stream)) == 1
    assert told == []


def test_an_exception_ends_the_query(session: SessionContext) -> None:
    def enough(step: xql_ffi.Step) -> None:
        if step.number == 3:
            raise KeyError("enough")

    watching = xql_ffi.progress(enough)
    with pytest.raises(KeyError, match="enough"), watching:
        session.sql(NEWTON).collect()
    assert session.sql(NEWTON).to_pydict()["x"] == [pytest.approx(2**0.5)]


def test_blocks_within_blocks(session: SessionContext) -> None:
    outer: list[xql_ffi.Step] = []
    inner: list[xql_ffi.Step] = []
    with xql_ffi.progress(outer.append):
        with xql_ffi.progress(inner.append):
            session.sql(NEWTON).collect()
        assert (len(outer), len(inner)) == (0, 7)
        session.sql(NEWTON).collect()
    assert (len(outer), len(inner)) == (7, 7)


def test_queries_in_threads(session: SessionContext) -> None:
    told: list[xql_ffi.Step] = []
    with xql_ffi.progress(told.append):
        threads = [threading.Thread(target=session.sql(NEWTON).collect) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(step.number for step in told) == sorted([*range(7)] * 4)


def test_what_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="a function of one argument, a Step; 3 cannot be called"):
        xql_ffi.progress(3)  # type: ignore[arg-type]


def test_without_the_engine() -> None:
    script = "import xql_ffi\nwith xql_ffi.progress(): pass"
    process = run_python(["-c", script], engine=False)
    assert process.returncode == 1
    assert "MissingEngineError: progress needs the engine" in process.stderr
    assert "execute_stream" in process.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a process there cannot send itself Ctrl-C alone")
def test_ctrl_c_in_the_block() -> None:
    script = f"""
import os, signal, xql_ffi
from datafusion import SessionContext
ctx = xql_ffi.register(SessionContext())
with xql_ffi.progress(lambda step: step.number == 2 and os.kill(os.getpid(), signal.SIGINT)):
    ctx.sql('''{NEWTON.replace("step < 6", "step < 100000000")}''').collect()
"""
    process = run_python(["-c", script], engine=True)
    assert process.returncode != 0
    assert process.stderr.splitlines()[-1].startswith("KeyboardInterrupt")
