"""Cases: an expression, its calls of grad, jvp and vjp, and what each of them has to be at the points."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from conformance.arithmetic import Evaluation, Numbers
from conformance.derivatives import Columns, Function, forward, number, reverse, scaled, slope, slope_in_reverse, total
from conformance.expressions import COLUMNS, Expression, expressions
from conformance.language import DOUBLE, SINGLE
from conformance.points import Points
from conformance.values import Array, constant, either


@dataclass(frozen=True)
class Call:
    """A call in SQL: the expression itself, or one of its derivatives."""

    sql: str
    dtype: Any
    # Ways of computing it that agree as real numbers, though one may be NaN where another is not.
    ways: Sequence[Function]
    order: int
    # The partial derivatives of the first operand that it is the sum of: by what, and times what.
    terms: Sequence[tuple[Sequence[str], Expression | None]]
    # It is NULL where one of these is.
    operands: Sequence[Expression]
    # The same call of another expression.
    of: Callable[[Expression], Call]


@dataclass(frozen=True)
class Reference:
    """What a call has to be, at each point."""

    dtype: Any
    null: NDArray[np.bool_]
    # For each way, the value in the type of the call and that in extended precision.
    values: Sequence[tuple[Numbers, Numbers]]
    # How far off rounding errors may bring it.
    spread: Numbers
    # Where the language does not say what the expression is.
    doubtful: NDArray[np.bool_]
    # Whether single precision takes part.
    single: bool
    # Where the expression itself is NaN or infinite.
    outside: NDArray[np.bool_]
    # Where powers of the columns overflow or vanish.
    extreme: NDArray[np.bool_]
    # What rounding makes of terms that cancel exactly, by the size of the columns.
    residue: Numbers
    order: int
    # Whether the call is a product with a factor of the user's, which may be NaN where the derivative is 0.
    product: bool


@dataclass(frozen=True)
class Case:
    """An expression and the calls that are made of it."""

    expression: Expression
    calls: Sequence[Call]

    def smaller(self, call: Call) -> Iterator[Case]:
        """Cases of smaller expressions, with the expression itself and this one call."""
        smaller = {e.sql: e for e in self.expression.smaller() if len(e.sql) < len(self.expression.sql)}
        for expression in sorted(smaller.values(), key=lambda e: len(e.sql)):
            yield Case(expression, [value(expression), call.of(expression)])

    def trace(self) -> tuple[Any, list[list[Any]]]:
        """What JAX traces for columns and masks of NULLs, and the results by call: NULL, doubtful, and each way."""

        def traced(numbers: Mapping[str, Array], nulls: Mapping[str, Array]) -> list[list[Array]]:
            columns = Columns(numbers, nulls)
            never = constant(False, bool)
            out = []
            for call in self.calls:
                null = either(*(columns.value(operand).null for operand in call.operands))
                unclear = either(*(columns.comparisons[operand.sql].open for operand in call.operands))
                values = [way(columns) for way in call.ways]
                out.append([never if flag is False else flag for flag in (null, unclear)] + values)
            return out

        closed, structure = jax.make_jaxpr(traced, return_shape=True)(*traced_columns())
        return closed, structure

    def references(self, points: Points, *, samples: int = 12, seed: int = 0) -> list[Reference]:
        """What each call has to be at the points."""
        closed, structure = self.trace()
        results = iter(Evaluation(samples, seed).run(closed, points.arguments))
        references: list[Reference] = []
        for call, part in zip(self.calls, structure, strict=True):
            own = [next(results) for _ in part]
            references.append(_reference(call, own, points, references[:1]))
        return references


def traced_columns() -> tuple[dict[str, Any], dict[str, Any]]:
    """What JAX takes for the numbers of the columns and for the masks of NULLs."""

    def shape(dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((), dtype)  # type: ignore[no-untyped-call]

    numbers = {name: shape(dtype) for name, (dtype, _) in COLUMNS.items()}
    return numbers, {name: shape(bool) for name, (_, nullable) in COLUMNS.items() if nullable}


def _reference(
    call: Call, results: list[tuple[Numbers, Numbers]], points: Points, primal: Sequence[Reference]
) -> Reference:
    size = len(points.numbers["x"])
    (null, _), (doubtful, _), *values = results
    # Rounding may tip a condition, on which NULL can depend.
    nulls, doubts = _samples(null, size), _samples(doubtful, size)
    found = []
    spread = np.zeros(size)
    for rounded, extended in values:
        samples = _samples(rounded, size).astype(float)
        with np.errstate(all="ignore"):
            found.append((samples[0], np.broadcast_to(extended, size).astype(call.dtype).astype(float)))
            apart = np.abs(samples - samples[0])
        spread = np.fmax(spread, np.where(np.isfinite(apart), apart, 0).max(axis=0))
        # Where some samples are numbers and others are not, the errors decide about everything.
        kinds = np.isnan(samples) * 3 + np.isposinf(samples) + np.isneginf(samples) * 2
        spread = np.where((kinds != kinds[0]).any(axis=0), np.inf, spread)
    doubtful = doubts.any(axis=0) | (nulls != nulls[0]).any(axis=0)
    single = any(operand.single for operand in call.operands)
    outside = ~np.isfinite((primal[0].values if primal else found)[0][0])
    columns = {name for operand in call.operands for name in operand.columns}
    exponential = re.search(r"\b(exp|sinh|cosh)\(", call.sql) is not None
    extreme = points.extreme(columns, single=single, exponential=exponential)
    residue = points.steepness(e.columns for e in call.operands) ** max(call.order, 1) * (1e-5 if single else 2e-14)
    product = len(call.operands) > 1
    return Reference(
        call.dtype, nulls[0], found, spread, doubtful, single, outside, extreme, residue, call.order, product
    )


def _samples(values: Numbers, size: int) -> Numbers:
    """One row for each sample, one column for each point."""
    return np.broadcast_to(values, (values.shape[0] if values.ndim > 1 else 1, size))


def _result_type(expression: Expression, names: Sequence[str]) -> Any:
    singles = expression.dtype == SINGLE and all(COLUMNS[name][0] == SINGLE for name in names)
    return SINGLE if singles else DOUBLE


def value(e: Expression) -> Call:
    """The expression itself."""
    return Call(e.sql, e.dtype, [number(e)], 0, [((), None)], [e], value)


def grad(e: Expression, x: str) -> Call:
    ways = [slope(e, x), slope_in_reverse(e, x)]
    return Call(f"grad({e.sql}, {x})", _result_type(e, [x]), ways, 1, [((x,), None)], [e], lambda other: grad(other, x))


def second(e: Expression, x: str, y: str) -> Call:
    ways = [forward(forward(number(e), {x: 1.0}), {y: 1.0}), forward(reverse(e, x), {y: 1.0})]
    sql = f"grad(grad({e.sql}, {x}), {y})"
    return Call(sql, _result_type(e, [x, y]), ways, 2, [((x, y), None)], [e], lambda other: second(other, x, y))


def third(e: Expression, x: str, y: str, z: str) -> Call:
    ways = [forward(forward(slope(e, x), {y: 1.0}), {z: 1.0})]
    sql = f"grad(grad(grad({e.sql}, {x}), {y}), {z})"
    return Call(sql, _result_type(e, [x, y, z]), ways, 3, [((x, y, z), None)], [e], lambda other: third(other, x, y, z))


def jvp(e: Expression, directions: Mapping[str, Expression]) -> Call:
    dtype = _result_type(e, list(directions))
    ways = [
        forward(number(e), {x: number(t) for x, t in directions.items()}),
        *(
            total([scaled(mode(e, x), number(t), dtype) for x, t in directions.items()])
            for mode in (slope, slope_in_reverse)
        ),
    ]
    sql = f"jvp({e.sql}, {', '.join(f'{x}, {t.sql}' for x, t in directions.items())})"
    terms = [((x,), factor) for x, factor in directions.items()]
    return Call(sql, dtype, ways, 1, terms, [e, *directions.values()], lambda other: jvp(other, directions))


def vjp(e: Expression, x: str, cotangent: Expression) -> Call:
    dtype = _result_type(e, [x])
    ways = [
        reverse(e, x, number(cotangent)),
        scaled(slope(e, x), number(cotangent), dtype),
    ]
    sql = f"vjp({e.sql}, {x}, {cotangent.sql})"
    return Call(sql, dtype, ways, 1, [((x,), cotangent)], [e, cotangent], lambda other: vjp(other, x, cotangent))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """An expression, its gradient, some derivatives of higher order, one jvp and one vjp."""
    e = draw(expressions())
    by = list(e.columns) or ["x"]
    if draw(st.integers(0, 9)) == 0:  # a column that it does not read
        by = [*by, draw(st.sampled_from([name for name in COLUMNS if name not in by] or by))]
    by = draw(st.permutations(list(dict.fromkeys(by))))[:3]
    pairs = draw(st.permutations(list(itertools.product(by, repeat=2))))[:2]
    factors = expressions(operations=1)
    directions = {x: draw(factors) for x in by[:2]}
    calls = [
        value(e),
        *(grad(e, x) for x in by),
        *(second(e, x, y) for x, y in pairs),
        *(third(e, x, y, by[0]) for x, y in pairs[:1] if len(e.sql) < 40),
        jvp(e, directions),
        vjp(e, by[0], draw(factors)),
    ]
    return Case(e, calls)
