"""Calls of the API of `datafusion`, whose results must not depend on the engine.

Run as a script it prints what the probes that are named give, or all, as JSON. It is run in two processes, one with the
engine and one with the stock module, and the results are compared.
"""

import datetime
import decimal
import importlib
import inspect
import json
import math
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

# What a registered session has besides.
OWN = {"grad", "jvp", "vjp", "stop_gradient"}
Probe = Callable[[Path], object]
PROBES: dict[str, Probe] = {}


def probe(function: Probe) -> Probe:
    """Adds a probe. It gets an empty folder."""
    PROBES[function.__name__] = function
    return function


# What is probed with SQL alone, over the tables of `_session`.
SQL = {
    "arithmetic": "SELECT 1 + 2, 7 / 2, 7 % 4, -3, 7.0 / 2, 2e300 * 1e10, 1.0 / 0.0, CAST(0 AS DOUBLE) / 0.0",
    "decimals": "SELECT CAST(1.23 AS DECIMAL(10, 2)) * CAST(4.56 AS DECIMAL(5, 3)) AS d, 1.1 + 2.2, round(2.5), "
    "round(-2.5)",
    "math": "SELECT sin(f), cos(f), tan(f), asin(f / 100), atan2(f, 2.0), exp(f), ln(f), log(2, f), log10(f), sqrt(f), "
    "cbrt(f), power(f, 1.5), abs(-f), floor(f), ceil(f), trunc(f), signum(f), pi(), gcd(12, 18), factorial(5) "
    "FROM types WHERE f > 0 ORDER BY i",
    "text": "SELECT upper(s), length(s), reverse(s), s || '!', substr(s, 2), replace(s, 'a', 'b'), lpad(s, 8, '*'), "
    "split_part(s, 'p', 1), strpos(s, 'p'), initcap(s), ascii(s), md5(s), encode(s, 'hex') FROM types ORDER BY i",
    "regular_expressions": "SELECT regexp_replace(s, '[aeiou]', '*', 'g'), regexp_like(s, '^a'), "
    "regexp_match(s, '(p+)') "
    "FROM types ORDER BY i",
    "hashes": "SELECT sha256(s), digest(s, 'blake3') FROM types ORDER BY i",
    "like": "SELECT i FROM types WHERE s LIKE '%a%' AND s NOT ILIKE 'B%' OR s SIMILAR TO 'd.*' ORDER BY i",
    "dates": "SELECT d, t, date_trunc('month', t), date_part('dow', t), t + INTERVAL '1 month 2 days', d - DATE "
    "'2024-01-01', "
    "to_char(t, '%Y/%m'), extract(epoch FROM t), date_bin(INTERVAL '15 minutes', t) FROM types ORDER BY i",
    "time_zones": "SELECT t AT TIME ZONE 'Europe/Berlin', to_timestamp('2024-03-31T01:30:00Z'), arrow_typeof(t) "
    "FROM types ORDER BY i",
    "null_logic": "SELECT b AND NULL, b OR NULL, NOT b, n IS DISTINCT FROM 1, coalesce(n, -1), nullif(i, 2), "
    "nvl(n, 0), "
    "greatest(i, n), least(i, n) FROM types ORDER BY i",
    "casts": "SELECT CAST(i AS VARCHAR) AS a, CAST('12' AS INT), TRY_CAST('x' AS INT), CAST(f AS REAL) AS c, "
    "i::DOUBLE AS e, "
    "arrow_cast(i, 'Int8'), CAST('2024-02-29' AS DATE) FROM types ORDER BY i",
    "case": "SELECT CASE WHEN i < 2 THEN 'low' WHEN i < 4 THEN 'mid' END, CASE s WHEN 'apple' THEN 1 ELSE 0 END "
    "FROM types ORDER BY i",
    "arrays": "SELECT make_array(1, 2, 3), array_append(items, 9), array_length(items), items[1], "
    "array_max(items), array_sort(items), "
    "array_to_string(items, ','), range(1, 5), flatten([[1], [2]]) FROM types ORDER BY i",
    "structs_and_maps": "SELECT named_struct('a', i, 'b', s), named_struct('a', i)['a'], MAP {'k': 5}, "
    "map_keys(MAP {'k': 5}), get_field(rec, 'u') FROM types ORDER BY i",
    "unnest": "SELECT i, unnest(items) AS e FROM types ORDER BY i, e",
    "aggregates": "SELECT COUNT(*), COUNT(n), SUM(i), AVG(f), MIN(s), MAX(t), stddev(f), var_pop(f), corr(f, i), "
    "covar_samp(f, i), median(f), approx_distinct(s), bool_or(b), bit_and(i), regr_slope(f, i), "
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY f) FROM types",
    "ordered_aggregates": "SELECT array_agg(s ORDER BY i DESC), string_agg(s, '-' ORDER BY i), "
    "first_value(s ORDER BY i), last_value(s ORDER BY i), nth_value(s, 2 ORDER BY i) FROM types",
    "group_by": "SELECT b, COUNT(*), SUM(f) FROM types GROUP BY b ORDER BY b",
    "grouping_sets": "SELECT b, s, grouping(b), COUNT(*) FROM types GROUP BY CUBE (b, s) ORDER BY b, s, 3, 4",
    "having": "SELECT i % 2 AS k, COUNT(*) AS n FROM types GROUP BY i % 2 HAVING COUNT(*) > 1 ORDER BY k",
    "filter": "SELECT SUM(i) FILTER (WHERE b), COUNT(DISTINCT b) FROM types",
    "windows": "SELECT i, row_number() OVER w, rank() OVER (ORDER BY b), lag(f, 1, 0.0) OVER w, lead(s) OVER w, "
    "SUM(f) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), ntile(2) OVER w, cume_dist() OVER w, "
    "first_value(s) OVER (PARTITION BY b ORDER BY i), nth_value(f, 2) OVER w "
    "FROM types WINDOW w AS (ORDER BY i) ORDER BY i",
    "joins": "SELECT l.i, r.s FROM types l LEFT JOIN types r ON l.i = r.i + 1 ORDER BY l.i",
    "full_join": "SELECT l.i, r.i FROM types l FULL JOIN types r ON l.i = r.i + 2 ORDER BY l.i, r.i",
    "semi_and_anti_joins": "SELECT i FROM types l WHERE EXISTS (SELECT 1 FROM types o WHERE o.i = l.i + 1) "
    "AND i NOT IN (SELECT 2) ORDER BY i",
    "correlated_subquery": "SELECT i, (SELECT MAX(o.f) FROM types o WHERE o.i = l.i) FROM types l ORDER BY i",
    "lateral": "SELECT l.i, q.m FROM types l, LATERAL (SELECT MAX(o.f) AS m FROM types o WHERE o.i = l.i) q "
    "ORDER BY l.i",
    "recursion": "WITH RECURSIVE n AS (SELECT 1 AS k UNION ALL SELECT k + 1 FROM n WHERE k < 10) SELECT SUM(k) FROM n",
    "set_operations": "(SELECT i FROM types UNION SELECT 100) EXCEPT SELECT 1 INTERSECT SELECT 1 ORDER BY 1",
    "distinct_on": "SELECT DISTINCT ON (b) b, i FROM types ORDER BY b, i DESC",
    "values": "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(k, w) ORDER BY k LIMIT 1 OFFSET 1",
    "generate_series": "SELECT SUM(value) FROM generate_series(1, 1000)",
    "qualify": "SELECT i FROM types QUALIFY row_number() OVER (ORDER BY f DESC) <= 2 ORDER BY i",
    "many_rows": "SELECT value % 7 AS k, COUNT(*), AVG(CAST(value AS DOUBLE)), stddev(sqrt(CAST(value AS DOUBLE))) "
    "FROM generate_series(1, 50000) GROUP BY value % 7 ORDER BY k",
    "large_sort": "SELECT value FROM generate_series(1, 50000) ORDER BY sin(CAST(value AS DOUBLE)) LIMIT 5",
    "large_join": "SELECT COUNT(*), SUM(a.value) FROM generate_series(1, 20000) a JOIN generate_series(1, 20000) b "
    "ON a.value = b.value * 3",
    "tables": "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables "
    "ORDER BY 1, 2, 3",
    "columns": "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
    "WHERE table_schema = 'public' ORDER BY 1, 2",
    "settings": "SELECT name, value FROM information_schema.df_settings WHERE name NOT LIKE '%target_partitions' "
    "AND name NOT LIKE '%planning_concurrency' ORDER BY name",
    "routines": "SELECT routine_name, data_type, function_type, description, syntax_example "
    "FROM information_schema.routines ORDER BY 1, 2, 3",
    "parameters": "SELECT specific_name, ordinal_position, parameter_mode, parameter_name, data_type, rid "
    "FROM information_schema.parameters ORDER BY 1, 6, 3, 2, 4, 5",
    "version": "SELECT version()",
    "show_columns": "SHOW COLUMNS FROM types",
    "describe": "DESCRIBE SELECT i, s, f FROM types",
    "explain": "EXPLAIN SELECT b, SUM(f) FROM types WHERE i > 1 GROUP BY b ORDER BY b",
    "explain_tree": "EXPLAIN FORMAT TREE SELECT i FROM types WHERE f > 1.0",
    "explain_verbose": "EXPLAIN VERBOSE SELECT i + 1 + 1 FROM types WHERE TRUE AND i > 1",
    "explain_recursion": "EXPLAIN WITH RECURSIVE r AS (SELECT 1 AS s, 1.0 AS x, 2.0 AS y UNION ALL "
    "SELECT s + 1, CASE WHEN s < 2 THEN 2.0 * x END, y FROM r WHERE s < 3) SELECT s FROM r",
    "explain_join": "EXPLAIN SELECT l.i FROM types l JOIN types r ON l.i = r.i WHERE r.f > 1",
    "error_syntax": "SELEC 1",
    "error_unknown_column": "SELECT nowhere FROM types",
    "error_unknown_function": "SELECT nonsense(1)",
    "error_type": "SELECT sin('text'), 1 + DATE '2024-01-01'",
    "error_cast": "SELECT CAST(s AS INT) FROM types",
    "error_division": "SELECT i / (i - i) FROM types",
    "error_overflow": "SELECT CAST(300 AS TINYINT)",
    "error_arguments": "SELECT power(1)",
}


