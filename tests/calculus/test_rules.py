"""Every rule by itself: over its domain against JAX in float64, and at the points where it needs care."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_close, assert_same_rows, rows_of

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

_ALL = np.array([-3.5, -2.0, -1.0, -0.75, -0.1, 0.1, 0.6, 1.0, 2.0, 3.5, 20.0])
_POSITIVE = np.array([1e-8, 0.01, 0.5, 1.0, 1.5, 3.5, 20.0, 1e8])
_UNIT = np.array([-0.999, -0.75, -0.1, 0.0, 0.1, 0.6, 0.999])
_ABOVE_ONE = np.array([1.001, 1.5, 3.5, 20.0, 1e8])


@dataclass(frozen=True)
class Rule:
    """A function of one variable, and where it is smooth."""

    sql: str
    jax: Callable[[Any], Any]
    at: Any


RULES = [
    Rule("x + 3", lambda x: x + 3, _ALL),
    Rule("3 - x", lambda x: 3 - x, _ALL),
    Rule("x - 3.5 + x", lambda x: 2 * x - 3.5, _ALL),
    Rule("x * x * 3", lambda x: x * x * 3, _ALL),
    Rule("x / 4", lambda x: x / 4, _ALL),
    Rule("4 / x", lambda x: 4 / x, _ALL),
    Rule("(x + 1.7) / (x * x + 1)", lambda x: (x + 1.7) / (x * x + 1), _ALL),
    Rule("-x", lambda x: -x, _ALL),
    Rule("-(-(x * x))", lambda x: x * x, _ALL),
    Rule("+x", lambda x: x, _ALL),
    Rule("x % 0.7", lambda x: jax.lax.rem(x, 0.7), _ALL),
    Rule("x % -0.7", lambda x: jax.lax.rem(x, -0.7), _ALL),
    Rule("7.3 % x", lambda x: jax.lax.rem(7.3, x), np.array([-5.0, -3.3, -0.9, 0.9, 3.3, 5.0, 8.0])),
    Rule("-7.3 % x", lambda x: jax.lax.rem(-7.3, x), np.array([-5.0, -3.3, -0.9, 0.9, 3.3, 5.0, 8.0])),
    Rule("(x * x) % (x + 30)", lambda x: jax.lax.rem(x * x, x + 30), _ALL),
    Rule("sin(x)", jnp.sin, _ALL),
    Rule("cos(x)", jnp.cos, _ALL),
    Rule("tan(x)", jnp.tan, _ALL),
    Rule("asin(x)", jnp.arcsin, _UNIT),
    Rule("acos(x)", jnp.arccos, _UNIT),
    Rule("atan(x)", jnp.arctan, _ALL),
    Rule("sinh(x)", jnp.sinh, _ALL),
    Rule("cosh(x)", jnp.cosh, _ALL),
    Rule("tanh(x)", jnp.tanh, _ALL),
    Rule("asinh(x)", jnp.arcsinh, _ALL),
    Rule("acosh(x)", jnp.arccosh, _ABOVE_ONE),
    Rule("atanh(x)", jnp.arctanh, _UNIT),
    Rule("exp(x)", jnp.exp, _ALL),
    Rule("ln(x)", jnp.log, _POSITIVE),
    Rule("log(x)", jnp.log10, _POSITIVE),
    Rule("log(3.5, x)", lambda x: jnp.log(x) / jnp.log(3.5), _POSITIVE),
    Rule("log(2, x)", jnp.log2, _POSITIVE),
    Rule("log(x, 5.0)", lambda x: jnp.log(5.0) / jnp.log(x), np.array([0.01, 0.5, 1.5, 3.5, 20.0])),
    Rule("log(x, x + 2)", lambda x: jnp.log(x + 2) / jnp.log(x), np.array([0.01, 0.5, 1.5, 3.5, 20.0])),
    Rule("log2(x)", jnp.log2, _POSITIVE),
    Rule("log10(x)", jnp.log10, _POSITIVE),
    Rule("sqrt(x)", jnp.sqrt, _POSITIVE),
    Rule("cbrt(x)", jnp.cbrt, _ALL),
    Rule("abs(x)", jnp.abs, _ALL),
    Rule("abs(x) * x", lambda x: jnp.abs(x) * x, _ALL),
    Rule("power(x, 2)", lambda x: x**2, _ALL),
    Rule("pow(x, 3)", lambda x: x**3, _ALL),
    Rule("power(x, 1)", lambda x: x, _ALL),
    Rule("power(x, 0)", jnp.ones_like, _ALL),
    Rule("power(x, -1)", lambda x: x**-1, _ALL),
    Rule("power(x, -3.0)", lambda x: x**-3, _ALL),
    Rule("power(x, 0.5)", jnp.sqrt, _POSITIVE),
    Rule("power(x, 2.5)", lambda x: x**2.5, _POSITIVE),
    Rule("power(2, x)", lambda x: 2.0**x, _ALL),
    Rule("power(0.5, x)", lambda x: 0.5**x, _ALL),
    Rule("power(1.0, x)", jnp.ones_like, _ALL),
    Rule("power(x, x)", lambda x: x**x, _POSITIVE[:-1]),
    Rule("power(x * x + 1, sin(x))", lambda x: (x * x + 1) ** jnp.sin(x), _ALL),
    Rule("power(exp(1.0), x)", lambda x: jnp.exp(1.0) ** x, _ALL),
    Rule(
        "CASE WHEN x > 0 THEN sin(x) WHEN x > -1 THEN x * x ELSE exp(x) END",
        lambda x: jnp.where(x > 0, jnp.sin(x), jnp.where(x > -1, x * x, jnp.exp(x))),
        _ALL,
    ),
    Rule(
        "CASE WHEN x > 0 AND NOT x > 2 OR x < -3 THEN x * x ELSE x END",
        lambda x: jnp.where((x > 0) & ~(x > 2) | (x < -3), x * x, x),
        _ALL,
    ),
    Rule("coalesce(x * x, x)", lambda x: x * x, _ALL),
    Rule("coalesce(NULL, x * x)", lambda x: x * x, _ALL),
    Rule("CAST(x AS DOUBLE) * x", lambda x: x * x, _ALL),
    Rule("TRY_CAST(x AS DOUBLE) * x", lambda x: x * x, _ALL),
    Rule("arrow_cast(x, 'Float64') * x", lambda x: x * x, _ALL),
    Rule(
        "CAST(CAST(x AS BIGINT) AS DOUBLE) * x",
        lambda x: jax.lax.stop_gradient(jnp.trunc(x)) * x,
        _ALL[np.abs(_ALL) != 3.5],
    ),
]


def _over(ctx: SessionContext, values: Any, *expressions: str, type_: Any = None) -> pa.Table:
    """The values of expressions over a table that has `values` as the column x."""
    array = pa.array(values, type_ or pa.float64())
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("x", array.type)])
    ctx.deregister_table("at")
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(array))), array], schema=schema)
    ctx.register_record_batches("at", [[batch]])
    listed = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(expressions))
    return query(ctx, f"SELECT {listed} FROM at ORDER BY n")


@pytest.mark.parametrize("rule", RULES, ids=[rule.sql for rule in RULES])
def test_rule(session: SessionContext, rule: Rule) -> None:
    f = rule.sql
    found = _over(session, rule.at, f, f"grad({f}, x)", f"grad(grad({f}, x), x)", f"grad(grad(grad({f}, x), x), x)")
    derivative = rule.jax
    for order, column in enumerate(found.columns):
        expected = jax.vmap(derivative)(jnp.asarray(rule.at))
        np.testing.assert_allclose(
            column.to_numpy(), np.asarray(expected), rtol=1e-9, atol=1e-12, err_msg=f"order {order}"
        )
        derivative = jax.grad(derivative)


INF, NAN = math.inf, math.nan
EDGES: list[tuple[str, float, float]] = [
    ("abs(x)", 0.0, 0.0),
    ("abs(x)", -0.0, 0.0),
    ("abs(x) * 3 + x", 0.0, 1.0),
    ("sqrt(x)", 0.0, INF),
    ("ln(x)", 0.0, INF),
    ("log2(x)", 0.0, INF),
    ("log10(x)", 0.0, INF),
    ("log(3.0, x)", 0.0, INF),
    ("cbrt(x)", 0.0, INF),
    ("asin(x)", 1.0, INF),
    ("asin(x)", -1.0, INF),
    ("acos(x)", 1.0, -INF),
    ("atanh(x)", 1.0, INF),
    ("acosh(x)", 1.0, INF),
    ("asin(x)", 2.0, NAN),
    ("sqrt(x)", -1.0, NAN),
    ("1 / x", 0.0, -INF),
    ("exp(x)", -INF, 0.0),
    ("exp(x)", INF, INF),
    ("tanh(x)", 800.0, 0.0),
    ("tanh(x)", INF, 0.0),
    ("atan(x)", INF, 0.0),
    ("asinh(x)", -1e100, 1e-100),
    ("sin(x)", NAN, NAN),
    ("x * x", NAN, NAN),
    ("x * x", INF, INF),
    ("power(x, 2)", 0.0, 0.0),
    ("power(x, 2)", -3.0, -6.0),
    ("power(x, 3)", -2.0, 12.0),
    ("power(x, 1)", 0.0, 1.0),
    ("power(x, 0)", 0.0, 0.0),
    ("power(x, 0.0)", -2.0, 0.0),
    ("power(x, 0.5)", 0.0, INF),
    ("power(x, 0.5)", 4.0, 0.25),
    ("power(x, 0.5)", -1.0, NAN),
    ("power(x, 1.5)", 0.0, 0.0),
    ("power(x, -1)", -2.0, -0.25),
    ("power(0.0, x)", 2.0, 0.0),
    ("power(1.0, x)", 0.0, 0.0),
    ("power(-2.0, x)", 2.5, NAN),
    ("power(2, x)", -2000.0, 0.0),
    ("power(2, x)", 0.0, math.log(2)),
    ("power(x, x)", 1.0, 1.0),
    ("CASE WHEN x > 0 THEN sqrt(x) ELSE 0.0 END", 0.0, 0.0),
    ("CASE WHEN x > 0 THEN sqrt(x) ELSE 0.0 END", -1.0, 0.0),
    ("CASE WHEN x > 0 THEN ln(x) ELSE x END", 0.0, 1.0),
    ("CASE WHEN x <> 0 THEN sin(x) / x ELSE 1.0 END", 0.0, 0.0),
    ("CASE x WHEN 0.0 THEN 2 * x ELSE 1 / x END", 0.0, 2.0),
    ("CASE WHEN x = 0 THEN x ELSE power(x, -1) END", 0.0, 1.0),
    ("coalesce(x, sqrt(x))", -1.0, 1.0),
    ("coalesce(NULL, x, 1 / x)", 0.0, 1.0),
    ("CASE WHEN x > 0 THEN x / 0.0 ELSE x END", -1.0, 1.0),
    ("sqrt(CASE WHEN x > 0 THEN x ELSE 0.0 END)", -1.0, 0.0),
    ("sqrt(greatest(x, 0.0))", -1.0, 0.0),
    ("ln(greatest(x, least(x, 0.0), 0.0)) * 2", -1.0, 0.0),
    ("x * 0", 5.0, 0.0),
    ("x % 2", 5.5, 1.0),
    ("x % 2", -5.5, 1.0),
    ("5.5 % x", 2.0, -2.0),
    ("-5.5 % x", 2.0, 2.0),
    ("5.5 % x", -2.0, 2.0),
    ("5.5 % x", 7.0, 0.0),
    # 1.3 / 0.1 rounds up to 13, and 1.3 % 0.1 is 0.09999999999999998.
    ("1.3 % x", 0.1, -12.0),
    ("power(0, x)", 2.0, 0.0),
    ("log(2.0, x)", 4.0, 0.25 / math.log(2)),
    ("grad(asin(x), x)", 1.0, INF),
    ("grad(acos(x), x)", -1.0, INF),
    ("grad(acosh(x), x)", 1.0, -INF),
]


@pytest.mark.parametrize(("formula", "at", "expected"), EDGES, ids=[f"{f} at {x}" for f, x, _ in EDGES])
def test_edge(session: SessionContext, formula: str, at: float, expected: float) -> None:
    assert_same_rows(rows_of(_over(session, [at], f"grad({formula}, x)")), [(expected,)], abs_=0.0)


POWERS = [
    # base, exponent, by the base, by the exponent
    (2.0, 3.0, 12.0, 8 * math.log(2)),
    (2.0, 0.0, 0.0, math.log(2)),
    (2.0, 0.5, 0.5 / math.sqrt(2), math.sqrt(2) * math.log(2)),
    (2.0, 1.0, 1.0, 2 * math.log(2)),
    (2.0, -1.0, -0.25, 0.5 * math.log(2)),
    (1.0, 5.0, 5.0, 0.0),
    (0.0, 2.0, 0.0, 0.0),
    (0.0, 1.0, 1.0, 0.0),
    (0.0, 0.5, INF, 0.0),
    (0.0, 0.0, 0.0, None),
    (-2.0, 2.0, -4.0, NAN),
    (-2.0, 3.0, 12.0, NAN),
    (-2.0, 1.0, 1.0, NAN),
    (-2.0, 0.0, 0.0, NAN),
    (-2.0, -1.0, -0.25, NAN),
    (-2.0, 0.5, NAN, NAN),
]


@pytest.mark.parametrize(("base", "exponent", "by_base", "by_exponent"), POWERS)
def test_power_of_columns(
    session: SessionContext, base: float, exponent: float, by_base: float, by_exponent: float | None
) -> None:
    """Base and exponent from columns, so that no rule can look at them while planning."""
    session.deregister_table("powers")
    session.from_pydict({"b": [base], "e": [exponent]}, name="powers")
    table = query(session, "SELECT grad(power(b, e), b) AS c, grad(power(b, e), e) AS d FROM powers")
    row = rows_of(table)[0]
    assert_same_rows([row[:1]], [(by_base,)], abs_=0.0)
    if by_exponent is not None:
        assert_same_rows([row[1:]], [(by_exponent,)], abs_=0.0)


# Where the formulas have no value that all agree on, there is None.
SECOND_POWERS = [
    # base, exponent, twice by the base, by the base and the exponent, twice by the exponent
    (2.0, 3.0, 12.0, 4 * (1 + 3 * math.log(2)), 8 * math.log(2) ** 2),
    (2.0, 2.0, 2.0, 2 * (1 + 2 * math.log(2)), 4 * math.log(2) ** 2),
    (2.0, 1.0, 0.0, 1 + math.log(2), 2 * math.log(2) ** 2),
    (2.0, 0.0, 0.0, 0.5, math.log(2) ** 2),
    (2.0, -1.0, 0.25, 0.25 * (1 - math.log(2)), 0.5 * math.log(2) ** 2),
    (1.0, 0.0, 0.0, 1.0, 0.0),
    (0.0, 3.0, 0.0, 0.0, 0.0),
    (0.0, 2.0, 2.0, 0.0, 0.0),
    (0.0, 1.5, INF, None, 0.0),
    (0.0, 1.0, 0.0, None, 0.0),
    (0.0, 0.5, -INF, None, 0.0),
    (-2.0, 3.0, -12.0, NAN, NAN),
    (-2.0, 2.0, 2.0, NAN, NAN),
    (-2.0, 1.0, 0.0, NAN, NAN),
    (-2.0, 0.0, 0.0, NAN, NAN),
]


@pytest.mark.parametrize(("base", "exponent", "by_bases", "mixed", "by_exponents"), SECOND_POWERS)
def test_power_of_columns_in_second_order(
    session: SessionContext,
    base: float,
    exponent: float,
    by_bases: float,
    mixed: float | None,
    by_exponents: float,
) -> None:
    session.deregister_table("powers")
    session.from_pydict({"b": [base], "e": [exponent]}, name="powers")
    calls = {
        "grad(grad(power(b, e), b), b)": by_bases,
        "grad(grad(power(b, e), b), e)": mixed,
        "grad(grad(power(b, e), e), b)": mixed,
        "grad(grad(power(b, e), e), e)": by_exponents,
    }
    for call, expected in calls.items():
        if expected is not None:
            assert_same_rows(rows_of(query(session, f"SELECT {call} AS d FROM powers")), [(expected,)], abs_=0.0)


@pytest.mark.parametrize(("base", "exponent"), [("CAST(x AS DOUBLE)", "k"), ("k", "x"), ("x", "CAST(k AS SMALLINT)")])
def test_power_of_integer_columns(session: SessionContext, base: str, exponent: str) -> None:
    session.deregister_table("integers")
    session.from_pydict({"x": [1.5, 2.5], "k": [2, 3]}, name="integers")
    table = query(session, f"SELECT grad(power({base}, {exponent}), x) AS d FROM integers ORDER BY x")
    if base == "k":
        expected = [(math.log(k) * k**x,) for x, k in ((1.5, 2), (2.5, 3))]
    else:
        expected = [(k * x ** (k - 1),) for x, k in ((1.5, 2), (2.5, 3))]
    assert_same_rows(rows_of(table), expected)


def test_coalesce_takes_the_branch_that_is_taken(session: SessionContext) -> None:
    formula = "coalesce(n * x, x * x, 1.0)"
    session.deregister_table("holes")
    session.from_pydict({"x": [2.0, 3.0, None], "n": [5.0, None, 7.0]}, name="holes")
    table = query(session, f"SELECT grad({formula}, x) AS d, grad({formula}, n) AS e FROM holes")
    assert_same_rows(rows_of(table), [(5.0, 2.0), (6.0, 0.0), (0.0, 0.0)])


def test_case_without_else_and_with_nulls(session: SessionContext) -> None:
    formula = "CASE WHEN n > 1 THEN x * x WHEN n IS NULL THEN 3 * x END"
    session.deregister_table("holes")
    session.from_pydict({"x": [2.0, 3.0, 4.0, None], "n": [5.0, None, 0.0, 2.0]}, name="holes")
    table = query(session, f"SELECT grad({formula}, x) AS d FROM holes")
    assert_same_rows(rows_of(table), [(4.0,), (3.0,), (None,), (None,)])


def test_case_condition_is_evaluated_as_it_stands(session: SessionContext) -> None:
    """A condition has no derivative, however much it depends on the variable."""
    found = _over(session, [0.5, 1.5], "grad(CASE WHEN x * x > 1 THEN 3 * x ELSE 2 * x END, x)")
    assert_same_rows(rows_of(found), [(2.0,), (3.0,)])


SINGLE = [
    "x * x",
    "sin(x)",
    "exp(x) / x",
    "sqrt(abs(x)) * x",
    "ln(x * x + 1)",
    "power(x, 3)",
    "x % 0.75",
    "CAST(x AS DOUBLE) * x",
    "CASE WHEN x > 0 THEN x * x ELSE -x END",
    "tanh(x)",
    "coalesce(x * x, x)",
    "atan(x) - cbrt(x)",
    "log(2, x * x + 1)",
]


# DataFusion has neither abs nor unary minus of a dictionary.
_NOT_OF_DICTIONARIES = ("abs(x)", "-x")


@pytest.mark.parametrize("formula", SINGLE)
@pytest.mark.parametrize(
    ("type_", "tolerance"),
    [
        (pa.float16(), 4e-3),
        (pa.float32(), 2e-6),
        (pa.dictionary(pa.int32(), pa.float32()), 2e-6),
        (pa.dictionary(pa.int8(), pa.float64()), 1e-12),
    ],
    ids=["Float16", "Float32", "Dictionary(Float32)", "Dictionary(Float64)"],
)
def test_other_float_columns(session: SessionContext, formula: str, type_: Any, tolerance: float) -> None:
    """As for a Float64 column, up to the precision of the type, in first and second order."""
    if pa.types.is_dictionary(type_) and any(part in formula for part in _NOT_OF_DICTIONARIES):
        formula = formula.replace("abs(x)", "(x * x)").replace("-x", "3 * x")
    values = [-2.5, -1.0, 0.5, 0.5, 1.25]
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    array = pa.array(values, plain)
    if plain != type_:
        array = array.dictionary_encode().cast(type_)
    calls = (f"grad({formula}, x)", f"grad(grad({formula}, x), x)")
    found = _over(session, array, *calls, type_=type_)
    reference = _over(session, values, *calls)
    for actual, expected in zip(found.columns, reference.columns, strict=True):
        assert_close(np.asarray(actual.to_numpy(), np.float64), expected.to_numpy(), formula, rtol=tolerance)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("sin(CAST(x AS FLOAT))", lambda x: np.cos(x)),
        ("CAST(x * x AS FLOAT) * x", lambda x: 3 * x * x),
        ("arrow_cast(x, 'Float32') * x", lambda x: 2 * x),
        ("CAST(CAST(x AS FLOAT) AS DOUBLE)", np.ones_like),
    ],
)
def test_casts_between_floats(session: SessionContext, formula: str, expected: Callable[[Any], Any]) -> None:
    found = _over(session, _ALL, f"grad({formula}, x)")
    np.testing.assert_allclose(found["c0"].to_numpy(), expected(_ALL), rtol=3e-6, atol=3e-6)
