"""Derivatives by rules of the user's own."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from datafusion import ScalarUDF, SessionContext, col, lit
from numpy.typing import NDArray

from support.cases import plans, query
from support.errors import assert_says, message_at_planning
from support.functions import scalar
from support.sessions import session
from xql_ffi import Rule, grad_capsule, jvp_capsule, register, rule, vjp_capsule

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

F32 = pa.float32()
SOFTPLUS = scalar("softplus", lambda x: math.log1p(math.exp(-abs(x))) + max(x, 0.0))
HYPOT = scalar("hypot", math.hypot, takes=[pa.float64()] * 2)
RULES = [rule("softplus(x)", "1 / (1 + exp(-x))"), rule("hypot(x, y)", "x / hypot(x, y)", "y / hypot(x, y)")]

X = np.array([-3.5, -0.75, 0.125, 0.5, 2.0, 6.25])
Y = np.array([1.25, -2.0, 0.625, 3.0, -0.25, 1.5])


def with_rules(rules: Sequence[Rule], *functions: ScalarUDF) -> SessionContext:
    """A session with functions, rules and the table `t`: x and y, the same as Float32, r and s, and n with a NULL."""
    columns = {"id": range(len(X)), "x": X, "y": Y, "n": [None, *X[1:]], "r": X.astype("f4"), "s": Y.astype("f4")}
    fields = [pa.field(name, pa.array(values).type, nullable=name == "n") for name, values in columns.items()]
    table = pa.RecordBatch.from_pydict(columns, schema=pa.schema(fields))
    ctx = session({"t": table}, differentiates=False)
    for function in functions:
        ctx.register_udf(function)
    return register(ctx, rules)


def column(ctx: SessionContext, expression: str) -> pa.ChunkedArray:
    return query(ctx, f"SELECT {expression} AS d FROM t ORDER BY id")["d"]


def values(ctx: SessionContext, expression: str) -> NDArray[np.float64]:
    found = column(ctx, expression)
    assert found.null_count == 0
    result: NDArray[np.float64] = found.to_numpy()
    return result


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    """A session with softplus and hypot."""
    return with_rules(RULES, SOFTPLUS, HYPOT)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_softplus(ctx: SessionContext, order: int) -> None:
    expression = "softplus(x * y)"
    expected: Callable[..., Any] = lambda x, y: jax.nn.softplus(x * y)  # noqa: E731
    for _ in range(order):
        expression, expected = f"grad({expression}, x)", jax.grad(expected)
    np.testing.assert_allclose(values(ctx, expression), jax.vmap(expected)(X, Y), rtol=1e-11)


@pytest.mark.parametrize("path", ["x", "y", "xx", "xy", "yx", "xxy", "yyy", "xyx"])
def test_hypot(ctx: SessionContext, path: str) -> None:
    expression = "hypot(x, y)"
    expected: Callable[..., Any] = lambda x, y: jnp.sqrt(x * x + y * y)  # noqa: E731
    for variable in path:
        expression, expected = f"grad({expression}, {variable})", jax.grad(expected, "xy".index(variable))
    np.testing.assert_allclose(values(ctx, expression), jax.vmap(expected)(X, Y), rtol=1e-12, atol=1e-15)


def test_composed(ctx: SessionContext) -> None:
    """By the chain rule, through both and through functions of DataFusion."""
    sql = "exp(-hypot(softplus(x), sin(y))) * softplus(hypot(x, y))"

    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        outer = jnp.sqrt(jax.nn.softplus(x) ** 2 + jnp.sin(y) ** 2)
        return jnp.exp(-outer) * jax.nn.softplus(jnp.sqrt(x * x + y * y))

    gradient = jax.vmap(jax.grad(function, (0, 1)))(X, Y)
    for variable, expected in zip("xy", gradient, strict=True):
        np.testing.assert_allclose(values(ctx, f"grad({sql}, {variable})"), expected, rtol=1e-12)
    tangent = jax.vmap(lambda x, y: jax.jvp(function, (x, y), (2.0, y))[1])(X, Y)
    np.testing.assert_allclose(values(ctx, f"jvp({sql}, x, 2.0, y, y)"), tangent, rtol=1e-12)
    np.testing.assert_allclose(values(ctx, f"vjp({sql}, x, 3.0)"), 3 * gradient[0], rtol=1e-12)


def test_finite_differences(ctx: SessionContext) -> None:
    step = 1e-6
    difference = values(ctx, f"(hypot(softplus(x + {step}), y) - hypot(softplus(x - {step}), y)) / {2 * step}")
    np.testing.assert_allclose(values(ctx, "grad(hypot(softplus(x), y), x)"), difference, rtol=1e-8, atol=1e-9)


def test_the_function_itself_is_evaluated_once() -> None:
    """What the partial derivative reads of the function is the function as the query has it, in either spelling."""
    calls: list[float] = []

    def counted(x: float, y: float) -> float:
        calls.append(x)
        return math.hypot(x, y)

    for partial in ("x / Ω", "x / hypot(x, y)"):
        calls.clear()
        ctx = with_rules([rule("hypot(x, y)", partial, "0")], scalar("hypot", counted, takes=[pa.float64()] * 2))
        found = query(ctx, "SELECT hypot(x, y) AS h, grad(hypot(x, y), x) AS d FROM t")
        np.testing.assert_allclose(found["d"].to_numpy(), X / np.hypot(X, Y))
        assert len(calls) == len(X)


def test_newton_in_a_recursive_query(ctx: SessionContext) -> None:
    sql = """WITH RECURSIVE newton AS (
        SELECT 0 AS step, 0.5 AS x
        UNION ALL
        SELECT step + 1, x - (softplus(x) - 1) / grad(softplus(x) - 1, x) FROM newton WHERE step < 6)
      SELECT x FROM newton ORDER BY step DESC LIMIT 1"""
    assert query(ctx, sql)["x"].to_pylist() == [pytest.approx(math.log(math.e - 1), rel=1e-15)]


def test_in_other_places_of_a_query(ctx: SessionContext) -> None:
    slope = 1 / (1 + np.exp(-X))
    assert query(ctx, "SELECT AVG(grad(softplus(x), x)) AS d FROM t")["d"][0].as_py() == pytest.approx(slope.mean())
    found = query(ctx, "SELECT x FROM t WHERE grad(softplus(x), x) > 0.5 ORDER BY grad(softplus(x), x) DESC")["x"]
    assert found.to_pylist() == sorted(X[slope > 0.5], reverse=True)
    ctx.sql("CREATE VIEW slopes AS SELECT id, grad(softplus(x), x) AS d FROM t").collect()
    np.testing.assert_allclose(query(ctx, "SELECT d FROM slopes ORDER BY id")["d"].to_numpy(), slope, rtol=1e-15)


def test_dataframe_api() -> None:
    """No session knows the functions."""
    frame = SessionContext().from_pydict({"x": [0.0], "y": [2.0]})
    call = HYPOT(SOFTPLUS(col("x")), col("y") * lit(2.0))
    found = frame.select(grad_capsule(RULES)(call, col("x")).alias("d")).to_pydict()["d"]
    assert found == pytest.approx([math.log(2) / math.hypot(math.log(2), 4) / 2])


def test_single_precision() -> None:
    """A function of Float32 in a chain of Float32, and in one of Float64."""
    square = scalar("square", lambda x: np.float32(x) * np.float32(x), takes=[F32], gives=F32)
    ctx = with_rules([rule("square(x)", "2 * x")], square)
    found = column(ctx, "grad(square(r) * s, r)")
    assert found.type == F32
    np.testing.assert_array_equal(found.to_numpy(), 2 * X.astype("f4") * Y.astype("f4"))
    found = column(ctx, "grad(square(r) * y, r)")
    assert found.type == pa.float64()
    np.testing.assert_allclose(found.to_numpy(), 2 * X.astype("f4") * Y, rtol=1e-15)
    # The function itself within its derivative: of the type that it takes.
    ctx = with_rules([rule("square(x)", "square(x + 1)")], square)
    np.testing.assert_allclose(values(ctx, "grad(square(r) * y, r)"), (X.astype("f4") + 1) ** 2 * Y, rtol=1e-7)


@pytest.mark.parametrize("name", ["tanh", "TANH", '"tanh"'])
def test_a_built_in_is_overridden(name: str) -> None:
    ctx = with_rules([rule(f"{name}(x)", "10 * (1 - Ω * Ω)")])
    np.testing.assert_allclose(values(ctx, "grad(tanh(x), x)"), 10 / np.cosh(X) ** 2, rtol=1e-11)
    np.testing.assert_allclose(values(ctx, "grad(tan(y), y)"), 1 + np.tan(Y) ** 2, rtol=1e-12)


def test_a_built_in_is_overridden_by_alias_and_number_of_arguments() -> None:
    ctx = with_rules([rule("pow(a, b)", "7", "8"), rule("log(b, x)", "5", "6")])
    assert set(values(ctx, "grad(power(x, y), x)")) == {7.0}
    assert set(values(ctx, "grad(pow(x, y), y)")) == {8.0}
    assert set(values(ctx, "grad(log(3.0, x), x)")) == {6.0}
    np.testing.assert_allclose(values(ctx, "grad(log(x), x)"), 1 / (X * math.log(10)), rtol=1e-14)


def test_straight_through() -> None:
    """The custom derivative that quantised models are trained with."""
    ctx = with_rules([rule("floor(x)", "1")])
    np.testing.assert_allclose(values(ctx, "grad(floor(x) * x, x)"), np.floor(X) + X)


def test_a_session_function_named_like_a_built_in() -> None:
    mine = scalar("sin", lambda x: 7 * x)
    ctx = with_rules([rule("sin(x)", "sin(x) + cos(x)")], mine)
    np.testing.assert_allclose(values(ctx, "grad(sin(x), x)"), 7 * X + np.cos(X))
    # cos in the formula is DataFusion's, although the session has another one, which has no rule.
    ctx = with_rules([rule("sin(x)", "sin(x) + cos(x)")], mine, scalar("cos", lambda x: 100.0))
    np.testing.assert_allclose(values(ctx, "grad(sin(x), x)"), 7 * X + np.cos(X))
    assert_says(message_at_planning(lambda: ctx.sql("SELECT grad(cos(x), x) FROM t")), ["the function cos"])


@pytest.mark.parametrize(("number", "expected"), [(1.5, 3.0), (2.0, 5.0), (2.5, 5.0)])
def test_numbers_that_a_formula_compares(number: float, expected: float) -> None:
    line = scalar("line", lambda x, n: (3 if n < 2 else 5) * x, takes=[pa.float64()] * 2)
    ctx = with_rules([rule("line(x, n)", "CASE WHEN n < 2 THEN 3 ELSE 5 END", "0")], line)
    np.testing.assert_array_equal(values(ctx, f"grad(line(x, {number}), x)"), np.full_like(X, expected))


def test_sessions_differ() -> None:
    """Each has a function, and a rule that calls it, of the same name."""
    contexts = [
        with_rules([rule("f(x)", f"{factor} * f(x + 1)")], scalar("f", lambda x, factor=factor: factor * x))
        for factor in (2, 3, 5)
    ]
    for _ in range(2):
        for ctx, factor in zip(contexts, (2, 3, 5), strict=True):
            np.testing.assert_allclose(values(ctx, "grad(f(x), x)"), factor * factor * (X + 1))


def test_operators_differ() -> None:
    ctx = SessionContext()
    ctx.register_udf(scalar("f", lambda x: x))
    for capsule, slope in ((grad_capsule, "1"), (jvp_capsule, "2"), (vjp_capsule, "3")):
        ctx.register_udf(capsule([rule("f(x)", slope)]))
    found = ctx.sql("SELECT grad(f(x), x), jvp(f(x), x, 10.0), vjp(f(x), x, 10.0) FROM (VALUES (1.0)) AS t(x)")
    assert [value[0] for value in found.to_pydict().values()] == [1, 20, 30]
    # Registered again, with another rule or none.
    register(ctx, rules=[rule("f(x)", "4")])
    found = ctx.sql("SELECT grad(f(x), x), jvp(f(x), x, 10.0), vjp(f(x), x, 10.0) FROM (VALUES (1.0)) AS t(x)")
    assert [value[0] for value in found.to_pydict().values()] == [4, 40, 40]
    register(ctx)
    assert_says(
        message_at_planning(lambda: ctx.sql("SELECT grad(f(x), x) FROM (VALUES (1.0)) AS t(x)")), ["the function f"]
    )


def test_names() -> None:
    ctx = with_rules([rule('"MyFn"(x)', "2 * x"), rule("myfn(x)", "3 * x")], scalar("MyFn", abs), scalar("myfn", abs))
    np.testing.assert_allclose(values(ctx, 'grad("MyFn"(x), x)'), 2 * X)
    np.testing.assert_allclose(values(ctx, "grad(MyFn(x), x)"), 3 * X)
    odd = scalar('odd "name"', lambda x, y, z: x * y, takes=[pa.float64()] * 3)
    ctx = with_rules([rule('"odd ""name"""("the x", "Y", y)', '"Y"', '"the x"', "0")], odd)
    np.testing.assert_allclose(values(ctx, 'grad("odd ""name"""(x, y, 1.0), x)'), Y)


