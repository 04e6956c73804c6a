"""What JAX has traced, evaluated by NumPy: with rounding errors drawn at random, and in extended precision.

The derivative is JAX's own, operation by operation, as `jax.make_jaxpr` shows it. To evaluate it oneself is faster
than JAX without compilation, and tells how far a result can be trusted: the spread of the results when every operation
that rounds is off by a little (stochastic arithmetic), and what they are when none rounds.

J. Vignes, Discrete Stochastic Arithmetic for Validating Results of Numerical Software, Numerical Algorithms 37 (2004).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from jax.extend import core
from numpy.typing import NDArray

Numbers = NDArray[Any]

# Rounding errors of the basic operations are half a unit in the last place, those of libraries up to two.
_UNITS = 2.0


def _select(which: Numbers, *cases: Numbers) -> Numbers:
    return np.where(which, cases[1], cases[0])


def _round(x: Numbers, *, rounding_method: Any) -> Numbers:
    if rounding_method != 0:
        raise NotImplementedError(f"rounding method {rounding_method}")
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole)


PRIMITIVES: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "add": np.add,
    "add_any": np.add,
    "and": np.bitwise_and,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "broadcast_in_dim": lambda x, **_: x,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "convert_element_type": lambda x, *, new_dtype, **_: np.asarray(x).astype(new_dtype),
    "copy": lambda x: x,
    "cos": np.cos,
    "cosh": np.cosh,
    "div": np.divide,
    "eq": np.equal,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "floor": np.floor,
    "ge": np.greater_equal,
    "gt": np.greater,
    "integer_pow": lambda x, *, y: np.power(x, y) if y >= 0 else 1 / np.power(x, -y),
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "mul_any": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "pow": lambda x, y: np.power(x, y),
    "rem": np.fmod,
    "round": _round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select_n": _select,
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "stop_gradient": lambda x: x,
    "sub": np.subtract,
    "tan": np.tan,
    "tanh": np.tanh,
}
# Calls of a function traced apart, which JAX shows as one operation.
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}


class Evaluation:
    """Two evaluations of what JAX has traced, side by side.

    `rounded` is in the types that JAX traced, in the first of the samples as it stands, in the others with a random
    error in every result that is not exact. `extended` is in the longest float of the machine.
    """

    def __init__(self, samples: int, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._samples = samples

    def run(self, closed: Any, arguments: Sequence[Numbers]) -> list[tuple[Numbers, Numbers]]:
        """The results for arguments that are arrays of points."""
        pairs = [(argument, _extended(argument)) for argument in arguments]
        with np.errstate(all="ignore"):
            return self._run(closed.jaxpr, closed.consts, pairs)

    def _run(self, jaxpr: Any, consts: Sequence[Any], pairs: list[tuple[Numbers, Numbers]]) -> list[Any]:
        known: dict[Any, tuple[Numbers, Numbers]] = {}

        def read(atom: Any) -> tuple[Numbers, Numbers]:
            if isinstance(atom, core.Literal):
                aval: Any = atom.aval
                value = np.asarray(atom.val, aval.dtype)
                return value, _extended(value)
            return known[atom]

        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            known[variable] = (np.asarray(const), _extended(np.asarray(const)))
        known.update(zip(jaxpr.invars, pairs, strict=True))
        for equation in jaxpr.eqns:
            name, operands = equation.primitive.name, [read(atom) for atom in equation.invars]
            if name in CALLS:
                inner = equation.params[CALLS[name]]
                results = self._run(inner.jaxpr, inner.consts, operands)
            else:
                results = [self._apply(name, equation.params, operands, equation.outvars[0].aval.dtype)]
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(
        self, name: str, params: dict[str, Any], operands: list[tuple[Numbers, Numbers]], dtype: Any
    ) -> tuple[Numbers, Numbers]:
        function = PRIMITIVES[name]
        used: dict[str, Any] = {key: params[key] for key in ("y", "rounding_method", "new_dtype") if key in params}
        rounded = np.asarray(function(*(operand[0] for operand in operands), **used))
        if dtype.kind != "f":
            return rounded, np.asarray(function(*(operand[1] for operand in operands), **used))
        if name == "convert_element_type":
            used["new_dtype"] = np.longdouble
        extended = np.asarray(function(*(operand[1] for operand in operands), **used))
        rounded = rounded.astype(dtype, copy=False)
        if self._samples > 1 and name not in _EXACT:
            inexact = ~_exact(name, function, [operand[0] for operand in operands], used, rounded)
            if inexact.any():
                rounded = self._disturb(rounded, inexact, np.finfo(dtype))
        return rounded, extended

    def _disturb(self, rounded: Numbers, inexact: Numbers, info: Any) -> Numbers:
        noise = self._random.uniform(-_UNITS, _UNITS, (self._samples, rounded.shape[-1] if rounded.ndim else 1))
        noise[0] = 0
        # Below the normal numbers it is the distance between neighbours that counts.
        small = np.abs(rounded) < info.smallest_normal
        disturbed = rounded * (1 + noise * info.eps)
        if small.any():
            disturbed = np.where(small, rounded + noise * info.smallest_subnormal, disturbed)
        result: Numbers = np.where(inexact & np.isfinite(rounded), disturbed, rounded).astype(rounded.dtype)
        return result


_EXACT = {"abs", "broadcast_in_dim", "ceil", "copy", "floor", "max", "min", "neg", "rem", "round", "select_n", "sign"}
_ALGEBRAIC = {"cbrt", "div", "integer_pow", "mul", "mul_any", "pow", "rsqrt", "sqrt", "square"}


def _exact(
    name: str, function: Callable[..., Any], operands: Sequence[Numbers], used: dict[str, Any], result: Numbers
) -> Numbers:
    """Where an operation has not rounded. Where that is not certain, it is said to have."""
    if name in ("add", "add_any", "sub"):
        a, b = operands[0], -operands[1] if name == "sub" else operands[1]
        part = result - a
        error = (a - (result - part)) + (b - part)  # of a sum, exactly (Knuth)
        return np.asarray((error == 0) | ~np.isfinite(result))
    if name == "convert_element_type":
        return np.asarray((result == operands[0]) | ~np.isfinite(result))
    if name in _ALGEBRAIC:
        exact: Numbers = np.broadcast_to(_all(_short(operand) for operand in operands), result.shape).copy()
        if exact.any():
            longer = function(
                *(_extended(np.broadcast_to(operand, result.shape)[exact]) for operand in operands), **used
            )
            exact[exact] = (longer == result[exact]) | ~np.isfinite(longer)
        return exact
    units = _all((operand == 0) | (np.abs(operand) == 1) | ~np.isfinite(operand) for operand in operands)
    return np.asarray(units & (result == np.round(result)))


def _all(conditions: Iterable[Numbers]) -> Numbers:
    return np.asarray(reduce(np.logical_and, conditions))


def _short(number: Numbers) -> Numbers:
    """Whether a number has so few digits that the extended type holds products of it exactly."""
    size = np.abs(number)
    fits = (size == 0) | ~np.isfinite(size) | ((size > 2.0**-30) & (size < 2.0**30))
    return np.asarray(fits & ((number.astype(np.float32) == number) | ~np.isfinite(size)))


def _extended(value: Numbers) -> Numbers:
    return value.astype(np.longdouble) if value.dtype.kind == "f" else value
