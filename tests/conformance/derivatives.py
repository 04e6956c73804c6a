"""Derivatives by JAX, in both of its modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import jax
from jax import lax

from conformance.expressions import Expression
from conformance.values import Array, Comparisons, Value, constant

Key = tuple[str, ...]


@dataclass
class Columns:
    """The numbers of the columns by name, their NULLs, and what has been traced at these columns."""

    numbers: Mapping[str, Array]
    nulls: Mapping[str, Array]
    comparisons: dict[str, Comparisons] = field(default_factory=dict)
    traced: dict[Key, Any] = field(default_factory=dict)

    def moved(self, numbers: Mapping[str, Array]) -> Columns:
        """The columns with other numbers, of which some are variables now."""
        return Columns({**self.numbers, **numbers}, self.nulls, self.comparisons)

    def value(self, expression: Expression) -> Value:
        value: Value = self.once((expression.sql,), lambda columns: columns._evaluated(expression))
        return value

    def _evaluated(self, expression: Expression) -> Value:
        row = {name: Value(number, self.nulls.get(name, False), plain=True) for name, number in self.numbers.items()}
        known = self.comparisons.get(expression.sql)
        comparisons = Comparisons(known.made if known else ())
        value = expression.evaluate(row, comparisons)
        if not known:
            self.comparisons[expression.sql] = comparisons
        return value

    def once(self, key: Key, function: Callable[[Columns], Any]) -> Any:
        """What the function of this name is at these columns."""
        if key not in self.traced:
            self.traced[key] = function(self)
        return self.traced[key]


Function = Callable[[Columns], Array]


def number(expression: Expression) -> Function:
    """The number that an expression is, without its NULLs."""
    return lambda columns: columns.value(expression).number


def forward(function: Function, directions: Mapping[str, Function | float]) -> Function:
    """The derivative along directions, in forward mode. All else is constant, so that no 0 * inf enters."""

    def derivative(columns: Columns) -> Array:
        varied = {name: columns.numbers[name] for name in directions}
        tangents = {name: _tangent(direction, columns, name) for name, direction in directions.items()}
        return jax.jvp(lambda numbers: function(columns.moved(numbers)), (varied,), (tangents,))[1]

    return derivative


def _tangent(direction: Function | float, columns: Columns, name: str) -> Array:
    number = columns.numbers[name]
    if callable(direction):
        return lax.convert_element_type(direction(columns), number.dtype)
    return constant(direction, number.dtype)


def reverse(e: Expression, x: str, cotangent: Function | None = None) -> Function:
    """The derivative by one column, or a cotangent times it, in reverse mode."""

    def linearized(columns: Columns) -> tuple[Array, Callable[[Array], tuple[Array]]]:
        value, pullback = jax.vjp(lambda numbers: number(e)(columns.moved({x: numbers})), columns.numbers[x])
        return value, pullback

    def derivative(columns: Columns) -> Array:
        value, pullback = columns.once((e.sql, x, "linearized"), linearized)
        seed = constant(1, value.dtype) if cotangent is None else cotangent(columns)
        return pullback(lax.convert_element_type(seed, value.dtype))[0]

    return derivative


def slope(e: Expression, x: str) -> Function:
    """The derivative by one column, in forward mode."""
    return lambda columns: columns.once((e.sql, x), forward(number(e), {x: 1.0}))


def slope_in_reverse(e: Expression, x: str) -> Function:
    """The derivative by one column, in reverse mode."""
    return lambda columns: columns.once((e.sql, x, "reverse"), reverse(e, x))


def total(terms: Sequence[Function]) -> Function:
    """The sum of functions."""
    return lambda columns: reduce(lax.add, (term(columns) for term in terms))


def scaled(function: Function, factor: Function, dtype: Any) -> Function:
    """The factor times the function."""
    return lambda columns: lax.mul(*(lax.convert_element_type(part(columns), dtype) for part in (factor, function)))
