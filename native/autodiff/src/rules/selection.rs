//! Functions that choose among their inputs, and those without inputs.
//!
//! `CASE` is differentiated branch by branch. coalesce, nvl and nvl2 are `CASE` by the time a derivative is taken,
//! because DataFusion simplifies arguments first.

use datafusion_common::Result;

use super::{Derivative, Formula, Line, Rule, rule, selection};

pub const RULES: &[Line] = &[
    // 0 at x = 0, the middle of the subdifferential.
    rule("abs(x)", &["signum(x)"]),
    selection("nullif(x, y)", "CASE WHEN x = y THEN NULL ELSE x END"),
    selection("nanvl(x, y)", "CASE WHEN isnan(x) THEN y ELSE x END"),
    rule("pi()", &[]),
    rule("random()", &[]),
];

/// The rules of `greatest` and `least`, which take any number of inputs: the derivative of the input they return, the
/// first on a tie.
pub fn variadic(name: &str, arity: usize) -> Option<Result<Rule>> {
    if !matches!(name, "greatest" | "least") || arity == 0 {
        return None;
    }
    let inputs: Vec<String> = (1..=arity).map(|i| format!("x{i}")).collect();
    let whens: String = inputs[1..].iter().zip(&inputs).map(|(_, x)| format!("WHEN {x} = Ω THEN {x} ")).collect();
    let case = if arity == 1 { "x1".to_owned() } else { format!("CASE {whens}ELSE x{arity} END") };
    let derivative = Formula::parse(&case).map(Derivative::Selection);
    Some(derivative.map(|derivative| Rule {
        name: name.to_owned(),
        inputs,
        derivative,
        strict: false,
        functions: vec![],
    }))
}
