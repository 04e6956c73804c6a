"""Jacobians of random chains of queries, and Hessians of sums over them, against differences.

Each step of a chain is a CTE over the one before: a map, a join of rows with others, groups, windows over any frame,
limits, unions, subqueries. Rows of a Jacobian sum up to a derivative along a direction, columns to a gradient, and the
Jacobian of that gradient is a Hessian.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from datafusion import SessionContext
from numpy.typing import NDArray

import xql_ffi
from support.cases import query
from support.choices import Choices
from support.ctes import with_ctes
from support.differences import central
from support.errors import is_failure
from support.seed import SEED
from support.sessions import session

# One chain of so many plans: each takes the execution of many.
_EACH = 10
_TOLERANCE = 2e-6
_REFUSED = ("Write it as a join", "Differentiate", "differentiate")
CELLS = [0.61, -1.27, 1.94, 0.33, -0.48, 1.18]
ROWS = {"k": [0, 1, 2, 3, 4, 5], "g": [0, 0, 1, 1, 2, 2]}

AGGREGATES = ["SUM(val)", "AVG(val * val)", "MAX(val)", "MIN(val)", "VAR_POP(val)", "STDDEV_POP(val)", "SUM(val * k)"]
AGGREGATES += ["median(val)", "SUM(val) FILTER (WHERE k % 2 = 0)", "SUM(exp(val))"]
WINDOWS = ["SUM(val)", "AVG(val)", "SUM(val * val)", "MAX(val)", "VAR_POP(val)", "FIRST_VALUE(val)", "LAST_VALUE(val)"]
FRAMES = ["ORDER BY k", "ORDER BY k DESC", "ORDER BY k ROWS 1 PRECEDING", "ORDER BY g", ""]
FRAMES += ["ORDER BY k ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING", "ORDER BY k ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING"]
FRAMES += [
    "ORDER BY k RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
]
MAPS = [
    "sin(val) + val",
    "val * val * 0.3",
    "exp(0.3 * val)",
    "tanh(val)",
    "CASE WHEN val > 0.1 THEN val ELSE 2 * val END",
]


def _step(choices: Choices, c: str) -> tuple[str, str]:
    """A kind of step and its query over the CTE `c`."""
    part = choices.of(["", "PARTITION BY g "])
    aggregate = choices.of(AGGREGATES)
    kinds = {
        "map": f"SELECT k, g, {choices.of(MAPS)} AS val FROM {c}",
        "window": f"SELECT k, g, {choices.of(WINDOWS)} OVER ({part}{choices.of(FRAMES)}) AS val FROM {c}",
        "join": f"SELECT a.k, a.g, a.val * b.val AS val FROM {c} a JOIN {c} b ON b.k = (a.k + 1) % 6",
        "left join": f"""SELECT a.k, a.g, a.val * coalesce(b.val, 0.5) AS val
            FROM {c} a LEFT JOIN {c} b ON b.k = a.k + 1""",
        "groups": f"SELECT g AS k, g % 2 AS g, {aggregate} AS val FROM {c} GROUP BY g",
        "join of groups": f"""SELECT a.k, a.g, a.val * b.m AS val FROM {c} a
            JOIN (SELECT g, {aggregate} AS m FROM {c} GROUP BY g) b ON a.g = b.g""",
        "lag": f"""SELECT k, g, val - 0.5 * {choices.of(["LAG", "LEAD"])}(val, 1, 0.3) OVER ({part}ORDER BY k) AS val
            FROM {c}""",
        "condition": f"SELECT k, g, val FROM {c} WHERE {choices.of(['k <> 2', 'val > -0.5'])}",
        "limit": f"SELECT k, g, val FROM {c} ORDER BY val DESC, k LIMIT 4",
        "scalar": f"SELECT k, g, val * (SELECT {aggregate} FROM {c}) AS val FROM {c}",
        "correlated": f"SELECT k, g, val + (SELECT SUM(b.val * b.val) FROM {c} b WHERE b.g = a.g) AS val FROM {c} a",
        "union": f"""SELECT k, MAX(g) AS g, SUM(val) AS val FROM (SELECT k, g, val * val AS val FROM {c}
            UNION ALL SELECT (k + 1) % 6, g, sin(val) FROM {c}) GROUP BY k""",
        "top": f"""SELECT k, g, val FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY val DESC) AS n FROM {c})
            WHERE n <= 1""",
        "softmax": f"SELECT k, g, exp(val) / SUM(exp(val)) OVER ({part}) AS val FROM {c}",
    }
    kind = choices.of([*kinds, "window"])
    return kind, kinds[kind]


class _Chain:
    """A random chain of queries."""

    def __init__(self, choices: Choices) -> None:
        self.ctes: dict[str, str] = {}
        self.kinds: list[str] = []
        name = "w"
        for number in range(1 + choices.below(3)):
            kind, sql = _step(choices, name)
            name = f"c{number}"
            self.ctes[name] = sql
            self.kinds.append(kind)
        self.sql = with_ctes(f"SELECT k, val FROM {name}", self.ctes)
        self.loss = f"SELECT SUM(val * val * (k + 1)) AS l FROM ({self.sql})"


def _at(cells: list[float], *, differentiates: bool = True) -> SessionContext:
    return session({"w": {**ROWS, "val": cells}}, differentiates=differentiates)


def _slopes(values: Callable[[list[float]], list[float]]) -> NDArray[np.float64] | None:
    """The derivatives of values by cells, a column for each cell; nothing next to a kink."""
    columns = []
    for cell in range(len(CELLS)):

        def at(step: float, cell: int = cell) -> list[float]:
            return values([value + step * (number == cell) for number, value in enumerate(CELLS)])

        far = central(at)
        near = central(lambda step, at=at: at(step / 4)) * 4  # type: ignore[misc]
        if np.isnan(far).any() or not np.allclose(far, near, rtol=1e-6, atol=1e-7):
            return None
        columns.append(far)
    slopes: NDArray[np.float64] = np.array(columns).T
    return slopes


def _values(chain: _Chain) -> Callable[[list[float]], list[float]]:
    plain = _at(CELLS, differentiates=False)
    keys = sorted(row["k"] for row in query(plain, chain.sql).to_pylist())

    def values(cells: list[float]) -> list[float]:
        rows = {row["k"]: row["val"] for row in query(_at(cells, differentiates=False), chain.sql).to_pylist()}
        found = [rows.get(key) for key in keys] if len(rows) == len(keys) else [None] * len(keys)
        return [np.nan if value is None else value for value in found]

    return values


def _gradient(chain: _Chain) -> Callable[[list[float]], list[float]]:
    def values(cells: list[float]) -> list[float]:
        found = query(_at(cells), f"SELECT grad(({chain.loss}), val) AS d FROM w ORDER BY k").column("d")
        return [np.nan if value is None else value for value in found.to_pylist()]

    return values


def _judge(chain: _Chain, counts: Counter[str]) -> str | None:
    """What is wrong with the derivatives of a chain, if anything is."""
    values = _values(chain)
    first = _slopes(values)
    if first is None or not len(first):
        counts["next to a kink, or empty"] += 1
        return None
    ctx = _at(CELLS)
    try:
        jacobian = xql_ffi.jacobian(ctx, f"{chain.sql} ORDER BY k", "w.val", keys=["k"]).matrix().toarray()
        hessian = xql_ffi.hessian(ctx, chain.loss, "w.val").matrix().toarray()
        gradient = np.array(_gradient(chain)(CELLS))
    except BaseException as error:
        if not is_failure(error):
            raise
        if any(words in str(error) for words in _REFUSED):
            counts["refused"] += 1
            return None
        return f"{error}"
    scale = 1 + np.abs(first).max()
    if jacobian.shape != first.shape or not np.abs(jacobian - first).max() <= _TOLERANCE * scale:
        return f"the Jacobian is\n{jacobian}\ninstead of\n{first}"
    keys = sorted(row["k"] for row in query(ctx, chain.sql).to_pylist())
    by_rows = (2 * np.array(values(CELLS)) * (np.array(keys) + 1)) @ jacobian
    if not np.allclose(by_rows, gradient, rtol=1e-9, atol=1e-9 * scale):
        return f"the gradient is\n{gradient}\ninstead of\n{by_rows}"
    second = _slopes(_gradient(chain))
    if second is not None:
        counts["second"] += 1
        if not np.abs(hessian - second).max() <= _TOLERANCE * (1 + np.abs(second).max()):
            return f"the Hessian is\n{hessian}\ninstead of\n{second}"
    counts["right"] += 1
    counts.update(chain.kinds)
    return None


def test_chains(chunk: range) -> None:
    counts: Counter[str] = Counter()
    found = []
    numbers = [number for number in chunk if number % _EACH == 0]
    for number in numbers:
        chain = _Chain(Choices(random.Random(f"{SEED} jacobians {number}")))
        if finding := _judge(chain, counts):
            found.append(f"chain {number}: {finding}\n{chain.sql}")
    print(counts)
    if found:
        shown = "\n\n".join(found[:3])
        pytest.fail(f"{len(found)} of {len(numbers)} (XQL_FFI_TEST_SEED={SEED}):\n\n{shown}", pytrace=False)
    # A suite in which nothing is compared shows nothing.
    assert 2 * counts["right"] >= len(numbers)
    assert 2 * counts["second"] >= len(numbers)
