//! The tangent of an expression over columns that have tangents.

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, Result, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{Expr, ExprSchemable, ScalarUDF, lit, when};
use std::collections::HashSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::messages::abbreviated;

use super::pairs::linearize_pair;
use super::tangent::{Linearized, Tangent, Tangents, can_vary};
use crate::vocabulary::markers::unmarked;
use crate::vocabulary::origin::passed_on;

/// The positions of the columns that an expression reads.
pub fn reads(expr: &Expr, schema: &DFSchema) -> Vec<usize> {
    let mut read: Vec<_> =
        columns_read(expr).iter().filter_map(|column| schema.maybe_index_of_column(column)).collect();
    read.sort_unstable();
    read
}

/// The tangent of an expression over columns with these tangents.
pub fn linearize(expr: &Expr, schema: &DFSchema, tangents: &Tangents, jvp: &Arc<ScalarUDF>) -> Result<Linearized> {
    if !can_vary(&expr.get_type(schema)?) {
        return Ok(Linearized::Known(Tangent::Zero));
    }
    let column = passed_on(expr, schema).and_then(|column| schema.maybe_index_of_column(column));
    if let Some(tangent) = column.map(|index| tangents.get(index))
        && (tangent == Tangent::Zero || tangent == Tangent::One || matches!(unmarked(expr), Expr::Column(_)))
    {
        return Ok(Linearized::Known(tangent));
    }
    let part = |part: &Expr| -> Result<Expr> {
        written_out(&linearize(part, schema, tangents, jvp)?, part, schema, &DataType::Float64)
    };
    let mut arguments = vec![unmarked(expr).clone()];
    for index in reads(expr, schema) {
        let column = Expr::Column(Column::from(schema.qualified_field(index)));
        match tangents.get(index) {
            Tangent::Zero => continue,
            Tangent::One => arguments.extend([column, lit(1.0)]),
            Tangent::Column(tangent) => arguments.extend([column, Expr::Column(tangent)]),
        }
    }
    if arguments.len() == 1 {
        return Ok(Linearized::Known(Tangent::Zero));
    }
    check_subqueries(&arguments)?;
    if let Some(tangent) = linearize_pair(unmarked(expr), &part)? {
        return Ok(Linearized::Derived(tangent));
    }
    Ok(Linearized::Derived(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(jvp), arguments))))
}

/// The error if the expression that `jvp` is given with these arguments has a subquery that varies.
pub fn check_subqueries(arguments: &[Expr]) -> Result<()> {
    let Some((expression, directions)) = arguments.split_first() else { return Ok(()) };
    let varying: HashSet<_> = directions.iter().step_by(2).flat_map(columns_read).collect();
    expression.apply(|part| {
        if matches!(part, Expr::ScalarSubquery(_))
            && let Some(column) = columns_read(part).intersection(&varying).next()
        {
            return plan_err!(
                "the correlated subquery {} reads {column} of the query around it, which varies, and derivatives are not \
                 followed into it. Write it as a join",
                abbreviated(part)
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The tangent of an expression as an expression, NULL where `primal` is.
pub fn written_out(tangent: &Linearized, primal: &Expr, schema: &DFSchema, data_type: &DataType) -> Result<Expr> {
    let constant = |value: f64| -> Result<Expr> {
        let value = lit(value).cast_to(data_type, schema)?;
        if primal.nullable(schema)? { when(primal.clone().is_not_null(), value).end() } else { Ok(value) }
    };
    match tangent {
        Linearized::Known(Tangent::Zero) => constant(0.0),
        Linearized::Known(Tangent::One) => constant(1.0),
        Linearized::Known(Tangent::Column(column)) => Ok(Expr::Column(column.clone())),
        Linearized::Derived(expr) => Ok(expr.clone()),
    }
}

/// The tangent of an aggregate or window function in a column of this schema, NULL where that is. A single function of tangents
/// is so anyway.
pub fn null_with_column(tangent: Expr, schema: &DFSchema, index: usize) -> Result<Expr> {
    let column = Expr::Column(Column::from(schema.qualified_field(index)));
    if matches!(tangent, Expr::Column(_)) || !schema.field(index).is_nullable() {
        return Ok(tangent);
    }
    when(column.is_not_null(), tangent).end()
}
