"""Your own rules: derivatives of functions without a rule, or in place of theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from datafusion import Expr, ScalarUDF

from xql_ffi import _native, _session
from xql_ffi._expressions import in_sql


@dataclass(frozen=True, repr=False)
class Rule:
    """The derivative of a scalar function, as `rule` makes it.

    Attributes:
        signature: the function and names for its parameters, ``hypot(x, y)``.
        partials: the partial derivative by each parameter, in SQL.
        strict: whether the function is NULL exactly where an argument is.
        functions: functions that the partial derivatives call besides DataFusion's own.
    """

    signature: str
    partials: tuple[str, ...]
    strict: bool = False
    functions: tuple[ScalarUDF, ...] = ()

    def __post_init__(self) -> None:
        """Checks the rule.

        Raises:
            TypeError: an attribute is of the wrong type.
            ValueError: the rule is wrong.
        """
        for sql in (self.signature, *self.partials):
            if not isinstance(sql, str):
                msg = f"a rule is written in SQL, as a string; {sql!r} is not a string"
                raise TypeError(msg)
        for function in self.functions:
            if not isinstance(function, ScalarUDF):
                msg = (
                    f"the functions of a rule must be ScalarUDF objects; {function!r} is not one: "
                    "hand over what datafusion.udf(function, ...) or SessionContext.udf(name) gives"
                )
                raise TypeError(msg)
        self._native()

    def __repr__(self) -> str:
        """Returns the call of `rule` that makes it."""
        options = [f"functions={list(self.functions)!r}"] * bool(self.functions) + ["strict=True"] * self.strict
        return f"rule({', '.join([*map(repr, (self.signature, *self.partials)), *options])})"

    def _native(self) -> Any:
        if _session.is_supported() and self.functions:
            functions = [_session.function(function) for function in self.functions]
            return _native.rule_calling(self.signature, self.partials, functions, strict=self.strict)
        names = [function.name for function in self.functions]
        return _native.rule(self.signature, self.partials, names, strict=self.strict)


def rule(signature: str, *partials: str | Expr, strict: bool = False, functions: Iterable[ScalarUDF] = ()) -> Rule:
    """Returns a rule that says how a scalar function is differentiated.

    The partial derivatives are SQL over the parameters and ``Ω``, the function's own output: numbers, ``+ - * / %``,
    comparisons, ``AND``, ``OR``, ``NOT``, ``BETWEEN``, ``IS NULL``, ``CASE``, casts to ``REAL`` or ``DOUBLE``, and
    calls of DataFusion's own scalar functions, of the function itself and of ``functions``. A call of the function with
    its own parameters is the same as ``Ω``. Names are as in all SQL of DataFusion: in lower case unless quoted.

    >>> rule("softplus(x)", "1 / (1 + exp(-x))")
    rule('softplus(x)', '1 / (1 + exp(-x))')
    >>> rule("hypot(x, y)", "x / hypot(x, y)", "y / Ω", strict=True)
    rule('hypot(x, y)', 'x / hypot(x, y)', 'y / Ω', strict=True)

    Expressions of the DataFrame API are taken too, over columns that are called as the parameters:

    >>> from datafusion import col, functions as f, lit
    >>> rule("square(x)", lit(2.0) * f.abs(col("x")))
    rule('square(x)', '(2.0 * abs(x))')

    Args:
        signature: the function and names for its parameters. The rule holds for every function of this name or alias
            that is called with that many arguments, DataFusion's own included.
        *partials: the partial derivative by each parameter, in SQL or as an expression.
        strict: promises that the function is NULL exactly where an argument is, so that its derivative needs no look
            at its value to be NULL where that is. It holds by itself for functions of DataFusion that have a rule.
        functions: functions that the partial derivatives call besides DataFusion's own. The session need not have
            them.

    Returns:
        The rule, for `register`, `grad_capsule`, `jvp_capsule` and `vjp_capsule`.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: the rule is wrong; the message shows the SQL, the reason and what to do.
    """
    in_text = tuple(in_sql(partial) if isinstance(partial, Expr) else partial for partial in partials)
    return Rule(signature, in_text, strict=strict, functions=tuple(functions))


def checked_rules(rules: Iterable[Rule], taker: str) -> tuple[Rule, ...]:
    """Returns the rules.

    Raises:
        TypeError: ``rules`` is not a list of rules.
    """
    if isinstance(rules, Rule):
        msg = f"{taker} takes a list of rules; this is a single rule: write rules=[{rules!r}]"
        raise TypeError(msg)
    if isinstance(rules, str | bytes) or not isinstance(rules, Iterable):
        msg = f"{taker} takes a list of rules; {rules!r} is not one: write rules=[rule(...), ...], or rules=[] for none"
        raise TypeError(msg)
    checked = tuple(rules)
    for rule in checked:
        if not isinstance(rule, Rule):
            msg = f"{taker} takes rules; {rule!r} is not one: write rule(signature, partial derivative, ...)"
            raise TypeError(msg)
    return checked
