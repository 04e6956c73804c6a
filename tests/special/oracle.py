"""The special functions and their derivatives to 40 digits, by mpmath, and where they are compared with these.

mpmath has other algorithms than the library: series, continued fractions and differences to whatever precision. Inverse
functions are found as roots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp

Number = Any

mp.mp.dps = 40


def _erfcx(x: Number) -> Number:
    # U(1/2, 1/2, x * x) / sqrt(pi) beyond 0, where the product would have no digits.
    if x > 5:
        return mp.hyperu(mp.mpf(1) / 2, mp.mpf(1) / 2, x * x) / mp.sqrt(mp.pi)
    return mp.exp(x * x) * mp.erfc(x)


def _ierfcx(n: Number, x: Number) -> Number:
    n = int(n)
    if x > 0:
        return mp.hyperu(mp.mpf(n + 1) / 2, mp.mpf(1) / 2, x * x) / (2**n * mp.sqrt(mp.pi))
    before, last = 2 / mp.sqrt(mp.pi), _erfcx(x)
    for k in range(1, n + 1):
        before, last = last, (before - 2 * x * last) / (2 * k)
    return last


def _normal_cdf(x: Number) -> Number:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _log_ndtr(x: Number) -> Number:
    return mp.log(_erfcx(-x / mp.sqrt(2)) / 2) - x * x / 2 if x < 0 else mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2)


def _normal_quantile(p: Number) -> Number:
    """Newton's method for the logarithm of the tail, from its asymptotic root."""
    tail = min(p, 1 - p)
    x = -mp.sqrt(-2 * mp.log(tail)) if tail < 0.1 else -mp.mpf(1)
    for _ in range(40):
        step = (_log_ndtr(x) - mp.log(tail)) * _normal_cdf(x) / mp.npdf(x)
        x -= step
        if abs(step) <= 1e-30 * abs(x):
            break
    return x if p < 0.5 else -x


def _erfinv(x: Number) -> Number:
    return mp.findroot(lambda y: mp.erf(y) - x, x) if abs(x) < 0.1 else _normal_quantile((1 + x) / 2) / mp.sqrt(2)


def _erfcinv(x: Number) -> Number:
    return -_normal_quantile(x / 2) / mp.sqrt(2)


def _softplus(x: Number) -> Number:
    return max(x, 0) + mp.log1p(mp.exp(-abs(x)))


def _sigmoid(x: Number) -> Number:
    return 1 / (1 + mp.exp(-x))


def _lgamma(x: Number) -> Number:
    return mp.loggamma(x) if x > 0 else mp.log(abs(mp.gamma(x)))


@dataclass(frozen=True)
class Special:
    """A function of the last of its arguments, and where it is compared; those before are constants."""

    value: Callable[..., Number]
    points: tuple[tuple[float, ...], ...]
    # How many derivatives are compared.
    orders: int = 3


def _at(*points: float) -> tuple[tuple[float, ...], ...]:
    return tuple((point,) for point in points)


_ALL = (-700.0, -40.0, -3.5, -0.5, -1e-9, 0.0, 1e-9, 0.25, 2.0, 36.0, 700.0)
_POLES = (
    *(-20.25, -3.5, -1.0625, -0.25, 1e-8, 0.3, 0.98, 1.0, 1.4616321449683622, 1.5, 2.0, 2.75),
    *(11.9, 12.1, 1e3, 1e8, 1e165, 1e300),
)
_UNIT = (1e-300, 1e-20, 1e-3, 0.0749, 0.0751, 0.2, 0.3, 0.5, 0.7, 0.9249, 0.9251, 0.9999999)

