"""What `engine_vs_stock.py` times: a case, and queries of our own over tables that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datafusion import SessionContext


class Case(NamedTuple):
    """Something to time, and whether its rows have an order; None if it has no rows to compare."""

    group: str
    name: str
    run: Callable[[], object]
    ordered: bool | None = None


def in_order(sql: str) -> bool:
    """Whether a query ends with ORDER BY."""
    import sqlglot

    return sqlglot.parse_one(sql, read="duckdb").args.get("order") is not None


def planned_and_run(ctx: SessionContext, group: str, queries: Mapping[str, str]) -> Iterator[Case]:
    """Each query twice: from the text to the physical plan, and from the text to the rows."""
    for name, sql in queries.items():
        yield Case(f"{group} plan", name, lambda sql=sql: ctx.sql(sql).execution_plan())  # type: ignore[misc]
        yield Case(f"{group} run", name, lambda sql=sql: ctx.sql(sql).collect(), in_order(sql))  # type: ignore[misc]


def make(folder: Path, scale: float) -> None:
    """Writes the parquet and CSV files that the execution cases read, with 5,000,000 rows at scale 1."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rows = round(5_000_000 * scale)
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "id": np.arange(rows),
            "few": rng.integers(0, 100, rows),
            "many": rng.integers(0, rows // 4, rows),
            "x": rng.normal(size=rows),
            "y": rng.uniform(0.1, 10.0, rows),
            "s": np.char.add("name ", rng.integers(0, 1000, rows).astype("U")),
        }
    )
    pyarrow.parquet.write_table(table, folder / "t.parquet")
    pyarrow.csv.write_csv(table.slice(0, rows // 4), folder / "t.csv")
    keys = np.arange(rows // 4)
    dim = pa.table({"many": keys, "w": rng.normal(size=len(keys))})
    pyarrow.parquet.write_table(dim, folder / "dim.parquet")


def cases(ctx: SessionContext, folder: Path) -> Iterator[Case]:
    """Planning first, which leaves no large tables behind."""
    yield from planning(ctx)
    yield from execution(ctx, folder)


def planning(ctx: SessionContext) -> Iterator[Case]:
    """Queries over tiny tables: all the time goes into parsing, binding, optimising and physical planning."""
    for i in range(12):
        ctx.sql(f"CREATE TABLE j{i} AS SELECT 1 AS k, {i} AS v{i}, 'a' AS s{i}").collect()
    ctx.sql("CREATE TABLE p AS SELECT 1.0 AS a, 2.0 AS b, 3 AS c, 'text' AS d").collect()

    small = [f"SELECT a + {i}, upper(d) FROM p WHERE b > {i} AND c < {i} ORDER BY a LIMIT 5" for i in range(100)]
    grouped = [f"SELECT c, sum(a * {i}), avg(b) FROM p GROUP BY c HAVING sum(a) > {i}" for i in range(50)]
    wide = ", ".join(f"sin(a * {i}) + b / (c + {i}) AS e{i}" for i in range(200))
    star = "j0 " + " ".join(f"JOIN j{i} ON j{i - 1}.k = j{i}.k AND j{i}.v{i} >= 0" for i in range(1, 12))
    sums = ", ".join(f"sum(v{i})" for i in range(12))
    deep = " + ".join(f"a * {i} * b" for i in range(400))
    nested = "SELECT * FROM p"
    for i in range(20):
        nested = f"SELECT a + 1 AS a, b * 2 AS b, c, d FROM ({nested}) WHERE a > -{i}"

    def logical(sql: str) -> Callable[[], object]:
        return lambda: ctx.sql(sql).optimized_logical_plan()

    def physical(sql: str) -> Callable[[], object]:
        return lambda: ctx.sql(sql).execution_plan()

    yield Case("plan", "100 small queries, run", lambda: [ctx.sql(q).collect() for q in small])
    yield Case("plan", "100 small queries", lambda: [ctx.sql(q).execution_plan() for q in small])
    yield Case("plan", "50 aggregations, run", lambda: [ctx.sql(q).collect() for q in grouped])
    yield Case("plan", "parse and bind only, 100 queries", lambda: [ctx.sql(q).logical_plan() for q in small])
    yield Case("plan", "200 expressions, logical", logical(f"SELECT {wide} FROM p"))
    yield Case("plan", "200 expressions, physical", physical(f"SELECT {wide} FROM p"))
    yield Case("plan", "12-way join", physical(f"SELECT {sums} FROM {star} GROUP BY j0.k"))
    yield Case("plan", "sum of 400 terms", physical(f"SELECT {deep} FROM p"))
    yield Case("plan", "20 nested subqueries", physical(nested))
    yield Case(
        "plan",
        "recursive CTE, 300 steps, run",
        ctx.sql(
            "WITH RECURSIVE r AS (SELECT 0 AS i, 1.0 AS x UNION ALL "
            "SELECT i + 1, x - (x * x - 2) / (2 * x) FROM r WHERE i < 300) SELECT max(i), min(x) FROM r"
        ).collect,
    )


def execution(ctx: SessionContext, folder: Path) -> Iterator[Case]:
    """Queries over millions of rows: planning is nothing, kernels and operators are all."""
    ctx.register_parquet("t", folder / "t.parquet")
    ctx.register_parquet("dim", folder / "dim.parquet")
    ctx.register_csv("text", folder / "t.csv")
    ctx.sql("CREATE TABLE m AS SELECT * FROM t").collect()

    queries = {
        "aggregate, no groups": "SELECT sum(x), avg(y), stddev(x), min(y), max(x), corr(x, y) FROM m",
        "aggregate, 100 groups": "SELECT few, sum(x), avg(y), max(x) FROM m GROUP BY few",
        "aggregate, many groups": "SELECT count(*) FROM (SELECT many, sum(x), avg(y) FROM m GROUP BY many)",
        "aggregate, string groups": "SELECT s, count(*), sum(x) FROM m GROUP BY s",
        "count distinct": "SELECT count(DISTINCT many), approx_distinct(many), median(few) FROM m",
        "arithmetic": "SELECT sum(x * y + x / y - (x - y) * (x + y) * 0.5) FROM m",
        "functions": "SELECT sum(sin(x) + exp(x) * sqrt(y) + ln(y) + power(y, x) + atan2(x, y)) FROM m",
        "case and comparisons": "SELECT sum(CASE WHEN x > 1 THEN y WHEN x > 0 THEN x * y ELSE -x END) FROM m",
        "casts": "SELECT sum(CAST(x AS FLOAT)), sum(CAST(y AS BIGINT)), sum(CAST(id AS DOUBLE)) FROM m",
        "strings": "SELECT sum(length(upper(s) || 'z')), count(*) FROM m WHERE s LIKE '%7%' OR substr(s, 6) = '12'",
        "filter": "SELECT sum(x) FROM m WHERE y BETWEEN 2 AND 3 AND few % 7 = 1 AND x > 0",
        "hash join": "SELECT sum(m.x * dim.w) FROM m JOIN dim ON m.many = dim.many",
        "semi join": "SELECT count(*) FROM m WHERE many IN (SELECT many FROM dim WHERE w > 1)",
        "sort": "SELECT x, y FROM m ORDER BY few, x",
        "top 10": "SELECT * FROM m ORDER BY x DESC LIMIT 10",
        "window": "SELECT sum(r), sum(a) FROM (SELECT row_number() OVER (PARTITION BY few ORDER BY x) AS r, "
        "avg(y) OVER (PARTITION BY few ORDER BY x ROWS 10 PRECEDING) AS a FROM m WHERE id % 4 = 0)",
        "parquet scan": "SELECT sum(x), sum(y), max(s), max(many) FROM t",
        "parquet scan, filtered": "SELECT sum(x) FROM t WHERE id > 4000000 AND y > 5",
        "csv scan": "SELECT sum(x), avg(y), max(s), count(many) FROM text",
    }
    for name, sql in queries.items():
        yield Case("run", name, lambda sql=sql: ctx.sql(sql).collect(), in_order(sql))  # type: ignore[misc]
