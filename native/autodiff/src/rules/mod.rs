//! The derivatives of functions and operators: one line each, by family.
//!
//! A rule is written as a mathematician would: the partial derivatives in SQL, in terms of the function's inputs and of
//! its own output `Ω`, so that a derivative reuses what the query computes anyway. A rule of the table holds for
//! DataFusion's own function of that name only, never for another one registered under it; users lay rules of their own
//! over the table.

mod arithmetic;
mod comparison;
mod conversion;
mod custom;
mod exponential;
mod formula;
mod hyperbolic;
mod line;
mod power;
mod refused;
mod rounding;
mod selection;
mod set;
pub mod syntax;
pub mod table;
mod trigonometric;

use datafusion_common::{Result, internal_datafusion_err};
use datafusion_expr::{Operator, ScalarUDF};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::vocabulary::functions::is_of_datafusion;

pub use conversion::DECIMAL;
use formula::Formula;
pub use formula::Bindings;
use line::{Kink, Line, Treatment, kink, refusal, rule, selection, structure};
pub use set::Rules;
use syntax::Signature;

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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Derivative {
    /// The partial derivative by each input.
    Partials(Vec<Formula>),
    /// The `CASE` that the function stands for, which is differentiated in its place.
    Selection(Box<Formula>),
}

/// The derivative of a function or operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    pub(crate) name: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) derivative: Derivative,
    /// Whether the result is NULL exactly where an input is.
    pub(crate) strict: bool,
    /// What the formulas call besides DataFusion's own functions.
    pub(crate) functions: Vec<Arc<ScalarUDF>>,
}

impl Rule {
    /// The rule of a line; none if the line is not looked up.
    fn parse(line: &Line) -> Result<Option<Self>> {
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
            return Ok(Some(Self { name, inputs, derivative, strict, functions: vec![] }));
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
    rules.map(|parsed| parsed.map(|rule| ((rule.name.clone(), rule.inputs.len()), Arc::new(rule)))).collect()
});

/// Why a function is not differentiated, by name.
static REFUSALS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let refused = lines().filter_map(|line| match line.treatment {
        Treatment::Refusal(reason) => Some((line.signature.split('(').next()?, reason)),
        _ => None,
    });
    refused.collect()
});

/// The rule that the table has for DataFusion's own function with this number of arguments.
fn of_function(function: &ScalarUDF, arity: usize) -> Result<Option<Arc<Rule>>> {
    if !is_of_datafusion(function) {
        return Ok(None);
    }
    match selection::variadic(function.name(), arity) {
        Some(case) => Ok(Some(Arc::new(case?))),
        None => lookup(function.name(), arity),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::functions::function_of_datafusion;

    #[test]
    fn every_line_parses_and_names_a_function_of_datafusion() -> Result<()> {
        let operators = ["+", "-", "*", "/", "%"];
        for line in lines() {
            if let Some(Rule { name, .. }) = Rule::parse(line)?
                && !operators.contains(&name.as_str())
            {
                let function = function_of_datafusion(&name).map(|function| function.name());
                assert_eq!(function, Some(name.as_str()), "{} is listed under an alias", line.signature);
            }
        }
        Ok(())
    }
}
