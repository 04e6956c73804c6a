"""Gradients by row through recursive queries of which some iterations are kept, beside those with all of them kept."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext, udf

import xql_ffi
from by_row.generation import Value, random_value
from by_row.plans import Loop, Node
from by_row.test_named_cases import add, numbers
from by_row.test_recursions import CELLS, add_stencil, gradient, lorenz
from by_row.verdict import Judge
from support.choices import Choices
from support.seed import SEED

KEPT = [1, 2, 3, 7]
# A value is computed for each of these and by all iterations, so that one in so many of the others' numbers does.
_STRIDE = 5
# Of values with a recursive query, so many draws are looked through for one.
_DRAWS = 60

Register = Callable[[SessionContext], SessionContext]


def _keep(session: SessionContext, kept: int) -> None:
    session.sql(f"SET xql.checkpoints = {kept}").collect()


def _loops(node: Node) -> Iterator[Loop]:
    if isinstance(node, Loop):
        yield node
    for use in node.uses():
        yield from _loops(use.node)


def _recursive(seed: str) -> Value | None:
    """A value with a recursive query of more iterations than are kept."""
    for draw in range(_DRAWS):
        choices = Choices(random.Random(f"{seed} {draw}"))
        value = random_value(choices)
        loops = list(_loops(value.use.node))
        if not loops or not value.depends():
            continue
        for loop in loops:
            loop.count = 4 + choices.below(9)
            if not loop.is_last:
                # There are rows of all iterations, which what stands above is not made for.
                loop.count = 4
        return value
    return None


def test_random_recursive_plans(register: Register, chunk: range) -> None:
    judge = Judge(register)
    counts: Counter[str] = Counter()
    found = []
    numbered = chunk[::_STRIDE]
    for number in numbered:
        value = _recursive(f"checkpoints {SEED} {number}")
        if value is None:
            continue
        finding = judge.kept(value, KEPT)
        if finding:
            found.append(f"value {number} (XQL_FFI_TEST_SEED={SEED}): {finding}")
        counts["values"] += 1
    print(judge.counts)
    assert not found, "\n\n".join(found[:3])
    assert judge.counts["equal with some iterations kept"] > 0.7 * counts["values"]
    assert counts["values"] > 0.5 * len(numbered)


@pytest.mark.parametrize("observed", ["r.step = 12", "r.step % 4 = 0", "true"])
def test_a_field_with_neighbours(session: SessionContext, observed: str) -> None:
    session.sql("SET datafusion.execution.target_partitions = 1").collect()
    add(session, "field", 8 + numbers(1, CELLS), "cell")
    add(session, "o", 8 + numbers(2, 13, CELLS), "step", "cell")
    add_stencil(session, CELLS)
    ctes = f"""{lorenz(12, "field")}, loss AS (SELECT SUM(power(r.val - o.val, 2)) AS l
        FROM r JOIN o ON o.step = r.step AND o.cell = r.cell WHERE {observed})"""
    statement = gradient(ctes, "field", "cell")

    def slopes() -> list[float]:
        found: list[float] = session.sql(statement).to_arrow_table().sort_by("cell")["d"].to_pylist()
        return found

    expected = slopes()
    for kept in [1, 2, 3, 5, 12, 13, 100]:
        _keep(session, kept)
        assert slopes() == expected, kept


def test_what_is_refused(session: SessionContext) -> None:
    add(session, "w", numbers(3, 4), "k")
    ctes = """r AS (SELECT 0 AS step, k, val FROM w
            UNION ALL SELECT step + 1, k, sin(val) + random() FROM r WHERE step < 4),
        loss AS (SELECT SUM(val) AS l FROM r)"""
    statement = gradient(ctes, "w", "k")
    assert session.sql(statement).to_arrow_table().num_rows == 4
    _keep(session, 3)
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=r"iterations of the recursive query r draw random"):
        session.sql(statement).to_arrow_table()
    _keep(session, 0)
    assert session.sql(statement).to_arrow_table().num_rows == 4
    with pytest.raises(Exception, match=r"xql\.checkpoints is a number of iterations, or 0 for all"):
        session.sql("SET xql.checkpoints = many").collect()


def test_a_function_that_changes_and_does_not_say_so(session: SessionContext) -> None:
    calls = iter(range(10_000))

    def counted(values: pa.Array) -> pa.Array:
        call = next(calls)
        return pa.array([float(call)] * len(values))

    session.register_udf(udf(counted, [pa.int64()], pa.float64(), "stable", "counted"))
    add(session, "w", numbers(4, 4), "k")
    ctes = """r AS (SELECT 0 AS step, k, val, 0.0 AS seen FROM w
            UNION ALL SELECT step + 1, k, sin(val), counted(k) FROM r WHERE step < 5),
        loss AS (SELECT SUM(val) AS l FROM r)"""
    _keep(session, 2)
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=r"iteration 5 of the recursive query r has other rows"):
        session.sql(gradient(ctes, "w", "k")).to_arrow_table()
    _keep(session, 0)
    assert np.isfinite(session.sql(gradient(ctes, "w", "k")).to_arrow_table()["d"].to_numpy()).all()
