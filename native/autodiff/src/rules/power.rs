//! Powers and roots.

use super::{Line, kink, rule};

pub const RULES: &[Line] = &[
    rule("sqrt(x)", &["0.5 / Ω"]).domain("x > 0").kinks(&[kink("x = 0", &["Infinity"], "the limit from the right")]),
    rule("cbrt(x)", &["1 / (3 * Ω * Ω)"]).kinks(&[kink("x = 0", &["Infinity"], "the limit; the tangent is vertical")]),
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
    )]),
];
