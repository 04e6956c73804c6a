"""Cases from a seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.cases import Case, cases

# After ten examples, Hypothesis takes to varying those that it has.
_QUIET = settings(
    max_examples=10, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


def generated(number: int, seed: int) -> list[Case]:
    """So many cases of different expressions, the same ones for the same seed."""
    found: dict[str, Case] = {}
    for run in itertools.count():
        for case in _run(seed * 1000 + run):
            found.setdefault(case.expression.sql, case)
            if len(found) == number:
                return list(found.values())
    raise AssertionError


def _run(seed: int) -> Iterator[Case]:
    lists: list[list[Case]] = []

    @hypothesis.seed(seed)
    @_QUIET
    @given(st.lists(cases(), min_size=20, max_size=20))
    def collect(drawn: list[Case]) -> None:
        lists.append(drawn)

    collect()
    return itertools.chain.from_iterable(lists)
