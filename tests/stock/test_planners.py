"""Query planners of other libraries on registered sessions: they get plans that are differentiated."""

import gc
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionConfig, SessionContext, col, functions, udf

import xql_ffi
from support import other_planner
from support.other_planner import LIBRARY, Other

pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason=f"there is no {LIBRARY.name}, which dev.py build makes for this environment"
)

# A call of an operator, or a node of this package: the scan of a table that no session and no recursion has.
OURS = re.compile(r"\b(?:grad|jvp|vjp|stop_gradient)\(|TableScan: (?![rt]\b)")
SLOPES = "SELECT k, grad(sin(x), x) AS g FROM t ORDER BY k"
SLOPES_EXPECTED = [{"k": 0, "g": 0.8775825618903728}, {"k": 1, "g": -0.4161468365471424}]
BY_ROW = "SELECT k, grad((SELECT SUM(x * x * x) FROM t), x) AS g FROM t ORDER BY k"
BY_ROW_EXPECTED = [{"k": 0, "g": 0.75}, {"k": 1, "g": 12.0}]
RECURSION = """WITH RECURSIVE r AS (SELECT 0 AS n, 2.0 AS x UNION ALL SELECT n + 1, x * x FROM r WHERE n < 2)
               SELECT n, grad(x * x, x) AS g FROM r ORDER BY n"""
RECURSION_EXPECTED = [{"n": 0, "g": 4.0}, {"n": 1, "g": 8.0}, {"n": 2, "g": 32.0}]


def new() -> Any:
    return SessionContext(SessionConfig().with_target_partitions(2))


def alone(other: Other) -> Any:
    return new().with_extensions(other)


def ours_then_other(other: Other) -> Any:
    return new().with_extensions(xql_ffi.Extension(), other)


def other_then_ours(other: Other) -> Any:
    return new().with_extensions(other, xql_ffi.Extension())


def extended_in_turn(other: Other) -> Any:
    return new().with_extensions(xql_ffi.Extension()).with_extensions(other)


def registered_then_extended(other: Other) -> Any:
    ctx: Any = xql_ffi.register(new())
    return ctx.with_extensions(other)


def extended_then_registered(other: Other) -> Any:
    return xql_ffi.register(new().with_extensions(other))


def registered_then_set(other: Other) -> Any:
    ctx: Any = xql_ffi.register(new())
    other.fallback = ctx.__datafusion_query_planner__()
    ctx.set_query_planner(other)
    return ctx


def set_then_registered(other: Other) -> Any:
    ctx = new()
    other.fallback = ctx.__datafusion_query_planner__()
    ctx.set_query_planner(other)
    return xql_ffi.register(ctx)


Arrangement = Callable[[Other], Any]
# Where the other planner delegates with codecs of this package, and where it had its fallback before there were any.
WITH_CODECS = [ours_then_other, other_then_ours, extended_in_turn, registered_then_extended, registered_then_set]
ARRANGEMENTS = [*WITH_CODECS, extended_then_registered, set_then_registered]
everywhere = pytest.mark.parametrize("arrangement", ARRANGEMENTS, ids=lambda arrangement: arrangement.__name__)
with_codecs = pytest.mark.parametrize("arrangement", WITH_CODECS, ids=lambda arrangement: arrangement.__name__)


@pytest.fixture(autouse=True)
def no_planner_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert other_planner.alive() == 0


@pytest.fixture
def with_file(tmp_path: Path) -> Callable[[Any], Any]:
    """Gives a session a table of a file, which a plan names without a codec."""
    pq.write_table(pa.table({"k": [0, 1], "x": [0.5, 2.0]}), tmp_path / "t.parquet")

    def registered(ctx: Any) -> Any:
        ctx.register_parquet("t", str(tmp_path / "t.parquet"))
        return ctx

    return registered


def given(other: Other) -> list[str]:
    """The logical plans that a planner has been given since, of which it has planned the last one."""
    notes = other.notes()
    assert notes
    assert notes[-1].startswith("= ")
    return [note for note in notes if not note.startswith(("= ", "! "))]


