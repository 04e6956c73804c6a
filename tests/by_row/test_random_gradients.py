"""Gradients by row of random values: what forward mode along a direction, differences and other sessions say."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from datafusion import SessionContext

from by_row.generation import Value, random_value
from by_row.verdict import Judge
from relations.choices import Choices, smallest
from support.findings import Finding
from support.seed import SEED

# Values that are judged by differences and in other sessions as well.
THOROUGH = 8
# Findings that one test shows.
_SHOWN = 3
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


def _smallest(judge: Judge, finding: Finding, made: Sequence[int], *, thorough: bool) -> Finding:
    """A smaller value that fails in the same way."""

    def fails(choices: Sequence[int]) -> bool:
        found = judge.judge(random_value(Choices(choices)), thorough=thorough)
        return found is not None and found.kind == finding.kind

    return judge.judge(random_value(Choices(smallest(made, fails))), thorough=thorough) or finding


def test_gradients(register: Register, chunk: range) -> None:
    judge = Judge(register)
    found: list[tuple[int, Finding, Sequence[int]]] = []
    for number in chunk:
        value, made = _drawn(judge, f"{SEED} {number}")
        finding = judge.judge(value, thorough=number % THOROUGH == 0)
        if finding:
            found.append((number, finding, made))
    counts = Counter(judge.counts)
    print("\n".join(f"{kind}: {count}" for kind, count in sorted((counts + judge.right).items())))
    again = Judge(register)
    shown = [
        f"value {number}: {finding}\nor smaller, {_smallest(again, finding, made, thorough=number % THOROUGH == 0)}"
        for number, finding, made in found[:_SHOWN]
    ]
    if found:
        pytest.fail(
            f"{len(found)} of {len(chunk)} values (XQL_FFI_TEST_SEED={SEED}):\n\n" + "\n\n".join(shown), pytrace=False
        )

    def share(beginning: str) -> float:
        return sum(count for kind, count in counts.items() if kind.startswith(beginning)) / len(chunk)

    # A suite in which nothing is compared, or only zeros, shows nothing.
    assert share("gradients that are not 0") > 0.4
    assert share("equal along the direction") > 0.6
    assert share("refused") < 0.1
    assert share("DataFusion cannot") < 0.1


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