def _types() -> pa.Table:
    when = datetime.datetime(2024, 2, 29, 12, 34, 56)
    return pa.table(
        {
            "i": pa.array([1, 2, 3, 4]),
            "n": pa.array([1, None, 3, None]),
            "f": pa.array([0.5, 2.25, -1.5, 100.125]),
            "s": pa.array(["apple", "banana", "cherry", "date"]),
            "b": pa.array([True, False, None, True]),
            "t": pa.array([when + datetime.timedelta(days=9 * n) for n in range(4)], pa.timestamp("us")),
            "d": pa.array([datetime.date(2024, 1, 1 + n) for n in range(4)]),
            "items": pa.array([[3, 1], [2], [5, 4, 6], [7]]),
            "rec": pa.array([{"u": 1, "v": "x"}, {"u": 2, "v": "y"}, {"u": 3, "v": None}, {"u": 4, "v": "z"}]),
            "dec": pa.array([decimal.Decimal(n) / 4 for n in range(4)], pa.decimal128(10, 3)),
        }
    )


def _session() -> Any:
    from datafusion import SessionConfig, SessionContext

    ctx = SessionContext(SessionConfig().with_information_schema(True).with_target_partitions(2))
    ctx.from_arrow(_types(), name="types")
    return _kept(ctx)