@everywhere
@pytest.mark.parametrize("way", ["delegates", "plans"])
def test_a_slope(arrangement: Arrangement, way: str, with_file: Callable[[Any], Any]) -> None:
    other = Other(way)
    ctx = with_file(arrangement(other))
    assert ctx.sql(SLOPES).to_pylist() == SLOPES_EXPECTED
    plan, planned = other.notes()
    assert "cos(t.x)" in plan
    assert "TableScan: t" in plan
    assert not OURS.search(plan)
    # What it gets from the planner behind it are nodes that it knows.
    assert "DataSourceExec" in planned
    assert "FFI_ExecutionPlan" not in planned


@everywhere
def test_gradients_by_row(arrangement: Arrangement, with_file: Callable[[Any], Any]) -> None:
    other = Other()
    ctx = with_file(arrangement(other))
    # With nodes of this package it runs in the library, and no other planner is asked.
    assert ctx.sql(BY_ROW).to_pylist() == BY_ROW_EXPECTED
    assert other.notes() == []
    ctx.sql("SET xql.share_relations = false")
    assert ctx.sql(BY_ROW).to_pylist() == BY_ROW_EXPECTED
    (plan,) = given(other)
    assert "TableScan: t" in plan
    assert not OURS.search(plan)


@with_codecs
def test_recursion(arrangement: Arrangement) -> None:
    """The other planner gets the plan of the host as one node, since `datafusion-proto` does not write it."""
    other = Other()
    ctx = arrangement(other)
    assert ctx.sql(RECURSION).to_pylist() == RECURSION_EXPECTED
    (plan,) = given(other)
    assert "RecursiveQuery" in plan
    assert not OURS.search(plan)


@with_codecs
def test_tables_in_memory(arrangement: Arrangement) -> None:
    other = Other()
    ctx = arrangement(other)
    ctx.register_record_batches("t", [pa.table({"k": [0, 1], "x": [0.5, 2.0]}).to_batches()])
    assert ctx.sql(SLOPES).to_pylist() == SLOPES_EXPECTED
    plan, planned = other.notes()
    assert "cos(t.x)" in plan
    assert planned.startswith("= FFI_ExecutionPlan")
    # By way of bytes, this scan of no column would be one of all.
    drawn = ctx.sql("SELECT grad(r * r, r) / r AS g FROM (SELECT random() AS r FROM t)").to_pydict()
    assert drawn == {"g": [2.0, 2.0]}


@pytest.mark.parametrize("arrangement", [extended_then_registered, set_then_registered])
def test_what_needs_codecs_that_came_too_late(arrangement: Arrangement) -> None:
    """The other planner delegates by codecs that do not know this package, as on a session without it."""
    ctx = arrangement(Other())
    with pytest.raises(Exception, match=r"RecursiveQuery|not.*provided"):
        ctx.sql(RECURSION).collect()
    for made in (ctx, alone(Other())):
        made.register_record_batches("t", [pa.table({"k": [0, 1], "x": [0.5, 2.0]}).to_batches()])
        with pytest.raises(Exception, match="LogicalExtensionCodec is not provided"):
            made.sql(SLOPES if made is ctx else "SELECT k FROM t").collect()


@everywhere
def test_explain(arrangement: Arrangement, with_file: Callable[[Any], Any]) -> None:
    other = Other()
    ctx = with_file(arrangement(other))
    shown = dict(zip(*ctx.sql(f"EXPLAIN {SLOPES}").to_pydict().values(), strict=True))
    assert "cos(t.x)" in shown["logical_plan"]
    assert "DataSourceExec" in shown["physical_plan"]
    (plan,) = given(other)
    assert "cos(t.x)" in plan
    assert not OURS.search(plan)
    analyzed = ctx.sql(f"EXPLAIN ANALYZE {SLOPES}").to_pydict()["plan"][0]
    assert "output_rows=2" in analyzed
    (plan,) = given(other)
    assert plan.startswith("Analyze")
    assert "cos(t.x)" in plan


