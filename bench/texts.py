"""Times writing derivatives as text beside DataFusion's own planning of a statement of that length.

    build/fresh-55/bin/python bench/texts.py [--sizes 100 200 400] [--only NAME ...]

The figures are processor time of one process, and the length of the text. What doubles with the statement is linear;
the planner of DataFusion takes four times as long for a sum of twice as many terms.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import pyarrow as pa
from datafusion import SessionContext
from results import Column, parse

import xql_ffi

FLOAT = pa.float64()

Statement = tuple[str, str, dict[str, pa.Schema]]


def schema(*columns: str) -> dict[str, pa.Schema]:
    """A table of floats."""
    return {"t": pa.schema([pa.field(name, FLOAT, nullable=False) for name in columns])}


def value(number: int, variable: str = "x") -> str:
    """One of many values."""
    return f"sin({variable} * {number}.5) * y"


def calls(n: int) -> Statement:
    """A SELECT of many calls."""
    without = ", ".join(f"{value(i)} AS d{i}" for i in range(n))
    derivatives = ", ".join(f"grad({value(i)}, x) AS d{i}" for i in range(n))
    return f"SELECT {without} FROM t", f"SELECT {derivatives} FROM t", schema("x", "y")


def unnamed(n: int) -> Statement:
    """A SELECT of many calls that go by their own names."""
    without = ", ".join(value(i) for i in range(n))
    derivatives = ", ".join(f"grad({value(i)}, x)" for i in range(n))
    return f"SELECT {without} FROM t", f"SELECT {derivatives} FROM t", schema("x", "y")


def terms(n: int) -> Statement:
    """A sum of many calls."""
    without = " + ".join(value(i) for i in range(n))
    derivatives = " + ".join(f"grad({value(i)}, x)" for i in range(n))
    return f"SELECT {without} AS d FROM t", f"SELECT {derivatives} AS d FROM t", schema("x", "y")


def long(n: int) -> Statement:
    """A call of a sum of many terms."""
    total = " + ".join(value(i) for i in range(n))
    return f"SELECT {total} AS d FROM t", f"SELECT grad({total}, x) AS d FROM t", schema("x", "y")


def columns(n: int) -> Statement:
    """A derivative by each of many columns."""
    names = [f"c{i}" for i in range(n)]
    without = ", ".join(f"{value(2, name)} AS d{name}" for name in names)
    derivatives = ", ".join(f"grad({value(2, name)}, {name}) AS d{name}" for name in names)
    return f"SELECT {without} FROM t", f"SELECT {derivatives} FROM t", schema("y", *names)


def ctes(n: int) -> Statement:
    """A derivative through many CTEs, each of which reads the one before."""
    chain = "".join(f", c{i} AS (SELECT x, sin(v) * x - v AS v FROM c{i - 1})" for i in range(1, n))
    start = f"WITH c0 AS (SELECT x, x * y AS v FROM t){chain}"
    last = f"FROM c{n - 1}"
    return f"{start} SELECT v {last}", f"{start} SELECT grad(v, x) AS d {last}", schema("x", "y")


def layers(n: int) -> Statement:
    """A gradient by row through stages that read all rows of the one before: two for each hundred of `n`."""
    count = max(n // 100, 1) * 2
    chain = "".join(
        f", c{i} AS (SELECT s.x, s.v - m.a AS v FROM c{i - 1} AS s, (SELECT AVG(v * v) AS a FROM c{i - 1}) AS m)"
        for i in range(1, count)
    )
    start = f"WITH c0 AS (SELECT x, x * y AS v FROM t){chain}"
    total = f"(SELECT SUM(v) FROM c{count - 1})"
    return f"{start} SELECT {total} FROM t", f"{start} SELECT grad({total}, x) AS d FROM t", schema("x", "y")


CASES: dict[str, Callable[[int], Statement]] = {
    case.__name__: case for case in (calls, unnamed, terms, long, columns, ctes, layers)
}


def planning(statement: str, tables: dict[str, pa.Schema]) -> float:
    """How long a host plans a statement."""
    ctx = SessionContext()
    for name, columns in tables.items():
        ctx.from_arrow(columns.empty_table(), name=name)
    start = time.process_time()
    ctx.sql(statement).optimized_logical_plan()
    return time.process_time() - start


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    options, results = parse(parser, sizes=[100])
    columns = (Column("writing", "ms", 1), Column("planning without", "ms", 1), Column("characters", digits=0))
    for name in options.only:
        print(f"{name}: {CASES[name].__doc__}")
    table = results.table("statement", *columns)
    for name in options.only:
        for size in options.sizes:
            without, derivatives, tables = CASES[name](size)
            start = time.process_time()
            text = xql_ffi.expand_sql(derivatives, tables)
            written = time.process_time() - start
            plain = planning(without, tables)
            table.line(f"{name}, {size}", written * 1e3, plain * 1e3, len(text))
    results.write()


if __name__ == "__main__":
    main()
