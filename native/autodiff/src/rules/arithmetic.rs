//! Operators.

use super::{Line, rule};

pub const RULES: &[Line] = &[
    rule("x + y", &["1", "1"]),
    rule("x - y", &["1", "-1"]),
    rule("x * y", &["y", "x"]),
    rule("x / y", &["1 / y", "-Ω / y"]),
    // The remainder is x - y * trunc(x / y); the quotient is constant between its jumps.
    rule("x % y", &["1", "-trunc(x / y)"]),
    rule("-x", &["-1"]),
];
