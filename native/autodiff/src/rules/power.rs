//! Powers and roots.

use super::{Line, rule};

pub const RULES: &[Line] = &[
    rule("sqrt(x)", &["0.5 / Ω"]),
    rule("cbrt(x)", &["1 / (3 * Ω * Ω)"]),
    // As in JAX: an exponent of 0 gives 0 also at x = 0, and a base of 0 gives 0 by the exponent.
    rule(
        "power(x, y)",
        &["CASE WHEN y = 0 THEN 0 ELSE y * power(x, y - 1) END", "ln(CASE WHEN x = 0 THEN 1 ELSE x END) * Ω"],
    ),
];