def test_no_arguments_and_many() -> None:
    ctx = with_rules([], scalar("total", lambda *xs: sum(xs), takes=[pa.float64()] * 30))
    np.testing.assert_allclose(values(ctx, "grad(pi() * x, x)"), 0 * X + math.pi)
    message = message_at_planning(lambda: ctx.sql("SELECT grad(total(x" + ", 1.0" * 29 + "), x) FROM t"))
    assert_says(message, [r"rule\(.total\(x1, x2, .*, x30\)"])
    names = [f"x{number}" for number in range(30)]
    many = rule(f"total({', '.join(names)})", *(f"{number} * {name}" for number, name in enumerate(names)))
    ctx = with_rules([many], scalar("total", lambda *xs: sum(xs), takes=[pa.float64()] * 30))
    arguments = ", ".join("x * y" if number == 7 else "x" if number == 11 else "1.0" for number in range(30))
    np.testing.assert_allclose(values(ctx, f"grad(total({arguments}), x)"), 7 * X * Y * Y + 11 * X, rtol=1e-14)


# A partial derivative by x of f(x, y), and its value.
SQL: dict[str, Callable[..., Any]] = {
    "1": lambda x, y: np.ones_like(x),
    "-2.5e-1 * +x": lambda x, y: -0.25 * x,
    "x % 0.7 - y / 3": lambda x, y: np.fmod(x, 0.7) - y / 3,
    "power(x, 2) + pow(x, 3) + power(abs(x), 0.5) + power(2, x)": lambda x, y: x**2 + x**3 + abs(x) ** 0.5 + 2**x,
    "floor(x) + ceil(y) + trunc(x)": lambda x, y: np.floor(x) + np.ceil(y) + np.trunc(x),
    "CASE WHEN x > y THEN 1 WHEN x < -1 THEN 2 ELSE 3 END": lambda x, y: np.select([x > y, x < -1], [1, 2], 3),
    "CASE WHEN x >= 0 AND NOT y <= 0 THEN x ELSE y END": lambda x, y: np.where((x >= 0) & (y > 0), x, y),
    "CASE WHEN x BETWEEN -1 AND 0.5 OR y NOT BETWEEN -1 AND 2 THEN 1 ELSE 0 END": lambda x, y: np.where(
        ((x >= -1) & (x <= 0.5)) | (y < -1) | (y > 2), 1, 0
    ),
    "CASE x WHEN 0.5 THEN 1 WHEN 2 THEN 2 ELSE 3 END": lambda x, y: np.select([x == 0.5, x == 2], [1, 2], 3),
    "CASE WHEN x IS NULL OR x <> x THEN 1 WHEN y = 3 THEN 2 WHEN x IS NOT NULL THEN 4 END": lambda x, y: np.where(
        y == 3, 2, 4
    ),
    "CAST(x / 3 AS REAL)": lambda x, y: (x / 3).astype("f4").astype("f8"),
    "(x / 3)::DOUBLE": lambda x, y: x / 3,
    "CASE WHEN TRUE AND FALSE THEN 1 ELSE signum(x) END": lambda x, y: np.sign(x),
    "atan2(y, x) + exp(greatest(x, y))": lambda x, y: np.arctan2(y, x) + np.exp(np.maximum(x, y)),
    "f(y, x) + Ω + f(X, Y)": lambda x, y: (y - 2 * x) + 2 * (x - 2 * y),
    "f(f(x, 1), f(1, y))": lambda x, y: (x - 2) - 2 * (1 - 2 * y),
}


