//! Functions that are constant between jumps. Their derivative is 0, also at the jumps.

use super::line::{Description, Kink, Line, described, kink, rule};

const JUMP: &str = "0 on either side";
const AT_WHOLE_NUMBERS: &[Kink] = &[kink("x = k", &["0"], JUMP)];
const EITHER_AT_WHOLE_NUMBERS: &[Kink] = &[kink("m = k", &["0", "0"], JUMP), kink("n = k", &["0", "0"], JUMP)];

/// Functions that are constant between jumps.
pub const LINES: &[Line] = &[
    rule("floor(x)", &["0"]).kinks(AT_WHOLE_NUMBERS),
    rule("ceil(x)", &["0"]).kinks(AT_WHOLE_NUMBERS),
    rule("round(x)", &["0"]).kinks(&[kink("x = k + 0.5", &["0"], JUMP)]),
    rule("round(x, CAST(n AS BIGINT))", &["0", "0"])
        .kinks(&[kink("x = (k + 0.5) / power(10.0, trunc(n))", &["0", "0"], JUMP), kink("n = k", &["0", "0"], JUMP)]),
    rule("trunc(x)", &["0"]).kinks(AT_WHOLE_NUMBERS),
    rule("trunc(x, CAST(n AS BIGINT))", &["0", "0"])
        .kinks(&[kink("x = k / power(10.0, trunc(n))", &["0", "0"], JUMP), kink("n = k", &["0", "0"], JUMP)]),
    rule("signum(x)", &["0"]).kinks(&[kink("x = 0", &["0"], JUMP)]).finite(),
    rule("pi()", &[]),
    rule("random()", &[]),
];

/// Functions that give whole numbers.
pub const DESCRIBED: &[Description] = &[
    described("factorial(CAST(n AS BIGINT))", &["0"]).domain("n > -1 AND n < 21").kinks(&[kink(
        "n = k AND k >= 0",
        &["0"],
        JUMP,
    )]),
    described("gcd(CAST(m AS BIGINT), CAST(n AS BIGINT))", &["0", "0"]).kinks(EITHER_AT_WHOLE_NUMBERS),
    described("lcm(CAST(m AS BIGINT), CAST(n AS BIGINT))", &["0", "0"]).kinks(EITHER_AT_WHOLE_NUMBERS),
    described("to_unixtime(x)", &["0"]).kinks(AT_WHOLE_NUMBERS),
];