_SESSIONS: list[Any] = []


def _kept(ctx: Any) -> Any:
    """The session itself, which tables of another library need alive until their query has run."""
    _SESSIONS.append(ctx)
    return ctx


def _sql_probe(statement: str) -> Probe:
    return lambda _: _session().sql(statement)


PROBES.update({f"sql_{name}": _sql_probe(statement) for name, statement in SQL.items()})


@probe
def names_of_the_native_module(_: Path) -> object:
    """All that the native module has: kinds, signatures, documentation, and what each thing has in turn."""
    native: Any = importlib.import_module("datafusion._internal")

    found: dict[str, object] = {}

    def described(entry: Any, value: Any) -> object:
        try:
            signature = str(inspect.signature(value))
        except (TypeError, ValueError):
            signature = "none"
        names = [getattr(value, name, None) for name in ("__name__", "__qualname__", "__module__", "__doc__")]
        # A slot, such as __repr__, that is replaced is a method: the stable interface of Python has no other way.
        kinds = [type(part).__name__.replace("wrapper_descriptor", "method_descriptor") for part in (entry, value)]
        return [*kinds, signature, *names, dir(value)]

    def walk(path: str, thing: Any) -> None:
        for name, entry in sorted(vars(thing).items()):
            if name in ("__builtins__", "__cached__", "__file__", "__loader__", "__spec__"):
                continue
            value = getattr(thing, name)
            inner = f"{path}.{name}"
            found[inner] = described(entry, value)
            if inspect.ismodule(value) or (
                inspect.isclass(value) and value.__module__.startswith(("datafusion", "builtins"))
            ):
                walk(inner, value)

    walk("", native)
    return found


@probe
def names_that_the_python_half_lacks(_: Path) -> object:
    """What the native module has and its wrappers have not, to any depth, which datafusion's own tests look for."""
    import datafusion

    lacking: list[str] = []
    # By identity; kept, so that no later object has the identity of an earlier one.
    seen: dict[int, object] = {}

    def walk(path: str, native: Any, wrapper: Any) -> None:
        for name in sorted(set(dir(native)) - {"__class__", "__self__", "__builtins__"}):
            inner = f"{path}.{name}"
            mine, theirs = getattr(native, name), getattr(wrapper, name.removeprefix("Raw"), None)
            if theirs is None and mine is not None:
                lacking.append(inner)
            elif isinstance(mine, list):
                lacking.extend(
                    f"{inner}: {item}" for item in mine if str(item).removeprefix("Raw") not in (theirs or [])
                )
            elif hasattr(mine, "__dict__") and id(mine) not in seen:
                seen[id(mine)] = mine
                walk(inner, mine, theirs)

    walk("", importlib.import_module("datafusion._internal"), datafusion)
    return lacking


@probe
def methods_that_the_engine_replaces(_: Path) -> object:
    """The methods themselves, called wrongly in every way."""
    native: Any = importlib.import_module("datafusion._internal")
    ctx = native.SessionContext()
    function = ctx.udf("sin")

    def outcome(call: Callable[..., object], *args: object, **kwargs: object) -> object:
        try:
            return type(call(*args, **kwargs)).__name__
        except BaseException as error:
            return f"{type(error).__name__}: {error}"

    register, from_pycapsule = native.SessionContext.register_udf, native.ScalarUDF.from_pycapsule
    new, session_of_all = native.SessionContext.__new__, native.SessionContext.global_ctx
    sql, select, collect = native.SessionContext.sql_with_options, native.DataFrame.select, native.DataFrame.collect
    frame = ctx.sql_with_options("SELECT 1 AS one")
    return [
        [str(sql), str(select), str(collect), str(type(frame.collect)), str(type(session_of_all))],
        [outcome(new, native.SessionContext), outcome(native.SessionContext, 1), outcome(native.SessionContext, a=1)],
        [outcome(session_of_all), outcome(session_of_all, 1)],
        [outcome(sql, *args) for args in ((), (1,), (ctx,), (ctx, 1), (ctx, "SELECT"), (ctx, "SELECT 1"))],
        [outcome(sql, ctx, query="SELECT 1"), outcome(sql, ctx, other=1)],
        [outcome(select, *args) for args in ((), (1,), (frame,), (frame, 1))],
        [outcome(collect, *args) for args in ((), (1,), (frame,), (frame, 1))],
        [str(register), str(type(ctx.register_udf)), ctx.register_udf == ctx.register_udf, register is register],
        [outcome(register, *args) for args in ((), (1,), (ctx,), (ctx, 1), (1, function), (ctx, function, 1))],
        [outcome(register, ctx, udf=function), outcome(register, ctx, function), outcome(register, ctx, other=1)],
        [outcome(from_pycapsule, *args) for args in ((), (1,), (1, 2), (None,))],
        [outcome(from_pycapsule, func=1), outcome(from_pycapsule, 1, func=1), outcome(from_pycapsule, other=1)],
        [outcome(native.ScalarUDF("f", len, [], pa.float64(), "volatile").from_pycapsule, 1)],
    ]


@probe
def functions_of_a_session(_: Path) -> object:
    ctx = _session()
    scalar = sorted({*ctx.udfs()} - OWN)
    return {"scalar": scalar, "aggregate": sorted(ctx.udafs()), "window": sorted(ctx.udwfs())}


@probe
def spark_functions(_: Path) -> object:
    ctx = _session()
    ctx.enable_spark_functions()
    return sorted({*ctx.udfs()} - OWN)


