//! What one may differentiate by.

use datafusion_common::{Column, DFSchema, Result, plan_err};
use datafusion_expr::{Expr, ExprSchemable};

use super::differentiation::Differentiation;
use super::errors::SEE_ALL_NODES;
use crate::algebra::Algebra;
use crate::graph::NodeId;
use crate::vocabulary::messages::{abbreviated, cut};
use crate::vocabulary::types::is_float;

/// The column that `argument` names, or the error that says why one cannot differentiate by it.
pub fn check<'a>(call: &Differentiation, argument: &'a Expr, schema: &DFSchema) -> Result<&'a Expr> {
    let variable = match argument {
        Expr::Alias(alias) => alias.expr.as_ref(),
        other => other,
    };
    let (Expr::Column(column) | Expr::OuterReferenceColumn(_, column)) = variable else {
        return plan_err!(
            "{call}: one differentiates by a column, and {} is {}. Name a column of the query, or give the \
             expression a name in a subquery or CTE and differentiate by that",
            abbreviated(variable),
            kind(variable)
        );
    };
    let data_type = variable.get_type(schema)?;
    if is_float(&data_type) {
        return Ok(variable);
    }
    let name = abbreviated(&Expr::Column(Column::new_unqualified(column.name())));
    plan_err!(
        "{call}: the column {} is {data_type}, and only a column of floats can vary. Convert it before it is used, \
         in a subquery or CTE (`SELECT CAST({name} AS DOUBLE) AS {name} ...`), and differentiate by the result",
        abbreviated(variable)
    )
}

/// What a message calls an argument that is not a column.
fn kind(variable: &Expr) -> &'static str {
    match variable {
        Expr::Literal(..) => "a constant",
        Expr::Placeholder(_) => "a parameter",
        _ => "an expression",
    }
}

/// The error for a column that may have been computed from a variable without the calculus seeing how.
///
/// What an aggregate, a window or GROUP BY has computed is handed over as an unqualified column whose name is the printed
/// expression, `avg(t.x * t.y)`; in ORDER BY, what the SELECT list computes is an unqualified column named by its alias.
/// The derivative of such a value is not that of a constant, so it must not be taken for one. The analyzer rule knows better,
/// so this is for sessions without it.
pub fn check_none_computed_from(
    call: &Differentiation,
    algebra: &Algebra,
    primal: &[NodeId],
    variables: &[&Expr],
) -> Result<()> {
    for id in primal.iter().filter(|id| is_float(algebra.data_type(**id))) {
        let Some(computed) = column_of(&algebra.node(*id).shape).filter(|column| column.relation.is_none()) else {
            continue;
        };
        for source in variables.iter().filter_map(|variable| column_of(variable)) {
            let suspect = if is_printed_expression(&computed.name) {
                mentions(&computed.name, &source.flat_name())
            } else {
                // Beside a column of a table, a name without a table is an alias.
                source.relation.is_some()
            };
            if computed != source && suspect {
                return plan_err!(
                    "{call}: {} has no table here, so it may have been computed from {} (by an aggregate, a window \
                     function, GROUP BY, UNNEST or the SELECT list), which one node of a plan does not tell. {SEE_ALL_NODES}",
                    cut(&computed.name),
                    cut(source)
                );
            }
        }
    }
    Ok(())
}

/// Whether the name of a column is an expression as the planner prints it, and no plain name.
fn is_printed_expression(name: &str) -> bool {
    name.contains(['(', ')', '*', '/', '+', '-', '%', '<', '>', '=', '|', '&']) || name.starts_with("CASE ")
}

fn column_of(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => Some(column),
        _ => None,
    }
}

/// Whether `name` stands in `text` as a name of its own.
fn mentions(text: &str, name: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    text.match_indices(name).any(|(start, found)| {
        let before = text[..start].chars().next_back();
        let after = text[start + found.len()..].chars().next();
        !before.is_some_and(continues) && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::{is_printed_expression, mentions};

    #[test]
    fn a_name_is_mentioned_only_as_a_whole() {
        assert!(mentions("avg(t.x * t.y)", "t.x"));
        assert!(mentions("t.x * t.x", "t.x"));
        assert!(mentions("sum(outer_ref(t.x))", "t.x"));
        assert!(!mentions("avg(st.x * t.xy)", "t.x"));
        assert!(!mentions("avg(u.t.x)", "t.x"));
        assert!(!mentions("avg(t.y)", "t.x"));
    }

    #[test]
    fn printed_expressions_are_told_from_names() {
        for printed in ["avg(t.x)", "t.x * t.x", "CASE WHEN t.b THEN t.x END", "row_number() ORDER BY [t.x ASC]"] {
            assert!(is_printed_expression(printed), "{printed}");
        }
        for name in ["s", "mean x", "t.x"] {
            assert!(!is_printed_expression(name), "{name}");
        }
    }
}
