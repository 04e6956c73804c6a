//! Functions that choose among their inputs.
//!
//! `CASE` is differentiated branch by branch. coalesce, nvl and nvl2 are `CASE` by the time a derivative is taken,
//! because DataFusion simplifies arguments first.

use datafusion_common::Result;

use super::{Derivative, Formula, Kink, Line, Rule, kink, rule, selection, structure};

const OF_THE_BRANCH: &str = "those of the branch taken";
const FIRST: &[Kink] = &[kink("x1 = x2", &["1", "0"], "those of the first of the equal inputs")];

pub const RULES: &[Line] = &[
    rule("abs(x)", &["signum(x)"]).kinks(&[kink("x = 0", &["0"], "the middle of the subdifferential")]),
    structure(
        "CASE WHEN a < b THEN x ELSE y END",
        &["0", "0", "CASE WHEN a < b THEN 1 ELSE 0 END", "CASE WHEN a < b THEN 0 ELSE 1 END"],
    )
    .kinks(&[kink("a = b", &["0", "0", "0", "1"], OF_THE_BRANCH)]),
    structure(
        "CASE a WHEN b THEN x ELSE y END",
        &["0", "0", "CASE a WHEN b THEN 1 ELSE 0 END", "CASE a WHEN b THEN 0 ELSE 1 END"],
    )
    .kinks(&[kink("a = b", &["0", "0", "1", "0"], OF_THE_BRANCH)]),
    structure("coalesce(x1, ..., xn)", &["CASE WHEN x1 IS NULL AND ... AND xi IS NOT NULL THEN 1 ELSE 0 END"]),
    structure("nvl(x, y)", &["CASE WHEN x IS NOT NULL THEN 1 ELSE 0 END", "CASE WHEN x IS NOT NULL THEN 0 ELSE 1 END"]),
    structure(
        "nvl2(x, y, z)",
        &["0", "CASE WHEN x IS NOT NULL THEN 1 ELSE 0 END", "CASE WHEN x IS NOT NULL THEN 0 ELSE 1 END"],
    ),
    selection("nullif(x, y)", "CASE WHEN x = y THEN NULL ELSE x END", &["1", "0"]).kinks(&[kink(
        "x = y",
        &["NULL", "NULL"],
        "NULL, as the function",
    )]),
    selection(
        "nanvl(x, y)",
        "CASE WHEN isnan(x) THEN y ELSE x END",
        &["CASE WHEN isnan(x) THEN 0 ELSE 1 END", "CASE WHEN isnan(x) THEN 1 ELSE 0 END"],
    ),
    structure("greatest(x1, ..., xn)", &["CASE WHEN xi = Ω THEN 1 ELSE 0 END"]).kinks(FIRST),
    structure("least(x1, ..., xn)", &["CASE WHEN xi = Ω THEN 1 ELSE 0 END"]).kinks(FIRST),
];

/// The rules of the functions that take any number of inputs: `greatest` and `least` have the derivative of the input
/// they return, the first on a tie; `with_metadata` returns its first.
pub fn variadic(name: &str, arity: usize) -> Option<Result<Rule>> {
    let inputs: Vec<String> = (1..=arity).map(|i| format!("x{i}")).collect();
    let (first, last) = (inputs.first()?, inputs.last()?);
    let case = match name {
        "greatest" | "least" if arity > 1 => {
            let whens: String = inputs[..arity - 1].iter().map(|x| format!("WHEN {x} = Ω THEN {x} ")).collect();
            format!("CASE {whens}ELSE {last} END")
        }
        "greatest" | "least" | "with_metadata" => first.clone(),
        _ => return None,
    };
    let derivative = Formula::parse(&case).map(|case| Derivative::Selection(Box::new(case)));
    Some(derivative.map(|derivative| Rule { inputs, derivative, strict: false }))
}