@probe
def dataframe_select(_: Path) -> object:
    from datafusion import col, lit
    from datafusion import functions as f

    frame = _session().table("types")
    return frame.select(col("i"), (col("f") * lit(2.0)).alias("g"), f.upper(col("s")), f.sqrt(f.abs(col("f")))).sort(
        "i"
    )


@probe
def dataframe_filter_and_sort(_: Path) -> object:
    from datafusion import col, lit

    frame = _session().table("types")
    return frame.filter(col("f") > lit(0.0), col("b")).sort(col("f").sort(ascending=False)).limit(1, offset=1)


@probe
def dataframe_aggregate(_: Path) -> object:
    from datafusion import col
    from datafusion import functions as f

    aggregates = [f.sum(col("f")).alias("s"), f.count(col("n")), f.array_agg(col("i"), order_by=col("i"))]
    return _session().table("types").aggregate([col("b")], aggregates).sort(col("b"))


@probe
def dataframe_join(_: Path) -> object:
    ctx = _session()
    other = ctx.from_pydict({"i": [2, 3, 9], "w": ["x", "y", "z"]})
    return [
        ctx.table("types").join(other, on="i", how=how).sort("i") for how in ("inner", "left", "full", "semi", "anti")
    ]


@probe
def dataframe_window(_: Path) -> object:
    from datafusion import col
    from datafusion import functions as f
    from datafusion.expr import Window, WindowFrame

    frame = _session().table("types")
    window = Window(order_by=[col("i")], window_frame=WindowFrame("rows", 1, 0))
    return frame.select(col("i"), f.sum(col("f")).over(window).alias("s"), f.lag(col("s"), 1, "-").over(window)).sort(
        "i"
    )


@probe
def dataframe_set_operations(_: Path) -> object:
    ctx = _session()
    a = ctx.from_pydict({"k": [1, 2, 2, 3]})
    b = ctx.from_pydict({"k": [2, 3, 4]})
    return [o.sort("k") for o in (a.union(b), a.union(b, distinct=True), a.intersect(b), a.except_all(b), a.distinct())]


@probe
def dataframe_columns(_: Path) -> object:
    from datafusion import col, lit

    frame = _session().table("types")
    frame = frame.with_column("k", col("i") + lit(1)).with_column_renamed("f", "g").drop("items", "rec", "dec")
    return frame.fill_null(0, ["n"]).cast({"i": pa.float32()}).sort("i")


@probe
def dataframe_describe(_: Path) -> object:
    return _session().sql("SELECT i, f FROM types").describe().sort("describe")


@probe
def dataframe_case_and_functions(_: Path) -> object:
    from datafusion import col, lit
    from datafusion import functions as f

    branches = f.when(col("i") < lit(3), lit("low")).otherwise(lit("high"))
    return (
        _session()
        .table("types")
        .select(branches, f.coalesce(col("n"), lit(0)), f.in_list(col("i"), [lit(1)]))
        .sort("i")
    )


@probe
def dataframe_unnest(_: Path) -> object:
    from datafusion import col

    return _session().table("types").select(col("i"), col("items")).unnest_columns("items").sort("i", "items")


@probe
def dataframe_texts(_: Path) -> object:
    frame = _session().sql("SELECT i, f FROM types ORDER BY i")
    return [str(frame), frame._repr_html_().count("<tr>"), frame.count(), str(frame.schema())]


@probe
def dataframe_plans(_: Path) -> object:
    frame = _session().sql("SELECT b, SUM(f) AS s FROM types WHERE i > 1 GROUP BY b")
    plans = (frame.logical_plan(), frame.optimized_logical_plan())
    texts = [(p.display(), p.display_indent(), p.display_indent_schema(), p.display_graphviz()) for p in plans]
    return [texts, frame.execution_plan().display_indent(), frame.execution_plan().partition_count]


@probe
def conversions(_: Path) -> object:
    frame = _session().sql("SELECT i, f, s, b FROM types ORDER BY i")
    batches = [batch.to_pyarrow().to_pydict() for batch in frame.execute_stream()]
    pandas = frame.to_pandas()
    return [
        frame.to_pydict(),
        frame.to_pylist(),
        batches,
        pa.table(frame),
        pandas.to_dict("list"),
        list(map(str, pandas.dtypes)),
    ]


@probe
def expressions(_: Path) -> object:
    from datafusion import col, lit

    made = [(col("i") + lit(1)) * col("f"), ~(col("i") == lit(2)), col("f") > lit(1.5), col("n").is_null()]
    return [
        [
            str(e),
            e.canonical_name(),
            e.variant_name(),
            e.rex_type().name if hasattr(e.rex_type(), "name") else str(e.rex_type()),
        ]
        for e in made
    ]


@probe
def parsed_expressions(_: Path) -> object:
    frame = _session().table("types").sort("i")
    return [str(frame.parse_sql_expr("i + 1 > f AND s LIKE 'a%'")), frame.select_exprs("i * 2", "upper(s) AS u")]


@probe
def plan_variants(_: Path) -> object:
    def walk(plan: Any) -> list[str]:
        return [type(plan.to_variant()).__name__, *(name for child in plan.inputs() for name in walk(child))]

    return walk(_session().sql("SELECT b, SUM(f) FROM types WHERE i > 1 GROUP BY b ORDER BY b LIMIT 1").logical_plan())


@probe
def plan_round_trip(folder: Path) -> object:
    from datafusion.plan import ExecutionPlan, LogicalPlan

    ctx = _session()
    ctx.table("types").select("i", "f").write_parquet(str(folder / "p.parquet"))
    ctx.register_parquet("p", str(folder / "p.parquet"))
    frame = ctx.sql("SELECT i, f * 2 AS g FROM p WHERE i > 1")
    logical = LogicalPlan.from_bytes(ctx, frame.logical_plan().to_bytes(ctx))
    physical = ExecutionPlan.from_bytes(ctx, frame.execution_plan().to_bytes(ctx))
    text = physical.display_indent().replace(str(folder).lstrip("/"), "")
    return [ctx.create_dataframe_from_logical_plan(logical).sort("i"), text]


