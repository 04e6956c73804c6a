//! The derivatives of functions and operators: one line each, by family.
//!
//! A rule is written as a mathematician would: the partial derivatives in SQL, in terms of the function's inputs and of
//! its own output `Ω`, so that a derivative reuses what the query computes anyway. A rule holds for DataFusion's own
//! function of that name only, never for another one registered under it.

mod arithmetic;
mod comparison;
mod conversion;
mod exponential;
mod formula;
mod hyperbolic;
mod line;
mod power;
mod refused;
mod rounding;
mod selection;
pub mod table;
mod trigonometric;

use datafusion_common::{Result, internal_datafusion_err};
use datafusion_expr::{Operator, ScalarUDF};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

pub use conversion::DECIMAL;
pub use formula::Bindings;
use formula::{Formula, Signature};
use line::{Kink, Line, Treatment, kink, refusal, rule, selection, structure};

const FAMILIES: [(&str, &[Line]); 10] = [
    ("arithmetic", arithmetic::RULES),
    ("exponentials and logarithms", exponential::RULES),
    ("powers and roots", power::RULES),
    ("trigonometry", trigonometric::RULES),
    ("hyperbolic functions", hyperbolic::RULES),
    ("selection", selection::RULES),
    ("rounding and constants", rounding::RULES),
    ("conversions", conversion::RULES),
    ("conditions", comparison::RULES),
    ("lists, maps, structs and times", refused::RULES),
];

fn lines() -> impl Iterator<Item = &'static Line> {
    FAMILIES.iter().flat_map(|(_, lines)| *lines)
}

/// How the derivative of a function is given, in SQL over its inputs and its output `Ω`.
#[derive(Debug)]
pub enum Derivative {
    /// The partial derivative by each input.
    Partials(Vec<Formula>),
    /// The `CASE` that the function stands for, which is differentiated in its place.
    Selection(Box<Formula>),
}

/// A line of the table, parsed.
#[derive(Debug)]
pub struct Rule {
    pub inputs: Vec<String>,
    pub derivative: Derivative,
    /// Whether the result is NULL exactly where an input is.
    pub strict: bool,
}

impl Rule {
    /// The rule of a line by its name; none if the line is not looked up.
    fn parse(line: &Line) -> Result<Option<(String, Self)>> {
        let (derivative, strict) = match line.treatment {
            Treatment::Structure | Treatment::Refusal(_) => return Ok(None),
            Treatment::Selection(case) => (Derivative::Selection(Box::new(Formula::parse(case)?)), false),
            Treatment::Rule => {
                let partials = line.partials.iter().map(|sql| Formula::parse(sql)).collect::<Result<_>>()?;
                (Derivative::Partials(partials), true)
            }
        };
        let Signature { name, inputs } = Signature::parse(line.signature)?;
        if line.partials.len() == inputs.len() {
            return Ok(Some((name, Self { inputs, derivative, strict })));
        }
        Err(internal_datafusion_err!(
            "the rule for {} has {} partial derivatives for {} inputs",
            line.signature,
            line.partials.len(),
            inputs.len()
        ))
    }
}

/// The rules by name and number of inputs.
type Table = HashMap<(String, usize), Arc<Rule>>;

static TABLE: LazyLock<Result<Table>> = LazyLock::new(|| {
    let rules = lines().filter_map(|line| Rule::parse(line).transpose());
    rules.map(|parsed| parsed.map(|(name, rule)| ((name, rule.inputs.len()), Arc::new(rule)))).collect()
});

/// Why a function is not differentiated, by name.
static REFUSALS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let refused = lines().filter_map(|line| match line.treatment {
        Treatment::Refusal(reason) => Some((line.signature.split('(').next()?, reason)),
        _ => None,
    });
    refused.collect()
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

/// Why the function of this name is not differentiated, if the table says so.
pub fn refusal_of(name: &str) -> Option<&'static str> {
    REFUSALS.get(name).copied()
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
        for line in lines() {
            if let Some((name, _)) = Rule::parse(line)?
                && !operators.contains(&name.as_str())
            {
                assert_eq!(function(&name)?.name(), name, "{} is listed under an alias", line.signature);
            }
        }
        Ok(())
    }
}
