//! Functions that are constant between jumps. Their derivative is 0, also at the jumps.

use super::{Line, rule};

pub const RULES: &[Line] = &[
    rule("floor(x)", &["0"]),
    rule("ceil(x)", &["0"]),
    rule("round(x)", &["0"]),
    rule("round(x, digits)", &["0", "0"]),
    rule("trunc(x)", &["0"]),
    rule("trunc(x, digits)", &["0", "0"]),
    rule("signum(x)", &["0"]),
];