@probe
def substrait_round_trip(folder: Path) -> object:
    from datafusion.substrait import Consumer, Producer, Serde

    ctx = _session()
    statement = "SELECT i, f * 2 AS g FROM types WHERE i > 1 ORDER BY i"
    plan = Producer.to_substrait_plan(ctx.sql(statement).logical_plan(), ctx)
    back = ctx.create_dataframe_from_logical_plan(Consumer.from_substrait_plan(ctx, plan))
    Serde.serialize(statement, ctx, str(folder / "plan"))
    again = Consumer.from_substrait_plan(ctx, Serde.deserialize(str(folder / "plan")))
    return [len(plan.encode()), back, ctx.create_dataframe_from_logical_plan(again)]


@probe
def unparser(_: Path) -> object:
    from datafusion.unparser import Dialect, Unparser

    plan = _session().sql("SELECT b, SUM(f) AS s FROM types WHERE i > 1 GROUP BY b ORDER BY s LIMIT 3").logical_plan()
    dialects = (Dialect.default(), Dialect.postgres(), Dialect.mysql(), Dialect.sqlite(), Dialect.duckdb())
    return [Unparser(dialect).with_pretty(True).plan_to_sql(plan) for dialect in dialects]


def _written(folder: Path, kind: str) -> Any:
    ctx = _session()
    frame = ctx.sql("SELECT i, n, f, s, b, t FROM types ORDER BY i")
    path = str(folder / f"out.{kind}")
    getattr(frame, f"write_{kind}")(path, **({"with_header": True} if kind == "csv" else {}))
    getattr(ctx, f"register_{kind}")("back", path)
    return [getattr(ctx, f"read_{kind}")(path).sort("i"), ctx.sql("SELECT COUNT(*), SUM(f) FROM back WHERE i > 1")]


@probe
def parquet(folder: Path) -> object:
    return _written(folder, "parquet")


@probe
def csv(folder: Path) -> object:
    return _written(folder, "csv")


@probe
def json_lines(folder: Path) -> object:
    return _written(folder, "json")


@probe
def parquet_options(folder: Path) -> object:
    import pyarrow.parquet as pq

    ctx = _session()
    found = []
    for compression in ("uncompressed", "snappy", "gzip(6)", "brotli(3)", "zstd(3)", "lz4"):
        path = str(folder / f"{compression}.parquet")
        kind, _, level = compression.rstrip(")").partition("(")
        ctx.sql("SELECT i, f, s FROM types").write_parquet(path, kind, int(level) if level else None)
        file = pq.ParquetFile(path)
        column = file.metadata.row_group(0).column(0)
        found.append([file.metadata.created_by, column.compression, column.encodings, ctx.read_parquet(path).sort("i")])
    return found


@probe
def partitioned_parquet(folder: Path) -> object:
    ctx = _session()
    ctx.sql(f"COPY (SELECT i, f, s FROM types) TO '{folder}/parts/' STORED AS PARQUET PARTITIONED BY (s)").collect()
    ctx.register_parquet("parts", f"{folder}/parts/", table_partition_cols=[("s", pa.string())])
    return [
        sorted(p.name for p in (folder / "parts").iterdir()),
        ctx.sql("SELECT * FROM parts WHERE s <> 'date' ORDER BY i"),
    ]


@probe
def compressed_csv(folder: Path) -> object:
    import gzip

    path = folder / "c.csv.gz"
    path.write_bytes(gzip.compress(b"k;w\n1;a\n2;b\n"))
    from datafusion import CsvReadOptions

    options = CsvReadOptions(delimiter=";", has_header=True, file_extension=".csv.gz", file_compression_type="gzip")
    ctx = _session()
    return ctx.read_csv(str(path), options=options).sort("k")


@probe
def avro(folder: Path) -> object:
    """A file with two records of a `long` and a `string`, written byte by byte."""

    def number(value: int) -> bytes:
        value = value << 1
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return bytes(out)

    def text(value: bytes) -> bytes:
        return number(len(value)) + value

    schema = b'{"type":"record","name":"r","fields":[{"name":"k","type":"long"},{"name":"w","type":"string"}]}'
    rows = number(1) + text(b"one") + number(2) + text(b"two")
    sync = bytes(range(16))
    header = (
        b"Obj\x01" + number(2) + text(b"avro.schema") + text(schema) + text(b"avro.codec") + text(b"null") + number(0)
    )
    path = folder / "a.avro"
    path.write_bytes(header + sync + number(2) + number(len(rows)) + rows + sync)
    ctx = _session()
    ctx.register_avro("a", str(path))
    return [ctx.read_avro(str(path)), ctx.sql("SELECT SUM(k) FROM a")]


