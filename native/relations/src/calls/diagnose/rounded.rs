//! Refuses derivatives through a recursive query that rounds the values it computes.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, ExprSchema, Result, plan_datafusion_err};
use datafusion_expr::{Expr, LogicalPlan, RecursiveQuery};
use std::cell::RefCell;
use xql_autodiff::vocabulary::functions::stop_gradient_argument;
use xql_autodiff::vocabulary::refusals::Refused;
use xql_autodiff::vocabulary::types::is_float;

use crate::calls::resolve::make_it_a_double;
use crate::shared_relation::SharedRelation;
use crate::vocabulary::expressions::unaliased;

/// Functions with integer values. A query that calls one of them rounds on purpose.
const WHOLE: [&str; 5] = ["ceil", "floor", "round", "signum", "trunc"];

/// Returns whether a plan, a subquery or a shared relation in it has a recursive query that rounds what it computes.
pub fn is_rounded_in(plan: &LogicalPlan) -> Result<bool> {
    SharedRelation::any_node_in(plan, &|node| match node {
        LogicalPlan::RecursiveQuery(query) => rounded(query).is_some(),
        _ => false,
    })
}

/// Refuses a node with calls that reads a recursive query which rounds the values it computes: DataFusion casts the
/// columns of each iteration to the types of the first rows, and the derivative of an integer is 0.
///
/// ```sql
/// SELECT 0 AS step, w, 0 AS q FROM p UNION ALL SELECT step + 1, w, 0.5 * q + w FROM r WHERE step < 9  -- q is a BIGINT
/// ```
pub fn check_rounded(node: &LogicalPlan) -> Result<()> {
    let found = RefCell::new(None);
    SharedRelation::any_node_in(node, &|node| {
        let LogicalPlan::RecursiveQuery(query) = node else { return false };
        let Some(index) = rounded(query) else { return false };
        let field = query.static_term.schema().field(index);
        let (name, column, data_type) = (&query.name, field.name(), field.data_type());
        let error = plan_datafusion_err!(
            "{name}: its column {column} is {data_type}, as it is in the first rows of this recursive query, so that each step is \
             rounded and has no derivative. {}. If a whole number is meant, say so in the step: floor(...)",
            make_it_a_double(column, data_type)
        );
        *found.borrow_mut() = Some(Refused::UnsupportedRelation.mark(error));
        true
    })?;
    found.into_inner().map_or(Ok(()), Err)
}

/// Returns the number of a column that is a whole number though a step computes it of floats, if there is one.
fn rounded(query: &RecursiveQuery) -> Option<usize> {
    let LogicalPlan::Projection(step) = query.recursive_term.as_ref() else { return None };
    let schema = query.static_term.schema();
    (0..step.expr.len()).find(|index| {
        let Expr::Cast(cast) = unaliased(&step.expr[*index]) else { return false };
        schema.field(*index).data_type().is_integer() && has_fractions(&cast.expr, step.input.schema())
    })
}

/// Returns whether the value of an expression is computed of floats that no function has made whole.
fn has_fractions(expr: &Expr, schema: &DFSchema) -> bool {
    let mut found = false;
    let visited = expr.apply(|part| {
        let is_whole = match part {
            Expr::ScalarFunction(call) => WHOLE.contains(&call.func.name()),
            Expr::BinaryExpr(binary) => !binary.op.is_numerical_operators(),
            Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::InList(_) | Expr::Between(_) | Expr::Not(_) => true,
            _ => false,
        };
        if is_whole || stop_gradient_argument(part).is_some() {
            return Ok(TreeNodeRecursion::Jump);
        }
        if let Expr::Column(column) = part {
            found |= schema.field_from_column(column).is_ok_and(|field| is_float(field.data_type()));
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
    found
}
