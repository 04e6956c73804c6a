//! Operators.

use super::line::{Line, kink, rule};

/// The operators, each with a line of its own.
pub const LINES: &[Line] = &[
    rule("x + y", &["1", "1"]),
    rule("x - y", &["1", "-1"]),
    rule("x * y", &["y", "x"]),
    rule("x / y", &["1 / y", "-Ω / y"]).domain("y <> 0"),
    // x = y * q + Ω with a whole number q, constant between jumps. It is rounded from what is nearly whole: trunc(x / y)
    // is one too many where the division rounds up to the next whole number.
    rule("x % y", &["1", "-round((x - Ω) / y)"]).domain("y <> 0").kinks(&[kink(
        "x = k * y AND y <> 0",
        &["1", "-k"],
        "those of the branch that the value belongs to",
    )]),
    rule("-x", &["-1"]),
];
