//! Functions that choose among their inputs, and those without inputs.
//!
//! `CASE` is differentiated branch by branch. coalesce, nvl and nvl2 are `CASE` by the time a derivative is taken,
//! because DataFusion simplifies arguments first.

use super::{Line, rule, rule_with_own_nulls};

pub const RULES: &[Line] = &[
    // 0 at x = 0, the middle of the subdifferential.
    rule("abs(x)", &["signum(x)"]),
    rule_with_own_nulls("nullif(x, y)", &["1", "0"]),
    rule("pi()", &[]),
    rule("random()", &[]),
];
