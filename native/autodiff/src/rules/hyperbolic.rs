//! Hyperbolic functions and their inverses.

use super::{Line, kink, rule};

pub const RULES: &[Line] = &[
    rule("sinh(x)", &["cosh(x)"]),
    rule("cosh(x)", &["sinh(x)"]),
    rule("tanh(x)", &["1 - Ω * Ω"]),
    rule("asinh(x)", &["1 / sqrt(1 + x * x)"]),
    // Factored, so that nothing cancels near 1.
    rule("acosh(x)", &["1 / sqrt((x - 1) * (x + 1))"]).domain("x > 1").kinks(&[kink(
        "x = 1",
        &["Infinity"],
        "the limit from the right",
    )]),
    rule("atanh(x)", &["1 / ((1 - x) * (1 + x))"]).domain("abs(x) < 1").kinks(&[
        kink("x = 1", &["Infinity"], "the limit from the left"),
        kink("x = -1", &["Infinity"], "the limit from the right"),
    ]),
];
