"""A statement without a call gives on a registered session what it gives on another: rows, types, plans, errors."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import DataFrame, RuntimeEnvBuilder, SessionConfig, SessionContext

import xql_ffi

ROWS = pa.table(
    {
        "k": pa.array([0, 1, 2, 3, 4, 5], pa.int32()),
        "x": [0.5, -1.0, None, 2.0, 3.5, 0.25],
        "s": pa.array(["a", "b", "a", None, "c", "b"], pa.string_view()),
        "d": pa.array([1, 2, 3, 4, 5, 6], pa.date32()),
        "l": [[1.0, 2.0], [], None, [3.0], [4.0, 5.0], [6.0]],
    }
)
STATEMENTS = [
    "SELECT * FROM t ORDER BY k",
    "SELECT s, SUM(x) AS a, COUNT(*) AS n, STDDEV(x) AS e FROM t GROUP BY s ORDER BY s",
    "SELECT a.k, b.x FROM t AS a JOIN t AS b ON a.k = b.k + 1 WHERE b.x > 0 ORDER BY a.k",
    "SELECT k, (SELECT MAX(x) FROM t AS b WHERE b.s = t.s) AS m FROM t ORDER BY k",
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM t AS b WHERE b.k = t.k + 1) AND s IN (SELECT s FROM t) ORDER BY k",
    "SELECT k, AVG(x) OVER (PARTITION BY s ORDER BY k ROWS 1 PRECEDING) AS w FROM t ORDER BY k",
    "SELECT k, unnest(l) AS e FROM t ORDER BY k, e",
    "SELECT DISTINCT s FROM t ORDER BY s LIMIT 2",
    "SELECT k FROM t WHERE k < 2 UNION ALL SELECT k + 10 FROM t WHERE k > 3 ORDER BY k",
    "SELECT s, x, GROUPING(s) AS g, COUNT(*) AS n FROM t GROUP BY GROUPING SETS ((s), (x), ()) ORDER BY 1, 2, 3",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n * 2 FROM r WHERE n < 50) SELECT * FROM r ORDER BY n",
    "SELECT arrow_typeof(d), CAST(x AS DECIMAL(10, 2)), s || '!', d + INTERVAL '1 day', x % 2 FROM t ORDER BY k",
    "SELECT CASE WHEN x > 0 THEN s ELSE 'none' END AS c, COALESCE(x, 1) AS v, k IN (1, 2, 3) AS i FROM t ORDER BY k",
    "SELECT array_agg(k ORDER BY k DESC) AS a, string_agg(s, ',' ORDER BY k) AS b, approx_distinct(k) AS c FROM t",
    "SELECT * FROM generate_series(1, 4) ORDER BY 1",
    "VALUES (1, 'a'), (2, NULL)",
    "SHOW datafusion.execution.batch_size",
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
    "EXPLAIN SELECT s, SUM(x) FROM t WHERE k > 1 GROUP BY s",
    "EXPLAIN SELECT a.k FROM t AS a JOIN t AS b USING (k) ORDER BY a.x LIMIT 3",
    # Of a table in memory the tree shows bytes, which are those of a copy on a registered session.
    "EXPLAIN FORMAT TREE SELECT value % 3 AS s, SUM(value) FROM generate_series(1, 9) GROUP BY value % 3",
]
FAILING = [
    "SELECT nope FROM t",
    "SELECT * FROM nowhere",
    "SELECT CAST(s AS INT) FROM t WHERE k = 0",
    "SELECT 1 / (k - k) FROM t",
    "SELECT SUM(x) OVER (ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING) FROM t",
    "SELECT FROM WHERE",
]


def made() -> SessionContext:
    ctx = SessionContext(SessionConfig({"datafusion.catalog.information_schema": "true"}).with_target_partitions(2))
    ctx.register_record_batches("t", [ROWS.slice(0, 4).to_batches(), ROWS.slice(4).to_batches()])
    return ctx


@pytest.mark.parametrize("statement", STATEMENTS)
def test_rows_types_and_plans(statement: str) -> None:
    plain, registered = made().sql(statement), xql_ffi.register(made()).sql(statement)
    expected, found = plain.to_arrow_table(), registered.to_arrow_table()
    assert found.schema == expected.schema
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("statement", [s for s in STATEMENTS if s.startswith(("SELECT", "WITH"))])
def test_physical_plans(statement: str) -> None:
    """The nodes are DataFusion's own, in the host."""
    plain, registered = made().sql(statement), xql_ffi.register(made()).sql(statement)
    assert registered.execution_plan().display_indent() == plain.execution_plan().display_indent()


