"""Derivatives in 50 digits, by central differences of what an expression is, with mpmath.

Neither our rules nor those of JAX enter: of JAX there is only the trace of the expression itself, as `language` spells
it out, and the derivative is a limit. How far it moves when the operations of the expression are off by what they round
tells how many digits a result can have.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import jax
import mpmath
import numpy as np
from jax.extend import core

from conformance.arithmetic import CALLS
from conformance.cases import Call, traced_columns
from conformance.derivatives import Columns
from conformance.expressions import COLUMNS, Expression
from conformance.points import Points

CONTEXT: Any = mpmath.mp.clone()
# 50 digits of a derivative, and a step whose square is beyond them.
_DIGITS, _STEP = 170, 100
# The binary exponent beyond which a number is of no use.
_LARGEST = 40_000
# Where the derivative with another step is another one by more than this, there is none.
_CONVERGED, _ZERO = 1e-15, 1e-20
# In units of the last place, as the operations of DataFusion and its libraries round.
_UNITS = 2.0
# The relative error of an operation, by what tells it apart and its type.
Errors = Callable[[int, Any], float]
# The ends of a difference, in steps.
Interval = tuple[float, float]


class OutsideError(Exception):
    """There is no derivative here: outside of the domain, at a pole, a kink or a jump."""


def _function(name: str) -> Callable[[Any], Any]:
    return lambda x: getattr(CONTEXT, name)(x)


def _bounded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An exponential, whose result has to have an exponent within bounds."""

    def applied(x: Any) -> Any:
        if abs(x) > _LARGEST:
            raise OutsideError("too large")
        return function(x)

    return applied


def _inverse(x: Any) -> Any:
    if x == 0:
        raise OutsideError("pole")
    return 1 / x


def _pow(x: Any, y: Any) -> Any:
    whole = y == int(y) if abs(y) < _LARGEST else False
    if (x < 0 and not whole) or (x == 0 and y < 0):
        raise OutsideError("power")
    if x == 0:
        return CONTEXT.mpf(1 if y == 0 else 0)
    if abs(y * CONTEXT.log(abs(x))) > _LARGEST:
        raise OutsideError("too large")
    return x ** int(y) if whole else CONTEXT.power(x, y)


def _cbrt(x: Any) -> Any:
    return CONTEXT.sign(x) * CONTEXT.cbrt(abs(x))


def _trunc(x: Any) -> Any:
    return CONTEXT.sign(x) * CONTEXT.floor(abs(x))


def _round(x: Any) -> Any:
    return CONTEXT.sign(x) * CONTEXT.floor(abs(x) + 0.5)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "add": lambda x, y: x + y,
    "atan2": lambda y, x: CONTEXT.atan2(y, x),
    "cbrt": _cbrt,
    "ceil": _function("ceil"),
    "cosh": _bounded(_function("cosh")),
    "div": lambda x, y: x * _inverse(y),
    "eq": lambda x, y: x == y,
    "exp": _bounded(_function("exp")),
    "floor": _function("floor"),
    "ge": lambda x, y: x >= y,
    "gt": lambda x, y: x > y,
    "integer_pow": _pow,
    "le": lambda x, y: x <= y,
    "log1p": lambda x: CONTEXT.log(1 + x),
    "lt": lambda x, y: x < y,
    "max": max,
    "min": min,
    "mul": lambda x, y: x * y,
    "ne": lambda x, y: x != y,
    "neg": lambda x: -x,
    "not": lambda x: not x,
    "pow": _pow,
    "round": _round,
    "rsqrt": lambda x: _inverse(CONTEXT.sqrt(x)),
    "sign": _function("sign"),
    "sinh": _bounded(_function("sinh")),
    "square": lambda x: x * x,
    "sub": lambda x, y: x - y,
    **{
        name: _function(name)
        for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "log", "sin", "sqrt", "tan", "tanh")
    },
}
_UNCHANGED = {"broadcast_in_dim", "convert_element_type", "copy", "stop_gradient"}
# Of these a result that is another one a step away is a jump.
_STEPPED = {"ceil", "floor", "round", "sign"}
# Where functions have an infinite slope, or none from one side.
_STEEP = {"sqrt": [0], "cbrt": [0], "asin": [-1, 1], "acos": [-1, 1], "acosh": [1]}
_EXACT = {"abs", "max", "min", "neg", "rem", *_STEPPED}


