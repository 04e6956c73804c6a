//! The random numbers of `xql-special`, which are functions of a seed and keys, and so constants of their rows.

use super::line::{Description, Kink, Line, Range, Sign, constant, described, kink};

const JUMP: &str = "0 on either side";
const AT_WHOLE_NUMBERS: &[Kink] = &[kink("seed = k", &["0", "0"], JUMP), kink("key = k", &["0", "0"], JUMP)];

/// Describes a random number of one key. There may be more.
const fn random(signature: &'static str) -> Description {
    described(signature, &["0", "0"]).kinks(AT_WHOLE_NUMBERS)
}

/// In the order of `xql-special`.
pub const LINES: &[Line] = &[
    constant("random_uniform", random("random_uniform(CAST(seed AS BIGINT), CAST(key AS BIGINT))"))
        .finite()
        .range(Range::Of(Sign::NotNegative)),
    constant("random_normal", random("random_normal(CAST(seed AS BIGINT), CAST(key AS BIGINT))")).finite(),
];
