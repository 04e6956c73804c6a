"""That the suite notices what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from conformance.cases import Case, grad, second, value
from conformance.expressions import Expression, build, column
from conformance.paths import Session
from conformance.points import ORDINARY, points
from conformance.verdict import Judge

Change = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
X, Y, Z, S = (column(name) for name in "xyzs")
AT = points(11)


class Wrong(Session):
    """A path on which the derivatives go wrong."""

    def __init__(self, change: Change, rows: slice) -> None:
        self.change, self.rows = change, rows

    def evaluate(self, table: pa.Table, calls: Sequence[str]) -> pa.Table:
        found = super().evaluate(table, calls)
        for number, call in enumerate(calls):
            if call.startswith("grad("):
                null = np.array(found.column(number).is_null())
                values = np.array(found.column(number).fill_null(0.0))
                values[self.rows] = self.change(values[self.rows])
                changed = pa.array(values, found.schema.types[number], mask=null)
                found = found.set_column(number, found.schema.names[number], changed)
        return found


def _case(expression: Expression, *by: str) -> Case:
    call = grad(expression, by[0]) if len(by) == 1 else second(expression, by[0], by[1])
    return Case(expression, [value(expression), call])


CASES = [
    _case(build("sin({0})", build("{0} * {1}", X, Y)), "x"),
    _case(build("exp({0})", build("sin({0})", X)), "x"),
    _case(build("{0} / {1}", X, build("{0} + {1}", build("{0} * {0}", Y), 0.5)), "y"),
    _case(build("power({0}, 3)", Z), "z"),
    _case(build("tanh({0})", X), "x"),
    _case(build("ln({0})", build("{0} + {1}", build("{0} * {0}", X), 0.5)), "x", "x"),
    _case(build("atan2({0}, {1})", X, Y), "x", "y"),
    _case(build("coalesce({0}, {1})", build("sin({0})", Z), build("{0} * {0}", X)), "z"),
]
ALL, ORDINARY_ROWS = slice(0, None), slice(0, ORDINARY)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.calls[1].sql)
def test_what_is_right_is_accepted(case: Case) -> None:
    assert Judge(Session(), AT).disagreements([case]) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.calls[1].sql)
@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda v: v * (1 + 1e-10), ORDINARY_ROWS),
        (lambda v: -v, ORDINARY_ROWS),
        (lambda v: v + 1, ORDINARY_ROWS),
        (lambda v: np.where(v == 0, v, np.nan), ORDINARY_ROWS),
        (lambda v: v + 1e-9, slice(ORDINARY + 2, ORDINARY + 3)),  # at 1
        (lambda v: v * np.nan, slice(ORDINARY + 3, ORDINARY + 4)),  # at -1
    ],
    ids=["off by 1e-10", "sign", "a term too many", "NaN", "wrong at 1", "NaN at -1"],
)
def test_what_is_wrong_is_noticed(case: Case, change: Change, rows: slice) -> None:
    found = Judge(Wrong(change, rows), AT).disagreements([case])
    assert [disagreement.call.sql for disagreement in found] == [case.calls[1].sql]


@pytest.mark.parametrize("change", [lambda v: v * (1 + 1e-4), lambda v: v * np.nan])
def test_single_precision(change: Change) -> None:
    case = _case(build("sin({0})", build("{0} * {0}", S)), "s")
    assert Judge(Session(), AT).disagreements([case]) == []
    assert Judge(Wrong(change, ORDINARY_ROWS), AT).disagreements([case])


def test_conventions_at_kinks_are_checked() -> None:
    """At 0 of abs, and on ties: the points have both."""
    zeros = slice(ORDINARY, ORDINARY + 2)
    for case in (_case(build("abs({0})", X), "x"), _case(build("greatest({0}, {1})", X, Y), "x")):
        assert Judge(Session(), AT).disagreements([case]) == []
        assert Judge(Wrong(lambda v: v + 0.5, zeros), AT).disagreements([case])


def test_a_product_of_divisors_may_overflow() -> None:
    """Then the derivative is 0 instead of 1e-300. Where it is 1e-160, it is not."""
    root = build("nullif({0}, {1})", build("sqrt({0})", build("abs({0})", X)), Y)
    case = _case(build("log2({0})", build("{0} + {1}", build("{0} * {0}", root), 0.5)), "x")
    large = slice(ORDINARY + 9, ORDINARY + 10)
    assert AT.numbers["x"][large] == 1e300
    values = Session().evaluate(AT.table, [case.calls[1].sql])["c0"]
    assert values[ORDINARY + 9].as_py() == 0.0
    assert Judge(Session(), AT).disagreements([case]) == []
    case = _case(build("log2({0})", build("{0} + {1}", build("abs({0})", X), 0.5)), "x")
    assert Judge(Wrong(np.zeros_like, slice(ORDINARY + 8, ORDINARY + 9)), AT).disagreements([case])


class Refusing(Session):
    """A path that cannot do what it is asked for."""

    def evaluate(self, table: pa.Table, calls: Sequence[str]) -> pa.Table:
        if any(call.startswith("grad(") for call in calls):
            raise ValueError("no derivative is known")
        return super().evaluate(table, calls)


class Typed(Session):
    """A path whose derivatives have the wrong type."""

    def evaluate(self, table: pa.Table, calls: Sequence[str]) -> pa.Table:
        found = super().evaluate(table, calls)
        return found.cast(pa.schema([pa.field(field.name, pa.float32()) for field in found.schema]))


class Nullable(Session):
    """A path that forgets what is NULL."""

    def evaluate(self, table: pa.Table, calls: Sequence[str]) -> pa.Table:
        found = super().evaluate(table, calls)
        columns = [c if i == 0 else c.fill_null(0.0) for i, c in enumerate(found.columns)]
        return pa.Table.from_arrays(columns, names=found.schema.names)


@pytest.mark.parametrize(
    ("path", "says"),
    [(Refusing(), "fails.*no derivative"), (Typed(), "is float instead of double"), (Nullable(), "NULL")],
)
def test_other_faults(path: Session, says: str) -> None:
    case = CASES[3]
    found = Judge(path, AT).disagreements([case])
    assert found
    assert all(re.search(says, disagreement.reason) for disagreement in found)
    assert case.calls[1].sql in found[-1].describe(path, AT)


def test_the_smallest_expression_is_found() -> None:
    """Of a large one whose fault is in a small part."""

    class WrongSine(Session):
        def evaluate(self, table: pa.Table, calls: Sequence[str]) -> pa.Table:
            found = super().evaluate(table, calls)
            names = found.schema.names
            columns = [
                pa.array(np.array(column.fill_null(0.5)) + 1, mask=np.array(column.is_null()))
                if call.startswith("grad(") and "tan(" in call
                else column
                for call, column in zip(calls, found.columns, strict=True)
            ]
            return pa.Table.from_arrays(columns, names=names)

    large = build("{0} * {1}", build("exp({0})", build("sin({0})", build("tan({0})", build("tanh({0})", X)))), Y)
    judge = Judge(WrongSine(), AT)
    (found,) = judge.disagreements([_case(large, "x")])
    assert judge.smallest(found).call.sql == "grad((tan(x)), x)"
