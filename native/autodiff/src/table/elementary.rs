//! Elementary functions: exponentials and logarithms, powers and roots, circular and hyperbolic functions.

use super::line::{Algebraic, Kink, Line, Range, Sign, kink, rule};

const POSITIVE: Range = Range::Of(Sign::Positive);
const POLE: &[Kink] = &[kink("x = 0", &["Infinity"], "the limit from the right")];

/// `exp` and the logarithms.
pub const EXPONENTIALS: &[Line] = &[
    rule("exp(x)", &["Ω"]).finite().range(POSITIVE),
    rule("ln(x)", &["1 / x"]).domain("x > 0").kinks(POLE).at_number(f64::ln),
    // With one argument, the logarithm to base 10. 1 / ln(10)
    rule("log(x)", &["0.4342944819032518 / x"]).domain("x > 0").kinks(POLE),
    rule("log(b, x)", &["-Ω / (b * ln(b))", "1 / ln(b) / x"]).domain("b > 0 AND b <> 1 AND x > 0"),
    // 1 / ln(2)
    rule("log2(x)", &["1.4426950408889634 / x"]).domain("x > 0").kinks(POLE),
    rule("log10(x)", &["0.4342944819032518 / x"]).domain("x > 0").kinks(POLE),
];

/// `power`, and roots.
pub const POWERS: &[Line] = &[
    // Steep at 0.
    rule("sqrt(x)", &["0.5 / Ω"])
        .domain("x > 0")
        .kinks(&[kink("x = 0", &["Infinity"], "the limit from the right")])
        .finite_if(Sign::NotNegative)
        .smooth_if(Sign::Positive)
        .range(Range::OfInputs)
        .algebraic(Algebraic::SquareRoot, 2),
    // Steep at 0, too.
    rule("cbrt(x)", &["1 / (3 * Ω * Ω)"])
        .kinks(&[kink("x = 0", &["Infinity"], "the limit; the tangent is vertical")])
        .finite_if(Sign::Any),
    // By x: y * x^(y - 1), written so that 0 is never raised to a negative power, which DataFusion refuses; the result
    // there is the infinity that the power stands for. The exponent itself is compared, whose sign may be another than that of
    // y beside 1. A constant exponent needs no conditions. The absolute value is compared, because to DataFusion -0 is less
    // than 0.
    // By y: ln(x) * Ω, and as in JAX 0 for a base of 0.
    rule(
        "power(x, y)",
        &[
            "CASE WHEN constant(y) THEN y * power(x, y - 1)
                  WHEN abs(x) > 0 OR y - 1 >= 0 THEN y * power(x, y - 1)
                  WHEN abs(y) = 0 THEN x * y
                  ELSE y / power(x, 1 - y) END",
            "ln(CASE WHEN abs(x) = 0 THEN 1 ELSE x END) * Ω",
        ],
    )
    .domain("x > 0 OR x < 0 AND y = round(y)")
    .kinks(&[kink(
        "x = 0 AND y >= 0",
        &["CASE WHEN y > 1 OR y = 0 THEN 0 WHEN y = 1 THEN 1 ELSE Infinity END", "0"],
        "the limits from the right",
    )])
    .algebraic(Algebraic::Power, 16),
];

/// In radians.
pub const TRIGONOMETRY: &[Line] =
    &[
        rule("sin(x)", &["cos(x)"]).finite(),
        rule("cos(x)", &["-sin(x)"]).finite(),
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
        rule("atan(x)", &["1 / (1 + x * x)"]).finite(),
        // 1 / (x + y * (y / x)) would not overflow, but has no second derivative at x = 0.
        rule("atan2(y, x)", &["x / (x * x + y * y)", "-y / (x * x + y * y)"]).domain("x <> 0 OR y <> 0").kinks(&[
            kink("y = 0 AND x < 0", &["1 / x", "0"], "the limit from either side, between which the angle jumps by 2π"),
        ]),
        // 180 / π and π / 180
        rule("degrees(x)", &["57.29577951308232"]),
        rule("radians(x)", &["0.017453292519943295"]),
    ];

/// With their inverses.
pub const HYPERBOLIC: &[Line] = &[
    rule("sinh(x)", &["cosh(x)"]).finite(),
    rule("cosh(x)", &["sinh(x)"]).finite().range(POSITIVE),
    rule("tanh(x)", &["1 - Ω * Ω"]).finite(),
    // The square root of 1 + x * x is abs(x) long before x * x overflows.
    rule("asinh(x)", &["CASE WHEN 1 + x * x < 1e20 THEN 1 / sqrt(1 + x * x) ELSE 1 / abs(x) END"]).finite(),
    // Factored, so that nothing cancels near 1; and two roots, because the product overflows, and is positive below -1.
    rule("acosh(x)", &["1 / (sqrt(x - 1) * sqrt(x + 1))"]).domain("x > 1").kinks(&[kink(
        "x = 1",
        &["Infinity"],
        "the limit from the right",
    )]),
    rule("atanh(x)", &["1 / ((1 - x) * (1 + x))"]).domain("abs(x) < 1").kinks(&[
        kink("x = 1", &["Infinity"], "the limit from the left"),
        kink("x = -1", &["Infinity"], "the limit from the right"),
    ]),
];
