"""The language: each function, operator and condition of SQL beside what it means in JAX.

What the project documents about kinks is spelled out here: the first argument counts on a tie of greatest and least,
abs has the derivative 0 at 0, and what is constant between jumps has the derivative 0 at the jumps too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from conformance import values as v
from conformance.values import Array, Comparisons, Value

SINGLE, DOUBLE, TRUTH = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)


@dataclass(frozen=True)
class Operation:
    """A template of SQL, over `{0}`, `{1}` and so on, and its meaning."""

    sql: str
    meaning: Callable[..., Value]
    # One letter for each operand: n for a number, k for one that is only compared with others, c for a condition.
    operands: str = "n"
    # Where the operands have to be for the result to be a number: `expressions.GUARDS` brings them there.
    domains: tuple[str, ...] = ()
    # The type of numbers that it takes and gives: that of the widest operand, or DOUBLE always.
    always: Any = None
    # Operands of another type stay as they are.
    converts: bool = True

    def type_of(self, operands: Sequence[Any], kind: str = "n") -> Any:
        """The type of the operands of a kind once they are converted, and of the result."""
        numbers = [dtype for letter, dtype in zip(self.operands, operands, strict=True) if letter == kind]
        return self.always or (DOUBLE if DOUBLE in numbers else SINGLE)

    def apply(self, comparisons: Comparisons, operands: Sequence[Value]) -> Value:
        if self.converts:
            types = [operand.number.dtype for operand in operands]
            common = {kind: self.type_of(types, kind) for kind in "nk"}
            operands = [
                operand.cast(common[kind]) if kind in common else operand
                for kind, operand in zip(self.operands, operands, strict=True)
            ]
        return self.meaning(comparisons, *operands)


def _const(x: Array, value: float) -> Array:
    return v.constant(value, x.dtype)


def _times(factor: float) -> Callable[[Array], Array]:
    return lambda x: lax.mul(x, _const(x, factor))


def _trunc(x: Array) -> Array:
    return v.choose(lax.lt(x, _const(x, 0)), lax.ceil(x), lax.floor(x))


def _round(x: Array) -> Array:
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def _scaled(step: Callable[[Array], Array], factor: float) -> Callable[[Array], Array]:
    return lambda x: lax.div(step(lax.mul(x, _const(x, factor))), _const(x, factor))


def _signum(x: Array) -> Array:
    return v.choose(lax.eq(x, _const(x, 0)), _const(x, 0), lax.sign(x))


def _with_derivative(function: Callable[[Array], Array], derivative: Callable[[Array], Array]) -> Any:
    """A function with another derivative than JAX's."""
    known: Any = jax.custom_jvp(function)

    def rule(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        return known(primals[0]), lax.mul(tangents[0], derivative(primals[0]))

    known.defjvp(rule)
    return known


# At 0 the derivative is 0, where JAX has 1.
_abs = _with_derivative(lax.abs, _signum)


def _tanh_slope(x: Array) -> Array:
    omega = _tanh(x)
    return lax.sub(_const(x, 1), lax.mul(omega, omega))


# JAX's rule, (1 + Ω)(1 - Ω), has other rounding errors, and in second order it cancels near 0.
_tanh = _with_derivative(lax.tanh, _tanh_slope)


# JAX's rule is in factors, which cancel less near 1, but not in second order.
_acosh = _with_derivative(lax.acosh, lambda x: lax.rsqrt(lax.sub(lax.mul(x, x), _const(x, 1))))

# As Rust computes it, which loses digits near -1.
_atanh = _with_derivative(
    lambda x: lax.div(lax.log1p(lax.div(lax.add(x, x), lax.sub(_const(x, 1), x))), _const(x, 2)),
    lambda x: lax.div(_const(x, 1), lax.mul(lax.sub(_const(x, 1), x), lax.add(_const(x, 1), x))),
)


def _log(b: Array, x: Array) -> Array:
    return lax.div(lax.log(x), lax.log(b))


def _plus_number(operator: Callable[[Array, Array], Array], number: float, *, first: bool = False) -> Any:
    """An operator with a whole number as an operand, which takes the type of the other."""
    if first:
        return v.strict(lambda x: operator(_const(x, number), x))
    return v.strict(lambda x: operator(x, _const(x, number)))


def _integer_power(exponent: int) -> Callable[..., Value]:
    return v.strict(lambda x: lax.pow(x, _const(x, exponent)))


def _unary(name: str, function: Callable[[Array], Array], domain: str = "") -> Operation:
    return Operation(f"{name}({{0}})", v.strict(function), domains=(domain,))


SMOOTH = [
    Operation("{0} + {1}", v.strict(lax.add), "nn"),
    Operation("{0} - {1}", v.strict(lax.sub), "nn"),
    Operation("{0} * {1}", v.strict(lax.mul), "nn"),
    Operation("{0} / {1}", v.strict(lax.div), "nn", domains=("", "positive")),
    Operation("{0} * {0}", v.strict(lambda x: lax.mul(x, x))),
    Operation("-{0}", v.strict(lax.neg)),
    Operation("+{0}", lambda c, x: x),
    Operation("2 * {0}", _plus_number(lax.mul, 2, first=True)),
    Operation("{0} - 3", _plus_number(lax.sub, 3)),
    Operation("1 - {0}", _plus_number(lax.sub, 1, first=True)),
    Operation("{0} / 4", _plus_number(lax.div, 4)),
    Operation("1 / {0}", _plus_number(lax.div, 1, first=True), domains=("positive",)),
    _unary("sin", lax.sin),
    _unary("cos", lax.cos),
    _unary("tan", lax.tan, "unit"),
    _unary("cot", lambda x: lax.div(_const(x, 1), lax.tan(x)), "positive"),
    _unary("asin", lax.asin, "unit"),
    _unary("acos", lax.acos, "unit"),
    _unary("atan", lax.atan),
    _unary("sinh", lax.sinh, "small"),
    _unary("cosh", lax.cosh, "small"),
    _unary("tanh", _tanh),
    _unary("asinh", lax.asinh),
    _unary("acosh", _acosh, "above one"),
    _unary("atanh", _atanh, "unit"),
    _unary("exp", lax.exp, "small"),
    _unary("ln", lax.log, "positive"),
    _unary("log", lambda x: lax.div(lax.log(x), _const(x, math.log(10))), "positive"),
    _unary("log2", lambda x: lax.div(lax.log(x), _const(x, math.log(2))), "positive"),
    _unary("log10", lambda x: lax.div(lax.log(x), _const(x, math.log(10))), "positive"),
    _unary("sqrt", lax.sqrt, "positive"),
    _unary("cbrt", lax.cbrt),
    _unary("degrees", _times(180 / math.pi)),
    _unary("radians", _times(math.pi / 180)),
    Operation("log({0}, CAST({1} AS DOUBLE))", v.strict(_log), "nn", domains=("base", "argument"), always=DOUBLE),
    Operation("log(2.5, {0})", v.strict(lambda x: _log(_const(x, 2.5), x)), domains=("positive",)),
    Operation("log(3, {0})", v.strict(lambda x: _log(_const(x, 3), x)), domains=("positive",)),
    Operation("atan2({0}, {1})", v.strict(lax.atan2), "nn"),
    Operation("power({0}, {1})", v.strict(lax.pow), "nn", domains=("positive", "exponent"), always=DOUBLE),
    Operation("pow({0}, 0.75)", v.strict(lambda x: lax.pow(x, _const(x, 0.75))), domains=("positive",), always=DOUBLE),
    Operation("power({0}, -0.5)", v.strict(lambda x: lax.pow(x, _const(x, -0.5))), domains=("away",), always=DOUBLE),
    Operation("power({0}, 2)", _integer_power(2), always=DOUBLE),
    Operation("power({0}, 3)", _integer_power(3), always=DOUBLE),
    Operation("power({0}, 1)", _integer_power(1), always=DOUBLE),
    Operation("power({0}, -2)", _integer_power(-2), domains=("away",), always=DOUBLE),
    Operation("power(2, {0})", v.strict(lambda x: lax.pow(_const(x, 2), x)), domains=("small",), always=DOUBLE),
    Operation("power(0.3, {0})", v.strict(lambda x: lax.pow(_const(x, 0.3), x)), domains=("small",), always=DOUBLE),
]


def _convert(dtype: Any) -> Callable[..., Value]:
    return lambda c, x: x.cast(dtype)


CASTS = [
    Operation("CAST({0} AS REAL)", _convert(SINGLE), always=SINGLE, converts=False),
    Operation("CAST({0} AS DOUBLE)", _convert(DOUBLE), always=DOUBLE, converts=False),
    Operation("TRY_CAST({0} AS REAL)", _convert(SINGLE), always=SINGLE, converts=False),
    Operation("TRY_CAST({0} AS DOUBLE)", _convert(DOUBLE), always=DOUBLE, converts=False),
    Operation("arrow_cast({0}, 'Float32')", _convert(SINGLE), always=SINGLE, converts=False),
    Operation("arrow_cast({0}, 'Float64')", _convert(DOUBLE), always=DOUBLE, converts=False),
    Operation("({0})::DOUBLE", _convert(DOUBLE), always=DOUBLE, converts=False),
]


def _whole(limit: float, then: Callable[[Array], Array] = lambda x: x) -> Callable[..., Value]:
    """TRY_CAST to an integer of fewer than `limit` and back: NULL for what is none."""

    def meaning(c: Comparisons, x: Value) -> Value:
        whole = _trunc(x.number)
        fits = lax.lt(lax.abs(whole), _const(whole, limit))
        inside = lax.add(v.choose(fits, whole, _const(whole, 0)), _const(whole, 0))  # no integer is -0
        return Value(v.Value(then(inside)).cast(DOUBLE).number, v.either(x.null, v.negated(fits)))

    return meaning


def _factorial(x: Array) -> Array:
    result = _const(x, 1)
    for n, value in enumerate((1, 1, 2, 6, 24)):
        result = v.choose(lax.eq(x, _const(x, n)), _const(x, value), result)
    return result


PIECEWISE_CONSTANT = [
    _unary("floor", lax.floor),
    _unary("ceil", lax.ceil),
    _unary("round", _round),
    _unary("trunc", lambda x: v.choose(lax.eq(x, _const(x, 0)), _const(x, 0), _trunc(x))),  # of -0, it is 0
    _unary("signum", _signum),
    Operation("round({0}, 1)", v.strict(_scaled(_round, 10))),
    Operation("trunc({0}, 2)", v.strict(_scaled(_trunc, 100))),
    Operation("CAST(TRY_CAST({0} AS BIGINT) AS DOUBLE)", _whole(2.0**63), always=DOUBLE, converts=False),
    Operation("CAST(arrow_try_cast({0}, 'Int32') AS DOUBLE)", _whole(2.0**31), always=DOUBLE, converts=False),
    Operation(
        "CAST(factorial(TRY_CAST(4.5 * abs(sin({0})) AS BIGINT)) AS DOUBLE)",
        lambda c, x: _whole(2.0**63, _factorial)(
            c, Value(_times(4.5)(Value(lax.abs(lax.sin(x.number))).cast(DOUBLE).number), x.null)
        ),
        always=DOUBLE,
        converts=False,
    ),
]

CONDITIONS = [
    Operation("{0} < {1}", v.less, "nn"),
    Operation("{0} <= {1}", v.less_or_equal, "nn"),
    Operation("{0} > {1}", v.greater, "nn"),
    Operation("{0} >= {1}", v.greater_or_equal, "nn"),
    Operation("{0} = {1}", v.equal, "nn"),
    Operation("{0} <> {1}", v.not_equal, "nn"),
    Operation("{0} IS DISTINCT FROM {1}", v.distinct, "nn"),
    Operation(
        "{0} BETWEEN {1} AND {2}",
        lambda c, x, low, high: v.conjunction(c, v.greater_or_equal(c, x, low), v.less_or_equal(c, x, high)),
        "nnn",
    ),
    Operation(
        "{0} NOT BETWEEN -1 AND {1}",
        lambda c, x, high: v.disjunction(
            c, v.less(c, x, Value(_const(x.number, -1), plain=True)), v.greater(c, x, high)
        ),
        "nn",
    ),
    Operation(
        "{0} IN (1, {1})",
        lambda c, x, y: v.disjunction(c, v.equal(c, x, Value(_const(x.number, 1), plain=True)), v.equal(c, x, y)),
        "nn",
    ),
    Operation("{0} IS NULL", v.null_test),
    Operation("{0} IS NOT NULL", lambda c, x: v.negation(c, v.null_test(c, x))),
    Operation("isnan({0})", v.strict(v.is_nan)),
    Operation("iszero({0})", v.strict(lambda x: lax.eq(x, _const(x, 0)))),
    Operation("{0} AND {1}", v.conjunction, "cc"),
    Operation("{0} OR {1}", v.disjunction, "cc"),
    Operation("NOT {0}", v.negation, "c"),
    Operation("{0} IS TRUE", lambda c, x: Value(v.holds(x)), "c"),
]


def _searched(c: Comparisons, *operands: Value) -> Value:
    pairs = list(zip(operands[0:-1:2], operands[1::2], strict=False))
    otherwise = operands[-1] if len(operands) % 2 else None
    return v.case([(v.holds(condition), value) for condition, value in pairs], otherwise)


def _simple(c: Comparisons, operand: Value, *whens: Value) -> Value:
    pairs = list(zip(whens[0:-1:2], whens[1::2], strict=False))
    return v.case([(v.holds(v.equal(c, operand, when)), value) for when, value in pairs], whens[-1])


def _coalesce(c: Comparisons, *operands: Value) -> Value:
    branches = [(v.negated(v.null_test(c, operand).number), operand) for operand in operands[:-1]]
    return v.case(branches, operands[-1])


def _nullif(c: Comparisons, x: Value, y: Value) -> Value:
    return Value(x.number, v.either(x.null, v.holds(v.equal(c, x, y))))


def _nvl2(c: Comparisons, test: Value, present: Value, absent: Value) -> Value:
    return v.choose_value(v.negated(v.null_test(c, test).number), present, absent)


def _nanvl(c: Comparisons, x: Value, y: Value) -> Value:
    return v.choose_value(v.holds(Value(v.is_nan(x.number), x.null)), y, x)


KINKED = [
    _unary("abs", _abs),
    Operation("{0} % {1}", v.strict(lax.rem), "nn", domains=("", "positive")),
    Operation("{0} % 2", _plus_number(lax.rem, 2)),
    Operation("7 % {0}", _plus_number(lax.rem, 7, first=True), domains=("positive",)),
    Operation("greatest({0}, {1})", v.extreme(v.greater), "nn"),
    Operation("least({0}, {1})", v.extreme(v.less), "nn"),
    Operation("greatest({0}, {1}, {2})", v.extreme(v.greater), "nnn"),
    Operation(
        "least(1, {0})",
        lambda c, x: v.extreme(v.less)(c, Value(_const(x.number, 1), plain=True), x),
    ),
    Operation("coalesce({0}, {1})", _coalesce, "nn"),
    Operation("coalesce({0}, {1}, {2})", _coalesce, "nnn"),
    Operation("nvl({0}, {1})", _coalesce, "nn"),
    Operation("nvl2({0}, {1}, {2})", _nvl2, "nnn"),
    Operation("nullif({0}, {1})", _nullif, "nn"),
    Operation("nanvl({0}, {1})", _nanvl, "nn"),
    Operation("CASE WHEN {0} THEN {1} ELSE {2} END", _searched, "cnn"),
    Operation("CASE WHEN {0} THEN {1} END", _searched, "cn"),
    Operation("CASE WHEN {0} THEN {1} WHEN {2} THEN {3} ELSE {4} END", _searched, "cncnn"),
    Operation("CASE {0} WHEN {1} THEN {2} ELSE {3} END", _simple, "kknn"),
    Operation("CASE WHEN {0} < {1} THEN {0} ELSE {1} END", lambda c, x, y: v.choose_value(
        v.holds(v.less(c, x, y)), x, y), "nn"),
]  # fmt: skip
