//! Formulas in SQL.

use arrow::datatypes::FieldRef;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, Result, plan_err};
use datafusion_expr::{Expr, ScalarUDF};
use sqlparser::ast::Expr as Sql;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::evaluate::{evaluate, evaluate_number};
use super::scope::{Call, Scope};
use crate::algebra::Algebra;
use crate::graph::{NodeId, export};
use crate::vocabulary::syntax::{name_of, parse};
use crate::vocabulary::types::value_type;

/// A derivative as written in a rule: SQL over what the rule names.
///
/// It is cloned, compared and printed as the text it was written as: what is parsed would be by recursion, and a long sum is
/// deep.
#[derive(Clone)]
pub struct Formula {
    text: Arc<str>,
    sql: Arc<Sql>,
}

impl PartialEq for Formula {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Formula {}

impl Hash for Formula {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The value of a call in a formula over inputs.
#[derive(Debug)]
pub enum Value {
    /// 0 in every row, which also removes its products.
    Zero,
    /// The value of this expression, which is not expanded, with its field.
    Input(Expr, FieldRef),
}

impl Formula {
    /// Parses a formula.
    ///
    /// # Errors
    /// A plan error if it is no expression in SQL.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self { text: text.into(), sql: Arc::new(parse(text)?) })
    }

    /// Evaluates this formula in the working type.
    pub(crate) fn evaluate(&self, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
        evaluate_number(&self.sql, algebra, scope)
    }

    /// Evaluates this formula to an expression, `None` if it is 0. `value_of` returns the values of calls that are not of DataFusion's own
    /// scalar functions, by name and the names of their arguments. Numbers are DOUBLE.
    ///
    /// # Errors
    /// Those of `value_of`, and a plan error if the formula is not one over these calls.
    pub fn evaluate_with(
        &self,
        value_of: impl FnMut(&str, &[String]) -> Result<Option<Value>>,
    ) -> Result<Option<Expr>> {
        let schema = DFSchema::empty();
        let mut algebra = Algebra::new(&schema);
        let mut given = ValueScope { value_of, values: vec![] };
        let value = evaluate(&self.sql, &mut algebra, &mut given)?;
        let is_number = value_type(algebra.data_type(value)).is_numeric();
        let root = if is_number { algebra.cast_to_working_type(value)? } else { value };
        if algebra.is_zero(root) {
            return Ok(None);
        }
        let written = export(&algebra, root)?.transform_up(|part| {
            let number = given.values.iter().enumerate().find(|(number, _)| part == stand_in(*number));
            Ok(match number {
                Some((_, value)) => Transformed::yes(value.clone()),
                None => Transformed::no(part),
            })
        })?;
        Ok(Some(written.data))
    }
}

/// The scope of calls that have values.
struct ValueScope<F> {
    value_of: F,
    values: Vec<Expr>,
}

/// Creates the column that represents an input value in a graph, which does not expand its operations.
fn stand_in(number: usize) -> Expr {
    Expr::Column(Column::new_unqualified(format!("given value {number}")))
}

impl<F: FnMut(&str, &[String]) -> Result<Option<Value>>> Scope for ValueScope<F> {
    fn name(&mut self, name: &str) -> Result<NodeId> {
        plan_err!("{name} stands beside a call, where only numbers may")
    }

    fn call(&mut self, algebra: &mut Algebra, call: &Call) -> Result<Option<NodeId>> {
        let Some(names) = call.arguments.iter().map(|argument| name_of(argument)).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        Ok(match (self.value_of)(call.name, &names)? {
            None => None,
            Some(Value::Zero) => Some(algebra.number(0.0)?),
            Some(Value::Input(expr, field)) => {
                let known = self.values.iter().position(|value| *value == expr);
                let number = known.unwrap_or_else(|| {
                    self.values.push(expr);
                    self.values.len() - 1
                });
                Some(algebra.leaf(stand_in(number), field))
            }
        })
    }

    fn function(&self, _name: &str) -> Option<&Arc<ScalarUDF>> {
        None
    }

    fn callable(&self) -> String {
        "those of DataFusion".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};
    use datafusion_expr::col;

    /// Evaluates a formula over `f(a)`, which is a column, and `zero(a)`.
    fn over(text: &str) -> Result<Option<String>> {
        let value_of = |name: &str, names: &[String]| {
            Ok(match (name, names) {
                ("f", [of]) => Some(Value::Input(col(of.as_str()), Arc::new(Field::new(of, DataType::Float64, true)))),
                ("zero", [_]) => Some(Value::Zero),
                _ => None,
            })
        };
        Ok(Formula::parse(text)?.evaluate_with(value_of)?.map(|expr| expr.to_string()))
    }

    #[test]
    fn formulas_over_input_values() -> Result<()> {
        for (text, expected) in [
            ("1 + 2 * 3", Some("Float64(7)")),
            ("-(2 - 5)", Some("Float64(3)")),
            ("f(a) + 0 * f(b)", Some("a")),
            ("f(a) * zero(a)", None),
            ("f(a) - zero(a)", Some("a")),
            ("f(a) + f(a)", Some("Float64(2) * a")),
            ("power(f(a), 2)", Some("a * a")),
            ("ln(1)", None),
            ("CASE WHEN 1 < 2 THEN f(a) ELSE f(b) END", Some("a")),
            ("CASE WHEN 1 > 2 THEN f(a) ELSE f(b) END", Some("b")),
            ("CASE 3 WHEN 4 THEN f(a) WHEN 3 THEN f(b) END", Some("b")),
            ("CASE WHEN constant(f(a)) THEN 1 WHEN never_null(f(a)) THEN 2 ELSE f(a) END", Some("a")),
            ("CASE WHEN constant(2) THEN f(b) ELSE f(a) END", Some("b")),
            (
                "f(a) IS NOT NULL AND f(a) BETWEEN 0 AND 1",
                Some("a IS NOT NULL AND a >= Float64(0) AND a <= Float64(1)"),
            ),
        ] {
            assert_eq!(over(text)?.as_deref(), expected, "{text}");
        }
        Ok(())
    }

    #[test]
    fn what_is_no_formula_is_an_error() {
        for (text, reason) in [
            ("f(a) +", "cannot be parsed"),
            ("f(a) || 'b'", "a formula cannot be written with"),
            ("a", "stands beside a call"),
            ("g(f(a))", "DataFusion has no scalar function g"),
            ("random()", "is volatile"),
            ("grad(f(a), f(b))", "what grad differentiates"),
            ("f(a) AND f(b)", "must be a condition"),
            ("f(a) + (f(a) > 0)", "must be a number"),
            ("1e999", "a formula cannot be written with"),
        ] {
            let error = over(text).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.contains(reason)), "{text}: {error:?}");
        }
    }
}
