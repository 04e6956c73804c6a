"""Random plans with a derivative of a column by a column far below it, against differences of the same query."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from datafusion import SessionContext

from relations.choices import Choices, smallest
from relations.statements import statement
from relations.verdict import Judge
from support.findings import Finding
from support.seed import SEED

# Findings that one test shows.
_SHOWN = 3

Register = Callable[[SessionContext], SessionContext]


def _finding(judge: Judge, choices: Choices) -> Finding | None:
    return judge.judge(statement(choices))


def _smallest(judge: Judge, finding: Finding, made: Sequence[int]) -> Finding:
    """A smaller plan that fails in the same way."""

    def fails(choices: Sequence[int]) -> bool:
        found = _finding(judge, Choices(choices))
        return found is not None and found.kind == finding.kind

    return _finding(judge, Choices(smallest(made, fails))) or finding


def test_plans(register: Register, chunk: range) -> None:
    judge = Judge(register)
    found: list[tuple[int, Finding, list[int]]] = []
    for number in chunk:
        choices = Choices(random.Random(f"{SEED} {number}"))
        finding = _finding(judge, choices)
        if finding:
            found.append((number, finding, choices.made))
    counts = Counter(judge.counts)
    print("\n".join(f"{kind}: {count}" for kind, count in sorted((counts + judge.right).items())))
    again = Judge(register)
    shown = [
        f"plan {number}: {finding}\nor smaller, {_smallest(again, finding, made)}"
        for number, finding, made in found[:_SHOWN]
    ]
    if found:
        pytest.fail(
            f"{len(found)} of {len(chunk)} plans (XQL_FFI_TEST_SEED={SEED}):\n\n" + "\n\n".join(shown), pytrace=False
        )
    # A suite in which nothing is compared, or only zeros, shows nothing.
    assert counts["plans with a derivative that is not 0"] > 0.25 * len(chunk)
    assert counts["plans of which differences tell nothing"] < 0.1 * len(chunk)
    assert sum(count for kind, count in counts.items() if kind.startswith("DataFusion cannot")) < 0.15 * len(chunk)


def test_every_kind_of_node_has_been_right(register: Register) -> None:
    """Nothing that a plan is made of is there for show: each has been in some plan whose derivative is not 0."""
    judge = Judge(register)
    for number in range(2000):
        if not (KINDS - set(judge.right)):
            break
        _finding(judge, Choices(random.Random(f"kinds {number}")))
    assert not KINDS - set(judge.right)


KINDS = {
    "scan", "values", "projection", "filter", "sort, limit", "distinct", "unnest", "aggregate", "window", "recursive",
    "union", "union all", "lateral", "join", "cross join", "left join", "right join", "full join", "self join",
    "grouping sets", "filter by exists", "filter by not exists", "filter by in", "filter by not in", "filter by float",
    "plain", "view", "create table as", "insert", "prepare",
    "grad", "jvp", "vjp", "jvp of two", "second order", "own cell", "derivative of a derivative below",
    "plain at the top", "aggregate at the top", "average of calls at the top", "window at the top",
    "group key at the top", "grouping sets at the top",
}  # fmt: skip
