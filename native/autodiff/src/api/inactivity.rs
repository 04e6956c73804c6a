//! Rows in which an expression does not vary, because of the branches that it takes.

use datafusion_common::{Column, DFSchema, Result, ScalarValue};
use datafusion_expr::Expr;
use std::collections::HashMap;

use crate::algebra::Algebra;
use crate::graph::{NodeId, branches, export, import};
use crate::rules::{Bindings, Derivative, Rules};
use crate::vocabulary::functions::is_stop;
use crate::vocabulary::opaque_expr::unwrap_opaque;
use crate::vocabulary::types::can_vary;

/// Where a column varies.
#[derive(Debug, Clone)]
pub enum Varies {
    /// In no row.
    Never,
    /// In all rows, as far as is known.
    Always,
    /// In the rows in which this does not hold.
    Unless(Expr),
}

/// Returns the condition under which an expression takes branches that do not vary, over its columns; `None` if it is not known to do so
/// anywhere. `varies` says where a column varies.
///
/// In these rows the derivative is 0 by structure, so it contributes nothing even if it is multiplied by infinity, as that of
/// `sqrt(greatest(x, 0))` is for negative `x`. The derivative of `x * x` at 0 happens to be 0, and is no such case.
///
/// # Errors
/// If the expression cannot be typed over the columns.
pub fn inactive_condition(
    expression: &Expr,
    schema: &DFSchema,
    varies: &dyn Fn(&Column) -> Varies,
) -> Result<Option<Expr>> {
    let mut algebra = Algebra::new(schema);
    let root = import(&mut algebra, &unwrap_opaque(expression.clone())?.data)?;
    // A volatile condition would choose another branch when it is evaluated again.
    if algebra.reachable(root).into_iter().any(|id| algebra.node(id).volatile) {
        return Ok(None);
    }
    let mut conditions = Conditions { algebra, rules: Rules::default(), varies, known: HashMap::new() };
    let condition = conditions.condition(root)?;
    if conditions.is_truth(condition, false) {
        return Ok(None);
    }
    export(&conditions.algebra, condition).map(Some)
}

/// Builds the conditions under which the nodes of an expression do not vary.
struct Conditions<'c, 'a> {
    algebra: Algebra<'a>,
    rules: Rules,
    varies: &'c dyn Fn(&Column) -> Varies,
    known: HashMap<NodeId, NodeId>,
}

impl Conditions<'_, '_> {
    #[recursive::recursive]
    fn condition(&mut self, id: NodeId) -> Result<NodeId> {
        if let Some(known) = self.known.get(&id) {
            return Ok(*known);
        }
        let condition = if can_vary(self.algebra.data_type(id)) {
            self.varying_condition(id)?
        } else {
            self.algebra.truth(true)?
        };
        self.known.insert(id, condition);
        Ok(condition)
    }

    fn varying_condition(&mut self, id: NodeId) -> Result<NodeId> {
        let node = self.algebra.node(id);
        let (shape, children) = (node.shape.clone(), node.children.clone());
        match shape {
            Expr::Literal(..) => self.algebra.truth(true),
            Expr::Column(column) => match (self.varies)(&column) {
                Varies::Never => self.algebra.truth(true),
                Varies::Always => self.algebra.truth(false),
                Varies::Unless(condition) => import(&mut self.algebra, &condition),
            },
            Expr::Case(case) => {
                let values = branches(&case);
                let mut parts = children;
                for value in &values {
                    parts[*value] = self.condition(parts[*value])?;
                }
                let first = values.first().map(|value| parts[*value]);
                match first.filter(|first| values.iter().all(|value| parts[*value] == *first)) {
                    Some(same) => Ok(same),
                    None => self.algebra.intern(Expr::Case(case), parts),
                }
            }
            Expr::ScalarFunction(call) if is_stop(&call.func, children.len()) => self.algebra.truth(true),
            Expr::ScalarFunction(call) => {
                let rule = self.rules.find(&call.func, children.len())?;
                let Some((rule, Derivative::Choice(case))) = rule.as_deref().map(|rule| (rule, &rule.derivative))
                else {
                    return self.all_inactive(&children);
                };
                let function = Some(&call.func);
                let mut bindings = Bindings { rule, function, inputs: &children, output: id };
                let case = case.evaluate(&mut self.algebra, &mut bindings)?;
                self.condition(case)
            }
            _ => self.all_inactive(&children),
        }
    }

    /// Returns the condition under which none of several nodes varies. Nothing is known of an expression that does not show what it reads.
    fn all_inactive(&mut self, nodes: &[NodeId]) -> Result<NodeId> {
        let mut all = self.algebra.truth(!nodes.is_empty())?;
        for node in nodes {
            let condition = self.condition(*node)?;
            if self.is_truth(condition, false) {
                return Ok(condition);
            }
            all = match self.is_truth(all, true) {
                true => condition,
                false if self.is_truth(condition, true) => all,
                false => self.algebra.and(all, condition)?,
            };
        }
        Ok(all)
    }

    fn is_truth(&self, id: NodeId, truth: bool) -> bool {
        self.algebra.node(id).shape == Expr::Literal(ScalarValue::Boolean(Some(truth)), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::functions::function;
    use crate::vocabulary::testing::columns;
    use datafusion_expr::{col, lit, when};

    #[test]
    fn branches_that_do_not_vary_have_conditions() -> Result<()> {
        let schema = columns()?;
        let clamp = when(col("x").gt(lit(0.0)), col("x")).otherwise(lit(0.0))?;
        let of_clamp = "CASE WHEN x > Float64(0) THEN Boolean(false) ELSE Boolean(true) END";
        let absent = function("nullif")?.call(vec![col("x"), lit(3.0)]);
        for (expr, expected) in [
            (col("x"), None),
            (col("x") * col("x"), None),
            (col("y") * lit(2.0), Some("Boolean(true)")),
            (clamp.clone(), Some(of_clamp)),
            (clamp.clone() * col("y") + lit(1.0), Some(of_clamp)),
            (clamp.clone() * col("x"), None),
            (absent, Some("CASE WHEN x = Float64(3) THEN Boolean(true) ELSE Boolean(false) END")),
            (col("n"), Some("y > Float64(0)")),
            (col("n") + clamp, Some(&format!("y > Float64(0) AND {of_clamp}"))),
        ] {
            let varies = |column: &Column| match column.name.as_str() {
                "x" => Varies::Always,
                "n" => Varies::Unless(col("y").gt(lit(0.0))),
                _ => Varies::Never,
            };
            let found = inactive_condition(&expr, &schema, &varies)?.map(|condition| condition.to_string());
            assert_eq!(found.as_deref(), expected, "{expr}");
        }
        Ok(())
    }
}
