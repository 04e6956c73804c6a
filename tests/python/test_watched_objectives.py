"""The calls of objectives are told and shown while an optimizer runs."""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import xql_ffi
from support import sessions
from support.processes import run_in_terminal, run_python
from xql_ffi._progress import unwatched

optimize = pytest.importorskip("scipy.optimize")

TABLES: Mapping[str, Mapping[str, Any]] = {"w": {"k": [1, 2, 3], "val": [1.0, 2.0, 3.0]}}
# Rosenbrock's valley.
LOSS = """
    WITH v AS (SELECT a.val AS x, b.val AS y FROM w AS a JOIN w AS b ON a.k = 1 AND b.k = 2)
    SELECT SUM(power(1 - x, 2) + 10 * power(y - x * x, 2)) FROM v"""
SQUARES = "SELECT SUM(k * val * val) FROM w"


@pytest.fixture(params=["datafusion", "duckdb"])
def host(request: pytest.FixtureRequest) -> Any:
    """A session of each host with the tables."""
    if request.param == "datafusion":
        return sessions.session(TABLES)
    connection = pytest.importorskip("duckdb").connect()
    rows = pa.table(dict(TABLES["w"]))
    connection.register("given", rows)
    connection.execute("CREATE TABLE w AS SELECT * FROM given")
    return connection


def numbers(step: xql_ffi.Step) -> tuple[float | None, float | None]:
    (row,) = step.rows.to_pylist()
    assert list(row) == ["value", "gradient_norm"]
    return row["value"], row["gradient_norm"]


def test_every_call_is_told(host: Any) -> None:
    told: list[xql_ffi.Step] = []
    with xql_ffi.progress(told.append):
        objective = xql_ffi.objective(host, SQUARES, "w.val")
        assert told == []
        objective.jvp([1, 1, 1], [1, 1, 1])
        objective([1, 1, 1])
        assert objective.value([1, 0, 0]) == 1.0
        objective.hvp([1, 1, 1], [1, 1, 1])
    objective([1, 1, 1])
    assert [(step.query, step.unit, step.number) for step in told] == [("objective", "call", n) for n in (1, 2, 3, 4)]
    norm = pytest.approx(math.sqrt(4 + 16 + 36))
    # What a call does not give is as the last one gave it.
    assert list(map(numbers, told)) == [(None, None), (6.0, norm), (1.0, norm), (1.0, norm)]
    assert re.fullmatch(r"objective call 2: value=6, gradient_norm=7\.48331, \d+\.\d s", str(told[1]))
    assert re.fullmatch(r"objective call 1: \d+\.\d s", str(told[0]))


@pytest.mark.parametrize("method", ["L-BFGS-B", "trust-ncg", "Newton-CG"])
def test_under_scipy(method: str, host: Any) -> None:
    objective, calls = xql_ffi.objective(host, LOSS, "w.val", where="k < 3"), list[tuple[float, float] | None]()

    def counted(x: Any) -> tuple[float, Any]:
        value, gradient = objective(x)
        calls.append((value, float(np.linalg.norm(gradient))))
        return value, gradient

    def product(x: Any, t: Any) -> Any:
        calls.append(calls[-1])
        return objective.hvp(x, t)

    told: list[xql_ffi.Step] = []
    hessian = {} if method == "L-BFGS-B" else {"hessp": product}
    with xql_ffi.progress(told.append):
        found = optimize.minimize(counted, [-1.0, 2.0], jac=True, method=method, **hessian)
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-4)
    assert len(calls) > 10
    assert list(map(numbers, told)) == calls
    assert [step.number for step in told] == list(range(1, len(calls) + 1))
    assert all(step.query == "objective" for step in told)


def test_the_recursion_that_runs_it_tells_nothing() -> None:
    """Neither when it is planned in the block, nor when it was planned in another, nor that of the loss itself."""
    recursive = """
        WITH RECURSIVE r AS (SELECT 0 AS step, k, val FROM w
                             UNION ALL SELECT step + 1, k, tanh(val + 0.1) FROM r WHERE step < 3)
        SELECT SUM(val) FROM r WHERE step >= 0 AND k > 0"""
    session = sessions.session(TABLES)
    objectives = [xql_ffi.objective(session, loss, "w.val") for loss in (SQUARES, recursive)]
    for objective in objectives:
        expected = objective.value([1, 2, 3])
        for _ in range(2):
            told: list[xql_ffi.Step] = []
            with xql_ffi.progress(told.append):
                assert objective([1, 2, 3])[0] == objective.value([1, 2, 3]) == expected
                objective.jvp([1, 2, 3], [1, 1, 1])
                session.sql(recursive).collect()
            steps = [("objective", n) for n in (1, 2, 3)] + [("r", n) for n in range(4)]
            assert [(step.query, step.number) for step in told] == steps


