//! Lines by the function or operator that a query calls.

use datafusion_expr::{Expr, HigherOrderUDF, Operator, ScalarUDF};
use std::collections::HashMap;
use std::sync::LazyLock;

use super::families::{FAMILIES, lines};
use super::line::{Choice, Line, Treatment};
use crate::vocabulary::functions::{function_of_datafusion, is_higher_order_of_datafusion, known_name};
use crate::vocabulary::syntax::{Signature, call_of, parse};

/// A line with its signature read.
#[derive(Debug)]
pub struct Known {
    /// The name of the function or operator.
    pub name: String,
    /// The names of the inputs; none if there may be any number of them.
    pub inputs: Option<Vec<String>>,
    /// The line itself.
    pub line: &'static Line,
}

impl Known {
    /// None for a signature that cannot be read, of which a test finds that there is none.
    fn read(line: &'static Line) -> Option<Self> {
        if let Treatment::Choice(Choice::Variadic(name, _)) = &line.treatment {
            return Some(Self { name: (*name).to_owned(), inputs: None, line });
        }
        let Signature { name, inputs } = Signature::parse(line.shown.signature).ok()?;
        Some(Self { name, inputs: Some(inputs), line })
    }

    fn takes(&self, arity: usize) -> bool {
        self.inputs.as_ref().map_or(arity > 0, |inputs| inputs.len() == arity)
    }
}

static LINES: LazyLock<HashMap<String, Vec<Known>>> = LazyLock::new(|| {
    let mut by_name: HashMap<String, Vec<Known>> = HashMap::new();
    for known in lines().filter_map(Known::read) {
        by_name.entry(known.name.clone()).or_default().push(known);
    }
    by_name
});

/// Why functions are not differentiated, by name.
static REFUSALS: LazyLock<HashMap<String, &str>> = LazyLock::new(|| {
    let refused = FAMILIES.iter().flat_map(|family| family.refused);
    refused.filter_map(|refusal| Some((name_in(refusal.signature)?, refusal.reason))).collect()
});

/// What the planner replaces functions by, by name.
static REPLACED: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let described = FAMILIES.iter().flat_map(|family| family.described);
    described.filter_map(|shown| shown.replaced).collect()
});

/// The name of the function that is called, if it is a function.
fn name_in(signature: &str) -> Option<String> {
    let (name, _) = call_of(&parse(signature).ok()?).ok()?;
    Some(name)
}

/// All lines.
#[cfg(test)]
pub fn all() -> impl Iterator<Item = &'static Known> {
    LINES.values().flatten()
}

fn of_name(name: &str, arity: usize) -> Option<&'static Known> {
    LINES.get(name)?.iter().find(|known| known.takes(arity))
}

/// The line of DataFusion's own function or a special function with this number of arguments.
pub fn of_function(function: &ScalarUDF, arity: usize) -> Option<&'static Known> {
    of_name(known_name(function)?, arity)
}

/// The line of a binary operator.
pub fn of_operator(operator: Operator) -> Option<&'static Known> {
    of_name(&operator.to_string(), 2)
}

/// The line of the unary minus.
pub fn of_negation() -> Option<&'static Known> {
    of_name("-", 1)
}

/// The line of an expression with this number of children.
pub fn known(expr: &Expr, arity: usize) -> Option<&'static Known> {
    match expr {
        Expr::BinaryExpr(binary) => of_operator(binary.op),
        Expr::Negative(_) => of_negation(),
        Expr::ScalarFunction(call) => of_function(&call.func, arity),
        _ => None,
    }
}

/// Why DataFusion's own function is not differentiated, if it is not.
pub fn refusal_of(function: &ScalarUDF) -> Option<&'static str> {
    REFUSALS.get(known_name(function)?).copied()
}

/// Why DataFusion's own function of lambdas is not differentiated, if it is not.
pub fn refusal_of_higher_order(function: &HigherOrderUDF) -> Option<&'static str> {
    REFUSALS.get(function.name()).copied().filter(|_| is_higher_order_of_datafusion(function))
}

/// The expression that DataFusion makes of its function of this name or alias before a derivative is taken.
pub fn replacement_of(name: &str) -> Option<&'static str> {
    REPLACED.get(function_of_datafusion(name)?.name()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::functions::known_function;
    use datafusion_common::Result;
    use datafusion_functions_nested::{all_default_higher_order_functions, all_default_nested_functions};

    #[test]
    fn every_line_parses_and_names_a_known_function() {
        let operators = ["+", "-", "*", "/", "%"];
        for line in lines() {
            let signature = line.shown.signature;
            let known = Known::read(line).unwrap_or_else(|| panic!("{signature} cannot be read"));
            if let Some(inputs) = &known.inputs {
                assert_eq!(inputs.len(), line.shown.partials.len(), "{signature}");
            }
            if !operators.contains(&known.name.as_str()) {
                let function = known_function(&known.name).and_then(|function| known_name(function));
                assert_eq!(function, Some(known.name.as_str()), "{signature} is listed under an alias");
            }
        }
    }

    #[test]
    fn every_function_that_is_refused_or_replaced_is_one_of_datafusion() -> Result<()> {
        let nested = all_default_nested_functions();
        let higher_order = all_default_higher_order_functions();
        for family in &FAMILIES {
            for refusal in family.refused.iter().filter(|refusal| !refusal.signature.starts_with("CAST(")) {
                let name = name_in(refusal.signature).unwrap_or_else(|| panic!("{} is no call", refusal.signature));
                let found = nested.iter().find(|own| own.name() == name).or_else(|| function_of_datafusion(&name));
                let reason = match found {
                    Some(function) => refusal_of(function),
                    None => higher_order
                        .iter()
                        .find(|own| own.name() == name)
                        .and_then(|function| refusal_of_higher_order(function)),
                };
                assert_eq!(reason, Some(refusal.reason), "{name}");
            }
        }
        for name in REPLACED.keys() {
            assert!(replacement_of(name).is_some(), "{name}");
        }
        assert_eq!(replacement_of("ifnull"), Some("CASE"));
        assert_eq!(replacement_of("sin"), None);
        Ok(())
    }
}
