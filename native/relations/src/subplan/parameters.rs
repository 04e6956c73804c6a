//! Parameters of statements, as `$rate`, and their values.

use arrow::datatypes::DataType;
use datafusion_common::metadata::ScalarAndMetadata;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::HashMap;

/// Returns the parameters of a prepared statement in a plan, each once.
pub fn parameters(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut found: Vec<Expr> = vec![];
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if matches!(part, Expr::Placeholder(_)) && !found.contains(part) {
                    found.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// Returns the value of a parameter as the type that a plan has it of, unless it is another value then.
pub fn value_as(value: &ScalarValue, wanted: &DataType) -> Option<ScalarValue> {
    let given = value.data_type();
    if given == *wanted {
        return Some(value.clone());
    }
    if !(value.is_null() || given.is_numeric() && wanted.is_numeric()) {
        return None;
    }
    let found = value.cast_to(wanted).ok()?;
    let is_same = value.is_null() || found.cast_to(&given).is_ok_and(|back| back == *value);
    is_same.then_some(found)
}

/// Replaces the parameters in a plan that have values.
///
/// DataFusion's own `replace_params_with_values` makes each `VALUES` of the plan anew. Here it stays the node that it is, for several readers of
/// one node read one relation:
///
/// ```sql
/// WITH w AS (VALUES (0, 0.5), (1, 2.0)) SELECT grad((SELECT SUM($rate * column2) FROM w), column2) FROM w
/// ```
///
/// # Errors
/// If the plan cannot be rebuilt.
pub fn replace_parameters(plan: LogicalPlan, values: &HashMap<String, ScalarAndMetadata>) -> Result<LogicalPlan> {
    let value_of = |expr: &Expr| match expr {
        Expr::Placeholder(parameter) => {
            let found = values.get(parameter.id.trim_start_matches('$'))?;
            let wanted = parameter.field.as_deref().map(|field| field.data_type().clone());
            let value = wanted.map_or_else(|| Some(found.value.clone()), |wanted| value_as(&found.value, &wanted))?;
            Some(Expr::Literal(value, found.metadata.clone()))
        }
        _ => None,
    };
    let replaced = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            if !expr.exists(|part| Ok(value_of(part).is_some()))? {
                return Ok(Transformed::no(expr));
            }
            let name = names.save(&expr);
            let with_values = expr.transform_up(|part| {
                let value = value_of(&part);
                Ok(value.map_or_else(|| Transformed::no(part), Transformed::yes))
            })?;
            Ok(with_values.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(replaced.data)
}
