"""A memory pool that is too small: an error or the right result, no wait without end, and the session goes on."""

from __future__ import annotations

import pyarrow as pa
import pytest
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

from support.processes import json_of
from support.sessions import session

_ROWS = 20_000
_STATEMENTS = {
    "a gradient by row": """
        WITH h AS (SELECT k, SUM(x * x) AS v FROM t GROUP BY k)
        SELECT grad((SELECT SUM(v * v) FROM h), x) AS d FROM t""",
    "an aggregate": "SELECT k, x, grad(SUM(x * y), x) AS d FROM t GROUP BY k, x",
    "a window": "SELECT jvp(SUM(x * x) OVER (PARTITION BY k ORDER BY y), x, 1.0) AS d FROM t",
    "iterations": """
        WITH RECURSIVE r AS (
            SELECT 0 AS s, k, x FROM t UNION ALL SELECT s + 1, k, x - 0.1 * grad(x * x, x) FROM r WHERE s < 5)
        SELECT s, SUM(x) AS d FROM r GROUP BY s""",
}


def _limited(runtime: RuntimeEnvBuilder) -> SessionContext:
    config = SessionConfig().with_target_partitions(2).with_batch_size(1024)
    ctx = session(config=config, runtime=runtime)
    numbers = range(_ROWS)
    columns = {"k": [i % 5000 for i in numbers], "x": [1.0 + i for i in numbers], "y": [i / 7 for i in numbers]}
    table = pa.table(columns)
    ctx.register_record_batches("t", [table.to_batches(max_chunksize=1024)])
    return ctx


def _outcome(statement: str, pool: str, size: int) -> str:
    runtime = getattr(RuntimeEnvBuilder().with_disk_manager_disabled(), f"with_{pool}")(size)
    ctx = _limited(runtime)
    try:
        found = str(sorted(round(d, 3) for d in ctx.sql(statement).to_pydict()["d"]))
    except Exception as error:
        found = str(error)
    # What has failed holds nothing any more.
    assert ctx.sql("SELECT COUNT(grad(x * x, x)) AS n FROM t").to_pydict() == {"n": [_ROWS]}
    return found


def outcomes() -> dict[str, list[str]]:
    """For each statement the outcomes with pools that are large, small and very small."""
    pools = [("greedy_memory_pool", 1 << 30)]
    pools += [(kind, size) for kind in ("greedy_memory_pool", "fair_spill_pool") for size in (1 << 18, 1 << 15)]
    return {name: [_outcome(sql, *pool)[-300:] for pool in pools] for name, sql in _STATEMENTS.items()}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """In a process of its own, so that a wait without end fails."""
    program = "import json\nfrom load.test_memory_pool import outcomes\nprint(json.dumps(outcomes()))"
    made: dict[str, list[str]] = json_of(["-c", program], engine=True)
    return made


@pytest.mark.parametrize("name", _STATEMENTS)
def test_it_is_an_error_or_right(name: str, found: dict[str, list[str]]) -> None:
    right, *others = found[name]
    assert "Resources exhausted" not in right
    refused = [outcome for outcome in others if "Resources exhausted" in outcome]
    assert all(outcome == right for outcome in others if outcome not in refused)


def test_the_pools_are_too_small_for_some(found: dict[str, list[str]]) -> None:
    refused = [name for name, all_of in found.items() if any("Resources exhausted" in outcome for outcome in all_of)]
    assert "a gradient by row" in refused
    assert len(refused) >= 2