class _Evaluation:
    """One evaluation of what JAX has traced; only what the result depends on, so no branch that is not taken."""

    def __init__(self, errors: Errors | None, *, smooth: bool) -> None:
        self._errors = errors
        # Whether there is no result where a function has an infinite slope, whatever the slope is multiplied with.
        self._smooth = smooth
        # How comparisons and steps came out.
        self.choices: list[Any] = []

    def run(self, closed: Any, arguments: Sequence[Any]) -> Any:
        (result,) = self._bound(closed.jaxpr, closed.consts, [partial(_same, argument) for argument in arguments])
        return result()

    def _bound(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results, each as a function that computes it once it is asked for."""
        known = dict(zip(jaxpr.invars, arguments, strict=True))
        known |= {v: partial(_same, _exactly(const)) for v, const in zip(jaxpr.constvars, consts, strict=True)}

        def read(atom: Any) -> Callable[[], Any]:
            return partial(_same, _exactly(atom.val)) if isinstance(atom, core.Literal) else known[atom]

        for equation in jaxpr.eqns:
            name, operands = equation.primitive.name, [read(atom) for atom in equation.invars]
            if name in CALLS:
                inner = equation.params[CALLS[name]]
                known.update(zip(equation.outvars, self._bound(inner.jaxpr, inner.consts, operands), strict=True))
            else:
                known[equation.outvars[0]] = cache(partial(self._apply, equation, operands))
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(self, equation: Any, operands: Sequence[Callable[[], Any]]) -> Any:
        name = equation.primitive.name
        if name == "select_n":
            return operands[2 if operands[0]() else 1]()
        if name == "and":
            return operands[0]() and operands[1]()
        if name == "or":
            return operands[0]() or operands[1]()
        values = [operand() for operand in operands]
        if name in _UNCHANGED:
            result = values[0]
        elif name == "rem":
            result = self._remainder(*values)
        else:
            result = FUNCTIONS[name](*values, **({"y": equation.params["y"]} if name == "integer_pow" else {}))
        self._choose(name, values, result)
        if isinstance(result, bool):
            return result
        if isinstance(result, CONTEXT.mpc) or not CONTEXT.isfinite(result):
            raise OutsideError(name)
        if result and abs(CONTEXT.mag(result)) > _LARGEST:
            raise OutsideError("too large or too small")
        if self._errors and name not in _EXACT:
            result *= 1 + CONTEXT.mpf(self._errors(id(equation), equation.outvars[0].aval.dtype))
        return result

    def _choose(self, name: str, values: Sequence[Any], result: Any) -> None:
        if self._smooth and name in _STEEP and any(values[0] == steep for steep in _STEEP[name]):
            raise OutsideError("infinite slope")
        if self._smooth and name == "pow" and values[0] == 0 and values[1] != CONTEXT.floor(values[1]):
            raise OutsideError("infinite slope")
        if name == "eq" and values[0] == values[1] == 0:
            raise OutsideError("one zero may be negative")
        if name == "atan2" and values[1] <= 0:
            if values[0] == 0:
                raise OutsideError("atan2")
            self.choices.append(values[0] > 0)
        if isinstance(result, bool) or name in _STEPPED:
            self.choices.append(result)
        if name == "abs":
            self.choices.append(values[0] > 0)

    def _remainder(self, x: Any, y: Any) -> Any:
        if y == 0:
            raise OutsideError("remainder")
        with CONTEXT.extraprec(max(0, int(CONTEXT.mag(x)) - int(CONTEXT.mag(y))) if x else 0):
            whole = _trunc(x / y)
            self.choices.append(whole)
            return x - y * whole


def _same(value: Any) -> Any:
    return value


def _exactly(value: Any) -> Any:
    return bool(value) if np.asarray(value).dtype == bool else CONTEXT.mpf(float(value))


@lru_cache(maxsize=64)
def _trace(expression: Expression) -> Any:
    """What JAX traces for the number that an expression is."""
    return jax.make_jaxpr(lambda numbers, nulls: Columns(numbers, nulls).value(expression).number)(*traced_columns())


class Exact:
    """What a call has to be, at one point."""

    def __init__(self, call: Call, points: Points, point: int) -> None:
        self._call = call
        self._at = {name: _exactly(points.numbers[name][point]) for name in COLUMNS}
        self._nulls = [bool(points.nulls[name][point]) for name, (_, nullable) in sorted(COLUMNS.items()) if nullable]
        read = {name for operand in call.operands for name in operand.columns}
        sizes = [abs(self._at[name]) for name in read if self._at[name]]
        bits = max((abs(int(CONTEXT.mag(size))) for size in sizes), default=0)
        with CONTEXT.workprec(_DIGITS):
            self._step = min([CONTEXT.mpf(1), *sizes]) * CONTEXT.mpf(2) ** -_STEP
        # What the differences lose by the size of the step and by that of the columns.
        self._precision = _DIGITS + (call.order + 1) * (_STEP + bits)

    def value(self, errors: Errors | None = None) -> Any:
        """The value: in 50 digits, or with errors in the operations. Raises OutsideError where there is none."""
        with CONTEXT.workprec(self._precision):
            terms = [self._term(variables, factor, errors) for variables, factor in self._call.terms]
            return sum(terms, CONTEXT.mpf(0))

    def spread(self, samples: int = 5) -> float:
        """How far rounding in the expression moves the value, infinitely if it decides whether there is one.

        Raises OutsideError if the differences have no limit.
        """
        exact, uncertain = self.value(), self._uncertainty()
        try:
            moved = max(abs(self.value(_random_errors(seed)) - exact) for seed in range(samples))
        except OutsideError:
            return np.inf
        return float(moved + uncertain)

    def _uncertainty(self) -> Any:
        """How far another step moves the value, off the middle: around it, poles of odd functions have the slope 0."""
        total = CONTEXT.mpf(0)
        with CONTEXT.workprec(self._precision):
            for variables, factor in self._call.terms:
                near, far = (
                    self._partial(self._call.operands[0], variables, None, at) for at in ((-1, 1), (-1.25, 2.75))
                )
                if abs(near - far) > _CONVERGED * abs(near) + _ZERO:
                    raise OutsideError("pole")
                total += abs(near - far) * abs(self._partial(factor, (), None) if factor else 1)
        return total

    def _term(self, variables: Sequence[str], factor: Expression | None, errors: Errors | None) -> Any:
        derivative = self._partial(self._call.operands[0], variables, errors)
        return derivative * self._partial(factor, (), errors) if factor else derivative

    def _partial(
        self, expression: Expression, variables: Sequence[str], errors: Errors | None, between: Interval = (-1, 1)
    ) -> Any:
        """A partial derivative by differences, which are no good if another branch is taken at an end of them."""
        closed, total, choices = _trace(expression), CONTEXT.mpf(0), []
        for ends in itertools.product((0, 1), repeat=len(variables)):
            at = dict(self._at)
            for name, end in zip(variables, ends, strict=True):
                at[name] += between[end] * self._step
            evaluation = _Evaluation(errors, smooth=bool(variables))
            total += math.prod(2 * end - 1 for end in ends) * evaluation.run(closed, self._arguments(at))
            choices.append(evaluation.choices)
        if variables:
            evaluation = _Evaluation(errors, smooth=bool(variables))
            evaluation.run(closed, self._arguments(self._at))
            choices.append(evaluation.choices)
        if any(other != choices[0] for other in choices):
            raise OutsideError("kink")
        return total / ((between[1] - between[0]) * self._step) ** len(variables)

    def _arguments(self, at: Mapping[str, Any]) -> list[Any]:
        return [at[name] for name in sorted(COLUMNS)] + self._nulls


def _random_errors(seed: int) -> Errors:
    """Errors of operations, the same for an operation each time that it is evaluated."""
    source = random.Random(seed)
    known: dict[int, float] = {}

    def error(operation: int, dtype: Any) -> float:
        if operation not in known:
            known[operation] = source.uniform(-_UNITS, _UNITS) * float(np.finfo(dtype).eps)
        return known[operation]

    return error
