"""Recursive queries tell their steps while they run."""

import io
import re
import sys
import threading
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from datafusion import SessionContext

import xql_ffi
from support.cases import plans
from support.processes import json_of, run_python
from support.recursive import HALVES, NEWTON
from support.stock import ON_STOCK

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


def test_a_recursion_that_a_gradient_passes_through(session: SessionContext) -> None:
    """Its steps are told as those of the same recursion without a gradient."""
    model = """WITH RECURSIVE model AS (
            SELECT 0 AS step, k, val, CAST(NULL AS DOUBLE) AS seen FROM w
            UNION ALL SELECT step + 1, k, sin(val), val FROM model WHERE step < 5),
        loss AS (SELECT SUM(val) AS l FROM model WHERE step >= 0 AND coalesce(seen, 0.0) < 99.0)"""
    expected = steps_of(session, f"{model} SELECT l, grad(one, one) FROM loss CROSS JOIN (SELECT 1.0 AS one) AS o")
    assert len(expected) == 6
    for kept in (0, 2):
        session.sql(f"SET xql.checkpoints = {kept}").collect()
        told = steps_of(session, f"{model} SELECT k, grad((SELECT l FROM loss), val) AS d FROM w")
        assert [(step.query, step.number) for step in told] == [("model", number) for number in range(6)]
        for step, other in zip(told, expected, strict=True):
            assert step.rows.sort_by("k").to_pylist() == other.rows.sort_by("k").to_pylist()


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
    for query, name in ((NEWTON, "newton"), (HALVES, "halves")):
        before, shown = plans(session, query), str(session.sql(query).execution_plan())
        with xql_ffi.progress(lambda step: None):
            inside = plans(session, query)
        assert f"ObservedExec: {name}" in inside["physical_plan"]
        assert "ObservedExec" not in before["physical_plan"]
        assert plans(session, query) == before
        assert str(session.sql(query).execution_plan()) == shown


def test_a_frame_from_before_the_block(session: SessionContext) -> None:
    for query, steps in ((NEWTON, 7), (HALVES, 4)):
        frame = session.sql(query)
        expected = frame.to_pydict()
        told: list[xql_ffi.Step] = []
        with xql_ffi.progress(told.append):
            assert frame.to_pydict() == expected
        assert len(told) == steps
        assert frame.to_pydict() == expected
        assert len(told) == steps


def test_nobody_is_told_after_the_block(session: SessionContext) -> None:
    told: list[xql_ffi.Step] = []
    # With several partitions some would begin at once.
    session.sql("SET datafusion.execution.target_partitions = 1").collect()
    for query in (NEWTON, HALVES.replace("SUM(x) AS total", "x")):
        with xql_ffi.progress(told.append):
            stream = session.sql(query).execute_stream()
        assert sum(batch.to_pyarrow().num_rows for batch in stream) in (1, 4)
    assert told == []


def test_queries_without_derivatives(session: SessionContext) -> None:
    expected = session.sql(HALVES).to_pydict()
    told: list[xql_ffi.Step] = []
    with xql_ffi.progress(told.append):
        assert session.sql(HALVES).to_pydict() == expected
    assert [step.rows.to_pylist() for step in told] == [[{"step": n, "x": 0.5**n}] for n in range(4)]
    assert told[0].rows.schema.types == [pa.int64(), pa.float64()]


def test_statements_of_all_kinds(session: SessionContext, tmp_path: Path) -> None:
    session.sql(f"CREATE VIEW v AS {HALVES}")
    session.register_view("registered", session.sql(HALVES))
    session.sql("CREATE TABLE t (total DOUBLE)")
    statements = [
        "SELECT * FROM v",
        "SELECT total + 1 FROM registered",
        "SELECT x FROM d WHERE x < (SELECT total FROM v)",
        f"CREATE TABLE made AS {HALVES}",
        f"INSERT INTO t {HALVES}",
        f"COPY ({HALVES}) TO '{tmp_path / 'halves.parquet'}'",
        f"EXPLAIN ANALYZE {HALVES}",
    ]
    for statement in statements:
        told: list[xql_ffi.Step] = []
        with xql_ffi.progress(told.append):
            session.sql(statement).collect()
        assert [step.number for step in told] == [0, 1, 2, 3], statement
    assert session.sql("SELECT total FROM made UNION ALL SELECT total FROM t").to_pydict() == {"total": [1.875] * 2}
    assert session.read_parquet(tmp_path / "halves.parquet").to_pydict() == {"total": [1.875]}


def test_a_session_that_is_not_registered() -> None:
    """On DataFusion 55 only those tell that are registered."""
    told = steps_of(SessionContext(), HALVES)
    assert [step.number for step in told] == ([] if ON_STOCK else [0, 1, 2, 3])


