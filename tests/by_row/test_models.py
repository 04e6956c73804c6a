"""Gradients by row of models, against differences of their losses without any call."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from datafusion import SessionContext

from by_row.model_statements import random_statement
from by_row.model_verdict import Judge
from support.choices import Choices
from support.findings import Finding
from support.seed import SEED
from support.verdict import assert_right

# One model for so many random plans.
EACH = 8

Register = Callable[[SessionContext], SessionContext]


def test_models(register: Register, chunk: range) -> None:
    judge = Judge(register)
    numbers = [number for number in chunk if number % EACH == 0]

    def judged(number: int) -> tuple[Finding | None, Sequence[int]]:
        choices = Choices(random.Random(f"{SEED} model {number}"))
        return judge.judge(random_statement(choices)), choices.made

    def again(choices: Choices, _: int) -> Finding | None:
        return Judge(register).judge(random_statement(choices))

    assert_right("model", judge, numbers, judged, again, attempts=30)
    # A suite in which nothing is compared, or only zeros, shows nothing.
    assert judge.counts["gradients"] > 0.8 * len(numbers)
    assert judge.counts["slopes that are not 0"] > 0.7 * len(numbers)
