//! The relation in which a variable originates, with its rows numbered.

use arrow::datatypes::FieldRef;
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, DFSchemaRef, Result, TableReference, internal_err, plan_err};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::sync::Arc;

use crate::carry::lifted;
use crate::shared::SharedRelation;
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::source::is_same;

/// Columns of one relation by whose cells is differentiated.
///
/// FROM and the subqueries read the same rows of the relation, with numbers by which they know each row again.
pub struct RowVariable {
    /// The node that computes the columns, or the table that has them.
    origin: LogicalPlan,
    /// Its columns as the numbered rows have them.
    shown: DFSchemaRef,
    /// The positions of the columns in it.
    pub columns: Vec<usize>,
    relation: Arc<SharedRelation>,
}

impl RowVariable {
    /// The variables that columns of a node are, as it stands in FROM. There it may have more columns than the `origin` that
    /// subqueries read: numbers of rows of what it is computed from. `computed` is what it computes, without calls of the operators.
    pub fn of(
        origin: LogicalPlan,
        shown: &LogicalPlan,
        computed: LogicalPlan,
        variables: &[usize],
        names: &mut Names,
    ) -> Result<Self> {
        let shown = Arc::clone(shown.schema());
        let variables = variables.iter().map(|index| position(&shown, origin.schema().qualified_field(*index)));
        let variables = variables.collect::<Result<_>>()?;
        let exprs = columns(computed.schema());
        let computed = named(computed, &exprs, names)?;
        let table = names.part("rows");
        let relation = Arc::new(SharedRelation::numbered(table, computed, &names.part("row")));
        Ok(Self { origin, shown, columns: variables, relation })
    }

    /// The numbered rows.
    pub fn relation(&self) -> &Arc<SharedRelation> {
        &self.relation
    }

    /// A scan of the numbered rows: the columns of the origin in their order, and the number of the row.
    pub fn scan(&self) -> Result<LogicalPlan> {
        self.relation.scan()
    }

    /// Whether a node scans the numbered rows.
    pub fn is_scan(&self, plan: &LogicalPlan) -> bool {
        SharedRelation::scanned_by(plan).is_some_and(|relation| Arc::ptr_eq(&relation, &self.relation))
    }

    /// Whether a plan, a subquery or a shared relation in it reads the numbered rows.
    pub fn is_read_by(&self, plan: &LogicalPlan) -> Result<bool> {
        SharedRelation::any_node_in(plan, &|node| self.is_scan(node))
    }

    /// The plan with every reference to the relation reading the numbered rows.
    pub fn substituted(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let read = plan.transform_down_with_subqueries(|node| {
            if !is_same(&node, &self.origin) {
                return Ok(Transformed::no(node));
            }
            Ok(Transformed::new(self.stand_in(node.schema(), None)?, true, TreeNodeRecursion::Jump))
        })?;
        Ok(read.data)
    }

    /// What reads the numbered rows in the place of a node with these columns, with the number of the row under a name of its own.
    fn stand_in(&self, columns_of: &DFSchema, row: Option<&str>) -> Result<LogicalPlan> {
        let scan = self.scan()?;
        let mut read = columns(scan.schema());
        let number = read.pop();
        let mut exprs = vec![];
        let is_all = columns_of.fields().len() == self.shown.fields().len();
        for (index, (table, field)) in columns_of.iter().enumerate() {
            // The same table may go by another name here.
            let index = if is_all { index } else { position(&self.shown, (table, field))? };
            exprs.push(read[index].clone().alias_qualified(table.cloned(), field.name()));
        }
        exprs.extend(row.and_then(|row| Some(number?.alias(row))));
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(scan))?))
    }

    /// The plan with the number of the row that a column, one of the variables, is of, as one more column.
    ///
    /// ```text
    /// Filter: w.val > 0                     Filter: w.val > 0
    ///   TableScan: w                 ->       Projection: w.k, w.val, ∂row
    ///                                           TableScan: ∂rows
    /// ```
    pub fn lifted(&self, plan: LogicalPlan, column: &Column, names: &mut Names) -> Result<(LogicalPlan, Column)> {
        let index = plan.schema().index_of_column(column)?;
        lifted(plan, index, names, &mut |node, index, names| {
            if origin(node, index)? == Origin::Here {
                let row = names.part("row");
                return Ok(Some((self.stand_in(node.schema(), Some(&row))?, Column::new_unqualified(row))));
            }
            match node {
                LogicalPlan::Projection(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::Repartition(_)
                | LogicalPlan::Window(_)
                | LogicalPlan::Join(_) => Ok(None),
                other => plan_err!(
                    "the rows of a variable are not followed through {}. Take the derivative below it, in a CTE",
                    other.display()
                ),
            }
        })
    }
}

/// The node of a plan to which the inputs of these numbers lead, the last first.
pub fn at<'p>(plan: &'p LogicalPlan, path: &[usize]) -> Result<&'p LogicalPlan> {
    match path.split_last() {
        None => Ok(plan),
        Some((number, path)) => match plan.inputs().get(*number) {
            Some(input) => at(input, path),
            None => internal_err!("{} has no input {number}", plan.display()),
        },
    }
}

fn position(schema: &DFSchema, (table, field): (Option<&TableReference>, &FieldRef)) -> Result<usize> {
    let found = schema.index_of_column_by_name(table, field.name());
    found.map_or_else(|| internal_err!("the rows of a variable have no column {}", field.name()), Ok)
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