@pytest.mark.parametrize("statement", FAILING)
def test_errors(statement: str) -> None:
    def message(ctx: SessionContext) -> str:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - datafusion raises plain exceptions
            ctx.sql(statement).collect()
        return str(caught.value).splitlines()[0]

    expected = message(made())
    assert message(xql_ffi.register(made())).replace("FFI error: ", "") == expected


def test_what_is_analyzed_has_metrics() -> None:
    shown = xql_ffi.register(made()).sql("EXPLAIN ANALYZE SELECT s, SUM(x) FROM t GROUP BY s").to_pydict()["plan"][0]
    assert "AggregateExec" in shown
    assert "output_rows=4" in shown


def test_tables_change() -> None:
    for make in (made, lambda: xql_ffi.register(made())):
        ctx = make()
        for statement in (
            "CREATE TABLE u AS SELECT k, x FROM t",
            "INSERT INTO u SELECT k + 10, x FROM t WHERE k < 2",
            "DELETE FROM u WHERE k = 1",
            "UPDATE u SET x = 9 WHERE k = 10",
            "CREATE VIEW v AS SELECT k, x * 2 AS y FROM u",
        ):
            ctx.sql(statement).collect()
        assert ctx.sql("SELECT COUNT(*) AS n, SUM(y) AS s FROM v").to_pylist() == [{"n": 7, "s": 28.5}]
        ctx.sql("DROP TABLE u").collect()


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
@pytest.mark.parametrize(
    "statement", ["SELECT k, x FROM t", "SELECT k, grad((SELECT SUM(x * x) FROM t), x) AS x FROM t"]
)
def test_files_are_written(form: str, statement: str, tmp_path: Path) -> None:
    ctx = xql_ffi.register(made())
    path = tmp_path / f"out.{form}"
    assert ctx.sql(f"COPY ({statement}) TO '{path}' STORED AS {form}").to_pylist() == [{"count": 6}]
    readers: dict[str, Callable[[str], DataFrame]] = {
        "parquet": ctx.read_parquet,
        "csv": ctx.read_csv,
        "json": ctx.read_json,
    }
    read = readers[form](str(path))
    rows = {row["k"]: row["x"] for row in read.to_pylist()}
    slope = 2 if "grad" in statement else 1
    expected = {row["k"]: row["x"] and slope * row["x"] for row in ROWS.select(["k", "x"]).to_pylist()}
    assert rows == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", 'g,s\n3.0,a b\n4.0,"a,b"\n'),
        ("OPTIONS ('format.delimiter' ';')", "g;s\n3.0;a b\n4.0;a,b\n"),
        ("OPTIONS ('format.quote_style' 'NonNumeric')", '"g","s"\n3.0,"a b"\n4.0,"a,b"\n'),
        ("OPTIONS ('format.quote_style' 'Always')", '"g","s"\n"3.0","a b"\n"4.0","a,b"\n'),
        ("OPTIONS ('format.has_header' 'false')", '3.0,a b\n4.0,"a,b"\n'),
    ],
)
def test_options_of_files(options: str, expected: str, tmp_path: Path) -> None:
    """They are those of the statement, with a derivative and without."""
    made = SessionContext()
    made.from_pydict({"x": [1.5, 2.0], "s": ["a b", "a,b"]}, name="t")
    ctx = xql_ffi.register(made)
    for number, column in enumerate(("grad(x * x, x)", "x * 2")):
        path = tmp_path / f"{number}.csv"
        ctx.sql(f"COPY (SELECT {column} AS g, s FROM t) TO '{path}' STORED AS CSV {options}").collect()
        assert path.read_text() == expected