def test_queries_that_run_meanwhile_go_on_telling() -> None:
    """While an objective is planned, in a block that those were planned in before."""
    session = sessions.session(TABLES)
    endless = """
        WITH RECURSIVE r AS (SELECT 0 AS step, 0.5 AS x UNION ALL SELECT step + 1, 1 - x FROM r WHERE step < 1000000000)
        SELECT step, x FROM r"""
    told: list[xql_ffi.Step] = []
    with xql_ffi.progress(told.append):
        rows = iter(session.sql(endless).execute_stream())
        next(rows)
        with unwatched():
            before = len(told)
            for _ in range(3):
                next(rows)
            assert len(told) >= before + 3
        session.sql(endless.replace("1000000000", "2")).collect()
        assert [step.number for step in told[-3:]] == [0, 1, 2]
    del rows


def test_several_objectives(host: Any) -> None:
    objectives = [xql_ffi.objective(host, loss, "w.val") for loss in (SQUARES, LOSS)]
    told: list[xql_ffi.Step] = []
    watching = xql_ffi.progress(told.append)
    with watching:
        for turn in (0, 1, 0):
            objectives[turn]([1, 1, 1])
    assert [(step.query, step.number) for step in told] == [("objective", 1), ("objective 2", 1), ("objective", 2)]
    told.clear()
    with watching:
        objectives[1]([1, 1, 1])
    assert [(step.query, step.number) for step in told] == [("objective", 1)]


def test_blocks_within_blocks(host: Any) -> None:
    objective = xql_ffi.objective(host, SQUARES, "w.val")
    outer: list[xql_ffi.Step] = []
    inner: list[xql_ffi.Step] = []
    with xql_ffi.progress(outer.append):
        objective([1, 1, 1])
        with xql_ffi.progress(inner.append):
            objective([1, 1, 1])
        objective([1, 1, 1])
    assert [step.number for step in outer] == [1, 2]
    assert [step.number for step in inner] == [1]


def test_threads_share_one(host: Any) -> None:
    objective = xql_ffi.objective(host, SQUARES, "w.val")
    told: list[xql_ffi.Step] = []

    def run() -> None:
        for _ in range(5):
            objective([1, 1, 1])

    with xql_ffi.progress(told.append):
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(step.number for step in told) == list(range(1, 21))


@pytest.mark.parametrize("failure", [KeyError("enough"), KeyboardInterrupt()], ids=type)
def test_an_exception_leaves_the_optimizer(failure: BaseException, host: Any) -> None:
    objective = xql_ffi.objective(host, LOSS, "w.val", where="k < 3")

    def enough(step: xql_ffi.Step) -> None:
        if step.number == 5:
            raise failure

    with pytest.raises(type(failure)), xql_ffi.progress(enough):
        optimize.minimize(objective, [-1.0, 2.0], jac=True)
    assert objective.value([1, 1]) == 0.0


def test_in_lines(host: Any, capsys: pytest.CaptureFixture[str]) -> None:
    objective = xql_ffi.objective(host, SQUARES, "w.val")
    with xql_ffi.progress(every=0.0, watch="value"):
        for size in (1, 2):
            objective([size, 0, 0])
    lines = [line.rpartition(", ")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["objective call 1: value=1", "objective call 2: value=4"]


def test_what_overflows_or_is_missing_is_no_error(host: Any, capsys: pytest.CaptureFixture[str]) -> None:
    objective = xql_ffi.objective(host, SQUARES, "w.val")
    with xql_ffi.progress(every=0.0):
        for x in (1e200, math.nan):
            objective([x, x, x])
    lines = [line.rpartition(", ")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "objective call 1: value=inf, gradient_norm=inf",
        "objective call 2: value=nan, gradient_norm=nan",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_a_bar(host: Any) -> None:
    pytest.importorskip("tqdm")
    duckdb = not hasattr(host, "catalog_names")
    session = (
        'duckdb.connect(); session.execute("CREATE TABLE w AS SELECT 1 AS k, 1.0::DOUBLE AS val")'
        if duckdb
        else 'xql_ffi.register(SessionContext()); session.from_pydict({"k": [1], "val": [1.0]}, name="w")'
    )
    shown = f"""
import xql_ffi
from datafusion import SessionContext
from scipy.optimize import minimize
{"import duckdb" if duckdb else ""}
session = {session}
objective = xql_ffi.objective(session, "SELECT SUM(power(val - 3, 4) + 1) FROM w", "w.val")
with xql_ffi.progress():
    found = minimize(objective, objective.start, jac=True)
print("calls", found.nfev)
"""
    process = run_in_terminal(shown)
    calls = int(process.stdout.partition("calls ")[2])
    last = re.escape(f"objective: {calls}call [00:00, ") + r"[\d.]+call/s, value=1, gradient_norm=[\d.e-]+\]"
    assert re.search(last, process.stdout), process.stdout


DUCKDB = """
import duckdb, xql_ffi
connection = duckdb.connect()
connection.execute("CREATE TABLE w AS SELECT 1 AS k, 2.0::DOUBLE AS val")
with xql_ffi.progress():
    objective = xql_ffi.objective(connection, "SELECT SUM(val * val) FROM w", "w.val")
    objective([3.0])
"""


def test_an_objective_of_duckdb_needs_no_engine() -> None:
    pytest.importorskip("duckdb")
    process = run_python(["-c", DUCKDB], engine=False)
    assert process.returncode == 0, process.stderr
    assert process.stderr.startswith("objective call 1: value=9, gradient_norm=6, ")
