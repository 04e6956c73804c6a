"""Gradients by row of random values: what forward mode along a direction, differences and other sessions say."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from datafusion import SessionContext

from by_row.generation import Value, random_value
from by_row.verdict import Judge
from support.choices import Choices
from support.findings import Finding
from support.seed import SEED
from support.verdict import assert_right

# Values that are judged by differences and in other sessions as well.
THOROUGH = 8
# Values that are drawn for one that is not NULL and depends on the variables.
_DRAWS = 4

Register = Callable[[SessionContext], SessionContext]


def _drawn(judge: Judge, seed: str) -> tuple[Value, Sequence[int]]:
    """A value, if possible one that has a gradient, and the choices that make it."""
    for draw in range(_DRAWS):
        choices = Choices(random.Random(f"{seed} {draw}"))
        value = random_value(choices)
        if judge.is_of_use(value):
            break
    return value, choices.made


def test_gradients(register: Register, chunk: range) -> None:
    judge, others = Judge(register), Judge(register)

    def judged(number: int) -> tuple[Finding | None, Sequence[int]]:
        value, made = _drawn(judge, f"{SEED} {number}")
        return judge.judge(value, thorough=number % THOROUGH == 0), made

    def again(choices: Choices, number: int) -> Finding | None:
        return others.judge(random_value(choices), thorough=number % THOROUGH == 0)

    assert_right("value", judge, chunk, judged, again)
    # A suite in which nothing is compared, or only zeros, shows nothing.
    assert judge.share("gradients that are not 0", len(chunk)) > 0.4
    assert judge.share("equal along the direction", len(chunk)) > 0.6
    assert judge.share("refused", len(chunk)) < 0.1
    assert judge.share("DataFusion cannot", len(chunk)) < 0.1


def test_every_kind_of_node_has_been_right(register: Register) -> None:
    """Nothing that a value is made of is there for show: each has been in some value whose gradient is not 0."""
    judge = Judge(register)
    for number in range(1000):
        if not (KINDS - set(judge.right)):
            break
        value, _ = _drawn(judge, f"kinds {number}")
        if KINDS & value.kinds() - set(judge.right):
            judge.judge(value, thorough=False)
    assert not KINDS - set(judge.right)


KINDS = {
    "read table", "read cte", "read view", "read derived", "by table", "by cte", "by view", "by derived",
    "subquery", "cte", "view", "two relations", "two columns", "own cell beside the value",
    "projection", "scalar subquery", "filter", "filter by float", "filter by integer", "filter by null",
    "filter by exists", "filter by not exists", "filter by in", "filter by not in", "filter by value",
    "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN",
    "self join", "one query twice", "aggregate", "grouped by integer", "grouped by float", "grouped by both",
    "grouped by none", "grouping sets", "having", "windows", "window", "window range", "window groups",
    "window to the last peer", "union all", "distinct", "sort, limit", "aggregate of all", "the first row",
    "recursion", "recursion, last step", "recursion, every step", "recursion that stops by its values",
    "plain", "create table as", "prepare",
}  # fmt: skip
