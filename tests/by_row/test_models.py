"""Gradients by row of models, against differences of their losses without any call."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from datafusion import SessionContext

from by_row.model_statements import random_statement
from by_row.model_verdict import Judge
from relations.choices import Choices, smallest
from support.findings import Finding
from support.seed import SEED

# One model for so many random plans.
EACH = 8
# Findings that one test shows.
_SHOWN = 3

Register = Callable[[SessionContext], SessionContext]


def _smallest(judge: Judge, finding: Finding, made: Sequence[int]) -> Finding:
    """A smaller statement that fails in the same way."""

    def fails(choices: Sequence[int]) -> bool:
        found = judge.judge(random_statement(Choices(choices)))
        return found is not None and found.kind == finding.kind

    return judge.judge(random_statement(Choices(smallest(made, fails, attempts=30)))) or finding


def test_models(register: Register, chunk: range) -> None:
    judge = Judge(register)
    found: list[tuple[int, Finding, Sequence[int]]] = []
    numbers = [number for number in chunk if number % EACH == 0]
    for number in numbers:
        choices = Choices(random.Random(f"{SEED} model {number}"))
        finding = judge.judge(random_statement(choices))
        if finding:
            found.append((number, finding, choices.made))
    print("\n".join(f"{kind}: {count}" for kind, count in sorted((judge.counts + judge.right).items())))
    shown = [
        f"model {number}: {finding}\nor smaller, {_smallest(Judge(register), finding, made)}"
        for number, finding, made in found[:_SHOWN]
    ]
    if found:
        pytest.fail(
            f"{len(found)} of {len(numbers)} models (XQL_FFI_TEST_SEED={SEED}):\n\n" + "\n\n".join(shown), pytrace=False
        )
    # A suite in which nothing is compared, or only zeros, shows nothing.
    assert judge.counts["gradients"] > 0.8 * len(numbers)
    assert judge.counts["slopes that are not 0"] > 0.7 * len(numbers)
