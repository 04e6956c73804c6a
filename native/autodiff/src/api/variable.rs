//! Checks of what a call differentiates by.

use datafusion_common::{Column, DFSchema, Result, plan_err};
use datafusion_expr::{Expr, ExprSchemable};

use super::differentiation::Differentiation;
use crate::algebra::Algebra;
use crate::graph::{NodeId, export};
use crate::vocabulary::messages::{abbreviate, literal_kind, must_be_column};
use crate::vocabulary::types::{can_vary, is_float};

/// Returns the column that `argument` names.
///
/// # Errors
/// If one cannot differentiate by it.
pub fn check_variable<'a>(call: &Differentiation, argument: &'a Expr, schema: &DFSchema) -> Result<&'a Expr> {
    let variable = match argument {
        Expr::Alias(alias) => alias.expr.as_ref(),
        other => other,
    };
    let (Expr::Column(column) | Expr::OuterReferenceColumn(_, column)) = variable else {
        return plan_err!(
            "{call}: {}; {} is {}. Name a column of the query. To differentiate by an expression, compute it as a column of a \
             subquery or CTE, and name that",
            must_be_column(call.operator),
            abbreviate(variable),
            variable_kind(variable)
        );
    };
    let data_type = variable.get_type(schema)?;
    if is_float(&data_type) {
        return Ok(variable);
    }
    let name = abbreviate(&Expr::Column(Column::new_unqualified(column.name())));
    plan_err!(
        "{call}: the variable must be a column of floats; the column {} is {data_type}. Convert it before it is used, \
         in a subquery or CTE (`SELECT CAST({name} AS DOUBLE) AS {name} ...`), and differentiate by the result",
        abbreviate(variable)
    )
}

/// Names an argument that is not a column, for messages.
fn variable_kind(variable: &Expr) -> &'static str {
    match variable {
        Expr::Literal(value, _) => literal_kind(value),
        Expr::Placeholder(_) => "a parameter",
        _ => "an expression",
    }
}

/// Refuses what may vary with a variable without one node of a plan showing how: another column, which a CTE, a view, a join or an
/// aggregate may have computed from it, or a subquery.
///
/// ```text
/// SELECT grad(q * q, x) FROM (SELECT x, x * x AS q FROM t)          q is a column like any other here
/// ```
pub fn check_nothing_else_varies(
    call: &Differentiation,
    algebra: &Algebra,
    primal: &[NodeId],
    variables: &[NodeId],
) -> Result<()> {
    for id in primal.iter().filter(|id| !variables.contains(id)) {
        let unseen = match &algebra.node(*id).shape {
            Expr::Column(_) | Expr::OuterReferenceColumn(..) => can_vary(algebra.data_type(*id)),
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => true,
            // An expression that another library does not show, such as a subquery, is named as it is printed.
            Expr::ScalarFunction(function) => function.name().contains('('),
            _ => false,
        };
        if unseen {
            return plan_err!(
                "{call}: another node of the plan may have computed {} from the variable, and this session does not have the \
                 rules that see all nodes. Register them: `xql_relations::register(&ctx)` in Rust, `xql_ffi.register(ctx)` in \
                 Python",
                abbreviate(&export(algebra, *id)?)
            );
        }
    }
    Ok(())
}