@with_codecs
def test_tables_are_made(arrangement: Arrangement, with_file: Callable[[Any], Any]) -> None:
    other = Other()
    ctx = with_file(arrangement(other))
    ctx.sql("CREATE TABLE u AS SELECT k, grad(sin(x), x) AS g FROM t").collect()
    assert any("cos(t.x)" in plan for plan in given(other))
    ctx.sql("INSERT INTO u SELECT k + 2 AS k, grad(sin(x), x) AS g FROM t").collect()
    plans = given(other)
    assert all("Dml" in plan and "cos(t.x)" in plan and not OURS.search(plan) for plan in plans)
    ctx.sql("INSERT INTO u SELECT k + 4 AS k, grad((SELECT SUM(x * x * x) FROM t), x) AS g FROM t").collect()
    # Tables in memory are changed while this is planned.
    ctx.sql("UPDATE u SET g = g - grad(g * g, g) WHERE k >= 0").collect()
    assert other.notes()
    assert ctx.sql("SELECT k, -grad(g * g, g) / 2 AS g FROM u ORDER BY k").to_pylist() == [
        *SLOPES_EXPECTED,
        *({"k": row["k"] + 2, "g": row["g"]} for row in SLOPES_EXPECTED),
        *({"k": row["k"] + 4, "g": row["g"]} for row in BY_ROW_EXPECTED),
    ]


