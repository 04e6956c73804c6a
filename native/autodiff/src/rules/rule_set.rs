//! The rules that an operator differentiates by: the table, and the user's own laid over it.

use datafusion_common::{Result, plan_err};
use datafusion_expr::ScalarUDF;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::rule::Rule;
use super::rule_cache;
use crate::table::{self, Nulls};
use crate::vocabulary::functions::is_stop;
use crate::vocabulary::messages::truncate;

/// The rules of the table, with rules of the user's own taking precedence.
///
/// A rule of the table holds for DataFusion's own function of that name only; one of the user's for whatever function of
/// that name or alias a query calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    of_user: BTreeMap<(String, usize), Arc<Rule>>,
}

impl Rules {
    /// Creates the rules of the table with these rules in front of them.
    ///
    /// # Errors
    /// A plan error if two of them are for one function with the same number of arguments.
    pub fn new(user_rules: impl IntoIterator<Item = Rule>) -> Result<Self> {
        let mut rules = Self::default();
        for rule in user_rules {
            if let Some(other) = rules.of_user.insert((rule.name.clone(), rule.inputs.len()), Arc::new(rule)) {
                return plan_err!(
                    "there are two rules for {}({}); keep one",
                    other.name,
                    truncate(other.inputs.join(", "))
                );
            }
        }
        Ok(rules)
    }

    /// Finds the rule of a function for this number of arguments.
    pub(crate) fn find(&self, function: &ScalarUDF, arity: usize) -> Result<Option<Arc<Rule>>> {
        match self.user_rule(function, arity) {
            Some(rule) => Ok(Some(Arc::clone(rule))),
            None if is_stop(function, arity) => Rule::new("stop_gradient(x)", &["0"]).map(|rule| Some(Arc::new(rule))),
            None => rule_cache::function_rule(function, arity),
        }
    }

    /// Returns whether a function is NULL exactly where one of its arguments is. A user rule for it does not change that.
    pub(crate) fn is_strict(&self, function: &ScalarUDF, arity: usize) -> bool {
        is_stop(function, arity)
            || self.user_rule(function, arity).is_some_and(|rule| rule.strict)
            || table::find_function(function, arity).is_some_and(|known| known.line.nulls == Nulls::AnyInput)
    }

    /// Returns whether the rule of a function is one of the user's.
    pub(crate) fn has_user_rule(&self, function: &ScalarUDF, arity: usize) -> bool {
        self.user_rule(function, arity).is_some()
    }

    /// Returns the user's rule for a function: one for its name, or else for an alias.
    fn user_rule(&self, function: &ScalarUDF, arity: usize) -> Option<&Arc<Rule>> {
        let mut names = std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str));
        names.find_map(|name| self.of_user.get(&(name.to_owned(), arity)))
    }
}
