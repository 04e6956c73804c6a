//! The special functions of `xql-special`, which a session has if its user registers them. Their derivatives call one another.

use super::line::{Line, Range, Sign, kink, rule};

const POSITIVE: Range = Range::Of(Sign::Positive);
/// Of what is 0 at arguments that are nothing out of the way.
const NOT_NEGATIVE: Range = Range::Of(Sign::NotNegative);
/// Where the gamma function has no pole.
const NO_POLE: &str = "x > 0 OR x <> round(x)";

/// In the order of `xql-special`.
pub const LINES: &[Line] =
    &[
        rule("log1p(x)", &["1 / (1 + x)"]).domain("x > -1").kinks(&[kink(
            "x = -1",
            &["Infinity"],
            "the limit from the right",
        )]),
        // Ω + 1 has no digits where exp(x) is small.
        rule("expm1(x)", &["exp(x)"]).finite(),
        // exp(x - Ω) is NaN where both are infinite.
        rule("logaddexp(x, y)", &["sigmoid(x - y)", "sigmoid(y - x)"]).finite(),
        rule("softplus(x)", &["sigmoid(x)"]).finite().range(POSITIVE),
        // 1 - Ω has no digits where it is small.
        rule("sigmoid(x)", &["Ω * sigmoid(-x)"]).finite().range(POSITIVE),
        rule("log_sigmoid(x)", &["sigmoid(-x)"]).finite(),
        rule("logit(x)", &["1 / (x * (1 - x))"]).domain("x > 0 AND x < 1").kinks(&[
            kink("x = 0", &["Infinity"], "the limit from the right"),
            kink("x = 1", &["Infinity"], "the limit from the left"),
        ]),
        // 2 / sqrt(π)
        rule("erf(x)", &["1.1283791670955126 * exp(-x * x)"]).finite(),
        rule("erfc(x)", &["-1.1283791670955126 * exp(-x * x)"]).finite().range(NOT_NEGATIVE),
        // 2 * x * Ω - 2 / sqrt(π) has no digits where x is great.
        rule("erfcx(x)", &["-2 * ierfcx(1, x)"]).finite().range(POSITIVE),
        rule("ierfcx(CAST(n AS BIGINT), x)", &["0", "-2 * (n + 1) * ierfcx(n + 1, x)"])
            .domain("n > -1")
            .kinks(&[kink("n = k AND k >= 0", &["0", "-2 * (n + 1) * ierfcx(n + 1, x)"], "n is a whole number")]),
        // sqrt(π) / 2
        rule("erfinv(x)", &["0.886226925452758 * exp(Ω * Ω)"]).domain("abs(x) < 1").kinks(&[
            kink("x = 1", &["Infinity"], "the limit from the left"),
            kink("x = -1", &["Infinity"], "the limit from the right"),
        ]),
        rule("erfcinv(x)", &["-0.886226925452758 * exp(Ω * Ω)"]).domain("x > 0 AND x < 2").kinks(&[
            kink("x = 0", &["-Infinity"], "the limit from the right"),
            kink("x = 2", &["-Infinity"], "the limit from the left"),
        ]),
        rule("normal_pdf(x)", &["-x * Ω"]).finite().range(NOT_NEGATIVE),
        rule("normal_cdf(x)", &["normal_pdf(x)"]).finite().range(NOT_NEGATIVE),
        // sqrt(2 * π)
        rule("normal_quantile(x)", &["2.5066282746310002 * exp(Ω * Ω / 2)"]).domain("x > 0 AND x < 1").kinks(&[
            kink("x = 0", &["Infinity"], "the limit from the right"),
            kink("x = 1", &["Infinity"], "the limit from the left"),
        ]),
        // sqrt(2 / π) and 1 / sqrt(2): normal_pdf(x) / normal_cdf(x), which is 0 / 0 far below 0.
        rule("log_ndtr(x)", &["0.7978845608028654 / erfcx(-0.7071067811865476 * x)"]).finite(),
        rule("gamma(x)", &["Ω * digamma(x)"]).domain(NO_POLE),
        rule("lgamma(x)", &["digamma(x)"]).domain(NO_POLE),
        rule("digamma(x)", &["trigamma(x)"]).domain(NO_POLE),
        rule("trigamma(x)", &["polygamma(2, x)"]).domain(NO_POLE),
        rule("polygamma(CAST(n AS BIGINT), x)", &["0", "polygamma(n + 1, x)"])
            .domain("n > -1 AND (x > 0 OR x <> round(x))")
            .kinks(&[kink("n = k AND k >= 0", &["0", "polygamma(n + 1, x)"], "n is a whole number")]),
    ];