@pytest.mark.parametrize(
    ("arrangement", "statement"),
    [
        (alone, "SELECT k, x FROM t"),
        *((arrangement, s) for arrangement in ARRANGEMENTS for s in ("SELECT k, x FROM t", SLOPES, BY_ROW)),
    ],
)
def test_files_are_not_written(
    arrangement: Arrangement, statement: str, with_file: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Without this project neither: DataFusion 55 tells a planner of another library no format of a file."""
    ctx = with_file(arrangement(Other()))
    with pytest.raises(Exception, match="FFI does not support decode_file_format"):
        ctx.sql(f"COPY ({statement}) TO '{tmp_path / 'out.parquet'}'").collect()


@everywhere
def test_prepared(arrangement: Arrangement, with_file: Callable[[Any], Any]) -> None:
    other = Other()
    ctx = with_file(arrangement(other))
    ctx.sql("PREPARE p AS SELECT k, grad(sin($1 * x), x) AS g FROM t ORDER BY k").collect()
    assert ctx.sql("EXECUTE p(1.0)").to_pylist() == SLOPES_EXPECTED
    plan = given(other)[-1]
    assert "cos(" in plan
    assert not OURS.search(plan)


@everywhere
def test_without_a_call(arrangement: Arrangement, with_file: Callable[[Any], Any]) -> None:
    other = Other()
    ctx = with_file(arrangement(other))
    found = ctx.sql("SELECT k, sin(x) AS s FROM t WHERE k > 0")
    assert found.to_pylist() == [{"k": 1, "s": 0.9092974268256817}]
    (plan,) = given(other)
    assert "sin(t.x)" in plan
    # It has been optimized.
    assert "filters=[t.k > Int64(0)]" in plan


@everywhere
def test_frames(arrangement: Arrangement, with_file: Callable[[Any], Any]) -> None:
    other = Other()
    ctx = with_file(arrangement(other))
    frame = ctx.table("t").select(col("k"), xql_ffi.grad(functions.sin(col("x")), col("x")).alias("g"))
    assert frame.sort(col("k")).to_pylist() == SLOPES_EXPECTED
    (plan,) = given(other)
    assert "cos(t.x)" in plan


@everywhere
def test_errors(arrangement: Arrangement, with_file: Callable[[Any], Any]) -> None:
    other = Other()
    ctx = with_file(arrangement(other))
    with pytest.raises(xql_ffi.VariableError, match="must be a column"):
        ctx.sql("SELECT grad(x * x, 'x') FROM t").collect()
    assert other.notes() == []
    ctx.register_udf(udf(lambda x: x, [pa.float64()], pa.float64(), "immutable", "half"))
    with pytest.raises(xql_ffi.MissingRuleError, match="half"):
        ctx.sql("SELECT grad(half(x), x) FROM t").collect()


@everywhere
@pytest.mark.parametrize("statement", [SLOPES, f"EXPLAIN {SLOPES}", "SELECT k FROM t", RECURSION])
def test_what_the_other_planner_refuses_does_not_run(
    arrangement: Arrangement, statement: str, with_file: Callable[[Any], Any]
) -> None:
    other = Other("refuses")
    ctx = with_file(arrangement(other))
    with pytest.raises(Exception, match="the other planner refuses"):
        ctx.sql(statement).collect()
    assert not any(OURS.search(note) for note in other.notes())


def test_two_others() -> None:
    first, second, third = Other(), Other(), Other()
    ctx = new().with_extensions(first, xql_ffi.Extension(), second).with_extensions(third)
    assert ctx.sql("SELECT grad(sin(x), x) AS g FROM (VALUES (0.0)) AS v(x)").to_pydict() == {"g": [1.0]}
    for other in (first, second, third):
        (plan,) = given(other)
        assert not OURS.search(plan)


def test_the_planner_behind_is_not_found_by_its_thread() -> None:
    """If the other planner delegates from another thread, the plan is optimized once more, and nothing else happens."""
    other = Other("elsewhere")
    ctx = ours_then_other(other)
    ctx.register_record_batches("t", [pa.table({"k": [0, 1], "x": [0.5, 2.0]}).to_batches()])
    assert ctx.sql(SLOPES).to_pylist() == SLOPES_EXPECTED
    (plan,) = given(other)
    assert "cos(t.x)" in plan
    assert ctx.sql(RECURSION).to_pylist() == RECURSION_EXPECTED


@everywhere
def test_nodes_of_the_other_library(arrangement: Arrangement, with_file: Callable[[Any], Any]) -> None:
    """What no codec writes, as here nodes of the other planner over nodes of the host, is executed where it is."""
    other = Other("mixes")
    ctx = with_file(arrangement(other))
    assert ctx.sql(SLOPES).to_pylist() == SLOPES_EXPECTED
    assert len(given(other)) == 2


def test_another_handle_installs_it(with_file: Callable[[Any], Any]) -> None:
    other = Other()
    bare = new()
    ctx = with_file(bare.with_extensions(xql_ffi.Extension()))
    assert ctx.sql(SLOPES).to_pylist() == SLOPES_EXPECTED
    bare.with_extensions(other)
    assert ctx.sql(SLOPES).to_pylist() == SLOPES_EXPECTED
    (plan,) = given(other)
    assert not OURS.search(plan)


def test_options_stay(with_file: Callable[[Any], Any]) -> None:
    """What a session has been told is known to a planner that is put in front later."""
    ctx = with_file(xql_ffi.register(new()))
    ctx.sql("SET xql.share_relations = false")
    other = Other()
    other.fallback = new().__datafusion_query_planner__()
    ctx = ctx.with_extensions(Other()).with_extensions(other)
    assert ctx.sql(BY_ROW).to_pylist() == BY_ROW_EXPECTED
    (plan,) = given(other)
    assert not OURS.search(plan)


def test_sessions_apart(with_file: Callable[[Any], Any]) -> None:
    one, two = Other(), Other()
    first, second = with_file(ours_then_other(one)), with_file(registered_then_extended(two))
    first.sql("SET xql.share_relations = false")
    for _ in range(2):
        assert first.sql(BY_ROW).to_pylist() == BY_ROW_EXPECTED
        assert second.sql(BY_ROW).to_pylist() == BY_ROW_EXPECTED
        given(one)
        assert two.notes() == []
    assert second.sql(SLOPES).to_pylist() == SLOPES_EXPECTED
    assert one.notes() == []
    assert len(given(two)) == 1


@everywhere
def test_registered_twice(arrangement: Arrangement, with_file: Callable[[Any], Any]) -> None:
    other = Other()
    ctx = with_file(xql_ffi.register(xql_ffi.register(arrangement(other))))
    assert ctx.sql(SLOPES).to_pylist() == SLOPES_EXPECTED
    (plan,) = given(other)
    assert "cos(t.x)" in plan


def test_threads(with_file: Callable[[Any], Any]) -> None:
    other = Other()
    ctx = with_file(ours_then_other(other))
    found: list[object] = []

    def work() -> None:
        for _ in range(5):
            try:
                found.append(ctx.sql(SLOPES).to_pylist())
            except Exception as error:
                found.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [SLOPES_EXPECTED] * 40
    plans = given(other)
    assert len(plans) == 40
    assert not any(OURS.search(plan) for plan in plans)