def test_an_exception_ends_the_query(session: SessionContext) -> None:
    def enough(step: xql_ffi.Step) -> None:
        if step.number == 3:
            raise KeyError("enough")

    watching = xql_ffi.progress(enough)
    for query in (NEWTON, HALVES):
        with pytest.raises(KeyError, match="enough"), watching:
            session.sql(query).collect()
    assert session.sql(NEWTON).to_pydict()["x"] == [pytest.approx(2**0.5)]


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "failure", [KeyError("\0 enough"), KeyboardInterrupt(), UnprintableError(), ValueError("∂" * 9999)], ids=type
)
def test_the_query_says_what_has_ended_it(session: SessionContext, failure: BaseException) -> None:
    def fail(step: xql_ffi.Step) -> None:
        raise failure

    with xql_ffi.progress(fail), pytest.raises(Exception, match=type(failure).__name__):
        session.sql(HALVES).collect()


def test_an_exception_in_a_thread_ends_its_query_alone(session: SessionContext) -> None:
    told: list[xql_ffi.Step] = []
    failed: list[Exception] = []

    def tell(step: xql_ffi.Step) -> None:
        told.append(step)
        if step.query == "newton":
            raise KeyError("enough")

    def run() -> None:
        try:
            session.sql(NEWTON).collect()
        except Exception as error:
            failed.append(error)

    with xql_ffi.progress(tell):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        session.sql(HALVES).collect()
    assert [step.query for step in told] == ["newton"] + ["halves"] * 4
    assert len(failed) == 1
    assert "enough" in str(failed[0])


def test_blocks_within_blocks(session: SessionContext) -> None:
    outer: list[xql_ffi.Step] = []
    inner: list[xql_ffi.Step] = []
    with xql_ffi.progress(outer.append):
        with xql_ffi.progress(inner.append):
            session.sql(NEWTON).collect()
        assert (len(outer), len(inner)) == (0, 7)
        session.sql(NEWTON).collect()
    assert (len(outer), len(inner)) == (7, 7)


def test_a_query_tells_the_block_that_it_was_planned_in(session: SessionContext) -> None:
    outer: list[xql_ffi.Step] = []
    inner: list[xql_ffi.Step] = []
    with xql_ffi.progress(outer.append):
        stream = session.sql(NEWTON).execute_stream()
        with xql_ffi.progress(inner.append):
            assert len(list(stream)) == 1
    assert (len(outer), len(inner)) == (7, 0)


def test_a_block_within_a_callback(session: SessionContext) -> None:
    inner: list[xql_ffi.Step] = []

    def run() -> None:
        with xql_ffi.progress(inner.append):
            session.sql(HALVES).collect()

    def tell(step: xql_ffi.Step) -> None:
        # A thread of DataFusion cannot wait for DataFusion.
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    with xql_ffi.progress(tell):
        session.sql(NEWTON).collect()
    assert [step.number for step in inner] == [0, 1, 2, 3] * 7


def test_queries_in_threads(session: SessionContext) -> None:
    told: list[xql_ffi.Step] = []
    with xql_ffi.progress(told.append):
        threads = [threading.Thread(target=session.sql(query).collect) for query in (NEWTON, HALVES) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for query, steps in (("newton", 7), ("halves", 4)):
        assert sorted(step.number for step in told if step.query == query) == sorted([*range(steps)] * 4)


def test_what_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="a function of one argument, a Step; 3 cannot be called"):
        xql_ffi.progress(3)  # type: ignore[arg-type]


def test_without_the_engine() -> None:
    script = "import xql_ffi\nwith xql_ffi.progress(): pass"
    process = run_python(["-c", script], engine=False)
    assert process.returncode == 1
    assert "MissingEngineError: the datafusion of this process tells no steps" in process.stderr
    assert "execute_stream" in process.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a process there cannot send itself Ctrl-C alone")
@pytest.mark.parametrize("query", [NEWTON, HALVES], ids=["newton", "halves"])
def test_ctrl_c_in_the_block(query: str) -> None:
    script = f"""
import os, signal, xql_ffi
from datafusion import SessionContext
ctx = xql_ffi.register(SessionContext())
with xql_ffi.progress(lambda step: step.number == 2 and os.kill(os.getpid(), signal.SIGINT)):
    ctx.sql({re.sub("step < .", "step < 100000000", query)!r}).collect()
"""
    process = run_python(["-c", script], engine=True)
    assert process.returncode != 0
    assert process.stderr.splitlines()[-1].startswith("KeyboardInterrupt")


