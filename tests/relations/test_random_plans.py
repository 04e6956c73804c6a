"""Random plans with a derivative of a column by a column far below it, against differences of the same query."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from datafusion import SessionContext

from relations.statements import statement
from relations.verdict import Judge
from support.choices import Choices
from support.findings import Finding
from support.seed import SEED
from support.verdict import assert_right

Register = Callable[[SessionContext], SessionContext]


def _finding(judge: Judge, choices: Choices) -> Finding | None:
    return judge.judge(statement(choices))


def test_plans(register: Register, chunk: range) -> None:
    judge, others = Judge(register), Judge(register)

    def judged(number: int) -> tuple[Finding | None, Sequence[int]]:
        choices = Choices(random.Random(f"{SEED} {number}"))
        return _finding(judge, choices), choices.made

    assert_right("plan", judge, chunk, judged, lambda choices, _: _finding(others, choices))
    # A suite in which nothing is compared, or only zeros, shows nothing.
    assert judge.counts["plans with a derivative that is not 0"] > 0.25 * len(chunk)
    assert judge.counts["plans of which differences tell nothing"] < 0.1 * len(chunk)
    assert judge.share("DataFusion cannot", len(chunk)) < 0.15


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
