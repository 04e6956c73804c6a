"""Times the same queries on the stock `datafusion` module and on xql-ffi-engine.

    build/fresh/bin/python bench/engine_vs_stock.py [--rounds 5] [--rows 5000000] [--only NAME ...]

The environment is that of `dev.py wheels`, since the engine of `dev.py build` is quick to build and slow to run.

Each round runs two fresh processes one after the other, one with XQL_FFI_ENGINE=0 and one with XQL_FFI_ENGINE=1, so
that whatever else the machine does meets both. The table gives the lower quartile of the wall times of each, their
ratio, and the same ratio of processor times, which other work on the machine disturbs less, with its geometric mean.
The exit status is 1 if that mean or the ratio of a case is above its limit. The queries are plain SQL and use nothing
of xql_ffi.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from results import Column, parse

if TYPE_CHECKING:
    from datafusion import SessionContext

STOCK, ENGINE = "0", "1"
# Wall and processor seconds of one run.
Sample = tuple[float, float]
Case = tuple[str, Callable[[], object]]


def make_data(folder: Path, rows: int) -> None:
    """Writes the parquet and CSV files that the execution cases read."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

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


def planning_cases(ctx: SessionContext) -> Iterator[Case]:
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

    yield "plan: 100 small queries, run", lambda: [ctx.sql(q).collect() for q in small]
    yield "plan: 100 small queries", lambda: [ctx.sql(q).execution_plan() for q in small]
    yield "plan: 50 aggregations, run", lambda: [ctx.sql(q).collect() for q in grouped]
    yield "plan: parse and bind only, 100 queries", lambda: [ctx.sql(q).logical_plan() for q in small]
    yield "plan: 200 expressions, logical", logical(f"SELECT {wide} FROM p")
    yield "plan: 200 expressions, physical", physical(f"SELECT {wide} FROM p")
    yield "plan: 12-way join", physical(f"SELECT {sums} FROM {star} GROUP BY j0.k")
    yield "plan: sum of 400 terms", physical(f"SELECT {deep} FROM p")
    yield "plan: 20 nested subqueries", physical(nested)
    yield (
        "plan: recursive CTE, 300 steps, run",
        ctx.sql(
            "WITH RECURSIVE r AS (SELECT 0 AS i, 1.0 AS x UNION ALL "
            "SELECT i + 1, x - (x * x - 2) / (2 * x) FROM r WHERE i < 300) SELECT max(i), min(x) FROM r"
        ).collect,
    )


def execution_cases(ctx: SessionContext, folder: Path) -> Iterator[Case]:
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
        yield f"run: {name}", lambda sql=sql: ctx.sql(sql).collect()  # type: ignore[misc]


def worker(folder: Path, only: list[str]) -> None:
    """Runs every case in this process and prints the samples as JSON."""
    from datafusion import SessionContext, _internal

    ctx = SessionContext()
    samples: dict[str, list[Sample]] = {}
    for cases in (planning_cases(ctx), execution_cases(ctx, folder)):
        for name, run in cases:
            if only and not any(word in name for word in only):
                continue
            run()  # the first run fills caches
            taken: list[Sample] = []
            while len(taken) < 3 or (len(taken) < 15 and sum(wall for wall, _ in taken) < 1.0):
                wall, cpu = time.perf_counter(), time.process_time()
                run()
                taken.append((time.perf_counter() - wall, time.process_time() - cpu))
            samples[name] = taken
    json.dump({"module": _internal.__file__, "samples": samples}, sys.stdout)


def measure(side: str, folder: Path, only: list[str]) -> tuple[str, dict[str, list[Sample]]]:
    """Runs a worker with the engine off or on."""
    command = [sys.executable, __file__, "--worker", str(folder), *(["--only", *only] if only else [])]
    env = {**os.environ, "XQL_FFI_ENGINE": side}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    result = json.loads(done.stdout)
    return result["module"], result["samples"]


def quartiles(taken: list[Sample]) -> tuple[float, float]:
    """The lower quartiles of wall and processor times: what a run takes when little disturbs it."""
    wall, cpu = (statistics.quantiles(times, n=4)[0] for times in zip(*taken, strict=True))
    return wall, cpu


def main() -> int:
    """Runs the rounds and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--limit", type=float, default=1.10, help="of a case (default: 1.10)")
    parser.add_argument("--mean-limit", type=float, default=1.02, help="of the geometric mean (default: 1.02)")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="cases whose name contains a word")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args, results = parse(parser, rounds=2, rows=200_000)
    if args.worker:
        worker(args.worker, args.only)
        return 0

    runs: dict[str, dict[str, list[Sample]]] = {STOCK: {}, ENGINE: {}}
    modules: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder, args.rows)
        for number in range(args.rounds):
            # The order changes from round to round, so that neither side always runs on the warmer machine.
            for side in (STOCK, ENGINE) if number % 2 == 0 else (ENGINE, STOCK):
                print(f"round {number + 1}/{args.rounds}, {'engine' if side == ENGINE else 'stock'}", file=sys.stderr)
                modules[side], samples = measure(side, folder, args.only)
                for case, taken in samples.items():
                    runs[side].setdefault(case, []).extend(taken)
    if modules[STOCK] == modules[ENGINE]:
        sys.exit(f"both sides loaded {modules[STOCK]}: is xql-ffi-engine installed?")
    print(f"stock:  {modules[STOCK]}\nengine: {modules[ENGINE]}\n")

    table = results.table(
        "case", Column("stock", "ms"), Column("engine", "ms"), Column("ratio"), Column("cpu ratio"), Column("limit")
    )
    ratios: list[float] = []
    for case in runs[STOCK]:
        stock_wall, stock_cpu = quartiles(runs[STOCK][case])
        engine_wall, engine_cpu = quartiles(runs[ENGINE][case])
        wall, cpu = engine_wall / stock_wall, engine_cpu / stock_cpu
        ratios.append(cpu)
        table.line(case, stock_wall * 1e3, engine_wall * 1e3, wall, cpu, "above" if cpu > args.limit else None)
    mean = statistics.geometric_mean(ratios)
    table.line("geometric mean", None, None, None, mean, "above" if mean > args.mean_limit else None)
    results.write()
    return 1 if mean > args.mean_limit or max(ratios) > args.limit else 0


if __name__ == "__main__":
    sys.exit(main())
