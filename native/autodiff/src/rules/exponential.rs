//! Exponentials and logarithms.

use super::{Kink, Line, kink, rule};

const POLE: &[Kink] = &[kink("x = 0", &["Infinity"], "the limit from the right")];

pub const RULES: &[Line] = &[
    rule("exp(x)", &["Ω"]),
    rule("ln(x)", &["1 / x"]).domain("x > 0").kinks(POLE),
    // With one argument, the logarithm to base 10. 1 / ln(10)
    rule("log(x)", &["0.4342944819032518 / x"]).domain("x > 0").kinks(POLE),
    rule("log(b, x)", &["-Ω / (b * ln(b))", "1 / ln(b) / x"]).domain("b > 0 AND b <> 1 AND x > 0"),
    // 1 / ln(2)
    rule("log2(x)", &["1.4426950408889634 / x"]).domain("x > 0").kinks(POLE),
    rule("log10(x)", &["0.4342944819032518 / x"]).domain("x > 0").kinks(POLE),
];
