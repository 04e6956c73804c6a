//! Exponentials and logarithms.

use super::{Line, rule};

pub const RULES: &[Line] = &[
    rule("exp(x)", &["Ω"]),
    rule("ln(x)", &["1 / x"]),
    // With one argument, the logarithm to base 10. 1 / ln(10)
    rule("log(x)", &["0.4342944819032518 / x"]),
    rule("log(b, x)", &["-Ω / (b * ln(b))", "1 / (x * ln(b))"]),
    // 1 / ln(2)
    rule("log2(x)", &["1.4426950408889634 / x"]),
    rule("log10(x)", &["0.4342944819032518 / x"]),
];
