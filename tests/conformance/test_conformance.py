"""Random expressions in SQL and in JAX: values, first and second derivatives, at ordinary points and at edges."""

from __future__ import annotations

import pytest

from conformance.generation import generated
from conformance.paths import Session
from conformance.points import points
from conformance.verdict import Judge
from support.seed import SEED

# Disagreements that one test shows.
_SHOWN = 8
CHUNK = 500


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        number = metafunc.config.getoption("conformance")
        sizes = [min(CHUNK, number - start) for start in range(0, number, CHUNK)]
        metafunc.parametrize(("seed", "number"), [(SEED + i, size) for i, size in enumerate(sizes)])


def test_session(seed: int, number: int) -> None:
    """The functions registered with a session, on `number` expressions."""
    at = points(seed)
    judge = Judge(Session(), at)
    found = judge.disagreements(generated(number, seed))
    print("\n".join(f"{kind}: {count}" for kind, count in sorted(judge.counts.items())))
    # One of each expression, made as small as it gets.
    by_expression = {disagreement.case.expression.sql: disagreement for disagreement in reversed(found)}
    smallest = [judge.smallest(disagreement) for disagreement in list(by_expression.values())[:_SHOWN]]
    shown = dict.fromkeys(disagreement.describe(judge.path, at) for disagreement in smallest)
    assert not found, f"{len(found)} calls disagree (XQL_FFI_TEST_SEED={seed}):\n\n" + "\n\n".join(shown)
    # Nearly all is compared to the full precision, or the suite would show little.
    counts = judge.counts
    assert counts["ordinary: well-conditioned"] > 0.8 * counts["ordinary: finite"] > number * 10
    assert counts["expressions that DataFusion cannot evaluate"] < 0.1 * number
