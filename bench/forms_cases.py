"""The functions of forms.py, derivatives.py and from_file.py: as SQL, by hand and in JAX, with their data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext

import xql_ffi


@dataclass(frozen=True)
class Function:
    """A function, what is differentiated by, the derivatives written by hand for speed, and the function in JAX."""

    name: str
    value: str
    # By variable. DataFusion computes once what several expressions of a SELECT have in common.
    by_hand: dict[str, str]
    jax: Callable[..., Any]
    # Its columns in the order of the arguments in JAX, each with the range it is drawn from.
    columns: dict[str, tuple[float, float]]
    # The derivatives beside the value, where one would write them in another way, with the value in them.
    beside: dict[str, str] | None = None

    @property
    def positions(self) -> list[int]:
        """Which arguments it is differentiated by in JAX."""
        return [list(self.columns).index(variable) for variable in self.by_hand]

    def called(self, *, value: bool) -> str:
        """The statement with calls of `grad`."""
        return self._select([f"grad({self.value}, {variable})" for variable in self.by_hand], value=value)

    def ours(self, *, value: bool) -> str:
        """The statement that these calls expand to."""
        schema = pa.schema([(name, pa.float64()) for name in self.columns])
        return xql_ffi.expand_sql(self.called(value=value), {"t": schema})

    def hand(self, *, value: bool) -> str:
        """The statement as one would write it without `grad`."""
        by_hand = self.beside if value and self.beside is not None else self.by_hand
        return self._select(list(by_hand.values()), value=value)

    def alone(self) -> str:
        """The statement of the value alone."""
        return self._select([], value=True)

    def _select(self, derivatives: Sequence[str], *, value: bool) -> str:
        wanted = [self.value, *derivatives] if value else derivatives
        return "SELECT " + ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(wanted)) + " FROM t"


def logistic(count: int) -> Function:
    """The loss of a logistic regression with `count` weights."""
    margin = " + ".join(f"w{i} * x{i}" for i in range(count))

    def loss(*at: Any) -> Any:
        *params, y = at
        w, x = params[:count], params[count:]
        return jnp.log(1 + jnp.exp(-y * sum(a * b for a, b in zip(w, x, strict=True))))

    names = [*(f"w{i}" for i in range(count)), *(f"x{i}" for i in range(count)), "y"]
    return Function(
        f"logistic loss, {count} weights",
        f"ln(1 + exp(-y * ({margin})))",
        {f"w{i}": f"exp(-y * ({margin})) * -y / (1 + exp(-y * ({margin}))) * x{i}" for i in range(count)},
        loss,
        dict.fromkeys(names, (-1.0, 1.0)),
    )


FUNCTIONS = [
    Function(
        "saturation vapour pressure",
        "6.112 * exp(17.67 * (t - 273.15) / (t - 29.65))",
        {"t": "26297.76624 * exp(17.67 * (t - 273.15) / (t - 29.65)) / ((t - 29.65) * (t - 29.65))"},
        lambda t: 6.112 * jnp.exp(17.67 * (t - 273.15) / (t - 29.65)),
        {"t": (230, 310)},
        {"t": "6.112 * exp(17.67 * (t - 273.15) / (t - 29.65)) * 4302.645 / ((t - 29.65) * (t - 29.65))"},
    ),
    Function(
        "Michaelis-Menten kinetics",
        "v * s / (k + s)",
        {"s": "v * k / ((k + s) * (k + s))"},
        lambda v, s, k: v * s / (k + s),
        {"v": (1, 9), "s": (0.1, 9), "k": (0.5, 2)},
    ),
    Function(
        "radiated power",
        "5.67e-8 * a * power(t, 4)",
        {"t": "2.268e-7 * a * (t * t * t)"},
        lambda a, t: 5.67e-8 * a * t**4,
        {"a": (0.5, 1), "t": (200, 400)},
    ),
    Function(
        "damped oscillation",
        "a * exp(-g * t) * cos(w * t)",
        {"t": "-a * exp(-g * t) * (g * cos(w * t) + w * sin(w * t))"},
        lambda a, g, w, t: a * jnp.exp(-g * t) * jnp.cos(w * t),
        {"a": (1, 2), "g": (0.1, 0.5), "w": (1, 3), "t": (0.1, 5)},
    ),
    Function(
        "squared error, 2 parameters",
        "power(w * x + b - y, 2)",
        {"w": "2 * (w * x + b - y) * x", "b": "2 * (w * x + b - y)"},
        lambda w, b, x, y: (w * x + b - y) ** 2,
        {"w": (-1, 1), "b": (-1, 1), "x": (-2, 2), "y": (-2, 2)},
    ),
    logistic(8),
    Function(
        "Kepler's third law",
        "power(x, 1.5)",
        {"x": "1.5 * sqrt(x)"},
        lambda x: x**1.5,
        {"x": (0.3, 30)},
    ),
    Function(
        "potential temperature",
        "exp(u) * power(x / 3, 0.2857)",
        {"x": f"{0.2857 / 3!r} * exp(u) * power(x / 3, -0.7143)"},
        lambda u, x: jnp.exp(u) * (x / 3) ** 0.2857,
        {"u": (-1, 1), "x": (0.3, 3)},
        {"x": "0.2857 * (exp(u) * power(x / 3, 0.2857)) / x"},
    ),
    Function(
        "Manning's formula",
        "sqrt(s) / n * power(r, 0.6666666666666666)",
        {"r": "0.6666666666666666 * sqrt(s) / n * power(r, -0.3333333333333333)"},
        lambda s, n, r: jnp.sqrt(s) / n * r**0.6666666666666666,
        {"s": (0.001, 0.01), "n": (0.01, 0.1), "r": (0.1, 5)},
        {"r": "0.6666666666666666 * (sqrt(s) / n * power(r, 0.6666666666666666)) / r"},
    ),
    Function(
        "rectified unit",
        "greatest(w * x + b, 0.0)",
        {"w": "CASE WHEN w * x + b >= 0.0 THEN x ELSE 0.0 END"},
        lambda w, b, x: jnp.maximum(w * x + b, 0.0),
        {"w": (-1, 1), "b": (-1, 1), "x": (-2, 2)},
    ),
    Function(
        "distance",
        "sqrt(x * x + y * y)",
        {"x": "x / sqrt(x * x + y * y)"},
        lambda x, y: jnp.sqrt(x * x + y * y),
        {"x": (-2, 2), "y": (-2, 2)},
    ),
    Function(
        "normal density",
        "exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * 2.5066282746310002)",
        {"x": "(m - x) * exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * s * s * 2.5066282746310002)"},
        lambda x, m, s: jnp.exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * math.sqrt(2 * math.pi)),
        {"x": (-2, 2), "m": (-1, 1), "s": (0.5, 2)},
        {"x": "exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * 2.5066282746310002) * (m - x) / (s * s)"},
    ),
    Function(
        "Lennard-Jones potential",
        "4 * e * (power(s / r, 12) - power(s / r, 6))",
        {
            "r": "24 * e * (s / r * (s / r) * (s / r) * (s / r * (s / r) * (s / r)))"
            " * (1 - 2 * (s / r * (s / r) * (s / r) * (s / r * (s / r) * (s / r)))) / r"
        },
        lambda e, s, r: 4 * e * ((s / r) ** 12 - (s / r) ** 6),
        {"e": (0.5, 2), "s": (0.9, 1.1), "r": (1, 2)},
        {"r": "24 * e * power(s / r, 6) * (1 - 2 * power(s / r, 6)) / r"},
    ),
    Function(
        "Planck spectrum",
        "a * power(f, 3) / (exp(h * f) - 1)",
        {"f": "a * (f * f) / (exp(h * f) - 1) * (3 - h * f * exp(h * f) / (exp(h * f) - 1))"},
        lambda a, h, f: a * f**3 / (jnp.exp(h * f) - 1),
        {"a": (1, 2), "h": (0.5, 1.5), "f": (0.5, 3)},
    ),
    Function(
        "sigmoid",
        "1 / (1 + exp(-x))",
        {"x": "exp(-x) / ((1 + exp(-x)) * (1 + exp(-x)))"},
        lambda x: 1 / (1 + jnp.exp(-x)),
        {"x": (-4, 4)},
    ),
]


def power(exponent: str, by_hand: str) -> Function:
    """A power of a column that is positive, though no statement says so."""
    value = float(Fraction(exponent))
    return Function(
        f"power(x, {exponent})", f"power(x, {value!r})", {"x": by_hand}, lambda x: x**value, {"x": (0.3, 30)}
    )


# By hand, as who knows that x is positive writes them: half powers by square roots, whole ones by products.
POWERS = [
    power("1/2", "0.5 / sqrt(x)"),
    power("3/2", "1.5 * sqrt(x)"),
    power("5/2", "2.5 * x * sqrt(x)"),
    power("-1/2", "-0.5 / (x * sqrt(x))"),
    power("-3/2", "-1.5 / (x * x * sqrt(x))"),
    power("-5/2", "-2.5 / (x * x * x * sqrt(x))"),
    power("1/3", f"{1 / 3!r} * power(x, {-2 / 3!r})"),
    power("2/3", f"{2 / 3!r} * power(x, {-1 / 3!r})"),
    power("4/3", f"{4 / 3!r} * power(x, {1 / 3!r})"),
    power("-1/3", f"{-1 / 3!r} * power(x, {-4 / 3!r})"),
    power("-2/3", f"{-2 / 3!r} * power(x, {-5 / 3!r})"),
    power("-1", "-1 / (x * x)"),
    power("-2", "-2 / (x * x * x)"),
    power("-3", "-3 / (x * x * (x * x))"),
]


def table(function: Function, rows: int) -> pa.Table:
    """Random values of the columns."""
    rng = np.random.default_rng(0)
    return pa.table({name: rng.uniform(*limits, rows) for name, limits in function.columns.items()})


def session(data: pa.Table) -> SessionContext:
    """A session of one thread with the data as table `t`, in the batches that DataFusion works with."""
    ctx = SessionContext(SessionConfig().with_target_partitions(1))
    ctx.register_record_batches("t", [data.to_batches(max_chunksize=8192)])
    return ctx
