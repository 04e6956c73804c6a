//! Functions that choose among their inputs.

use super::line::{Kink, Line, Nulls, Range, Sign, choice, described, kink, rule, variadic_choice};

const FIRST: &[Kink] = &[kink("x1 = x2", &["1", "0"], "those of the first of the equal inputs")];

/// Functions that return one of their inputs.
pub const LINES: &[Line] = &[
    rule("abs(x)", &["signum(x)"])
        .kinks(&[kink("x = 0", &["0"], "the middle of the subdifferential")])
        .finite()
        .range(Range::Of(Sign::NotNegative))
        .at_number(f64::abs),
    choice("nullif(x, y)", "CASE WHEN x = y THEN NULL ELSE x END", &["1", "0"]).kinks(&[kink(
        "x = y",
        &["NULL", "NULL"],
        "NULL, as the function",
    )]),
    choice(
        "nanvl(x, y)",
        "CASE WHEN isnan(x) THEN y ELSE x END",
        &["CASE WHEN isnan(x) THEN 0 ELSE 1 END", "CASE WHEN isnan(x) THEN 1 ELSE 0 END"],
    ),
    extremum("greatest", "greatest(x1, ..., xn)", greatest),
    extremum("least", "least(x1, ..., xn)", least),
];

/// What returns its first input, whatever the others are.
pub const METADATA: &[Line] =
    &[variadic_choice("with_metadata", described("with_metadata(x, 'unit', 'm')", &["1"]), |inputs| inputs[0].clone())];

/// Creates the line of the greatest or least of the inputs that are not NULL.
const fn extremum(name: &'static str, signature: &'static str, case: fn(&[String]) -> String) -> Line {
    let shown = described(signature, &["CASE WHEN xi = Ω THEN 1 ELSE 0 END"]).variadic();
    variadic_choice(name, shown, case).kinks(FIRST).nulls(Nulls::AllInputs).finite().range(Range::OfInputs)
}

fn greatest(inputs: &[String]) -> String {
    chosen(inputs, ">=", ">")
}

fn least(inputs: &[String]) -> String {
    chosen(inputs, "<=", "<")
}

/// Writes the input that the function returns, the first of equal ones.
///
/// If there are two and one is never NULL, they are compared with each other, which spares the function: the comparison is NULL where the
/// other one is, and leaves the one that is not.
fn chosen(inputs: &[String], or_equal: &str, strictly: &str) -> String {
    let chosen = first_equal(inputs);
    match inputs {
        [a, b] => format!(
            "CASE WHEN never_null({b}) THEN CASE WHEN {a} {or_equal} {b} THEN {a} ELSE {b} END
                  WHEN never_null({a}) THEN CASE WHEN {b} {strictly} {a} THEN {b} ELSE {a} END
                  ELSE {chosen} END"
        ),
        _ => chosen,
    }
}

/// Writes the first of the inputs that is the output.
fn first_equal(inputs: &[String]) -> String {
    match inputs {
        [one] => one.clone(),
        [others @ .., last] => {
            let whens: String = others.iter().map(|x| format!("WHEN {x} = Ω THEN {x} ")).collect();
            format!("CASE {whens}ELSE {last} END")
        }
        [] => "NULL".to_owned(),
    }
}
