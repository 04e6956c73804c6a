"""Times planning a statement with derivatives beside planning it without.

    build/fresh-55/bin/python bench/planning.py [--weights 32 64 ...] [--rounds 3] [--chain 300] [--horner 100] ...

The figures are the fastest of the rounds, of making a physical plan of SQL in one process, and the ratio of both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from datafusion import DataFrame, SessionContext, col
from results import Column, parse

import xql_ffi


@dataclass(frozen=True)
class Case:
    """A statement without derivatives and one with them, and the goal for the ratio of what planning them takes."""

    name: str
    without: str
    derivatives: Callable[[SessionContext], DataFrame] | str
    goal: float


def session() -> SessionContext:
    """A session that parses deep expressions, with a table `t` of one row."""
    ctx = xql_ffi.register(SessionContext())
    ctx.sql("SET datafusion.sql_parser.recursion_limit = 100000").collect()
    ctx.from_pydict({"x": [0.5], "a": [1.25]}, name="t")
    return ctx


def logistic(ctx: SessionContext, n: int) -> Iterator[Case]:
    """The loss of a logistic regression, its weights the columns of a table of one row, written in three ways."""
    numbers = range(1, n + 1)
    weights = [f"w{i}" for i in numbers]
    ctx.register_record_batches(f"p{n}", [pa.table({w: [0.01] for w in weights}).to_batches()])
    ctx.register_record_batches(f"d{n}", [pa.table({f"x{i}": [0.1] for i in numbers} | {"y": [1.0]}).to_batches()])
    linear = " + ".join(f"w{i} * x{i}" for i in numbers)
    by = ", ".join(weights)
    data = f"p{n} CROSS JOIN d{n}"
    model = f"WITH z AS (SELECT *, {linear} AS z FROM {data})"
    loss = f"{model} SELECT AVG(ln(1 + exp(-y * z))) AS l FROM z GROUP BY {by}"
    total = f"{model}, l AS (SELECT {by}, AVG(ln(1 + exp(-y * z))) AS l FROM z GROUP BY {by})"
    gradient = ", ".join(f"grad(l, {weight})" for weight in weights)
    yield Case(f"logistic loss by CTEs, n = {n}", loss, f"{total} SELECT l, {gradient} FROM l", 3)

    def api(ctx: SessionContext) -> DataFrame:
        return ctx.sql(f"{total} SELECT * FROM l").select(col("l"), *xql_ffi.gradient(col("l"), weights))

    yield Case(f"logistic loss by xql_ffi.gradient, n = {n}", loss, api, 3)
    once = f"AVG(ln(1 + exp(-y * ({linear}))))"
    written = ", ".join(f"grad({once}, {weight})" for weight in weights)
    yield Case(
        f"logistic loss written n times, n = {n}",
        f"SELECT {', '.join(f'{once} + {i}' for i in numbers)} FROM {data} GROUP BY {by}",
        f"SELECT {written} FROM {data} GROUP BY {by}",
        3,
    )


def deep(name: str, step: str, first: str, levels: int) -> Case:
    """An expression of many levels, and the same with its derivative."""
    expression = first
    for level in range(levels):
        expression = step.format(expression, level)
    value = f"WITH c AS (SELECT x, {expression} AS v FROM t)"
    return Case(f"{name}, {levels} levels", f"{value} SELECT v FROM c", f"{value} SELECT v, grad(v, x) AS d FROM c", 4)


def seconds(ctx: SessionContext, statement: Callable[[SessionContext], DataFrame] | str) -> float:
    """How long planning takes."""
    start = time.perf_counter()
    (ctx.sql(statement) if isinstance(statement, str) else statement(ctx)).execution_plan()
    return time.perf_counter() - start


def main() -> None:
    """Measures all cases and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=int, nargs="*", default=[32, 64, 128, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chain", type=int, default=300)
    parser.add_argument("--horner", type=int, default=100)
    parser.add_argument("--levels", type=int, default=40)
    arguments, results = parse(parser, weights=[32], chain=100, horner=50)
    ctx = session()
    cases = [case for n in arguments.weights for case in logistic(ctx, n)]
    cases.append(deep("chain of sin", "sin({})", "x", arguments.chain))
    cases.append(deep("Horner's scheme", "({} * x + {}.5)", "a", arguments.horner))
    cases.append(deep("sin(e) + x", "(sin({}) + x)", "x", arguments.levels))
    times = Column("without", "ms", 1), Column("with", "ms", 1)
    table = results.table("case", *times, Column("ratio"), Column("goal", digits=0, better="neither"))
    for case in cases:
        # In turn, so that a busy moment of the machine meets both.
        both = (case.without, case.derivatives)
        rounds = [[seconds(ctx, statement) for statement in both] for _ in range(arguments.rounds)]
        without, derivatives = (min(times) for times in zip(*rounds, strict=True))
        table.line(case.name, without * 1e3, derivatives * 1e3, derivatives / without, case.goal)
    results.write()


if __name__ == "__main__":
    main()
