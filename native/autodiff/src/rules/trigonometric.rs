//! Trigonometric functions and their inverses, in radians.

use super::{Line, rule};

pub const RULES: &[Line] = &[
    rule("sin(x)", &["cos(x)"]),
    rule("cos(x)", &["-sin(x)"]),
    rule("tan(x)", &["1 + Ω * Ω"]),
    rule("cot(x)", &["-(1 + Ω * Ω)"]),
    // Factored, so that nothing cancels near 1.
    rule("asin(x)", &["1 / sqrt((1 - x) * (1 + x))"]),
    rule("acos(x)", &["-1 / sqrt((1 - x) * (1 + x))"]),
    rule("atan(x)", &["1 / (1 + x * x)"]),
    rule("atan2(y, x)", &["x / (x * x + y * y)", "-y / (x * x + y * y)"]),
    // 180 / π and π / 180
    rule("degrees(x)", &["57.29577951308232"]),
    rule("radians(x)", &["0.017453292519943295"]),
];
