//! The rules of the table.

use datafusion_common::{Result, internal_datafusion_err};
use datafusion_expr::{Operator, ScalarUDF};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::rule::Rule;
use crate::table::{self, Known};

/// Rules by name and number of inputs.
type Table = HashMap<(&'static str, usize), Arc<Rule>>;

/// Those that have been asked for.
static RULES: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

/// The rule of DataFusion's own function with this number of arguments.
pub fn of_function(function: &ScalarUDF, arity: usize) -> Result<Option<Arc<Rule>>> {
    table::of_function(function, arity).map(|known| of_line(known, arity)).transpose()
}

/// The rule of a binary operator.
pub fn of_operator(operator: Operator) -> Result<Option<Arc<Rule>>> {
    table::of_operator(operator).map(|known| of_line(known, 2)).transpose()
}

/// The rule of the unary minus.
pub fn of_negation() -> Result<Option<Arc<Rule>>> {
    table::of_negation().map(|known| of_line(known, 1)).transpose()
}

fn of_line(known: &'static Known, arity: usize) -> Result<Arc<Rule>> {
    let mut rules = RULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rule) = rules.get(&(known.name.as_str(), arity)) {
        return Ok(Arc::clone(rule));
    }
    let rule = Rule::of_line(known, arity)
        .map_err(|error| internal_datafusion_err!("the rule table cannot be read: {error}"))?;
    let rule = Arc::new(rule);
    rules.insert((known.name.as_str(), arity), Arc::clone(&rule));
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_rule() -> Result<()> {
        for known in table::all() {
            let arity = known.inputs.as_ref().map_or(3, Vec::len);
            assert_eq!(of_line(known, arity)?.inputs.len(), arity, "{}", known.name);
        }
        Ok(())
    }
}
