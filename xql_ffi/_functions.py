"""``grad``, ``jvp``, ``vjp`` and ``stop_gradient`` as functions of expressions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from datafusion import Expr, ScalarUDF, lit

from xql_ffi._columns import column
from xql_ffi._engine import check_engine
from xql_ffi._expressions import check_expression, of_expressions
from xql_ffi._operators import DifferentialOperator, stop_gradient_capsule
from xql_ffi._rules import Rule, checked_rules


@of_expressions
def grad(expr: Expr, wrt: str | Expr, *, rules: Iterable[Rule] = ()) -> Expr:
    """Returns the derivative of an expression by a column, as an expression, for frames of a registered session.

    >>> from datafusion import SessionContext, col
    >>> from xql_ffi import register
    >>> df = register(SessionContext()).from_pydict({"x": [3.0], "y": [2.0]})
    >>> df.select(grad(col("x") * col("x") * col("y"), "x").alias("d")).to_pydict()
    {'d': [12.0]}

    Args:
        expr: what to differentiate.
        wrt: the column, by name or as ``col(...)``.
        rules: your own rules, for functions without a rule or in place of theirs.

    Raises:
        TypeError: an argument is not an expression, a column or a rule.
        ValueError: two rules contradict each other.
        MissingEngineError: the ``datafusion`` of this process does not differentiate.
    """
    return _operator("grad", checked_rules(rules, "grad"))(expr, column(wrt))


@of_expressions
def jvp(expr: Expr, *directions: str | Expr | float, rules: Iterable[Rule] = ()) -> Expr:
    """Returns the derivative of an expression along a direction: the sum of derivative times tangent over columns.

    >>> from datafusion import SessionContext, col
    >>> from xql_ffi import register
    >>> df = register(SessionContext()).from_pydict({"x": [3.0], "y": [2.0]})
    >>> df.select(jvp(col("x") * col("y"), "x", 1.0, "y", col("x")).alias("d")).to_pydict()
    {'d': [11.0]}

    Args:
        expr: what to differentiate.
        directions: columns, by name or as ``col(...)``, each followed by its tangent, an expression or a number.
        rules: your own rules, for functions without a rule or in place of theirs.

    Raises:
        TypeError: an argument is not an expression, a column or a rule.
        ValueError: a column has no tangent, or two rules contradict each other.
        MissingEngineError: the ``datafusion`` of this process does not differentiate.
    """
    if not directions or len(directions) % 2:
        msg = "jvp takes columns, each followed by its tangent: jvp(f, 'x', 1.0) or jvp(f, 'x', 1.0, 'y', col('u'))"
        raise ValueError(msg)
    pairs = zip(directions[::2], directions[1::2], strict=True)
    arguments = [argument for by, tangent in pairs for argument in (column(by), _number(tangent, "jvp"))]
    return _operator("jvp", checked_rules(rules, "jvp"))(expr, *arguments)


@of_expressions
def vjp(expr: Expr, wrt: str | Expr, cotangent: Expr | float, *, rules: Iterable[Rule] = ()) -> Expr:
    """Returns a cotangent times the derivative of an expression by a column.

    >>> from datafusion import SessionContext, col
    >>> from xql_ffi import register
    >>> df = register(SessionContext()).from_pydict({"x": [3.0], "y": [2.0]})
    >>> df.select(vjp(col("x") * col("x"), "x", col("y")).alias("d")).to_pydict()
    {'d': [12.0]}

    Args:
        expr: what to differentiate.
        wrt: the column, by name or as ``col(...)``.
        cotangent: an expression or a number.
        rules: your own rules, for functions without a rule or in place of theirs.

    Raises:
        TypeError: an argument is not an expression, a column or a rule.
        ValueError: two rules contradict each other.
        MissingEngineError: the ``datafusion`` of this process does not differentiate.
    """
    return _operator("vjp", checked_rules(rules, "vjp"))(expr, column(wrt), _number(cotangent, "vjp"))


@of_expressions
def stop_gradient(expr: Expr) -> Expr:
    """Returns the expression, which is constant wherever a derivative meets it.

    >>> from datafusion import SessionContext, col
    >>> from xql_ffi import register
    >>> df = register(SessionContext()).from_pydict({"x": [3.0]})
    >>> df.select(grad(col("x") * stop_gradient(col("x")), "x").alias("d")).to_pydict()
    {'d': [3.0]}

    Raises:
        TypeError: the argument is not an expression.
    """
    return _stop()(expr)


@lru_cache(maxsize=32)
def _operator(name: str, rules: tuple[Rule, ...]) -> DifferentialOperator:
    check_engine(name)
    return DifferentialOperator(name, rules)


@lru_cache(maxsize=1)
def _stop() -> ScalarUDF:
    return stop_gradient_capsule()


def _number(value: object, taker: str) -> Expr:
    if isinstance(value, int | float):
        return lit(float(value))
    check_expression(value, taker)
    return value  # type: ignore[return-value]
