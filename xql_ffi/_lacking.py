"""Functions that people differentiate elsewhere and that DataFusion lacks."""

from __future__ import annotations

from xql_ffi._special import RANDOM, SIGNATURES

# What says the same in SQL, by the signature.
WRITTEN = {
    "clamp(x, low, high)": "least(greatest(x, low), high)",
    "clip(x, low, high)": "least(greatest(x, low), high)",
    "elu(x)": "CASE WHEN x > 0 THEN x ELSE exp(x) - 1 END",
    "exp2(x)": "power(2.0, x)",
    "expit(x)": "1 / (1 + exp(-x))",
    "expm1(x)": "exp(x) - 1",
    "fabs(x)": "abs(x)",
    "hypot(x, y)": "sqrt(x * x + y * y)",
    "leaky_relu(x)": "CASE WHEN x > 0 THEN x ELSE 0.01 * x END",
    "log1p(x)": "ln(1 + x)",
    "log_sigmoid(x)": "CASE WHEN x > 0 THEN -ln(1 + exp(-x)) ELSE x - ln(1 + exp(x)) END",
    "logaddexp(x, y)": "CASE WHEN x > y THEN x + ln(1 + exp(y - x)) ELSE y + ln(1 + exp(x - y)) END",
    "logit(x)": "ln(x / (1 - x))",
    "maximum(x, y)": "greatest(x, y)",
    "minimum(x, y)": "least(x, y)",
    "relu(x)": "greatest(x, 0)",
    "rsqrt(x)": "1 / sqrt(x)",
    "sech(x)": "1 / cosh(x)",
    "sigmoid(x)": "1 / (1 + exp(-x))",
    "sign(x)": "signum(x)",
    "silu(x)": "x / (1 + exp(-x))",
    "softplus(x)": "CASE WHEN x > 0 THEN x + ln(1 + exp(-x)) ELSE ln(1 + exp(x)) END",
    "softsign(x)": "x / (1 + abs(x))",
    "square(x)": "x * x",
    "swish(x)": "x / (1 + exp(-x))",
}
# Those that no other functions say, with the derivative as a rule has it.
RULES = {
    "digamma(x)": "trigamma(x)",
    "erf(x)": "2 / sqrt(pi()) * exp(-x * x)",
    "erfc(x)": "-2 / sqrt(pi()) * exp(-x * x)",
    "erfcinv(x)": "-sqrt(pi()) / 2 * exp(Ω * Ω)",
    "erfcx(x)": "2 * x * Ω - 2 / sqrt(pi())",
    "erfinv(x)": "sqrt(pi()) / 2 * exp(Ω * Ω)",
    "gamma(x)": "Ω * digamma(x)",
    "gammaln(x)": "digamma(x)",
    "gelu(x)": "CASE WHEN x = 0 THEN 0.5 ELSE Ω / x END + x * exp(-x * x / 2) / sqrt(2 * pi())",
    "lgamma(x)": "digamma(x)",
    "log_ndtr(x)": "exp(-x * x / 2 - Ω) / sqrt(2 * pi())",
    "loggamma(x)": "digamma(x)",
    "ndtr(x)": "exp(-x * x / 2) / sqrt(2 * pi())",
    "ndtri(x)": "sqrt(2 * pi()) * exp(Ω * Ω / 2)",
    "norm_cdf(x)": "exp(-x * x / 2) / sqrt(2 * pi())",
    "normal_cdf(x)": "exp(-x * x / 2) / sqrt(2 * pi())",
    "normal_pdf(x)": "-x * Ω",
    "normal_quantile(x)": "sqrt(2 * pi()) * exp(Ω * Ω / 2)",
    "tgamma(x)": "Ω * digamma(x)",
    "trigamma(x)": "polygamma(2, x)",
}
# What some of these call and DataFusion lacks as well: it is handed over with the rule.
CALLED = ("digamma", "trigamma", "polygamma")
# Aggregates that pick a value, and those that have a derivative.
PICKED = {
    "mode": "The value that most rows have does not move with one of them",
    "percentile_disc": "percentile_cont(p) WITHIN GROUP (ORDER BY x) has a derivative, and nth_value(x, k ORDER BY x)",
}
_SIGNATURES = {signature.partition("(")[0]: signature for signature in (*WRITTEN, *RULES)}


def way_without(name: str, host: str = "DataFusion") -> str | None:
    """Returns advice for the derivative of a function that a host lacks; None for a function that is not listed."""
    name = name.lower()
    if host == "DataFusion" and name in SIGNATURES:
        return _way_with_special(SIGNATURES[name])
    if host == "DuckDB" and name in RANDOM:
        return f"DuckDB has no function {RANDOM[name]}. xql_ffi.random.create_macros(connection) makes it"
    if name in PICKED:
        return f"{host} has no function {name}. {PICKED[name]}"
    signature = _SIGNATURES.get(name)
    if signature is None:
        return None
    inputs = signature.partition("(")[2].rstrip(")").split(", ")
    partials = [RULES.get(signature, f"<derivative by {each}>") for each in inputs]
    functions = "".join(f", functions=[{name}]" for name in CALLED if f"{name}(" in " ".join(partials))
    rule = f"xql_ffi.rule({', '.join(repr(part) for part in (signature, *partials))}{functions})"
    own = f"register a function of your own and hand over its derivative, rules=[{rule}]"
    written = f"write {WRITTEN[signature]}, or " if signature in WRITTEN else ""
    return f"{host} has no function {signature}. For its derivative, {written}{own}"


def _way_with_special(signature: str) -> str:
    written = f". Or write {WRITTEN[signature]}" if signature in WRITTEN else ""
    return (
        f"DataFusion has no function {signature}. This package has it, with its derivative: register(ctx, "
        f"functions=True). As text it takes sql or expand_sql with functions=True, too{written}"
    )
