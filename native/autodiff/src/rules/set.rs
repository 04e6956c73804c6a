//! The rules that an operator differentiates by: the table, and the user's own laid over it.

use datafusion_common::{Result, plan_err};
use datafusion_expr::ScalarUDF;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Rule;
use crate::vocabulary::messages::cut;

/// The rules of the table, with rules of the user's own taking precedence.
///
/// A rule of the table holds for DataFusion's own function of that name only; one of the user's for whatever function of
/// that name or alias a query calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    own: BTreeMap<(String, usize), Arc<Rule>>,
}

impl Rules {
    /// The table with these rules laid over it.
    ///
    /// # Errors
    /// A plan error if two of them are for one function with the same number of arguments.
    pub fn new(own: impl IntoIterator<Item = Rule>) -> Result<Self> {
        let mut rules = Self::default();
        for rule in own {
            if let Some(other) = rules.own.insert((rule.name.clone(), rule.inputs.len()), Arc::new(rule)) {
                return plan_err!("there are two rules for {}({}); keep one", other.name, cut(other.inputs.join(", ")));
            }
        }
        Ok(rules)
    }

    /// The rule of a function for this number of arguments.
    pub(crate) fn of_function(&self, function: &ScalarUDF, arity: usize) -> Result<Option<Arc<Rule>>> {
        match self.own(function, arity) {
            Some(rule) => Ok(Some(Arc::clone(rule))),
            None => super::of_function(function, arity),
        }
    }

    /// Whether a function is NULL exactly where one of its arguments is. Another derivative does not change that.
    pub(crate) fn is_strict(&self, function: &ScalarUDF, arity: usize) -> Result<bool> {
        Ok(self.own(function, arity).is_some_and(|rule| rule.strict)
            || super::of_function(function, arity)?.is_some_and(|rule| rule.strict))
    }

    /// Whether the rule of a function is one of the user's.
    pub(crate) fn has_own(&self, function: &ScalarUDF, arity: usize) -> bool {
        self.own(function, arity).is_some()
    }

    fn own(&self, function: &ScalarUDF, arity: usize) -> Option<&Arc<Rule>> {
        let mut names = std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str));
        names.find_map(|name| self.own.get(&(name.to_owned(), arity)))
    }
}
