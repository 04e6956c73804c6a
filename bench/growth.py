"""Times planning derivatives by their size: the nodes of one expression, and the calls of one statement.

    build/fresh-55/bin/python bench/growth.py [--nodes 10 100 1000] [--calls 1 10 100 1000] [--rounds 3] [--no-jax]

`ours` is what differentiating adds: the seconds of planning a statement with `grad`, less those of planning the
text that `expand_sql` makes of it, which is the plan that runs. Beside it stand planning the expressions alone, and
JAX's time to trace and to compile the same derivatives. Expressions are sums in halves, so that DataFusion's own
planner, which takes the square of the length of `a + b + c + ...`, takes no part in the growth.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from datafusion import SessionContext
from results import Column, parse

import xql_ffi

# sin(x * 1.5) * y with the sum above it: five nodes and two literals or columns more.
NODES_OF_A_TERM = 7


def terms(count: int, first: int = 0) -> str:
    """A sum of terms, in halves."""
    if count == 1:
        return f"sin(x * {first}.5) * y"
    half = count // 2
    return f"({terms(half, first)} + {terms(count - half, first + half)})"


def statements(expressions: list[str]) -> tuple[str, str]:
    """A statement of expressions, and one of their derivatives."""
    without = ", ".join(f"{expression} AS d{number}" for number, expression in enumerate(expressions))
    derivatives = ", ".join(f"grad({expression}, x) AS d{number}" for number, expression in enumerate(expressions))
    return f"SELECT {without} FROM t", f"SELECT {derivatives} FROM t"


def fastest(rounds: int, run: Callable[[], object]) -> float:
    """The fewest seconds of processor time that it takes, in half a second at least: of short ones, a few vary much."""
    found: list[float] = []
    while len(found) < rounds or sum(found) < 0.5:
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def jax_seconds(expressions: list[str], rounds: int) -> tuple[float, float]:
    """Seconds on the clock of JAX, to trace the derivatives and to compile them."""
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    compiled = [compile(expression, "expression", "eval") for expression in expressions]
    best = (float("inf"), float("inf"))
    for _ in range(rounds):
        # A function of its own each time, of which nothing is kept.
        def f(x: object, y: object) -> object:
            return [eval(code, {"sin": jnp.sin}, {"x": x, "y": y}) for code in compiled]

        start = time.perf_counter()
        # One variable and many outputs are forward mode's.
        lowered = jax.jit(jax.jacfwd(f)).lower(0.5, 1.5)
        traced = time.perf_counter()
        lowered.compile()
        best = min(best, (traced - start, time.perf_counter() - traced))
    return best


def measured(ctx: SessionContext, expressions: list[str], nodes: int, options: argparse.Namespace) -> list[float]:
    """The figures of a line of the table."""
    without, derivatives = statements(expressions)
    text = xql_ffi.expand_sql(derivatives, ctx)

    def planned(sql: str) -> float:
        return fastest(options.rounds, lambda: ctx.sql(sql).optimized_logical_plan())

    plain, with_calls, expanded = (planned(sql) for sql in (without, derivatives, text))
    jax = () if options.no_jax else jax_seconds(expressions, 1)
    ours = (with_calls - expanded) * 1e6 / nodes
    return [plain * 1e3, with_calls * 1e3, expanded * 1e3, ours, *(seconds * 1e3 for seconds in jax)]


def main() -> None:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[10, 100, 1000, 10_000])
    parser.add_argument("--calls", type=int, nargs="*", default=[1, 10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-jax", action="store_true")
    options, results = parse(parser, nodes=[100, 1000], calls=[10, 100], no_jax=True)
    ctx = xql_ffi.register(SessionContext())
    ctx.sql("SET datafusion.sql_parser.recursion_limit = 1000").collect()
    ctx.from_pydict({"x": [0.5], "y": [1.25]}, name="t")
    jax = () if options.no_jax else (Column("JAX traces", "ms", 0), Column("JAX compiles", "ms", 0))
    columns = [Column(figure, "ms", 1) for figure in ("without", "with `grad`", "its text")]
    table = results.table("what", *columns, Column("ours, a node", "µs", 1), *jax)
    for nodes in options.nodes:
        count = max(round(nodes / NODES_OF_A_TERM), 1)
        nodes = count * NODES_OF_A_TERM
        table.line(f"one call, {nodes} nodes", *measured(ctx, [terms(count)], nodes, options))
    for calls in options.calls:
        expressions = [terms(2, 2 * number) for number in range(calls)]
        nodes = calls * 2 * NODES_OF_A_TERM
        table.line(f"{calls} calls, {nodes} nodes", *measured(ctx, expressions, nodes, options))
    results.write()


if __name__ == "__main__":
    main()