def test_python_ends_in_the_block() -> None:
    """What still runs in a thread does not come back to a Python that has ended."""
    script = f"""
import threading, xql_ffi
from datafusion import SessionContext
ctx = xql_ffi.register(SessionContext())
begun = threading.Event()
def run():
    with xql_ffi.progress(lambda step: step.number == 3 and begun.set()):
        ctx.sql({HALVES.replace("step < 3", "step < 100000000")!r}).collect()
threading.Thread(target=run, daemon=True).start()
assert begun.wait(60)
print("true")
"""
    for _ in range(3):
        assert json_of(["-c", script], engine=True)


def union(mode: str) -> pa.Array:
    types, children = pa.array([1, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "a"])]
    if mode == "sparse":
        return pa.UnionArray.from_sparse(types, children)
    return pa.UnionArray.from_dense(types, pa.array([0, 0], pa.int32()), children)


def dictionary(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1]), values)


NAN = float("nan")
MAP = pa.map_(pa.string(), pa.int64())
# Columns of one value, of every type of Arrow that pyarrow makes arrays of, and how a line with it begins.
ONE_VALUE: list[tuple[pa.Array, str | None]] = [
    (pa.nulls(2), None),
    (pa.array([True] * 2), "True"),
    *((pa.array([3] * 2, f"{sign}int{bits}"), "3") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *((pa.array([1.5] * 2, f"float{bits}"), "1.5") for bits in (16, 32, 64)),
    *((pa.array([NAN] * 2, f"float{bits}"), "nan") for bits in (16, 32, 64)),
    *((pa.array([Decimal("1.5")] * 2, make(5, 1)), "1.5") for make in (pa.decimal32, pa.decimal64)),
    *((pa.array([Decimal("1.5")] * 2, make(5, 1)), "1.5") for make in (pa.decimal128, pa.decimal256)),
    *((pa.array(["∂"] * 2, kind), "∂") for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((pa.array([b"a"] * 2, kind), "b'a'") for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.array([b"a"] * 2, pa.binary(1)), "b'a'"),
    (pa.array([1] * 2, pa.date32()), "1970-01-02"),
    (pa.array([86_400_000] * 2, pa.date64()), "1970-01-02"),
    *((pa.array([1] * 2, pa.time32(unit)), "00:00:0") for unit in ("s", "ms")),
    *((pa.array([1] * 2, pa.time64(unit)), "00:00:0") for unit in ("us", "ns")),
    *((pa.array([1] * 2, pa.timestamp(unit)), "1970-01-01 00:00:0") for unit in ("s", "ms", "us", "ns")),
    *((pa.array([1] * 2, pa.timestamp(unit, "UTC")), "1970-01-01 00:00:0") for unit in ("s", "ms", "us", "ns")),
    (pa.array([86_400] * 2, pa.duration("s")), "1 day, 0:00:00"),
    *((pa.array([1] * 2, pa.duration(unit)), "0") for unit in ("ms", "us", "ns")),
    (pa.array([pa.MonthDayNano([1, 2, 3])] * 2), "MonthDayNano(months=1, days=2, nanoseconds=3)"),
    (pa.array([[1, 2]] * 2), "[1, 2]"),
    (pa.array([[1, 2]] * 2, pa.large_list(pa.int64())), "[1, 2]"),
    (pa.array([[1, 2]] * 2, pa.list_view(pa.int64())), "[1, 2]"),
    (pa.array([[1, 2]] * 2, pa.large_list_view(pa.int64())), "[1, 2]"),
    (pa.array([[1, 2]] * 2, pa.list_(pa.int64(), 2)), "[1, 2]"),
    (pa.array([{"a": 1}] * 2), "{'a': 1}"),
    (pa.array([[("a", 1)]] * 2, MAP), "[('a', 1)]"),
    (dictionary(pa.array(["a", "a"])), "a"),
    (dictionary(pa.array([1.5, 1.5])), "1.5"),
    (dictionary(pa.array([None, None], pa.string())), None),
    (pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a", "b"], pa.string_view())), "a"),
    (union("sparse"), "a"),
    (union("dense"), "a"),
    (pc.run_end_encode(pa.array([1, 1])), "1"),
    (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 1], pa.int8())), "True"),
    # Values that Python does not have.
    (pa.array([1 << 62] * 2, pa.timestamp("s")), "<value out of range: 4611686018427387904>"),
    (pa.array([1 << 30] * 2, pa.date32()), "<value out of range: 1073741824>"),
    # Too much for a line.
    (pa.array(["x" * 99] * 2), f"{'x' * 57}..., "),
    (pa.array([[0] * 9999] * 2), f"[{'0, ' * 18}0,..., "),
    (pa.array(["a\nb"] * 2), "a b"),
]
# With two values, none of which a line has.
TWO_VALUES = [
    pa.array([None, 1.5]),
    pa.array(["a", "b"], pa.string_view()),
    pa.array([b"a", b"b"], pa.binary_view()),
    pa.array([0, 1], pa.timestamp("ns")),
    pa.array([[1], [2]]),
    pa.array([[1], [2]], pa.list_view(pa.int64())),
    pa.array([{"a": 1}, {"a": 2}]),
    pa.array([[("a", 1)], [("a", 2)]], MAP),
    dictionary(pa.array(["a", "b"])),
    pc.run_end_encode(pa.array([1, 2])),
    pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 1]), pa.array(["a", "a"])]),
]


