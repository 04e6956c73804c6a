"""Generated statements, which are DataFusion's, in the SQL of a host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from hosts.host import HostError
from xql_ffi._errors import HostError as NoWordsError
from xql_ffi._text.dialects.host import DATAFUSION, Host
from xql_ffi._text.dialects.hosts import HOSTS

# A query, and what may stand before it.
_QUERY = re.compile(
    r"((?:CREATE (?:OR REPLACE )?VIEW \w+ AS |CREATE TABLE \w+ AS |INSERT INTO \w+ |PREPARE \w+ AS )?)"
    r"((?:SELECT|WITH)\b.*)",
    re.DOTALL,
)

# What users write for statistics where a host has none; not over windows.
_VAR_POP = "(avg({0} * {0}) - avg({0}) * avg({0}))"
_VAR_SAMP = "((sum({0} * {0}) - sum({0}) * avg({0})) / nullif(count({0}) - 1, 0))"
_BOTH = "CASE WHEN {1} IS NOT NULL THEN {0} END", "CASE WHEN {0} IS NOT NULL THEN {1} END"
_COVAR_POP = f"(avg({{0}} * {{1}}) - avg({_BOTH[0]}) * avg({_BOTH[1]}))"
_STATISTICS_OF_SUMS = ("var_pop", "stddev_pop", "covar_pop", "var_samp", "stddev")
_STATISTICS = {"var_pop": _VAR_POP, "stddev_pop": f"sqrt({_VAR_POP})", "covar_pop": _COVAR_POP}

# By dialect, what a user of the host writes for functions that generated statements call.
_CALLS: Mapping[str, Mapping[str, str]] = {
    "duckdb": {"make_array": "[{0}, {1}]"},
    "postgres": {"make_array": "ARRAY[{0}, {1}]"},
    "sqlite": {
        **_STATISTICS,
        "var_samp": _VAR_SAMP,
        "stddev": f"sqrt({_VAR_SAMP})",
        "greatest": "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE max({0}, {1}) END",
        "least": "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE min({0}, {1}) END",
    },
    "polars": {
        **_STATISTICS,
        "make_array": "[{0}, {1}]",
        "tanh": "(1.0 - 2.0 / (exp(2.0 * {0}) + 1.0))",
        "var_samp": "variance({0})",
    },
    "spark": {"make_array": "array({0}, {1})", "unnest": "explode({0})"},
}
# The same for aggregates in an order: of `{order}`, or of the value `{0}` and the only key `{1}`.
_ORDERED: Mapping[str, Mapping[str, str]] = {
    "duckdb": {
        "first_value": "first({order}){filter}",
        "last_value": "last({order}){filter}",
        "nth_value": "(list({order}){filter})[2]",
    },
    "postgres": {
        "first_value": "(array_agg({order}){filter})[1]",
        "nth_value": "(array_agg({order}){filter})[2]",
    },
    "spark": {"first_value": "min_by({0}, {1}){filter}", "last_value": "max_by({0}, {1}){filter}"},
}


def statement_of(dialect: str, statement: str) -> str:
    """A generated statement in the SQL of a host. Raises HostError where it has no words for it."""
    found = _QUERY.fullmatch(statement)
    if dialect == "datafusion" or found is None:
        return statement
    host = HOSTS[dialect]
    root = exp.Paren(this=DATAFUSION.parsed(found[2]))
    for literal in _values(root):
        literal.replace(exp.cast(literal.copy(), exp.DataType.Type.DOUBLE))
    try:
        for node in reversed(list(root.find_all(exp.Anonymous))):
            _rewrite(node, host)
        return found[1] + host.text(root.this)
    except NoWordsError as error:
        raise HostError(str(error)) from error


def _values(root: exp.Expr) -> list[exp.Expr]:
    """Numbers with a point that are all that a column has, and which many hosts take for decimals."""
    literals = [literal for values in root.find_all(exp.Values) for literal in values.find_all(exp.Literal)]
    return [literal for literal in literals if not literal.is_string and not literal.this.isdigit()]


def _rewrite(node: exp.Anonymous, host: Host) -> None:
    """Writes a call as the host has it."""
    name, arguments = node.name.lower(), node.expressions
    order = next((argument for argument in arguments if isinstance(argument, exp.Order)), None)
    if order is None:
        is_plain = not isinstance(node.parent, (exp.Window, exp.Filter))
        if (template := _CALLS.get(host.name, {}).get(name)) and (is_plain or name not in _STATISTICS_OF_SUMS):
            node.replace(host.parsed(template.format(*(_closed(argument, host) for argument in arguments))))
        return
    template = _ORDERED.get(host.name, {}).get(name)
    if template is None or ("{1}" in template and len(order.expressions) > 1):
        raise HostError(f"no {name} of a group in such an order")
    value = arguments[0] if order is not arguments[0] else order.this
    keys = exp.Order(this=value.copy(), expressions=order.expressions)
    around = node.parent if isinstance(node.parent, exp.Filter) else None
    condition = f" FILTER ({host.text(around.expression).strip()})" if around else ""
    texts = host.text(value), host.text(order.expressions[0].this)
    (around or node).replace(host.parsed(template.format(*texts, order=host.text(keys), filter=condition)))


def _closed(argument: exp.Expr, host: Host) -> str:
    """An argument that may be an operand of anything."""
    text = host.text(argument)
    return text if isinstance(argument, (exp.Literal, exp.Column)) else f"({text})"