@probe
def arrow_files(folder: Path) -> object:
    table = _types().select(["i", "f", "s"])
    path = str(folder / "f.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    ctx = _session()
    ctx.register_arrow("a", path)
    return ctx.sql("SELECT i, f FROM a ORDER BY i")


@probe
def datasets(folder: Path) -> object:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    pq.write_table(_types().select(["i", "f"]), folder / "d.parquet")
    ctx = _session()
    ctx.register_dataset("d", ds.dataset(str(folder / "d.parquet")))
    return ctx.sql("SELECT i FROM d WHERE f > 0 ORDER BY i")


@probe
def external_tables(folder: Path) -> object:
    ctx = _session()
    ctx.sql(f"CREATE EXTERNAL TABLE e (k INT, w VARCHAR) STORED AS CSV LOCATION '{folder}/e/'")
    ctx.sql("INSERT INTO e VALUES (1, 'a'), (2, 'b')").collect()
    return ctx.sql("SELECT * FROM e ORDER BY k")


@probe
def statements(_: Path) -> object:
    ctx = _session()
    found = []
    for statement in (
        "CREATE TABLE w AS SELECT i, f FROM types",
        "INSERT INTO w VALUES (9, 9.5)",
        "UPDATE w SET f = f + 1 WHERE i > 2",
        "DELETE FROM w WHERE i = 1",
        "CREATE VIEW vw AS SELECT i * 2 AS k, f FROM w",
        "SELECT * FROM vw ORDER BY k",
        "SET datafusion.execution.batch_size = 100",
        "SHOW datafusion.execution.batch_size",
        "PREPARE p (BIGINT) AS SELECT i FROM w WHERE i > $1 ORDER BY i",
        "EXECUTE p(3)",
        "DEALLOCATE p",
        "DROP VIEW vw",
        "CREATE SCHEMA other",
        "CREATE TABLE other.z AS SELECT 1 AS one",
        "SELECT * FROM other.z",
        "DROP TABLE w",
        "SHOW TABLES",
    ):
        found.append(ctx.sql(statement).to_pylist())
    found[-1].sort(key=repr)
    return found


@probe
def parameters_of_sql(_: Path) -> object:
    ctx = _session()
    frame = ctx.sql("SELECT i, f FROM types WHERE i > $low", param_values={"low": 2})
    return ctx.sql("SELECT i * $k AS j FROM $frame ORDER BY i", k=3, frame=frame)


@probe
def sql_options(_: Path) -> object:
    from datafusion import SQLOptions

    ctx = _session()
    try:
        ctx.sql_with_options("CREATE TABLE no AS SELECT 1", SQLOptions().with_allow_ddl(False))
    except Exception as error:
        return str(error)
    return "allowed"


@probe
def scalar_udf(_: Path) -> object:
    import pyarrow.compute as pc
    from datafusion import col, udf

    double = udf(lambda a: pc.multiply(a, 2.0), [pa.float64()], pa.float64(), "immutable", "double_it")
    ctx = _session()
    ctx.register_udf(double)
    return [
        ctx.sql("SELECT double_it(f) FROM types ORDER BY i"),
        ctx.table("types").select(double(col("f"))),
        str(double),
    ]


@probe
def aggregate_udf(_: Path) -> object:
    from datafusion import Accumulator, udaf

    class Longest(Accumulator):
        def __init__(self) -> None:
            self.best = ""

        def state(self) -> list[pa.Scalar]:
            return [pa.scalar(self.best)]

        def update(self, *values: pa.Array) -> None:
            self.best = max([self.best, *values[0].to_pylist()], key=len)

        def merge(self, states: list[pa.Array]) -> None:
            self.update(states[0])

        def evaluate(self) -> pa.Scalar:
            return pa.scalar(self.best)

    ctx = _session()
    ctx.register_udaf(udaf(Longest, [pa.string()], pa.string(), [pa.string()], "immutable", "longest"))
    return ctx.sql("SELECT b, longest(s) FROM types GROUP BY b ORDER BY b")


@probe
def window_udf(_: Path) -> object:
    from datafusion import udwf
    from datafusion.user_defined import WindowEvaluator

    class Countdown(WindowEvaluator):
        def evaluate_all(self, values: list[pa.Array], num_rows: int) -> pa.Array:
            return pa.array(range(num_rows, 0, -1))

    ctx = _session()
    ctx.register_udwf(udwf(Countdown, [pa.int64()], pa.int64(), "immutable", "countdown"))
    return ctx.sql("SELECT i, countdown(i) OVER (ORDER BY i) FROM types ORDER BY i")


@probe
def table_udf(_: Path) -> object:
    import pyarrow.dataset as ds
    from datafusion import Table, udtf

    ctx = _session()

    def first(count: Any) -> Any:
        rows = count.to_variant().value_i64()
        return Table(ds.dataset(pa.table({"k": list(range(rows))})))

    ctx.register_udtf(udtf(first, "first_numbers"))
    return ctx.sql("SELECT * FROM first_numbers(3) ORDER BY k")


@probe
def python_errors_in_udfs(_: Path) -> object:
    from datafusion import udf

    def fail(_: pa.Array) -> pa.Array:
        raise ValueError("no such luck")

    ctx = _session()
    ctx.register_udf(udf(fail, [pa.int64()], pa.int64(), "volatile", "fail"))
    try:
        return ctx.sql("SELECT fail(i) FROM types").collect()
    except Exception as error:
        return [type(error).__name__, "no such luck" in str(error)]


@probe
def catalogs(_: Path) -> object:
    from datafusion.catalog import Catalog, Schema

    ctx = _session()
    mine = Catalog.memory_catalog()
    mine.register_schema("inner_schema", Schema.memory_schema())
    mine.schema("inner_schema").register_table("z", ctx.sql("SELECT 5 AS five").into_view(temporary=True))
    ctx.register_catalog_provider("mine", mine)
    public = ctx.catalog().schema("public")
    return [
        sorted(ctx.catalog_names()),
        sorted(public.names()),
        str(public.table("types").schema),
        public.table("types").kind,
        ctx.sql("SELECT * FROM mine.inner_schema.z"),
    ]


@probe
def python_catalogs(_: Path) -> object:
    from datafusion.catalog import CatalogProvider, SchemaProvider

    ctx = _session()
    view = ctx.sql("SELECT 6 AS six").into_view(temporary=True)

    class OneTable(SchemaProvider):
        def table_names(self) -> set[str]:
            return {"only"}

        def table(self, name: str) -> Any:
            return view if name == "only" else None

        def table_exist(self, name: str) -> bool:
            return name == "only"

    class OneSchema(CatalogProvider):
        def schema_names(self) -> set[str]:
            return {"s"}

        def schema(self, name: str) -> Any:
            return OneTable() if name == "s" else None

    ctx.register_catalog_provider("theirs", OneSchema())
    return ctx.sql("SELECT * FROM theirs.s.only")


@probe
def configuration(_: Path) -> object:
    from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

    config = SessionConfig({"datafusion.execution.batch_size": "7"}).with_default_catalog_and_schema("c", "s")
    ctx = SessionContext(config.with_information_schema(True), RuntimeEnvBuilder().with_fair_spill_pool(10_000_000))
    ctx.sql("CREATE TABLE one AS SELECT 1 AS k")
    shown = ctx.sql("SELECT table_catalog, table_schema FROM information_schema.tables WHERE table_name = 'one'")
    return [shown, ctx.sql("SHOW datafusion.execution.batch_size"), ctx.enable_ident_normalization()]


@probe
def spilling_sort(_: Path) -> object:
    from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

    runtime = RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(16_000_000)
    ctx = SessionContext(SessionConfig().with_target_partitions(1), runtime)
    statement = "SELECT value FROM generate_series(1, 300000) ORDER BY -value % 1000, value"
    table = ctx.sql(statement).to_arrow_table()
    return [table.num_rows, table["value"][:5].to_pylist(), table["value"][-5:].to_pylist()]


@probe
def optimizer_rules(_: Path) -> object:
    ctx = _session()
    removed = [ctx.remove_optimizer_rule("simplify_expressions"), ctx.remove_optimizer_rule("no_such_rule")]
    return [removed, ctx.sql("SELECT i + 1 + 1 FROM types").optimized_logical_plan().display_indent()]


@probe
def metrics(_: Path) -> object:
    frame = _session().sql("SELECT b, COUNT(*) FROM types GROUP BY b")
    plan = frame.execution_plan()
    return sorted({metric.name for _, found in plan.collect_metrics() for metric in found.metrics()})


@probe
def ffi_codecs(_: Path) -> object:
    """The capsules that other plugins take from a session."""
    ctx = _session()
    names = [name for name in dir(ctx) if name.startswith("__datafusion") and callable(getattr(ctx, name))]
    # That of the planner is given a session, the others may be.
    given = {"__datafusion_query_planner__": (ctx,)}
    return [[name, type(getattr(ctx, name)(*given.get(name, ()))).__name__] for name in sorted(names)]


@probe
def ffi_stream(_: Path) -> object:
    ctx = _session()
    reader = pa.RecordBatchReader.from_stream(ctx.sql("SELECT i, f FROM types ORDER BY i"))
    return [str(reader.schema), reader.read_all(), ctx.from_arrow(pa.table({"k": [1]})).to_pydict()]


@probe
def global_session(_: Path) -> object:
    import datafusion
    from datafusion import SessionContext

    SessionContext.global_ctx().from_pydict({"k": [1, 2]}, name="global_table")
    return [SessionContext.global_ctx().table("global_table").sort("k"), datafusion.read_csv.__name__]


@probe
def pickled_expressions(_: Path) -> object:
    import pickle

    from datafusion import col, lit

    expression = pickle.loads(pickle.dumps((col("i") + lit(1)).alias("k")))
    return [str(expression), _session().table("types").select(expression).sort("k")]


@probe
def pickled_functions(_: Path) -> object:
    import pickle

    import pyarrow.compute as pc
    from datafusion import col, udf

    double = udf(lambda array: pc.add(array, array), [pa.float64()], pa.float64(), "stable", name="double")
    expression = pickle.loads(pickle.dumps(double(col("f"))))
    return [str(expression), _session().table("types").sort("i").select(expression)]


@probe
def lambdas(_: Path) -> object:
    from datafusion import SessionConfig, SessionContext, col, lit
    from datafusion import functions as f

    frame = _session().table("types").sort("i")
    expressions = [
        f.array_transform(col("items"), lambda item: item * 2),
        f.array_filter(col("items"), f.lambda_(["v"], f.lambda_var("v") > lit(2))),
        f.array_any_match(col("items"), lambda item: item > 3),
    ]
    dialect = SessionContext(SessionConfig().set("datafusion.sql_parser.dialect", "DuckDB"))
    in_sql = dialect.sql("SELECT array_transform([1, 2, 3], lambda x: x * 2) AS d")
    return [[e.canonical_name() for e in expressions], frame.select(*expressions), in_sql]


@probe
def frames_by_index(_: Path) -> object:
    frame = _session().table("types").sort("i")
    return [frame["i"], frame["i", "f"], frame[["s"]]]


@probe
def subclasses(_: Path) -> object:
    from datafusion import DataFrame, Expr, SessionContext

    bases = (SessionContext, DataFrame, Expr)
    return [issubclass(type("Mine", (base,), {}), base) for base in bases]


@probe
def many_threads(_: Path) -> object:
    """One session, one frame and one builder of expressions, used by several threads at a time."""
    from concurrent.futures import ThreadPoolExecutor

    from datafusion import col, lit
    from datafusion import functions as f

    ctx = _session()
    frame, builder = ctx.table("types"), f.case(col("i"))

    def work(number: int) -> object:
        ctx.register_udf(ctx.udf("sin"))
        builder.when(lit(number), lit(str(number)))
        summed = ctx.sql(f"SELECT SUM(i) + {number} AS s FROM types").to_pydict()
        return [summed, sum(batch.to_pyarrow().num_rows for batch in frame.execute_stream())]

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(work, range(16)))