def line(*parts: pa.Array) -> str:
    """The line of a step with a column of these batches."""
    return str(xql_ffi.Step("fit", 1, pa.table({"loss": pa.chunked_array(parts)}), 2.0))


@pytest.mark.parametrize(("array", "shown"), ONE_VALUE, ids=lambda value: str(getattr(value, "type", "")))
def test_a_column_of_one_value_in_a_line(array: pa.Array, shown: str | None) -> None:
    expected = "fit step 1: 2.0 s" if shown is None else f"fit step 1: loss={shown}"
    assert line(array, array).startswith(expected)
    assert line(array.slice(1)).startswith(expected)
    assert line(array.slice(0, 0)) == "fit step 1: 2.0 s"


@pytest.mark.parametrize("array", TWO_VALUES, ids=lambda array: str(array.type))
def test_a_column_of_several_values_is_not_in_a_line(array: pa.Array) -> None:
    assert line(array) == line(array.slice(0, 1), array.slice(1)) == "fit step 1: 2.0 s"


def test_dictionaries_that_differ() -> None:
    parts = pa.array(["a"]).dictionary_encode(), pa.array(["b", "a"]).dictionary_encode().slice(1)
    assert line(*parts) == "fit step 1: loss=a, 2.0 s"


def test_every_type_is_among_them() -> None:
    made = {array.type.id for array, _ in ONE_VALUE}
    known = {name: value for name, value in vars(pa.lib).items() if name.startswith("Type_")}
    # pyarrow makes no arrays of these; one is among the columns of queries below.
    missing = {"Type_INTERVAL_DAY_TIME", "Type_INTERVAL_MONTHS"}
    assert {name for name, value in known.items() if value not in made} == missing


COLUMNS = {
    "text": ("arrow_cast('a', 'Utf8View')", "a"),
    "dictionary": ("arrow_cast('a', 'Dictionary(Int32, Utf8)')", "a"),
    "bytes": ("arrow_cast(arrow_cast('a', 'Binary'), 'BinaryView')", "b'a'"),
    "time": ("arrow_cast(1, 'Timestamp(Nanosecond, None)')", "1970-01-01 00:00:00.000000001"),
    "list": ("[1, 2]", "[1, 2]"),
    "struct": ("named_struct('a', 1)", "{'a': 1}"),
    "interval": ("arrow_cast('1 month', 'Interval(YearMonth)')", "1M"),
    "null": ("NULL", None),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_what_is_only_shown_ends_no_query(
    name: str, session: SessionContext, capsys: pytest.CaptureFixture[str]
) -> None:
    value, shown = COLUMNS[name]
    query = f"""
        WITH RECURSIVE fit AS (
            SELECT 0 AS step, x, {value} AS v FROM d UNION ALL SELECT step + 1, x, v FROM fit WHERE step < 2)
        SELECT COUNT(*) AS n FROM fit WHERE step >= 0 AND x IS NOT NULL AND v IS NOT DISTINCT FROM v"""
    with xql_ffi.progress(every=0.0):
        assert session.sql(query).to_pydict() == {"n": [6]}
    lines = capsys.readouterr().err.splitlines()
    shown = "" if shown is None else f"v={shown}, "
    expected = [re.escape(f"fit step {number}: {shown}") + r"\d\.\d s" for number in range(3)]
    assert len(lines) == 3
    assert all(map(re.fullmatch, expected, lines)), lines


def test_nanoseconds_without_pandas() -> None:
    script = """
import sys
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoPandas())
import json, pyarrow as pa, xql_ffi
column = pa.array([1, 1], pa.timestamp("ns"))
step = xql_ffi.Step("fit", 1, pa.table({"at": column, "s": pa.StructArray.from_arrays([column], ["at"])}), 2.0)
print(json.dumps(str(step)))
"""
    shown = json_of(["-c", script], engine=True)
    assert shown.startswith("fit step 1: at=1970-01-01 00:00:00.000000001, s=")


def test_nowhere_to_write(session: SessionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    with xql_ffi.progress(every=0.0):
        assert session.sql(HALVES).to_pydict() == {"total": [1.875]}
