//! Trigonometric functions and their inverses, in radians.

use super::{Line, kink, rule};

pub const RULES: &[Line] =
    &[
        rule("sin(x)", &["cos(x)"]),
        rule("cos(x)", &["-sin(x)"]),
        rule("tan(x)", &["1 + Ω * Ω"]).domain("cos(x) <> 0"),
        rule("cot(x)", &["-(1 + Ω * Ω)"]).domain("sin(x) <> 0"),
        // Factored, so that nothing cancels near 1.
        rule("asin(x)", &["1 / sqrt((1 - x) * (1 + x))"]).domain("abs(x) < 1").kinks(&[
            kink("x = 1", &["Infinity"], "the limit from the left"),
            kink("x = -1", &["Infinity"], "the limit from the right"),
        ]),
        rule("acos(x)", &["-1 / sqrt((1 - x) * (1 + x))"]).domain("abs(x) < 1").kinks(&[
            kink("x = 1", &["-Infinity"], "the limit from the left"),
            kink("x = -1", &["-Infinity"], "the limit from the right"),
        ]),
        rule("atan(x)", &["1 / (1 + x * x)"]),
        // 1 / (x + y * (y / x)) would not overflow, but has no second derivative at x = 0.
        rule("atan2(y, x)", &["x / (x * x + y * y)", "-y / (x * x + y * y)"]).domain("x <> 0 OR y <> 0").kinks(&[
            kink("y = 0 AND x < 0", &["1 / x", "0"], "the limit from either side, between which the angle jumps by 2π"),
        ]),
        // 180 / π and π / 180
        rule("degrees(x)", &["57.29577951308232"]),
        rule("radians(x)", &["0.017453292519943295"]),
    ];