@probe
def files_by_address(folder: Path) -> object:
    import pyarrow.parquet as pq
    from datafusion import SessionContext
    from datafusion.object_store import LocalFileSystem

    pq.write_table(_types().select(["i", "f"]), folder / "types.parquet")
    ctx = _kept(SessionContext())
    ctx.register_object_store("file://local", LocalFileSystem(), None)
    ctx.register_parquet("stored", f"file://{folder}/types.parquet")
    return ctx.sql("SELECT * FROM stored ORDER BY i")


@probe
def types_of_objects(_: Path) -> object:
    ctx = _session()
    frame = ctx.table("types")
    things = (ctx.ctx, frame.df, frame.logical_plan()._raw_plan, frame.collect()[0], ctx.catalog().catalog)
    return [f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in things]


def _grid() -> Any:
    import numpy as np
    import xarray as xr

    time = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], "datetime64[ns]")
    values = np.arange(24, dtype="float32").reshape(3, 4, 2) / 8
    return xr.Dataset(
        {"t2m": (("time", "lat", "lon"), values), "wind": (("time", "lat", "lon"), -values)},
        coords={"time": time, "lat": [-30.0, 0.0, 30.0, 60.0], "lon": [0.0, 180.0]},
        attrs={"title": "a grid"},
    )


