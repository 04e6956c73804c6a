"""Derivatives of random expressions with subqueries that read the relation of the variable, against differences.

A subquery is no other reference: the derivative counts the row's own cell wherever it is read. What FROM has, LATERAL
included, is another reference.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from datafusion import SessionContext
from numpy.typing import NDArray

from by_row.subqueries import OTHERS, ROWS, Statement, Writer
from support import differences
from support.cases import query
from support.choices import Choices, smallest
from support.errors import is_failure
from support.seed import SEED
from support.sessions import session

# One statement of so many plans: each takes the execution of many.
_EACH = 10
_TOLERANCE = 1e-7
# Words of refusals, and of what DataFusion itself cannot do.
_REFUSED = (
    "Write it as a join",
    "Take the derivative below",
    "in place of the column",
)

Register = Callable[[SessionContext], SessionContext]
Rows = dict[int, float]
TABLES = {"m": ROWS, "base": ROWS, "n": OTHERS}


class Judge:
    """Compares derivatives with differences, and counts what it has compared."""

    def __init__(self) -> None:
        self._plain = session(TABLES, differentiates=False)
        self._ctx = session(TABLES)
        self.counts: Counter[str] = Counter()
        self.right: Counter[str] = Counter()

    def judge(self, statement: Statement) -> str | None:
        """What is wrong with a statement, if anything is."""
        try:
            base = self._rows(self._plain, statement.query(derivative=False))
        except Exception:
            self.counts["DataFusion cannot"] += 1
            return None
        try:
            found = self._rows(self._ctx, statement.query(derivative=True))
        except BaseException as error:
            if not is_failure(error):
                raise
            return self._failed(str(error))
        expected = self._expected(statement, base)
        difference = _apart(base, expected, found)
        if difference is None:
            self.counts["right"] += 1
            if any(found.values()):
                self.counts["not 0"] += 1
                self.right.update(statement.kinds)
        return difference

    def _failed(self, message: str) -> str | None:
        if any(words in message for words in _REFUSED):
            self.counts["refused"] += 1
            return None
        return message

    def _expected(self, statement: Statement, base: Rows) -> NDArray[np.float64]:
        keys = list(base)

        def moved(cells: str) -> Callable[[float], list[float]]:
            def at(step: float) -> list[float]:
                rows = self._rows(self._plain, statement.query(derivative=False, moved=f" + {step!r}{cells}"))
                return [rows.get(key, np.nan) for key in keys]

            return at

        if statement.operator.startswith("jvp"):
            return differences.central(moved(""))
        slopes = {key: differences.central(moved(f" * CASE WHEN k = {key} THEN 1 ELSE 0 END")) for key in set(keys)}
        return np.array([slopes[key][place] for place, key in enumerate(keys)])

    def _rows(self, ctx: SessionContext, sql: str) -> Rows:
        # A join repeats rows, with equal values.
        rows = query(ctx, sql)
        values = rows.column("d").to_numpy(zero_copy_only=False).astype(float)
        return dict(zip(rows.column("k").to_pylist(), values, strict=True))


def _apart(base: Rows, expected: NDArray[np.float64], found: Rows) -> str | None:
    if list(base) != list(found):
        return f"the rows {list(found)} instead of {list(base)}"
    for (key, value), slope in zip(base.items(), expected, strict=True):
        if np.isnan(value) != np.isnan(found[key]):
            return f"in row {key} {found[key]}, where the value is {value}"
        if np.isfinite(slope) and not abs(found[key] - slope) <= _TOLERANCE * (1 + abs(slope) + abs(value)):
            return f"in row {key} {found[key]} instead of {slope}"
    return None


def _shown(statement: Statement, finding: str) -> str:
    return f"{finding}\n{statement.query(derivative=True)}"


def _smallest(finding: str, made: Sequence[int]) -> str:
    judge = Judge()

    def judged(choices: Sequence[int]) -> tuple[Statement, str | None]:
        statement = Writer(Choices(choices)).statement()
        return statement, judge.judge(statement)

    def fails(choices: Sequence[int]) -> bool:
        found = judged(choices)[1]
        return found is not None and found[:12] == finding[:12]

    statement, found = judged(smallest(made, fails))
    return _shown(statement, found or finding)


def test_subqueries(chunk: range) -> None:
    judge = Judge()
    found = []
    numbers = [number for number in chunk if number % _EACH == 0]
    for number in numbers:
        choices = Choices(random.Random(f"{SEED} subqueries {number}"))
        statement = Writer(choices).statement()
        if finding := judge.judge(statement):
            found.append((number, finding, choices.made, statement))
    print(judge.counts, judge.right)
    if found:
        shown = [
            f"statement {number}: {_shown(statement, finding)}\nor smaller, {_smallest(finding, made)}"
            for number, finding, made, statement in found[:3]
        ]
        pytest.fail(
            f"{len(found)} of {len(numbers)} (XQL_FFI_TEST_SEED={SEED}):\n\n" + "\n\n".join(shown), pytrace=False
        )
    # A suite in which nothing is compared, or only zeros, shows nothing.
    assert judge.counts["not 0"] >= 0.5 * len(numbers)
    assert judge.counts["refused"] <= 0.1 * len(numbers)
