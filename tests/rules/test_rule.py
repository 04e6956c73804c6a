"""Rules when they are made: what is wrong with one is said at once, with the way out."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from datafusion import SessionContext, col, lit
from datafusion import functions as f

from support.functions import scalar
from support.processes import json_of
from xql_ffi import Rule, grad, grad_capsule, jvp_capsule, register, rule, vjp_capsule

G = scalar("g", lambda x: x)
CTX = SessionContext()

# The arguments of `rule`, and what the message must have: the SQL, the reason and the way out.
WRONG: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "signature_unclosed": (("f(x", "1"), ['"f(x" cannot be parsed', "such as f(x, y)"]),
    "signature_empty": (("", "1"), ["cannot be parsed", "such as f(x, y)"]),
    "signature_of_an_operator": (("x + y", "1", "1"), ["x + y is not a call", "such as f(x, y)"]),
    "signature_without_parameters": (("f", "1"), ["f is not a call", "such as f(x, y)"]),
    "signature_with_more": (("f(x) AS y", "1"), ["cannot be parsed", "AS"]),
    "signature_of_an_aggregate_clause": (("f(x) FILTER (WHERE x > 0)", "1"), ["is not a call"]),
    "parameter_a_number": (("f(1)", "1"), ["1 is not a name", "f(x, y)"]),
    "parameter_an_expression": (("f(x + 1)", "1"), ["x + 1 is not a name"]),
    "parameter_of_a_table": (("f(t.x)", "1"), ["t.x is not a name"]),
    "parameter_twice": (("f(x, y, x)", "1", "1", "1"), ["two parameters are called x", "name of its own"]),
    "parameter_twice_in_other_case": (("f(x, X)", "1", "1"), ["two parameters are called x"]),
    "parameter_called_as_the_output": (("f(Ω)", "1"), ["no parameter can be called Ω"]),
    "too_few": (("f(x, y)", "1"), ["1 partial derivative for 2 parameters (x, y)", "0 where there is none"]),
    "too_many": (("f(x)", "1", "2"), ["2 partial derivatives for 1 parameter (x)"]),
    "none_for_one": (("f(x)",), ["no partial derivatives for 1 parameter"]),
    "without_parameters": (("f()",), ["f has no parameters", "nothing to differentiate by", "needs no rule"]),
    "one_for_none": (("f()", "1"), ["f has no parameters"]),
    "schema": (
        ("s.f(x)", "1"),
        ["are in no schema, and s.f names one", "is called s.f", 'quote the whole, "s.f"(...)'],
    ),
    "schema_in_quotes": (('"S".f(x)', "1"), ['"S".f names one', 'quote the whole, "S.f"(...)']),
    "schema_of_a_call": (("f(x)", "s.f(x)"), ["no scalar function s.f"]),
    "null": (("f(x)", "NULL"), ['by x, "NULL": it is NULL everywhere', "give 0", "no rule if"]),
    "null_second": (("f(x, y)", "1", "2 * CAST(NULL AS DOUBLE) + y"), ["by y", "it is NULL everywhere"]),
    "null_negative": (("f(x)", "-(NULL / x)"), ["it is NULL everywhere"]),
    "rule_for_an_operator": (("grad(x, y)", "1", "1"), ["grad is a differential operator", "takes no rule"]),
    "partial_empty": (("f(x)", ""), ['"" cannot be parsed']),
    "partial_unfinished": (("f(x)", "1 / "), ['"1 / " cannot be parsed']),
    "partial_with_more": (("f(x)", "1 / x garbage"), ["cannot be parsed", "garbage"]),
    "partial_with_an_alias": (("f(x)", "1 / x AS y"), ["cannot be parsed", "AS"]),
    "partial_of_two_statements": (("f(x)", "x; x"), ["cannot be parsed", ";"]),
    "unknown_name": (("f(x)", "1 / z"), ['by x, "1 / z"', "no z here", "the parameters (x)", "Ω"]),
    "name_in_another_case": (('f("X")', "x"), ["no x here", "(X)"]),
    "column_of_a_table": (("f(x)", "t.x"), ["cannot be written with t.x"]),
    "unknown_function": (("f(x)", "2 * foo(x)"), ["foo(x)", "no scalar function foo", "functions=[foo]"]),
    "function_in_quotes": (("f(x)", '"Exp"(x)'), ["no scalar function Exp"]),
    "grad": (("f(x, y)", "grad(x, y)", "1"), ["grad(x, y)", "only known in a query", "write the derivative out"]),
    "jvp": (("f(x)", "2 * jvp(x, x, 1.0)"), ["what jvp differentiates", "write the derivative out"]),
    "aggregate": (("f(x)", "avg(x)"), ["no scalar function avg"]),
    "star": (("f(x)", "count(*)"), ["cannot be written with count(*)"]),
    "window": (("f(x)", "exp(x) OVER ()"), ["cannot be written with exp(x) OVER ()"]),
    "distinct": (("f(x)", "exp(DISTINCT x)"), ["cannot be written with exp(DISTINCT x)"]),
    "filter": (("f(x)", "exp(x) FILTER (WHERE x > 0)"), ["cannot be written with exp(x) FILTER"]),
    "named_argument": (("f(x)", "exp(x => x)"), ["cannot be written with exp(x => x)"]),
    "subquery": (("f(x)", "(SELECT 1)"), ["cannot be written with (SELECT 1)", "CASE"]),
    "exists": (("f(x)", "CASE WHEN EXISTS (SELECT 1) THEN 1 END"), ["cannot be written with EXISTS"]),
    "text": (("f(x)", "'a'"), ["cannot be written with 'a'"]),
    "parameter_of_a_statement": (("f(x)", "$1"), ["cannot be written with $1"]),
    "list": (("f(x)", "x[1]"), ["cannot be written with x[1]"]),
    "caret": (("f(x)", "x ^ 2"), ["cannot be written with x ^ 2", "power(x, y)"]),
    "cast_to_integer": (
        ("f(x)", "CAST(x AS INT)"),
        ["written with CAST(x AS INT)", "casts to REAL or DOUBLE"],
    ),
    "number_too_large": (("f(x)", "1e999"), ["cannot be written with 1e999"]),
    "rounding_to_digits": (("f(x)", "floor(x, 2)"), ["cannot be written with FLOOR(x, 2)"]),
    "arity_of_a_function": (("f(x)", "exp(x, x)"), ["exp(x, x)", "Float64, Float64"]),
    "no_argument": (("f(x)", "exp()"), ["exp()", "zero arguments"]),
    "arity_of_the_function_itself": (("f(x)", "f(x, 1)"), ["no scalar function f", "f with 1 argument"]),
    "condition_for_a_number": (("f(x)", "x > 1"), ["x > 1 must be a number; it is Boolean"]),
    "truth_function": (("f(x)", "isnan(x)"), ["isnan(x) must be a number; it is Boolean"]),
    "number_for_a_condition": (("f(x)", "CASE WHEN x THEN 1 END"), ["x must be a condition; it is Float64"]),
    "not_a_number": (("f(x)", "CASE WHEN NOT x THEN 1 END"), ["x must be a condition; it is Float64"]),
    "and_of_numbers": (("f(x)", "CASE WHEN x AND x > 0 THEN 1 END"), ["x must be a condition; it is Float64"]),
    "text_function": (("f(x)", "concat(x, x)"), ["concat(x, x) must be a number; it is Utf8"]),
    "time": (("f(x)", "now()"), ["now() must be a number; it is Timestamp"]),
    "volatile": (("f(x)", "x * random()"), ["random is volatile"]),
    "second_of_two": (("f(x, y)", "y", "1 / z"), ['by y, "1 / z"']),
    "replaced_function": (("coalesce(x, y)", "1", "1"), ["DataFusion makes coalesce a CASE"]),
    "too_long": (("f(x)", "x + " * 5000 + "x"), ["20001 characters is too long", "10000"]),
    "too_nested": (("f(x)", "(" * 1000 + "x" + ")" * 1000), ["recursion limit"]),
    "nul": (("f(x)", "x\0"), ["NUL"]),
    "nul_in_the_signature": (("f(x\0)", "x"), ["NUL"]),
    "surrogate": (("f(x)", "\ud800"), ["surrogates not allowed"]),
}


@pytest.mark.parametrize(("arguments", "says"), WRONG.values(), ids=WRONG.keys())
def test_wrong(arguments: tuple[str, ...], says: list[str]) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the parts are checked below
        rule(*arguments)
    for part in says:
        assert part in str(caught.value)


@pytest.mark.parametrize("name", [name for name in WRONG if not name.startswith(("nul", "surrogate"))])
def test_the_message_names_the_rule(name: str) -> None:
    arguments, _ = WRONG[name]
    with pytest.raises(ValueError, match="the rule for") as caught:
        rule(*arguments)
    assert f"the rule for {arguments[0]}: " in str(caught.value)


RIGHT: list[tuple[str, ...]] = [
    ("f(x)", "CASE WHEN x > 0 THEN 1 ELSE NULL END"),
    ("f(x)", "CASE WHEN NULL IS NULL THEN x END"),
    ("f(x)", "1"),
    ("f(x)", "-.5e-3 * +x -- the slope"),
    ("F(X)", "x + X"),
    ('"My Fn"("the x")', '2 * "the x" * "My Fn"("the x" + 1)'),
    ('"schema.f"(x)', '"schema.f"(2 * x)'),
    ("f(x)", "Ω * f(x) * f(2 * x)"),
    ("hypot(x, y)", "x / hypot(x, y)", "y / hypot(y, x)"),
    ("f(x)", "CASE WHEN x > 0 AND NOT x >= 1 OR x BETWEEN -2 AND -1 THEN 1 WHEN x IS NULL THEN 0 ELSE x % 2 END"),
    ("f(x)", "CASE x WHEN 0 THEN 1 WHEN 1 THEN NULL END"),
    ("f(x)", "CASE WHEN x IS NOT NULL AND x <> 1 AND x != 2 AND x <= 3 AND x < 4 AND TRUE THEN 1 END"),
    ("f(x)", "CAST(x AS REAL) + x::DOUBLE + TRY_CAST(x AS FLOAT) + CAST(x AS DOUBLE PRECISION)"),
    ("f(x)", "floor(x) + CEIL(x) + trunc(x) + round(x) + pi() + pow(x, 2) + power(x, -2)"),
    ("f(x)", "- - - - - -x"),
    ("f(x)", "x+" * 1999 + "x"),
    ("floor(x)", "1"),
    (f"f({', '.join(f'x{i}' for i in range(200))})", *(f"x{i}" for i in range(200))),
]


@pytest.mark.parametrize("arguments", RIGHT, ids=lambda arguments: arguments[-1][:40])
def test_right(arguments: tuple[str, ...]) -> None:
    made = rule(*arguments)
    assert (made.signature, made.partials) == (arguments[0], arguments[1:])
    grad_capsule([made])


@pytest.mark.parametrize("arguments", [(1, "1"), ("f(x)", 1), ("f(x)", ["1"]), ("f(x)", None), (None,), (b"f(x)", "1")])
def test_what_is_no_text(arguments: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match=r"a rule is written in SQL, as a string; .* is not a string"):
        rule(*arguments)


def test_what_is_no_function() -> None:
    for function in ("g", lambda x: x, None):
        with pytest.raises(TypeError, match="ScalarUDF"):
            rule("f(x)", "g(x)", functions=[function])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="ScalarUDF"):
        rule("f(x)", "g(x)", functions="g")  # type: ignore[arg-type]


def test_functions_by_name() -> None:
    assert rule("f(x)", "g(x)", functions=[G]).functions == (G,)
    with pytest.raises(ValueError, match="no scalar function h"):
        rule("f(x)", "h(x)", functions=[G])
    with pytest.raises(ValueError, match="two of the functions handed over are called g"):
        rule("f(x)", "g(x)", functions=[G, scalar("g", lambda x: x)])
    with pytest.raises(ValueError, match="the function itself"):
        rule("g(x)", "g(2 * x)", functions=[G])
    one, other = (rule(f"{name}(x)", "g(x)", functions=[scalar("g", lambda x: x)]) for name in ("f", "h"))
    with pytest.raises(ValueError, match="different functions called g"):
        grad_capsule([one, other])
    grad_capsule([rule("f(x)", "g(x)", functions=[G]), rule("h(x)", "g(x)", functions=[G])])


def test_is_a_value() -> None:
    made = rule("f(x)", "1 / x")
    assert made == rule("f(x)", "1 / x")
    assert made == Rule("f(x)", ("1 / x",))
    assert len({made, rule("f(x)", "1 / x"), rule("f(x)", "2 / x"), rule("f(x)", "1 / x", strict=True)}) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.signature = "g(x)"  # type: ignore[misc]
    for same in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), eval(repr(made))):
        assert same == made
    with pytest.raises(ValueError, match="no z here"):
        dataclasses.replace(made, partials=("z",))


def test_its_repr_is_its_call() -> None:
    assert repr(rule("f(x)", "1")) == "rule('f(x)', '1')"
    made = rule("hypot(x, y)", "x / Ω", "y / Ω", strict=True)
    assert repr(made) == "rule('hypot(x, y)', 'x / Ω', 'y / Ω', strict=True)"
    assert repr(rule("f(x)", "g(x)", functions=[G])) == "rule('f(x)', 'g(x)', functions=[ScalarUDF(g)])"


@pytest.mark.parametrize("capsule", [grad_capsule, jvp_capsule, vjp_capsule])
def test_what_is_no_rule(capsule: object) -> None:
    assert callable(capsule)
    for rules in (["f(x)"], [("f(x)", "1")], [None], [rule("f(x)", "1"), 3]):
        with pytest.raises(TypeError, match=r"takes rules; .* is not one: write rule\(signature"):
            capsule(rules)
    with pytest.raises(ValueError, match=r"two rules for f\(x\)"):
        capsule([rule("f(x)", "1"), rule("F(y)", "2")])


@pytest.mark.parametrize("taker", [grad_capsule, jvp_capsule, vjp_capsule, lambda rules: register(CTX, rules)])
def test_what_is_no_list_of_rules(taker: Any) -> None:
    for rules in (None, 3, "f", b"f", rule, scalar("f", lambda x: x)):
        with pytest.raises(TypeError, match=r"takes a list of rules; .* is not one: write rules=\[rule\(\.\.\.\)"):
            taker(rules)
    with pytest.raises(TypeError, match=r"this is a single rule: write rules=\[rule\('f\(x\)', '1'\)\]"):
        taker(rule("f(x)", "1"))


def test_an_operator_is_no_function_of_a_rule() -> None:
    """Its derivative would be one by what the query has in the place of a parameter."""
    for function in (grad_capsule(), register(SessionContext()).udf("grad")):
        with pytest.raises(ValueError, match="what grad differentiates is only known in a query"):
            rule("f(x, y)", "grad(x, y)", "1", functions=[function])


LONG = " + ".join(f"sin(x * {i})" for i in range(400))


@pytest.mark.parametrize(
    "arguments",
    [
        ("f(x)", f"{LONG} + z"),
        ("f(x)", f"{LONG} garbage"),
        ("f(x)", f"foo({LONG})"),
        ("f(x)", f"'a' + ({LONG})"),
        ("f(x)", f"({LONG})^2"),
        ("f(x)", f"({LONG}) > 0"),
        ("f(x)", f"CASE WHEN {LONG} THEN 1 END"),
        ("f(x)", f"exp({LONG}, x)"),
        ("f(x)", f"grad({LONG}, x)"),
        ("f(x)", f"NULL * ({LONG})"),
        (f"f({LONG})", "1"),
        (LONG, "1"),
        (f"s.f({LONG})", "1"),
        (f"f({', '.join(f'parameter{i}' for i in range(400))})", "1"),
        (f"f({', '.join(f'p{i}' for i in range(400))})", *["z"] * 400),
    ],
    ids=lambda arguments: f"{arguments[0][:8]}, {arguments[1][:3]}...{arguments[1][-8:]}",
)
def test_long_sql_is_cut_in_messages(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r" \.\.\.") as caught:
        rule(*arguments)
    assert len(str(caught.value)) < 1000


def test_rules_may_be_any_iterable() -> None:
    ctx = SessionContext()
    ctx.register_udf(scalar("f", lambda x: x))
    register(ctx, rules=(rule(f"{name}(x)", "7") for name in ("f", "h")))
    found = ctx.sql("SELECT grad(f(x), x), jvp(f(x), x, 1.0), vjp(f(x), x, 1.0) FROM (VALUES (1.0)) AS t(x)")
    assert [values[0] for values in found.to_pydict().values()] == [7, 7, 7]


_IN_A_SMALL_STACK = """
import threading
from xql_ffi import grad_capsule, rule
threading.stack_size(512 * 1024)
made = []
thread = threading.Thread(target=lambda: made.append(grad_capsule([rule("f(x)", "x+" * 4999 + "x")])))
thread.start()
thread.join()
print(len(made))
"""


def test_the_longest_formula_needs_no_large_stack() -> None:
    assert json_of(["-c", _IN_A_SMALL_STACK], engine=True) == 1


def test_partial_derivatives_may_be_expressions() -> None:
    x, y = col("x"), col("y")
    made = rule(
        "f(x, y)", lit(1.0) / (lit(1.0) + f.exp(lit(-1.0) * x)), f.when(y > lit(0.0), col("Ω") / y).otherwise(x)
    )
    assert made == rule("f(x, y)", *made.partials)
    assert made.partials == ("(1.0 / (1.0 + exp((-1.0 * x))))", 'CASE WHEN (y > 0.0) THEN ("Ω" / y) ELSE x END')
    function = scalar("square", lambda x: x * x)
    ctx = register(SessionContext(), rules=[rule("square(x)", lit(2.0) * x), rule("g(x)", "1")])
    ctx.register_udf(function)
    frame = ctx.from_pydict({"a": [3.0]}, name="t")
    assert ctx.sql("SELECT grad(square(2 * a), a) AS d FROM t").to_pydict() == {"d": [24.0]}
    own = rule("square(x)", function(x) / x * lit(2.0))
    assert frame.select(grad(function(col("a")), "a", rules=[own]).alias("d")).to_pydict() == {"d": [6.0]}


def test_an_expression_over_what_is_no_parameter() -> None:
    with pytest.raises(ValueError, match=r"t\.x is a column of a table: name it without, col\('x'\)"):
        rule("f(x)", col("t.x"))
    with pytest.raises(ValueError, match="there is no z here"):
        rule("f(x)", col("z"))