def _xarray_session() -> Any:
    import xarray_sql

    ctx = _kept(xarray_sql.XarrayContext())
    ctx.from_dataset("grid", _grid(), chunks={"time": 1})
    return ctx


def _xarray_probe(statement: str) -> Probe:
    return lambda _: _xarray_session().sql(statement)


XARRAY_SQL = {
    "all": "SELECT * FROM grid ORDER BY time, lat, lon",
    "filter": "SELECT lat, t2m FROM grid WHERE lat BETWEEN 0 AND 30 AND lon = 180 AND time > '2024-01-01' "
    "ORDER BY time, lat",
    "aggregate": "SELECT lat, AVG(t2m) AS m, stddev(wind) AS s, COUNT(*) AS n FROM grid GROUP BY lat ORDER BY lat",
    "window": "SELECT time, lat, lon, t2m - AVG(t2m) OVER (PARTITION BY lat, lon) AS a FROM grid "
    "ORDER BY time, lat, lon",
    "join": "SELECT a.lat, a.t2m, b.t2m AS later FROM grid a JOIN grid b ON a.lat = b.lat AND a.lon = b.lon "
    "AND b.time = a.time + INTERVAL '1 day' ORDER BY a.time, a.lat, a.lon",
    "explain": "EXPLAIN SELECT AVG(t2m) FROM grid WHERE lat > 0",
}
PROBES.update({f"xarray_{name}": _xarray_probe(statement) for name, statement in XARRAY_SQL.items()})


@probe
def xarray_dataset(_: Path) -> object:
    frame = _xarray_session().sql("SELECT lat, lon, AVG(t2m) AS m FROM grid GROUP BY lat, lon")
    dataset = frame.to_dataset().compute().sortby(["lat", "lon"])
    return dataset.to_dict()


@probe
def xarray_groups(_: Path) -> object:
    import xarray as xr
    import xarray_sql

    surface = _grid()
    mixed = surface.assign(height=xr.DataArray([1.0, 2.0, 3.0, 4.0], dims="lat"))
    ctx = _kept(xarray_sql.XarrayContext())
    ctx.from_dataset("mixed", mixed, chunks={"time": 2})
    joined = (
        "SELECT a.lat, a.t2m * b.height AS p FROM mixed.time_lat_lon a JOIN mixed.lat b ON a.lat = b.lat ORDER BY p, 1"
    )
    return ctx.sql(joined)


@probe
def xarray_lazy_reader(_: Path) -> object:
    import xarray_sql
    from datafusion import SessionContext

    ctx = _kept(SessionContext())
    ctx.register_table("lazy", xarray_sql.read_xarray_table(_grid(), chunks={"time": 1}))
    return ctx.sql("SELECT time, SUM(t2m) AS s FROM lazy GROUP BY time ORDER BY time")


@probe
def xarray_cftime(_: Path) -> object:
    import numpy as np
    import xarray as xr
    import xarray_sql

    time = xr.date_range("2000-01-01", periods=4, freq="MS", calendar="360_day", use_cftime=True)
    dataset = xr.Dataset({"v": ("time", np.arange(4.0))}, coords={"time": time})
    ctx = _kept(xarray_sql.XarrayContext())
    ctx.from_dataset("months", dataset, chunks={"time": 2})
    return ctx.sql("SELECT v FROM months WHERE time >= cftime('2000-03-01') ORDER BY v")


def canonical(value: Any) -> Any:
    """`value` as JSON can hold it, with types where they count."""
    if hasattr(value, "to_arrow_table"):
        value = value.to_arrow_table()
    if isinstance(value, pa.Table):
        fields = [[field.name, str(field.type), field.nullable] for field in value.schema]
        return {"schema": fields, "columns": [canonical(column.to_pylist()) for column in value.columns]}
    if isinstance(value, dict):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return value if isinstance(value, (str, int, bool, type(None))) else repr(value)


def main(names: Sequence[str]) -> dict[str, Any]:
    from support.every_session import register_every_session

    register_every_session()
    results: dict[str, Any] = {"module": importlib.import_module("datafusion._internal").__file__}
    for name in names or PROBES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                results[name] = {"result": canonical(PROBES[name](Path(folder)))}
            except BaseException as error:
                message = f"{type(error).__name__}: {error}".replace(folder, "")
                # The name it suggests is another one in every process.
                results[name] = {"error": re.sub(r"Did you mean '.*'", "Did you mean ...", message)}
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:]), sort_keys=True) + "\n")
