//! The rules of the table, parsed on first use.

use datafusion_common::{Result, internal_datafusion_err};
use datafusion_expr::{Operator, ScalarUDF};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::rule::Rule;
use crate::table::{self, TableEntry};

/// Rules by name and number of inputs.
type RulesByName = HashMap<(&'static str, usize), Arc<Rule>>;

/// The rules that have been parsed.
static RULES: LazyLock<Mutex<RulesByName>> = LazyLock::new(Mutex::default);

/// Returns the rule of DataFusion's own function with this number of arguments.
pub fn function_rule(function: &ScalarUDF, arity: usize) -> Result<Option<Arc<Rule>>> {
    table::find_function(function, arity).map(|entry| cached_rule(entry, arity)).transpose()
}

/// Returns the rule of a binary operator.
pub fn operator_rule(operator: Operator) -> Result<Option<Arc<Rule>>> {
    table::find_operator(operator).map(|entry| cached_rule(entry, 2)).transpose()
}

/// Returns the rule of the unary minus.
pub fn negation_rule() -> Result<Option<Arc<Rule>>> {
    table::find_negation().map(|entry| cached_rule(entry, 1)).transpose()
}

fn cached_rule(entry: &'static TableEntry, arity: usize) -> Result<Arc<Rule>> {
    let mut rules = RULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rule) = rules.get(&(entry.name.as_str(), arity)) {
        return Ok(Arc::clone(rule));
    }
    let rule = Rule::from_entry(entry, arity)
        .map_err(|error| internal_datafusion_err!("the rule table cannot be read: {error}"))?;
    let rule = Arc::new(rule);
    rules.insert((entry.name.as_str(), arity), Arc::clone(&rule));
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_rule() -> Result<()> {
        for entry in table::entries() {
            let arity = entry.inputs.as_ref().map_or(3, Vec::len);
            assert_eq!(cached_rule(entry, arity)?.inputs.len(), arity, "{}", entry.name);
        }
        Ok(())
    }
}
