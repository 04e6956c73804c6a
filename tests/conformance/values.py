"""Nullable numbers and truth values in JAX, with the comparisons of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import jax
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

# A tracer of JAX, or the constant it would be.
Array = Any


def constant(value: float, dtype: Any) -> Array:
    """A number that JAX writes into what it traces, where `lax.full` would trace an operation."""
    return np.asarray(value, dtype)


@dataclass(frozen=True)
class Value:
    """What an expression of SQL evaluates to."""

    number: Array
    null: Array = False
    # Taken as it stands from a column or a literal: a NaN among these is positive.
    plain: bool = False

    def cast(self, dtype: Any) -> Value:
        if self.number.dtype == dtype:
            return self
        return replace(self, number=lax.convert_element_type(self.number, dtype))


class Comparisons:
    """The comparisons made while an expression is evaluated, and where their outcome is open.

    An expression is evaluated again for every derivative, and as its comparisons come in the same order and have no
    derivative, their outcomes are traced once only.
    """

    def __init__(self, made: Sequence[tuple[Array, Array, Array]] = ()) -> None:
        self.made = list(made)
        self._again = iter(made)
        # Arrow sorts a negative NaN before and a positive one after all numbers, and which sign a computed NaN has is
        # up to the processor and the library of mathematics.
        self.open: Array = False

    def order(self, a: Value, b: Value) -> tuple[Array, Array, Array]:
        """Whether a < b, a = b, a > b in the total order of IEEE 754: -0 < 0, and NaN is equal to itself."""
        known = next(self._again, None)
        if known is not None:
            return known
        x, y = a.number, b.number
        self.open = either(self.open, *(is_nan(value.number) for value in (a, b) if not value.plain))
        one = constant(1, x.dtype)
        u, v = lax.div(one, x), lax.div(one, y)
        same = lax.eq(x, y)
        less = either(lax.lt(x, y), both(same, lax.lt(u, v)), both(is_nan(y), negated(is_nan(x))))
        greater = either(lax.gt(x, y), both(same, lax.gt(u, v)), both(is_nan(x), negated(is_nan(y))))
        # Computed in another way, what is nearly equal may be equal.
        if not (a.plain and b.plain):
            close = lax.mul(constant(1e-12 if x.dtype == "float64" else 1e-5, x.dtype), lax.max(lax.abs(x), lax.abs(y)))
            self.open = either(self.open, both(lax.le(lax.abs(lax.sub(x, y)), close), negated(same)))
        outcome = less, negated(either(less, greater)), greater
        self.made.append(outcome)
        return outcome


def either(*conditions: Array) -> Array:
    """The disjunction; nothing is traced for what is known to be false."""
    traced = [condition for condition in conditions if condition is not False]
    return reduce(lax.bitwise_or, traced) if traced else False


def negated(condition: Array) -> Array:
    return True if condition is False else lax.bitwise_not(condition)


def both(*conditions: Array) -> Array:
    if any(condition is False for condition in conditions):
        return False
    traced = [condition for condition in conditions if condition is not True]
    return reduce(lax.bitwise_and, traced) if traced else True


def is_nan(number: Array) -> Array:
    return lax.ne(number, number)


def choose(condition: Array, value: Array, otherwise: Array) -> Array:
    """`value` where the condition holds. In forward mode no tangent of the other side enters."""
    if condition is False:
        return otherwise
    return lax.select(condition, value, otherwise)


def choose_value(condition: Array, value: Value, otherwise: Value) -> Value:
    number = choose(condition, value.number, otherwise.number)
    if condition is False:
        return otherwise
    return Value(number, either(both(condition, value.null), both(negated(condition), otherwise.null)))


def strict(function: Callable[..., Array]) -> Callable[..., Value]:
    """A function that is NULL exactly where an argument is."""

    def applied(comparisons: Comparisons, *arguments: Value) -> Value:
        return Value(function(*(a.number for a in arguments)), either(*(a.null for a in arguments)))

    return applied


def compared(which: Callable[[Array, Array, Array], Array]) -> Callable[..., Value]:
    """The comparison that holds where `which` of less, equal, greater does."""

    def applied(comparisons: Comparisons, a: Value, b: Value) -> Value:
        return Value(which(*comparisons.order(a, b)), either(a.null, b.null))

    return applied


less = compared(lambda less, equal, greater: less)
less_or_equal = compared(lambda less, equal, greater: either(less, equal))
equal = compared(lambda less, equal, greater: equal)
not_equal = compared(lambda less, equal, greater: negated(equal))
greater_or_equal = compared(lambda less, equal, greater: either(greater, equal))
greater = compared(lambda less, equal, greater: greater)


def holds(condition: Value) -> Array:
    """Where a condition is true: neither false nor NULL."""
    return condition.number if condition.null is False else both(condition.number, negated(condition.null))


def fails(condition: Value) -> Array:
    return holds(Value(negated(condition.number), condition.null))


def conjunction(comparisons: Comparisons, a: Value, b: Value) -> Value:
    false = either(fails(a), fails(b))
    return Value(both(holds(a), holds(b)), both(negated(false), either(a.null, b.null)))


def disjunction(comparisons: Comparisons, a: Value, b: Value) -> Value:
    true = either(holds(a), holds(b))
    return Value(true, both(negated(true), either(a.null, b.null)))


def negation(comparisons: Comparisons, a: Value) -> Value:
    return Value(negated(a.number), a.null)


def distinct(comparisons: Comparisons, a: Value, b: Value) -> Value:
    """IS DISTINCT FROM: for it NULL is a value like others."""
    nulls = both(_array(a.null, a), _array(b.null, a))
    one_null = either(both(_array(a.null, a), negated(b.null)), both(_array(b.null, a), negated(a.null)))
    return Value(either(one_null, both(negated(nulls), not_equal(comparisons, a, b).number)))


def null_test(comparisons: Comparisons, a: Value) -> Value:
    return Value(_array(a.null, a))


def _array(condition: Array, like: Value) -> Array:
    return constant(False, bool) if condition is False else condition


def case(branches: Sequence[tuple[Array, Value]], otherwise: Value | None) -> Value:
    """The value of the first branch whose condition holds; NULL without ELSE."""
    first = branches[0][1]
    result = otherwise or Value(constant(0, first.number.dtype), constant(True, bool))
    for condition, value in reversed(branches):
        result = choose_value(condition, value, result)
    return result


def extreme(better: Callable[..., Value]) -> Callable[..., Value]:
    """Greatest or least, which skip NULLs, by the rule that the first counts on a tie."""

    def applied(comparisons: Comparisons, first: Value, *others: Value) -> Value:
        best = first
        for other in others:
            takes_over = holds(better(comparisons, other, best))
            if best.null is not False:
                takes_over = either(takes_over, both(best.null, negated(other.null)))
            best = replace(choose_value(takes_over, other, best), plain=best.plain and other.plain)
        return best

    return applied
