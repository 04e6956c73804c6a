//! The relation in which a variable originates, with its rows numbered.

use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan, Projection, TableSource};
use std::sync::Arc;

use crate::shared::{SharedRelation, scan};
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::source::is_same;

/// Columns of one relation by whose cells is differentiated.
///
/// FROM and the subqueries read the same rows of the relation, with numbers by which they know each row again.
pub struct RowVariable {
    /// The node that computes the columns, or the table that has them.
    origin: LogicalPlan,
    /// The positions of the columns in it.
    pub columns: Vec<usize>,
    table: String,
    source: Arc<dyn TableSource>,
}

impl RowVariable {
    /// The variables that columns of a node are. `computed` is what the node computes, without calls of the operators.
    pub fn of(origin: LogicalPlan, computed: LogicalPlan, variables: Vec<usize>, names: &mut Names) -> Result<Self> {
        let exprs = columns(computed.schema());
        let computed = named(computed, &exprs, names)?;
        let table = names.part("rows");
        let source = SharedRelation::numbered(table.clone(), computed, &names.part("row")).into_source();
        Ok(Self { origin, columns: variables, table, source })
    }

    /// The table of the numbered rows, under its name.
    pub fn table(&self) -> (String, Arc<dyn TableSource>) {
        (self.table.clone(), Arc::clone(&self.source))
    }

    /// A scan of the numbered rows: the columns of the origin in their order, and the number of the row.
    pub fn scan(&self) -> Result<LogicalPlan> {
        scan(self.table.clone(), &self.source)
    }

    /// Whether a node scans the numbered rows.
    pub fn is_scan(&self, plan: &LogicalPlan) -> bool {
        matches!(plan, LogicalPlan::TableScan(scan) if Arc::ptr_eq(&scan.source, &self.source))
    }

    /// Whether a plan, a subquery or a shared relation in it reads the numbered rows.
    #[recursive::recursive]
    pub fn is_read_by(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found = found || self.is_scan(node);
            if let Some(shared) = SharedRelation::scanned_by(node).filter(|_| !found) {
                found = self.is_read_by(shared.plan())?;
            }
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(found)
    }

    /// The plan with every reference to the relation reading the numbered rows.
    pub fn substituted(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let read = plan.transform_down_with_subqueries(|node| {
            if !is_same(&node, &self.origin) {
                return Ok(Transformed::no(node));
            }
            Ok(Transformed::new(self.stand_in(None)?, true, TreeNodeRecursion::Jump))
        })?;
        Ok(read.data)
    }

    /// What reads the numbered rows under the names of the origin, with the number of the row under a name of its own.
    fn stand_in(&self, row: Option<&str>) -> Result<LogicalPlan> {
        let scan = self.scan()?;
        let mut read = columns(scan.schema());
        let number = read.pop();
        let mut exprs: Vec<_> = read
            .into_iter()
            .zip(self.origin.schema().iter())
            .map(|(column, (table, field))| column.alias_qualified(table.cloned(), field.name()))
            .collect();
        exprs.extend(row.and_then(|row| Some(number?.alias(row))));
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(scan))?))
    }

    /// The plan with the number of the row that column number `index` is of, as one more column.
    ///
    /// ```text
    /// Filter: w.val > 0                     Filter: w.val > 0
    ///   TableScan: w                 ->       Projection: w.k, w.val, ∂row
    ///                                           TableScan: ∂rows
    /// ```
    pub fn lifted(&self, plan: LogicalPlan, index: usize, names: &mut Names) -> Result<(LogicalPlan, Column)> {
        if is_same(&plan, &self.origin) {
            let row = names.part("row");
            return Ok((self.stand_in(Some(&row))?, Column::new_unqualified(row)));
        }
        let Origin::Below(sources) = origin(&plan, index)? else {
            return plan_err!("the variable does not originate in {}", plan.display());
        };
        let [(number, below)] = sources.as_slice() else {
            return plan_err!(
                "a column of several tables, as UNION has, is no variable by row. Differentiate by the column of one of them"
            );
        };
        let mut inputs: Vec<_> = plan.inputs().into_iter().cloned().collect();
        let input = inputs.swap_remove(*number);
        let (input, row) = self.lifted(input, *below, names)?;
        inputs.push(input);
        let last = inputs.len() - 1;
        inputs.swap(*number, last);
        let mut exprs = plan.expressions();
        Ok(match &plan {
            LogicalPlan::Projection(_) => {
                exprs.push(Expr::Column(row.clone()));
                let input = inputs.pop().unwrap_or_default();
                (LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?), row)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let row = Column::new(Some(alias.alias.clone()), row.name);
                (plan.with_new_exprs(exprs, inputs)?, row)
            }
            LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Join(_) => (plan.with_new_exprs(exprs, inputs)?, row),
            other => {
                return plan_err!(
                    "the rows of a variable are not followed through {}. Take the derivative below it, in a CTE",
                    other.display()
                );
            }
        })
    }
}

/// These expressions under names of their own.
pub fn named(plan: LogicalPlan, exprs: &[Expr], names: &mut Names) -> Result<LogicalPlan> {
    let named = exprs.iter().map(|expr| {
        let name = names.part(&expr.qualified_name().1);
        expr.clone().unalias().alias(name)
    });
    let named = named.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(named, Arc::new(plan))?))
}