@pytest.mark.parametrize("sql", SQL)
def test_sql(sql: str) -> None:
    f = scalar("f", lambda x, y: x - 2 * y, takes=[pa.float64()] * 2)
    ctx = with_rules([rule("f(x, y)", sql, "0")], f)
    np.testing.assert_allclose(values(ctx, "grad(f(x, y), x)"), SQL[sql](X, Y), rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(values(ctx, "grad(f(x, y), y)"), 0 * X)


class TestFunctions:
    """Functions of the session within partial derivatives."""

    F = scalar("f", lambda x: x**3)
    PRIME = scalar("f_prime", lambda x: 3 * x * x)

    def test_need_not_be_registered(self) -> None:
        ctx = with_rules([rule("f(x)", "f_prime(x)", functions=[self.PRIME])], self.F)
        np.testing.assert_allclose(values(ctx, "grad(f(x * y), x)"), 3 * X**2 * Y**3, rtol=1e-15)
        frame = SessionContext().from_pydict({"x": [2.0]})
        call = grad_capsule([rule("f(x)", "f_prime(x)", functions=[self.PRIME])])(self.F(col("x")), col("x"))
        assert frame.select(call.alias("d")).to_pydict() == {"d": [12.0]}

    def test_are_differentiated_by_their_own_rules(self) -> None:
        rules = [rule("f(x)", "f_prime(x)", functions=[self.PRIME]), rule("f_prime(x)", "6 * x")]
        np.testing.assert_allclose(values(with_rules(rules, self.F), "grad(grad(f(x), x), x)"), 6 * X, rtol=1e-15)
        ctx = with_rules(rules[:1], self.F)
        message = message_at_planning(lambda: ctx.sql("SELECT grad(grad(f(x), x), x) FROM t"))
        assert_says(message, [r"the function f_prime", r"rule\(.f_prime\(x\)"])

    def test_take_and_give_another_type(self) -> None:
        single = scalar("f_prime", lambda x: 3 * x * x, takes=[F32], gives=F32)
        ctx = with_rules([rule("f(x)", "f_prime(x)", functions=[single])], self.F)
        found = column(ctx, "grad(f(x), x)")
        assert found.type == pa.float64()
        np.testing.assert_allclose(found.to_numpy(), 3 * X**2, rtol=1e-6)
        whole = scalar("f_prime", lambda x: int(3 * x), gives=pa.int64())
        ctx = with_rules([rule("f(x)", "f_prime(x) / 2", functions=[whole])], self.F)
        np.testing.assert_allclose(values(ctx, "grad(f(x), x)"), np.trunc(3 * X) / 2)

    def test_of_several_arguments_and_in_formulas(self) -> None:
        prime = scalar("prime", lambda x, y: x * y, takes=[pa.float64()] * 2)
        offset = scalar("offset_", lambda x: x + 0.5)
        partial = "CASE WHEN prime(x, 2) > 0 THEN prime(Ω, exp(x)) ELSE -offset_(0) END"
        ctx = with_rules([rule("f(x)", partial, functions=[prime, offset])], self.F)
        np.testing.assert_allclose(values(ctx, "grad(f(x), x)"), np.where(X > 0, X**3 * np.exp(X), -0.5), rtol=1e-14)

    @pytest.mark.parametrize(
        ("function", "says"),
        [
            (scalar("g", lambda x, y: x, takes=[pa.float64()] * 2), [r"'g' cannot be called with \(Float64\)"]),
            (scalar("g", str, gives=pa.string()), ["'g' must return a number; it returns Utf8"]),
            (scalar("g", lambda x: x, volatility="volatile"), ["'g' is volatile"]),
        ],
        ids=["arity", "text", "volatile"],
    )
    def test_that_do_not_fit(self, function: ScalarUDF, says: list[str]) -> None:
        ctx = with_rules([rule("f(x)", "g(x)", functions=[function])], self.F)
        assert_says(message_at_planning(lambda: ctx.sql("SELECT grad(f(x), x) FROM t")), says)

    def test_are_those_of_the_rule(self) -> None:
        """The session has another function of the name."""
        other = scalar("f_prime", lambda x: -1.0)
        ctx = with_rules([rule("f(x)", "f_prime(x)", functions=[self.PRIME])], self.F, other)
        np.testing.assert_allclose(values(ctx, "grad(f(x), x)"), 3 * X**2, rtol=1e-15)
        np.testing.assert_allclose(values(ctx, "grad(f(x) * f_prime(y), x)"), -3 * X**2, rtol=1e-15)


class TestNulls:
    """The derivative is NULL exactly where the function is."""

    NULLS = (True, *[False] * 5)

    def nulls(self, ctx: SessionContext, expression: str) -> tuple[bool, ...]:
        return tuple(column(ctx, expression).is_null().to_pylist())

    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize("partial", ["1", "x", "Ω", "1 / (1 + exp(-x))"])
    def test_of_an_argument(self, partial: str, *, strict: bool) -> None:
        ctx = with_rules([rule("f(x)", partial, strict=strict)], scalar("f", abs))
        assert self.nulls(ctx, "grad(f(n), n)") == self.NULLS
        assert self.nulls(ctx, "grad(grad(f(n * n), n), n)") == self.NULLS
        assert self.nulls(ctx, "grad(f(x) + n, x)") == self.NULLS

    def test_of_the_function(self) -> None:
        """It is NULL where its argument is not, and the other way round."""
        ctx = with_rules([rule("f(x)", "1")], scalar("f", lambda x: None if x > 0 else x))
        assert self.nulls(ctx, "grad(f(x), x)") == tuple(X > 0)
        from datafusion import udf

        filled = udf(lambda x: x.fill_null(0.0), [pa.float64()], pa.float64(), "immutable", "filled")
        ctx = with_rules([rule("filled(x)", "CASE WHEN x IS NULL THEN 0 ELSE 1 END")], filled)
        assert column(ctx, "grad(filled(n), n)").to_pylist() == [0, 1, 1, 1, 1, 1]

    def test_of_a_built_in_overridden(self) -> None:
        ctx = with_rules([rule("floor(x)", "1")])
        assert self.nulls(ctx, "grad(floor(n), n)") == self.NULLS

    def test_strict_functions_are_not_evaluated_for_it(self) -> None:
        def plan(*, strict: bool) -> str:
            ctx = with_rules([rule("f(x)", "2 * x", strict=strict)], scalar("f", abs))
            return plans(ctx, "SELECT grad(f(n), n) AS d FROM t")["physical_plan"]

        assert "f(n@" in plan(strict=False)
        assert "f(n@" not in plan(strict=True)


class TestRefused:
    """What a rule does not help with."""

    def refused(self, sql: str, ctx: SessionContext, *says: str) -> None:
        assert_says(message_at_planning(lambda: ctx.sql(f"SELECT {sql} FROM t")), says)

    def test_no_rule(self) -> None:
        ctx = with_rules(
            [rule("f(x)", "1")], scalar("f", lambda x, y: x, takes=[pa.float64()] * 2), scalar("MyFn", abs)
        )
        shown = r"rule\(.f\(x1, x2\)., .<derivative by x1>., .<derivative by x2>.\)"
        self.refused("grad(f(x, y), x)", ctx, r"f\(t.x, t.y\) varies with t.x", shown)
        self.refused('grad("MyFn"(x), x)', ctx, r'rule\("\\"MyFn\\"\(x\)", "<derivative by x>"\)')

    def test_subqueries_are_offered_no_rule(self) -> None:
        ctx = with_rules([])
        message = message_at_planning(
            lambda: ctx.sql("SELECT grad((SELECT MAX(u.y) FROM t AS u WHERE u.x > t.x), x) FROM t")
        )
        assert "rule(" not in message

    def test_a_function_that_gives_no_floats(self) -> None:
        ctx = with_rules([rule("f(x)", "1")], scalar("f", int, gives=pa.int64()))
        self.refused(
            "grad(f(x) * x, x)", ctx, "the rule for f needs a function that returns a float", "Int64", "DOUBLE"
        )
        np.testing.assert_allclose(values(ctx, "grad(f(y) * x, x)"), np.trunc(Y))

    def test_an_argument_that_is_no_number(self) -> None:
        total = scalar("total", sum, takes=[pa.list_(pa.float64())])
        ctx = with_rules([rule("total(x)", "1")], total)
        self.refused("grad(total(make_array(x, y)), x)", ctx, "list", "takes numbers")

    def test_text_in_a_formula(self) -> None:
        f = scalar("f", lambda x, mode: x, takes=[pa.float64(), pa.string()])
        ctx = with_rules([rule("f(x, mode)", "x * mode", "0")], f)
        self.refused("grad(f(x, 'a'), x)", ctx, "mode must be a number; it is Utf8", "the rule for f")
        ctx = with_rules([rule("f(x, mode)", "f(2 * x, mode)", "0")], f)
        np.testing.assert_allclose(values(ctx, "grad(f(x, 'a'), x)"), 2 * X)

    def test_volatile_functions(self) -> None:
        draw = scalar("draw", lambda x: x, volatility="volatile")
        self.refused("grad(draw(x), x)", with_rules([rule("draw(x)", "Ω")], draw), "volatile", "again")
        self.refused("grad(draw(x), x)", with_rules([rule("draw(x)", "1")], draw), "volatile", "again")
        self.refused("grad(draw(x), x)", with_rules([rule("draw(x)", "draw(2 * x)", strict=True)], draw), "volatile")
        ctx = with_rules([rule("draw(x)", "3 * x", strict=True)], draw)
        np.testing.assert_allclose(values(ctx, "grad(draw(x), x)"), 3 * X)


def test_the_operators_are_as_before_without_rules(register: Callable[[SessionContext], SessionContext]) -> None:
    ctx = register(SessionContext())
    assert ctx.sql("SELECT grad(tanh(x), x) AS d FROM (VALUES (0.0)) AS t(x)").to_pydict() == {"d": [1.0]}
