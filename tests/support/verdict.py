"""What judges of generated statements have in common: how these are carried out, and what a test says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import pytest

from support.choices import Choices, smallest
from support.findings import Finding
from support.seed import SEED

# Where a query stands that is not run by itself.
PLAIN, VIEW, CREATE, INSERT, PREPARE = "plain", "view", "create table as", "insert", "prepare"
# Findings that one test shows.
_SHOWN = 3
# The letters of an error that tell it from others.
_SHORT = 110

S = TypeVar("S")


class Judge(Generic[S]):
    """Judges statements; counts what it has compared."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # By what statements are made of, how many derivatives that are not 0 came out right of those with it.
        self.right: Counter[str] = Counter()

    def cannot(self, why: object) -> None:
        """Counts a statement that DataFusion does not run by itself either."""
        self.counts[f"DataFusion cannot: {short(why)}"] += 1

    def share(self, beginning: str, number: int) -> float:
        """How many of so many statements are counted under a name that begins so."""
        return sum(count for kind, count in self.counts.items() if kind.startswith(beginning)) / number


def short(error: object) -> str:
    """What an error begins with."""
    return str(error)[:_SHORT].replace("\n", " ")


@contextmanager
def placed(ctx: Any, query: str, place: str, columns: str) -> Iterator[Any]:
    """The frame of a query that stands somewhere; what is made for it is gone afterwards.

    `columns` is the query, or one with the same columns, of which a table is made that the query is inserted into.
    """
    if place == PLAIN:
        yield ctx.sql(query)
    elif place == PREPARE:
        ctx.sql(f"PREPARE prepared AS {query}").collect()
        try:
            yield ctx.sql("EXECUTE prepared")
        finally:
            ctx.sql("DEALLOCATE prepared").collect()
    else:
        kind = "VIEW" if place == VIEW else "TABLE"
        try:
            if place == INSERT:
                ctx.sql(f"CREATE TABLE result AS SELECT * FROM ({columns}) AS q WHERE false").collect()
                ctx.sql(f"INSERT INTO result {query}").collect()
            else:
                ctx.sql(f"CREATE {kind} result AS {query}").collect()
            yield ctx.sql("SELECT * FROM result")
        finally:
            ctx.sql(f"DROP {kind} IF EXISTS result").collect()


def assert_right(
    what: str,
    judge: Judge[Any],
    numbers: Collection[int],
    judged: Callable[[int], tuple[Finding | None, Sequence[int]]],
    again: Callable[[Choices, int], Finding | None],
    attempts: int = 80,
) -> None:
    """Fails with what is found wrong with statements by number, as they are and as small as they get.

    `judged` gives what is wrong with one, and the choices that it is made of; `again` what is wrong with one of other
    choices.
    """
    found = [(number, *judged(number)) for number in numbers]
    print("\n".join(f"{kind}: {count}" for kind, count in sorted((judge.counts + judge.right).items())))
    wrong = [(number, finding, made) for number, finding, made in found if finding]
    shown = []
    for number, finding, made in wrong[:_SHOWN]:

        def fails(choices: Sequence[int], number: int = number, kind: str = finding.kind) -> bool:
            smaller = again(Choices(choices), number)
            return smaller is not None and smaller.kind == kind

        smaller = again(Choices(smallest(made, fails, attempts=attempts)), number) or finding
        shown.append(f"{what} {number}: {finding}\nor smaller, {smaller}")
    if wrong:
        said = f"{len(wrong)} of {len(numbers)} {what}s (XQL_FFI_TEST_SEED={SEED}):"
        pytest.fail("\n\n".join([said, *shown]), pytrace=False)
