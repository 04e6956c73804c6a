"""Derivatives from difference quotients, of functions whose derivatives are known."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import pytest

from xql_ffi._richardson import SAFETY, STEPS, Difference, derive

EPSILON = sys.float_info.epsilon


def central(f: Callable[[float], float], x: float) -> Difference | None:
    quotients = [(f(x + h) - f(x - h)) / (2 * h) for h in STEPS]
    return derive(STEPS, quotients, EPSILON * abs(f(x)), order=2)


@pytest.mark.parametrize(
    ("f", "x", "derivative"),
    [
        (math.sin, 0.7, math.cos(0.7)),
        (math.exp, -3.0, math.exp(-3.0)),
        (lambda x: x**5, 1.5, 5 * 1.5**4),
        (lambda x: math.sin(100 * x), 0.3, 100 * math.cos(30)),
        (lambda x: 1 / x, 0.25, -16.0),
        (lambda x: 4.0, 2.0, 0.0),
    ],
)
def test_smooth_functions(f: Callable[[float], float], x: float, derivative: float) -> None:
    found = central(f, x)
    assert found is not None
    assert abs(found.value - derivative) <= SAFETY * found.uncertainty + 1e-300
    assert found.uncertainty <= 1e-7 * max(1.0, abs(derivative))
    assert found.step in STEPS


@pytest.mark.parametrize("f", [lambda x: math.floor(x + 1e-12), lambda x: 1 / x if x else 0.0])
def test_jumps_and_poles_have_none(f: Callable[[float], float]) -> None:
    assert central(f, 0.0) is None


def test_one_sided() -> None:
    for side in (1, -1):
        quotients = [(abs(side * h) - 0.0) / (side * h) for h in STEPS]
        found = derive(STEPS, quotients, EPSILON, order=1)
        assert found is not None
        assert found.value == side
