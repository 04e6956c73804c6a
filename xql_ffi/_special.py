"""Functions that DataFusion lacks, as the native library computes and differentiates them."""

from __future__ import annotations

# By the signature under which the rule table has each: the other names that it goes by. All of them are functions of a
# session. The values are computed by the native library, in native/special.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "log1p(x)": (),
    "expm1(x)": (),
    "logaddexp(x, y)": (),
    "softplus(x)": (),
    "sigmoid(x)": ("expit",),
    "log_sigmoid(x)": ("log_expit",),
    "logit(x)": (),
    "erf(x)": (),
    "erfc(x)": (),
    "erfcx(x)": (),
    "ierfcx(n, x)": (),
    "erfinv(x)": ("erf_inv",),
    "erfcinv(x)": (),
    "normal_pdf(x)": ("norm_pdf",),
    "normal_cdf(x)": ("norm_cdf", "ndtr"),
    "normal_quantile(x)": ("norm_ppf", "ndtri"),
    "log_ndtr(x)": (),
    "gamma(x)": ("tgamma",),
    "lgamma(x)": ("gammaln",),
    "digamma(x)": ("psi",),
    "trigamma(x)": (),
    "polygamma(n, x)": (),
}

# Random numbers by seed and keys. `random` says what they are.
RANDOM = {name: f"{name}(seed, key, ...)" for name in ("random_uniform", "random_normal")}


def _signatures() -> dict[str, str]:
    found = {}
    for signature, others in FUNCTIONS.items():
        name, _, inputs = signature.partition("(")
        found.update({each: f"{each}({inputs}" for each in (name, *others)})
    return {**found, **RANDOM}


# The signature of each by its name.
SIGNATURES = _signatures()
