//! Translates expressions over a node into expressions over the segment of the node.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, JoinType, NullEquality, Result, internal_err, plan_err};
use datafusion_expr::Expr;
use datafusion_expr::expr::{Exists, InSubquery, SetComparison};
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviate;

use super::linearize::SegmentBuilder;
use super::segment::Segment;

/// Rewrites an expression over a node as one over its segment. Subqueries in it that vary are joined to the segment.
pub fn inside(builder: &mut SegmentBuilder, segment: &mut Segment, expr: &Expr, schema: &DFSchema) -> Result<Expr> {
    let known = |column: &Column, segment: &Segment| {
        let index = schema.maybe_index_of_column(column)?;
        segment.columns.get(index).cloned()
    };
    let inside = expr.clone().transform_down(|part| match part {
        Expr::Column(column) => {
            let Some(known) = known(&column, segment) else {
                return internal_err!("{column} is no column of the segment ({schema})");
            };
            Ok(Transformed::yes(Expr::Column(known)))
        }
        Expr::ScalarSubquery(subquery) if builder.varies(&subquery.subquery)? => {
            let value = builder.subquery(&subquery)?;
            let Some(column) = value.columns.first().cloned() else {
                return plan_err!("the subquery {} has no column", abbreviate(&Expr::ScalarSubquery(subquery)));
            };
            segment.put_beside(value, vec![], JoinType::Inner, NullEquality::NullEqualsNothing)?;
            Ok(Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump))
        }
        part => {
            let renamed = with_outer_columns(part, &|column| known(column, segment))?;
            Ok(Transformed::yes(renamed))
        }
    })?;
    Ok(inside.data)
}

/// Adds expressions over a node to its segment, and returns their columns.
pub fn computed(
    builder: &mut SegmentBuilder,
    segment: &mut Segment,
    exprs: &[Expr],
    schema: &DFSchema,
) -> Result<Vec<Column>> {
    let mut added = vec![];
    for expr in exprs {
        added.push((expr.qualified_name().1, inside(builder, segment, expr, schema)?));
    }
    segment.add(added, builder.names)
}

/// Renames the outer columns that the subqueries of an expression read.
fn with_outer_columns(mut expr: Expr, renamed: &dyn Fn(&Column) -> Option<Column>) -> Result<Expr> {
    let rename = |expr: Expr| {
        expr.transform_down(|part| match part {
            Expr::OuterReferenceColumn(field, column) => {
                let column = renamed(&column).unwrap_or(column);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            part => Ok(Transformed::no(part)),
        })
    };
    if let Expr::ScalarSubquery(subquery)
    | Expr::Exists(Exists { subquery, .. })
    | Expr::InSubquery(InSubquery { subquery, .. })
    | Expr::SetComparison(SetComparison { subquery, .. }) = &mut expr
        && !subquery.outer_ref_columns.is_empty()
    {
        let plan = subquery.subquery.as_ref().clone();
        let plan = plan.transform_down(|node| node.map_expressions(rename))?;
        subquery.subquery = Arc::new(plan.data);
        for column in &mut subquery.outer_ref_columns {
            *column = rename(column.clone())?.data;
        }
    }
    Ok(expr)
}
