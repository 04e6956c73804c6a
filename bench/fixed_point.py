"""Measures gradients of fixed points: time over that of the value, and memory, beside those through all iterations.

    build/fresh/bin/python bench/fixed_point.py [--pages 10000] [--links 10] [--iterations 50 200 800] [--rounds 3]

The value is a sum of ranks (PageRank with a damping of 0.85, each page with as many links), and the gradient is that by
the weight of each link, in one partition: with `SET xql.fixed_point`, and through all iterations. The seconds are those
of the processor, the least of the rounds. The memory is what the gradient adds to the most that a process of its own
has held before, when it had the value alone. Last come the differences of the gradient from that of the closed form.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from results import Column, parse, seconds
from scipy.sparse import coo_array, eye_array
from scipy.sparse.linalg import splu

import xql_ffi

DAMPING, TOLERANCE, READ = 0.85, 1e-9, 10
GOAL = 2.0


@dataclass(frozen=True)
class Run:
    """What one process has found: seconds, memory in MB, and how far the gradient is from the closed form."""

    value: float
    gradient: float
    added: float
    off: float


def links(pages: int, each: int) -> tuple[np.ndarray, np.ndarray]:
    """From which page to which each link goes. There is one to every page."""
    draw = np.random.default_rng(2026)
    src = np.repeat(np.arange(pages), each)
    dst = draw.integers(0, pages, src.size)
    dst[::each] = draw.permutation(pages)
    return src, dst


def statements(pages: int, iterations: int) -> tuple[str, str]:
    """The value and its gradient."""
    ctes = f"""WITH RECURSIVE shares AS (SELECT links.id, links.src, links.dst, links.val / outs.total AS share
            FROM links JOIN (SELECT src, SUM(val) AS total FROM links GROUP BY src) AS outs ON links.src = outs.src),
        r AS (
            SELECT 0 AS step, page, 1.0 / {pages} AS val FROM pages
            UNION ALL
            SELECT step + 1, s.dst, {(1 - DAMPING) / pages} + {DAMPING} * SUM(s.share * r.val)
            FROM r JOIN shares s ON s.src = r.page WHERE r.step < {iterations} GROUP BY step, s.dst),
        loss AS (SELECT SUM(val) AS l FROM r WHERE step = {iterations} AND page < {READ})"""
    return f"{ctes} SELECT l FROM loss", f"{ctes} SELECT id, grad((SELECT l FROM loss), val) AS d FROM links"


def closed_form(pages: int, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """The derivative by the weight of each link."""
    outs = np.bincount(src, minlength=pages)
    share = 1.0 / outs[src]
    solved = splu((eye_array(pages) - DAMPING * coo_array((share, (dst, src)), shape=(pages, pages))).tocsc())
    rank = solved.solve(np.full(pages, (1 - DAMPING) / pages))
    adjoint = solved.solve((np.arange(pages) < READ).astype(float), trans="T")
    by_share = DAMPING * rank[src] * adjoint[dst]
    mean = np.bincount(src, by_share * share, minlength=pages)
    slopes: np.ndarray = (by_share - mean[src]) / outs[src]
    return slopes


def run(pages: int, each: int, iterations: int, rounds: int, fixed: int) -> Run:
    """Measures in this process."""
    src, dst = links(pages, each)
    ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)))
    table = {"id": np.arange(src.size), "src": src, "dst": dst, "val": np.ones(src.size)}
    ctx.from_arrow(pa.table(table), name="links")
    ctx.from_arrow(pa.table({"page": np.arange(pages)}), name="pages")
    value, gradient = statements(pages, iterations)
    if fixed:
        ctx.sql(f"SET xql.fixed_point = {TOLERANCE}").collect()
    of_value = seconds(lambda: ctx.sql(value).to_arrow_table(), rounds)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = ctx.sql(gradient).to_arrow_table().sort_by("id")["d"].to_numpy()
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    of_gradient = seconds(lambda: ctx.sql(gradient).to_arrow_table(), rounds)
    expected = closed_form(pages, src, dst)
    off = float(np.abs(found - expected).max() / np.abs(expected).max())
    return Run(of_value, of_gradient, added / 1024, off)


def measured(*arguments: int) -> Run:
    """Measures in a process of its own."""
    command = [sys.executable, __file__, "--alone", *map(str, arguments)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return Run(**json.loads(output))


def main() -> int:
    """Prints a line for each number of iterations, at the fixed point and through all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--links", type=int, default=10)
    parser.add_argument("--iterations", type=int, nargs="*", default=[200, 400, 800])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", type=int, nargs=5, help=argparse.SUPPRESS)
    options, results = parse(parser, pages=2000, iterations=[200], rounds=1)
    if options.alone:
        print(json.dumps(asdict(run(*options.alone))))
        return 0
    columns = Column("value", "s", 2), Column("gradient", "s", 2), Column("over the value"), Column("memory", "MB", 0)
    table = results.table("iterations", *columns, Column("off", "1e-12", 1))
    ratios = []
    for iterations in options.iterations:
        for fixed, name in [(1, "fixed point"), (0, "through all")]:
            found = measured(options.pages, options.links, iterations, options.rounds, fixed)
            ratio = found.gradient / found.value
            table.line(f"{iterations}, {name}", found.value, found.gradient, ratio, found.added, found.off * 1e12)
            ratios += [(f"gradient at the fixed point of {iterations} iterations", ratio, GOAL)] if fixed else []
    reached = results.goals(ratios)
    results.write()
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
