"""Random formulas, as SQL and as functions of JAX."""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from datafusion import SessionContext
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.cases import query

jax.config.update("jax_enable_x64", True)

SEED = int(os.environ.get("XQL_FFI_TEST_SEED") or random.SystemRandom().randrange(2**32))
VARIABLES = ("x", "y", "z")

Values = NDArray[np.float64]
Evaluate = Callable[..., Any]


@dataclass(frozen=True)
class Formula:
    """A formula in x, y and z."""

    sql: str
    jax: Evaluate

    def __repr__(self) -> str:
        return self.sql


def _variable(position: int) -> Formula:
    return Formula(VARIABLES[position], lambda *at: at[position])


def _constant(value: float) -> Formula:
    return Formula(f"({value})" if value < 0 else str(value), lambda *at: jnp.asarray(value, at[0].dtype))


LEAVES = st.one_of(
    st.integers(0, len(VARIABLES) - 1).map(_variable),
    st.integers(0, len(VARIABLES) - 1).map(_variable),
    st.sampled_from([0.5, 2.0, 3.0, 1.25, -0.75, -2.0]).map(_constant),
)

# Each has its whole domain reached, and no point where it is steep, whatever its argument is.
SMOOTH = {
    "-{0}": lambda a: -a,
    "sin({0})": jnp.sin,
    "cos({0})": jnp.cos,
    "tan(sin({0}))": lambda a: jnp.tan(jnp.sin(a)),
    "asin(0.9 * sin({0}))": lambda a: jnp.arcsin(0.9 * jnp.sin(a)),
    "acos(0.9 * cos({0}))": lambda a: jnp.arccos(0.9 * jnp.cos(a)),
    "atan({0})": jnp.arctan,
    "sinh(sin({0}))": lambda a: jnp.sinh(jnp.sin(a)),
    "cosh(cos({0}))": lambda a: jnp.cosh(jnp.cos(a)),
    "tanh({0})": jnp.tanh,
    "asinh({0})": jnp.arcsinh,
    "acosh(1.5 + {0} * {0})": lambda a: jnp.arccosh(1.5 + a * a),
    "atanh(0.9 * sin({0}))": lambda a: jnp.arctanh(0.9 * jnp.sin(a)),
    "exp(sin({0}))": lambda a: jnp.exp(jnp.sin(a)),
    "ln(0.5 + {0} * {0})": lambda a: jnp.log(0.5 + a * a),
    "log2(0.5 + {0} * {0})": lambda a: jnp.log2(0.5 + a * a),
    "log10(0.5 + {0} * {0})": lambda a: jnp.log10(0.5 + a * a),
    "log(0.5 + {0} * {0})": lambda a: jnp.log10(0.5 + a * a),
    "log(3.5, 0.5 + {0} * {0})": lambda a: jnp.log(0.5 + a * a) / jnp.log(3.5),
    "sqrt(0.5 + {0} * {0})": lambda a: jnp.sqrt(0.5 + a * a),
    "cbrt(0.5 + {0} * {0})": lambda a: jnp.cbrt(0.5 + a * a),
    "power(sin({0}), 3)": lambda a: jnp.sin(a) ** 3,
    "power(1.5 + cos({0}), -2)": lambda a: (1.5 + jnp.cos(a)) ** -2.0,
    "power(0.5 + {0} * {0}, 0.75)": lambda a: (0.5 + a * a) ** 0.75,
    "power(1.75, sin({0}))": lambda a: 1.75 ** jnp.sin(a),
    "({0} + {1})": lambda a, b: a + b,
    "({0} - {1})": lambda a, b: a - b,
    "({0} * {1})": lambda a, b: a * b,
    "{0} / (1.5 + {1} * {1})": lambda a, b: a / (1.5 + b * b),
    "power(0.5 + cos({0}) * cos({0}), sin({1}))": lambda a, b: (0.5 + jnp.cos(a) * jnp.cos(a)) ** jnp.sin(b),
    "log(2.5 + sin({0}), 0.5 + {1} * {1})": lambda a, b: jnp.log(0.5 + b * b) / jnp.log(2.5 + jnp.sin(a)),
    "coalesce({0}, {1})": lambda a, b: a + 0 * b,
}
KINKED = {
    "abs({0})": jnp.abs,
    "{0} % (1.3 + {1} * {1})": lambda a, b: jax.lax.rem(a, 1.3 + b * b),
    "CASE WHEN {0} < 0.123 THEN {1} ELSE {2} END": lambda a, b, c: jnp.where(a < 0.123, b, c),
    "CASE WHEN {0} > {1} + 0.071 THEN {1} WHEN {1} > 0.217 THEN {2} ELSE 2.5 END": lambda a, b, c: jnp.where(
        a > b + 0.071, b, jnp.where(b > 0.217, c, 2.5)
    ),
}


def _apply(template: str, function: Evaluate, arguments: list[Formula]) -> Formula:
    sql = template.format(*(f"({a.sql})" for a in arguments))
    return Formula(f"({sql})", lambda *at: function(*(a.jax(*at) for a in arguments)))


def _operations(operations: dict[str, Any], inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    def build(template: str) -> st.SearchStrategy[Formula]:
        arity = 1 + max(int(digit) for digit in template if f"{{{digit}}}" in template)
        return st.lists(inner, min_size=arity, max_size=arity).map(
            lambda arguments: _apply(template, operations[template], arguments)
        )

    return st.sampled_from(list(operations)).flatmap(build)


def formulas(*, smooth: bool, leaves: int) -> st.SearchStrategy[Formula]:
    """Formulas with at most `leaves` variables and constants."""
    operations = SMOOTH if smooth else SMOOTH | KINKED
    return _operations(
        operations, st.recursive(LEAVES, lambda inner: _operations(operations, inner), max_leaves=leaves)
    )


POINTS: Values = np.random.default_rng(7).uniform(-2.0, 2.0, (len(VARIABLES), 9))


def add_points(ctx: SessionContext, name: str = "points", values: Values = POINTS) -> None:
    """Registers a table with the columns x, y and z, NOT NULL, and n, the number of the row."""
    arrays = [pa.array(row) for row in values]
    schema = pa.schema([pa.field(v, pa.float64(), nullable=False) for v in VARIABLES]).append(pa.field("n", pa.int64()))
    batch = pa.RecordBatch.from_arrays([*arrays, pa.array(range(values.shape[1]))], schema=schema)
    ctx.register_record_batches(name, [[batch]])


def columns(ctx: SessionContext, expressions: list[str], table: str = "points") -> list[Values]:
    """The values of expressions over a table made by `add_points`."""
    listed = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(expressions))
    result = query(ctx, f"SELECT {listed} FROM {table} ORDER BY n")
    return [np.asarray(column.to_numpy(), dtype=np.float64) for column in result.columns]


def assert_close(actual: Values, expected: Any, what: str, *, rtol: float = 1e-8) -> None:
    """Asserts equality up to rounding, relative to the largest of the values, NaN and infinities in the same places."""
    wanted = np.asarray(expected, dtype=np.float64)
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=rtol * scale, err_msg=f"{what} (seed {SEED})")