def test_settings_of_files_and_one_file_in_two_formats(tmp_path: Path) -> None:
    ctx = xql_ffi.register(SessionContext())
    ctx.from_pydict({"x": [1.5, 2.0]}, name="t")
    ctx.sql("SET datafusion.execution.parquet.compression = 'snappy'")
    for number, column in enumerate(("grad(x * x, x)", "x * 2")):
        ctx.sql(f"COPY (SELECT {column} AS g FROM t) TO '{tmp_path / str(number)}.parquet'").collect()
        read = pq.ParquetFile(tmp_path / f"{number}.parquet")
        assert read.metadata.row_group(0).column(0).compression == "SNAPPY"
    ctx.sql("SELECT grad(x * x, x) AS g FROM t").write_csv(tmp_path / "frame.csv", with_header=True)
    (written,) = [tmp_path / "frame.csv"] if (tmp_path / "frame.csv").is_file() else (tmp_path / "frame.csv").iterdir()
    assert written.read_text() == "g\n3.0\n4.0\n"
    copy = f"COPY (SELECT grad(x * x, x) AS g FROM t) TO '{tmp_path}/two.csv' STORED AS CSV"
    frames = [ctx.sql(copy), ctx.sql(f"{copy} OPTIONS ('format.delimiter' ';')")]
    with pytest.raises(Exception, match="in several formats"):
        frames[0].collect()


def test_frames_are_written(tmp_path: Path) -> None:
    ctx = xql_ffi.register(made())
    frame = ctx.sql("SELECT k, grad(x * x, x) AS g FROM t")
    writers: dict[str, Callable[[str], object]] = {
        "parquet": frame.write_parquet,
        "csv": frame.write_csv,
        "json": frame.write_json,
    }
    for form, write in writers.items():
        write(str(tmp_path / form))
        assert any((tmp_path / form).iterdir()) or (tmp_path / form).is_file()
    frame.write_parquet(str(tmp_path / "zstd"), compression="zstd")


def test_the_memory_of_the_session_is_that_of_its_statements() -> None:
    """What takes too much of it is refused or spilled, as without registration."""
    runtime = RuntimeEnvBuilder().with_disk_manager_disabled().with_fair_spill_pool(1 << 18)
    ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1), runtime))
    with pytest.raises(Exception, match=r"Resources exhausted|memory"):
        ctx.sql(
            "SELECT value, grad(v * v, v) AS g FROM (SELECT value, CAST(value AS DOUBLE) AS v FROM range(0, 4000000)) "
            "ORDER BY -value"
        ).collect()


@pytest.mark.parametrize("inserts", ["statement", "view", "frame"])
def test_rows_that_are_inserted_into_files_are_read_next(inserts: str, tmp_path: Path) -> None:
    ctx = xql_ffi.register(SessionContext())
    ctx.from_pydict({"x": [1.0]}, name="one")
    ctx.sql(f"CREATE EXTERNAL TABLE t (x DOUBLE) STORED AS PARQUET LOCATION '{tmp_path}/'").collect()
    ctx.sql("CREATE VIEW v AS SELECT grad(x * x, x) AS x FROM one").collect()
    for number in (1, 2, 3):
        if inserts == "frame":
            ctx.sql("SELECT grad(x * x, x) AS x FROM one").write_table("t")
        else:
            rows = "SELECT * FROM v" if inserts == "view" else "SELECT grad(x * x, x) FROM one"
            ctx.sql(f"INSERT INTO t {rows}").collect()
        assert ctx.sql("SELECT COUNT(*) AS n FROM t").to_pydict() == {"n": [number]}
        assert ctx.sql("SELECT SUM(grad(x * x, x)) AS g FROM t").to_pydict() == {"g": [4.0 * number]}
