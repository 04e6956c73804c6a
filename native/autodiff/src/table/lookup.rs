//! Lookup of the line for the function or operator that a query calls.

use datafusion_expr::{Expr, HigherOrderUDF, Operator, ScalarUDF};
use std::collections::HashMap;
use std::sync::LazyLock;

use super::families::{FAMILIES, lines};
use super::line::{Choice, Line, Treatment};
use crate::vocabulary::functions::{find_builtin, is_builtin_higher_order, table_name};
use crate::vocabulary::syntax::{Signature, parse, parse_call};

/// A line with its parsed signature.
#[derive(Debug)]
pub struct TableEntry {
    /// The name of the function or operator.
    pub name: String,
    /// The names of the inputs; none if there may be any number of them.
    pub inputs: Option<Vec<String>>,
    /// The line itself.
    pub line: &'static Line,
}

impl TableEntry {
    /// Parses the signature of a line. A test checks that none fails.
    fn from_line(line: &'static Line) -> Option<Self> {
        if let Treatment::Choice(Choice::Variadic(name, _)) | Treatment::Constant(name) = &line.treatment {
            return Some(Self { name: (*name).to_owned(), inputs: None, line });
        }
        let Signature { name, inputs } = Signature::parse(line.shown.signature).ok()?;
        Some(Self { name, inputs: Some(inputs), line })
    }

    fn accepts_arity(&self, arity: usize) -> bool {
        self.inputs.as_ref().map_or(arity > 0, |inputs| inputs.len() == arity)
    }
}

static LINES: LazyLock<HashMap<String, Vec<TableEntry>>> = LazyLock::new(|| {
    let mut by_name: HashMap<String, Vec<TableEntry>> = HashMap::new();
    for entry in lines().filter_map(TableEntry::from_line) {
        by_name.entry(entry.name.clone()).or_default().push(entry);
    }
    by_name
});

/// The reasons why functions are not differentiated, by name.
static REFUSALS: LazyLock<HashMap<String, &str>> = LazyLock::new(|| {
    let refused = FAMILIES.iter().flat_map(|family| family.refused);
    refused.filter_map(|refusal| Some((parse_name(refusal.signature)?, refusal.reason))).collect()
});

/// The replacements that the planner makes for functions, by name.
static REPLACED: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let described = FAMILIES.iter().flat_map(|family| family.described);
    described.filter_map(|shown| shown.replaced).collect()
});

/// Parses the name of a function in a signature.
fn parse_name(signature: &str) -> Option<String> {
    let (name, _) = parse_call(&parse(signature).ok()?).ok()?;
    Some(name)
}

/// Iterates over all entries.
#[cfg(test)]
pub fn entries() -> impl Iterator<Item = &'static TableEntry> {
    LINES.values().flatten()
}

fn find_by_name(name: &str, arity: usize) -> Option<&'static TableEntry> {
    LINES.get(name)?.iter().find(|entry| entry.accepts_arity(arity))
}

/// Finds the entry of DataFusion's own function, or of a special function, with this number of arguments.
pub fn find_function(function: &ScalarUDF, arity: usize) -> Option<&'static TableEntry> {
    find_by_name(table_name(function)?, arity)
}

/// Finds the entry of a binary operator.
pub fn find_operator(operator: Operator) -> Option<&'static TableEntry> {
    find_by_name(&operator.to_string(), 2)
}

/// Finds the entry of the unary minus.
pub fn find_negation() -> Option<&'static TableEntry> {
    find_by_name("-", 1)
}

/// Finds the entry of an expression with this number of children.
pub fn find_entry(expr: &Expr, arity: usize) -> Option<&'static TableEntry> {
    match expr {
        Expr::BinaryExpr(binary) => find_operator(binary.op),
        Expr::Negative(_) => find_negation(),
        Expr::ScalarFunction(call) => find_function(&call.func, arity),
        _ => None,
    }
}

/// Returns why DataFusion's own function is not differentiated.
pub fn refusal_of(function: &ScalarUDF) -> Option<&'static str> {
    REFUSALS.get(table_name(function)?).copied()
}

/// Returns why DataFusion's own function of lambdas is not differentiated.
pub fn refusal_of_higher_order(function: &HigherOrderUDF) -> Option<&'static str> {
    REFUSALS.get(function.name()).copied().filter(|_| is_builtin_higher_order(function))
}

/// Returns the expression that DataFusion makes of its function of this name or alias before a derivative is taken.
pub fn replacement_of(name: &str) -> Option<&'static str> {
    REPLACED.get(find_builtin(name)?.name()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::functions::find_callable;
    use datafusion_common::Result;
    use datafusion_functions_nested::{all_default_higher_order_functions, all_default_nested_functions};

    #[test]
    fn every_line_parses_and_names_a_known_function() {
        let operators = ["+", "-", "*", "/", "%"];
        for line in lines() {
            let signature = line.shown.signature;
            let entry = TableEntry::from_line(line).unwrap_or_else(|| panic!("{signature} cannot be read"));
            if let Some(inputs) = &entry.inputs {
                assert_eq!(inputs.len(), line.shown.partials.len(), "{signature}");
            }
            if !operators.contains(&entry.name.as_str()) {
                let function = find_callable(&entry.name).and_then(|function| table_name(function));
                assert_eq!(function, Some(entry.name.as_str()), "{signature} is listed under an alias");
            }
        }
    }

    #[test]
    fn every_function_that_is_refused_or_replaced_is_one_of_datafusion() -> Result<()> {
        let nested = all_default_nested_functions();
        let higher_order = all_default_higher_order_functions();
        for family in &FAMILIES {
            for refusal in family.refused.iter().filter(|refusal| !refusal.signature.starts_with("CAST(")) {
                let name = parse_name(refusal.signature).unwrap_or_else(|| panic!("{} is no call", refusal.signature));
                let found = nested.iter().find(|own| own.name() == name).or_else(|| find_builtin(&name));
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