SPECIAL = {
    "log1p(x)": Special(mp.log1p, _at(-0.9999999, -0.5, -1e-12, 1e-300, 1e-12, 0.25, 3.0, 1e10)),
    "expm1(x)": Special(mp.expm1, _at(*_ALL)),
    "logaddexp(c, x)": Special(
        lambda c, x: c + _softplus(x - c), ((0.0, 0.0), (-800.0, -801.0), (900.0, 1e3), (3.0, -40.0), (-40.0, 3.0))
    ),
    "softplus(x)": Special(_softplus, _at(*_ALL)),
    "sigmoid(x)": Special(_sigmoid, _at(*_ALL)),
    "log_sigmoid(x)": Special(lambda x: -_softplus(-x), _at(*_ALL)),
    "logit(x)": Special(lambda p: mp.log(p / (1 - p)), _at(*_UNIT[1:])),
    "erf(x)": Special(mp.erf, _at(-8.0, -2.5, -0.9, -1e-10, 0.0, 0.4, 1.0, 5.9)),
    "erfc(x)": Special(mp.erfc, _at(-5.0, -0.5, 0.0, 1e-10, 0.8, 1.3, 3.0, 9.9, 26.0)),
    "erfcx(x)": Special(_erfcx, _at(-25.0, -3.0, -0.1, 0.0, 0.3, 2.0, 24.9, 25.1, 1e4, 1e9), orders=1),
    "ierfcx(c, x)": Special(
        _ierfcx, tuple((n, x) for n in (0.0, 1.0, 2.0, 7.0) for x in (-12.0, -0.3, 0.1, 0.26, 3.0, 1e6)), orders=1
    ),
    "erfinv(x)": Special(_erfinv, _at(-0.9999999, -0.9, -0.3, -1e-10, 1e-10, 0.5, 0.84, 0.86, 0.999)),
    "erfcinv(x)": Special(_erfcinv, _at(1e-200, 1e-5, 0.14, 0.16, 0.5, 1.5, 1.86, 1.9999)),
    "normal_pdf(x)": Special(mp.npdf, _at(-37.0, -5.0, -0.5, 0.0, 1e-9, 1.5, 9.0, 30.0)),
    "normal_cdf(x)": Special(_normal_cdf, _at(-37.0, -8.3, -1.42, -0.3, 0.0, 1e-9, 0.7, 3.0, 8.0)),
    "normal_quantile(x)": Special(_normal_quantile, _at(*_UNIT)),
    "log_ndtr(x)": Special(_log_ndtr, _at(-1e8, -1e4, -38.0, -1.1, -0.9, -0.2, 0.3, 4.0, 20.0), orders=2),
    "gamma(x)": Special(mp.gamma, _at(-20.25, -3.5, -1.0625, 1e-8, 0.3, 1.0, 1.5, 2.0, 5.0, 33.3, 170.0)),
    "lgamma(x)": Special(_lgamma, _at(*_POLES)),
    "digamma(x)": Special(lambda x: mp.psi(0, x), _at(*_POLES)),
    "trigamma(x)": Special(lambda x: mp.psi(1, x), _at(*_POLES)),
    "polygamma(c, x)": Special(
        lambda n, x: mp.psi(int(n), x),
        tuple((n, x) for n in (0.0, 1.0, 2.0, 5.0, 20.0) for x in (-2.75, 0.4, 1.0, 30.0, 1e5, 1e15)),
    ),
}


def derivative(name: str, order: int, point: tuple[float, ...]) -> float:
    """The derivative of this order by the last argument; the value for order 0."""
    *before, x = point
    value = SPECIAL[name].value
    # Beyond a branch of the oracle it would take the differences of two branches.
    return float(mp.mpf(_by_x(name, order, [mp.mpf(number) for number in before], mp.mpf(x), value)))


def _by_x(name: str, order: int, before: list[Number], x: Number, value: Callable[..., Number]) -> Number:
    if order == 0:
        return value(*before, x)
    if (inverse := _INVERSES.get(name)) is not None:
        return _of_inverse(inverse, value(x), order)
    if name in _CLOSED:
        return _CLOSED[name](order, *before, x)
    with mp.workdps(80):
        return mp.diff(lambda y: value(*before, y), x, order, h=mp.mpf(10) ** -15 * max(abs(x), mp.mpf(10) ** -5))


def _of_inverse(of: tuple[Callable[[Number], Number], int], y: Number, order: int) -> Number:
    """Derivatives of the inverse of a function with the derivative ``d`` at ``y``, where ``d' = -slope * y * d``."""
    d, slope = of[0](y), of[1]
    return [1 / d, slope * y / d**2, (slope + 2 * slope**2 * y * y) / d**3][order - 1]


_INVERSES: dict[str, tuple[Callable[[Number], Number], int]] = {
    "normal_quantile(x)": (mp.npdf, 1),
    "erfinv(x)": (lambda y: 2 / mp.sqrt(mp.pi) * mp.exp(-y * y), 2),
    "erfcinv(x)": (lambda y: -2 / mp.sqrt(mp.pi) * mp.exp(-y * y), 2),
}


def _log_ndtr_by_x(order: int, x: Number) -> Number:
    with mp.workdps(80):
        ratio = 1 / (mp.sqrt(mp.pi / 2) * _erfcx(-x / mp.sqrt(2)))
        return ratio if order == 1 else -ratio * (x + ratio)


def _sigmoid_by_x(order: int, x: Number) -> Number:
    s, t = _sigmoid(x), _sigmoid(-x)
    return [s, s * t, s * t * (t - s), s * t * ((t - s) ** 2 - 2 * s * t)][order]


# Where differences would need more digits than there are: known by hand.
_CLOSED: dict[str, Callable[..., Number]] = {
    "log_ndtr(x)": _log_ndtr_by_x,
    "logit(x)": lambda order, p: [1 / p + 1 / (1 - p), -1 / p**2 + 1 / (1 - p) ** 2, 2 / p**3 + 2 / (1 - p) ** 3][
        order - 1
    ],
    "lgamma(x)": lambda order, x: mp.psi(order - 1, x),
    "digamma(x)": lambda order, x: mp.psi(order, x),
    "trigamma(x)": lambda order, x: mp.psi(order + 1, x),
    "polygamma(c, x)": lambda order, n, x: mp.psi(int(n) + order, x),
    "logaddexp(c, x)": lambda order, c, x: _sigmoid_by_x(order - 1, x - c),
    "expm1(x)": lambda _order, x: mp.exp(x),
    "sigmoid(x)": _sigmoid_by_x,
    "softplus(x)": lambda order, x: _sigmoid_by_x(order - 1, x),
    "log_sigmoid(x)": lambda order, x: (-1) ** (order - 1) * _sigmoid_by_x(order - 1, -x),
}
