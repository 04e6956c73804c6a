//! The derivatives of functions and operators: one line each, by family.
//!
//! A rule is written as a mathematician would: the partial derivatives in SQL, in terms of the function's inputs and of
//! its own output `Ω`, so that a derivative reuses what the query computes anyway. A rule holds for DataFusion's own
//! function of that name only, never for another one registered under it.

mod arithmetic;
mod exponential;
pub mod formula;
mod hyperbolic;
mod power;
mod rounding;
mod selection;
mod trigonometric;

use datafusion_common::{Result, internal_datafusion_err};
use datafusion_expr::{Operator, ScalarUDF};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

pub use formula::Bindings;
use formula::{Formula, Signature};

/// A line of the rule table.
#[derive(Debug)]
struct Line {
    /// The call, with the names of its inputs: `atan2(y, x)`, `x / y`.
    signature: &'static str,
    derivative: Derivative<&'static str, &'static [&'static str]>,
    /// Whether the result is NULL exactly where an input is.
    strict: bool,
}

/// How the derivative of a function is given, in SQL over its inputs and its output `Ω`.
#[derive(Debug)]
pub enum Derivative<Sql, Partials> {
    /// The partial derivative by each input.
    Partials(Partials),
    /// The `CASE` that the function stands for, which is differentiated in its place.
    Selection(Sql),
}

/// A function that is NULL exactly where one of its inputs is.
const fn rule(signature: &'static str, partials: &'static [&'static str]) -> Line {
    Line { signature, derivative: Derivative::Partials(partials), strict: true }
}

/// A function that returns one of its inputs, or NULL.
const fn selection(signature: &'static str, case: &'static str) -> Line {
    Line { signature, derivative: Derivative::Selection(case), strict: false }
}

const FAMILIES: [&[Line]; 7] = [
    arithmetic::RULES,
    exponential::RULES,
    hyperbolic::RULES,
    power::RULES,
    rounding::RULES,
    selection::RULES,
    trigonometric::RULES,
];

/// A line of the table, parsed.
#[derive(Debug)]
pub struct Rule {
    pub inputs: Vec<String>,
    pub derivative: Derivative<Formula, Vec<Formula>>,
    pub strict: bool,
}

impl Rule {
    fn parse(line: &Line) -> Result<(String, Self)> {
        let Signature { name, inputs } = Signature::parse(line.signature)?;
        let derivative = match line.derivative {
            Derivative::Selection(case) => Derivative::Selection(Formula::parse(case)?),
            Derivative::Partials(partials) if partials.len() == inputs.len() => {
                Derivative::Partials(partials.iter().map(|sql| Formula::parse(sql)).collect::<Result<_>>()?)
            }
            Derivative::Partials(partials) => {
                return Err(internal_datafusion_err!(
                    "the rule for {} has {} partial derivatives for {} inputs",
                    line.signature,
                    partials.len(),
                    inputs.len()
                ));
            }
        };
        Ok((name, Self { inputs, derivative, strict: line.strict }))
    }
}

/// The rules by name and number of inputs.
type Table = HashMap<(String, usize), Arc<Rule>>;

static TABLE: LazyLock<Result<Table>> = LazyLock::new(|| {
    let lines = FAMILIES.iter().flat_map(|family| family.iter());
    lines.map(|line| Rule::parse(line).map(|(name, rule)| ((name, rule.inputs.len()), Arc::new(rule)))).collect()
});

/// DataFusion's own scalar functions by name and alias.
static FUNCTIONS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let functions = datafusion_functions::all_default_functions();
    let named = functions.into_iter().flat_map(|function| {
        let names: Vec<String> = std::iter::once(function.name())
            .chain(function.aliases().iter().map(String::as_str))
            .map(str::to_owned)
            .collect();
        names.into_iter().map(move |name| (name, Arc::clone(&function)))
    });
    named.collect()
});

/// The rule of a function for this number of arguments.
pub fn of_function(function: &ScalarUDF, arity: usize) -> Result<Option<Arc<Rule>>> {
    match FUNCTIONS.get(function.name()) {
        Some(own) if own.as_ref() == function => match selection::variadic(own.name(), arity) {
            Some(case) => Ok(Some(Arc::new(case?))),
            None => lookup(own.name(), arity),
        },
        _ => Ok(None),
    }
}

/// The rule of a binary operator.
pub fn of_operator(operator: Operator) -> Result<Option<Arc<Rule>>> {
    lookup(&operator.to_string(), 2)
}

/// The rule of the unary minus.
pub fn of_negation() -> Result<Option<Arc<Rule>>> {
    lookup("-", 1)
}

fn lookup(name: &str, arity: usize) -> Result<Option<Arc<Rule>>> {
    let table = TABLE.as_ref().map_err(|error| internal_datafusion_err!("the rule table cannot be read: {error}"))?;
    Ok(table.get(&(name.to_owned(), arity)).cloned())
}

/// DataFusion's own function of this name, for use in a formula.
fn function(name: &str) -> Result<&'static Arc<ScalarUDF>> {
    FUNCTIONS
        .get(name)
        .ok_or_else(|| internal_datafusion_err!("a rule uses the function {name}, which DataFusion lacks"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_parses_and_names_a_function_of_datafusion() -> Result<()> {
        let operators = ["+", "-", "*", "/", "%"];
        for line in FAMILIES.iter().flat_map(|family| family.iter()) {
            let (name, _) = Rule::parse(line)?;
            if !operators.contains(&name.as_str()) {
                assert_eq!(function(&name)?.name(), name, "{} is listed under an alias", line.signature);
            }
        }
        Ok(())
    }
}
