//! Expressions over nodes, over the regions of these.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, JoinType, NullEquality, Result, internal_err, plan_err};
use datafusion_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion_expr::{Expr, LogicalPlan};
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviated;

use super::Linearizer;
use crate::reverse::region::Region;

impl Linearizer<'_> {
    /// An expression over a node, over the region of that node. Subqueries in it that vary are joined to the region.
    pub fn inside(&mut self, region: &mut Region, expr: &Expr, schema: &DFSchema) -> Result<Expr> {
        let known = |column: &Column, region: &Region| {
            let index = schema.maybe_index_of_column(column)?;
            region.columns.get(index).cloned()
        };
        let inside = expr.clone().transform_down(|part| match part {
            Expr::Column(column) => {
                let Some(known) = known(&column, region) else {
                    return internal_err!("{column} is no column of the region ({schema})");
                };
                Ok(Transformed::yes(Expr::Column(known)))
            }
            Expr::ScalarSubquery(subquery) if self.node(&subquery.subquery)?.reads => {
                let value = self.subquery(&subquery)?;
                let Some(column) = value.columns.first().cloned() else {
                    return plan_err!("the subquery {} has no column", abbreviated(&Expr::ScalarSubquery(subquery)));
                };
                let width = region.columns.len();
                let own = std::mem::replace(region, Region::constant(LogicalPlan::default(), vec![], false));
                let nulls = NullEquality::NullEqualsNothing;
                let both = own.joined(value, vec![], None, JoinType::Inner, nulls)?;
                *region = both;
                region.columns.truncate(width);
                Ok(Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump))
            }
            part => {
                let renamed = with_outer_columns(part, &|column| known(column, region))?;
                Ok(Transformed::yes(renamed))
            }
        })?;
        Ok(inside.data)
    }

    /// Adds expressions over a node to the region of that node, and gives the columns that they are.
    pub fn computed(&mut self, region: &mut Region, exprs: &[Expr], schema: &DFSchema) -> Result<Vec<Column>> {
        let mut inside = vec![];
        for expr in exprs {
            inside.push((expr.qualified_name().1, self.inside(region, expr, schema)?));
        }
        region.add(inside, self.names)
    }
}

/// An expression whose subqueries read the columns of the query around them under other names.
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
