"""Random expressions over the columns in scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from relations.columns import INDEPENDENT, Column, Dependence, Origins, Scoped
from support.choices import Choices

CONSTANTS = ["0.5", "2.0", "1.2137", "0.3719", "-0.8171"]

# Of moderate size and slope whatever the arguments are, so that differences are exact.
UNARY = [
    "{0} * {0}",
    "sin({0})",
    "-{0}",
    # tanh alone saturates: of 0.9999999 and its like, all that two formulas have in common is the rounding.
    "tanh(sin({0}))",
    "exp(sin({0}))",
    "sqrt(0.5 + {0} * {0})",
    "power({0}, 2)",
    "ln(0.75 + {0} * {0})",
    # Not at 0, where it has its kink, and where variances of one row are.
    "abs({0} - 0.1237)",
    "CAST({0} AS DOUBLE)",
]
BINARY = [
    "{0} * {1}",
    "{0} + {1}",
    "{0} - {1}",
    "{0} * ({1} + 0.5)",
    "{0} / (1.5 + {1} * {1})",
    "coalesce({0}, {1})",
    "CASE WHEN {1} > 0.3371 THEN {0} ELSE 2.0 * {1} END",
    "CASE WHEN {1} IS NOT NULL THEN {0} END",
    # Not of equal values, of which they have the derivative of the first.
    "greatest({0}, {1} + 0.0417)",
    "least({0}, {1} - 0.0129)",
    "nullif({0}, {1})",
]


@dataclass(frozen=True)
class Expression:
    """An expression in SQL, and what it is computed from."""

    sql: str
    dependence: Dependence
    # The column, if it is nothing but a column, be it cast to the type that it has.
    passed: Column | None = None


def expression(choices: Choices, scope: Sequence[Scoped], depth: int, about: Origins | None = None) -> Expression:
    """An expression of floats in which at least one column occurs, if possible one that depends on `about`."""
    floats = [scoped for scoped in scope if not scoped.column.integer]
    preferred = [scoped for scoped in floats if about and scoped.column.dependence.on & about]
    # Those that are not the variable itself are those that have been computed from it.
    computed = [scoped for scoped in preferred if about and not scoped.column.origins & about]
    pool = (computed if computed and choices.chance(80) else preferred) or floats
    return _grown(choices, scope, _column(choices.of(pool)), depth)


def _grown(choices: Choices, scope: Sequence[Scoped], seed: Expression, depth: int) -> Expression:
    """An expression around `seed`."""
    for _ in range(choices.below(depth + 1)):
        if choices.chance(40):
            seed = _applied(choices.of(UNARY), seed)
        else:
            pair = [seed, _leaf(choices, scope)]
            if choices.chance(30):
                pair.reverse()
            seed = _applied(choices.of(BINARY), *pair)
    return seed


def _leaf(choices: Choices, scope: Sequence[Scoped]) -> Expression:
    if choices.chance(25):
        return Expression(choices.of(CONSTANTS), INDEPENDENT)
    leaf = _column(choices.of(scope))
    return _applied(choices.of(UNARY), leaf) if choices.chance(30) else leaf


def _column(scoped: Scoped) -> Expression:
    if scoped.column.integer:
        return Expression(f"CAST({scoped.text} AS DOUBLE)", scoped.column.dependence)
    return Expression(scoped.text, scoped.column.dependence, scoped.column)


def _applied(template: str, *arguments: Expression) -> Expression:
    sql = template.format(*(f"({a.sql})" if " " in a.sql or a.sql.startswith("-") else a.sql for a in arguments))
    passed = arguments[0].passed if template.startswith("CAST") else None
    return Expression(sql, reduce(or_, (a.dependence for a in arguments)), passed)


@dataclass(frozen=True)
class Function:
    """An aggregate or window function: `{0}` and `{1}` are its arguments, `{by}` a total order of the rows."""

    template: str
    # It has no derivative, or none that is not 0.
    barred: bool = False
    constant: bool = False
    integer: bool = False

    @property
    def name(self) -> str:
        return self.template.partition("(")[0]

    @property
    def arity(self) -> int:
        return sum(f"{{{number}}}" in self.template for number in range(2))


AGGREGATES = [
    Function("sum({0})"),
    Function("avg({0})"),
    Function("min({0})"),
    Function("max({0})"),
    Function("count({0})", constant=True, integer=True),
    Function("var_samp({0})"),
    Function("var_pop({0})"),
    Function("stddev({0})"),
    Function("stddev_pop({0})"),
    Function("covar_samp({0}, {1})"),
    Function("covar_pop({0}, {1})"),
    Function("corr({0}, {1})"),
    Function("regr_slope({0}, {1})"),
    Function("regr_intercept({0}, {1})"),
    Function("regr_r2({0}, {1})"),
    Function("first_value({0} ORDER BY {by})"),
    Function("last_value({0} ORDER BY {by})"),
    Function("nth_value({0}, 2 ORDER BY {by})"),
]
# Not of grouping sets.
QUANTILES = [
    Function("median({0})"),
    Function("percentile_cont({0}, 0.3)"),
    Function("percentile_cont(0.75) WITHIN GROUP (ORDER BY {0} DESC)"),
]
BARRED = [
    Function("approx_median({0})", barred=True),
    Function("sum(DISTINCT {0})", barred=True),
    Function("avg(DISTINCT {0})", barred=True),
    Function("approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY {0})", barred=True),
]
# Over frames that only grow; those that slide take the others.
GROWING = [
    *AGGREGATES[:15],
    Function("first_value({0})"),
    Function("last_value({0})"),
    Function("nth_value({0}, 1 + 1)"),
]
SLIDING = [*AGGREGATES[:9], Function("first_value({0})"), Function("last_value({0})"), Function("nth_value({0}, 2)")]
ORDERED = [
    Function("lag({0})"),
    Function("lead({0})"),
    Function("lag({0}, 1 + 1, 0)"),
    Function("lead({0}, 1, 0.5)"),
    Function("row_number()", constant=True, integer=True),
    Function("rank()", constant=True, integer=True),
    Function("dense_rank()", constant=True, integer=True),
    Function("percent_rank()", constant=True),
    Function("cume_dist()", constant=True),
    Function("ntile(2)", constant=True, integer=True),
]


def call_of(function: Function, arguments: Sequence[Expression], by: str = "") -> Expression:
    """A call of an aggregate or window function."""
    sql = function.template.format(*(argument.sql for argument in arguments), by=by)
    if function.constant:
        return Expression(sql, INDEPENDENT)
    dependence = reduce(or_, (argument.dependence for argument in arguments), INDEPENDENT)
    return Expression(sql, dependence.through(function.name) if function.barred else dependence)
