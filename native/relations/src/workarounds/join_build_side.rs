//! Joins with a side of one row in statements with recursive queries.
//!
//! DataFusion holds the left side of a join without keys, and goes through the right side once for each of its rows. It puts the smaller
//! side left by what it knows of the rows of tables, and of the rows that an iteration leaves it knows nothing. So this holds all of `d`,
//! and takes a hundred times as long as with `fit CROSS JOIN d`:
//!
//! ```sql
//! WITH RECURSIVE fit AS (SELECT 0 AS step, 0.0 AS w UNION ALL
//!   SELECT step + 1, w - 0.1 * grad(AVG(power(w * x - y, 2)), w) FROM d CROSS JOIN fit WHERE step < 20 GROUP BY step, w)
//! SELECT w FROM fit
//! ```
//!
//! DataFusion has no issue of it.

use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::{
    Aggregate, Distinct, DistinctOn, Expr, FetchType, Join, JoinType, LogicalPlan, Projection, RecursiveQuery,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{has_subquery, is_volatile};

use crate::shared_relation::{SharedRelation, each_rewritten};
use crate::vocabulary::names::columns;
use crate::vocabulary::nodes::{any_node, non_query_nodes};
use crate::vocabulary::work_table::work_table;

/// Puts a side of at most one row left in the joins of a statement that has recursive queries.
///
/// ```text
/// Cross Join:                                          Projection: d.x, d.y, fit.step, fit.w
///   TableScan: d                              ->         Cross Join:
///   TableScan: fit                                         TableScan: fit
///                                                          TableScan: d
/// ```
pub fn one_row_sides_left(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut reads = false;
    let mut queries = vec![];
    each_rewritten(plan.clone(), &mut |plan| {
        any_node(&plan, |node| {
            reads |= matches!(node, LogicalPlan::TableScan(scan) if work_table(scan).is_some());
            if let LogicalPlan::RecursiveQuery(query) = node {
                queries.push(query.clone());
            }
            Ok(false)
        })?;
        Ok(Transformed::no(plan))
    })?;
    if !reads {
        return Ok(Transformed::no(plan));
    }
    let mut few = Few::of_queries(&queries)?;
    each_rewritten(plan, &mut |plan| {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) if few.should_swap(&join)? => swap_inputs(join).map(Transformed::yes),
            node => Ok(Transformed::no(node)),
        })
    })
}

/// Returns a join with its sides exchanged, and its columns in their order.
fn swap_inputs(join: Join) -> Result<LogicalPlan> {
    let Join { left, right, on, filter, join_type, join_constraint, schema, null_equality, null_aware } = join;
    let on = on.into_iter().map(|(left, right)| (right, left)).collect();
    let join = Join::try_new(right, left, on, filter, join_type.swap(), join_constraint, null_equality, null_aware)?;
    let below = Arc::new(LogicalPlan::Join(join));
    Ok(LogicalPlan::Projection(Projection::try_new_with_schema(columns(&schema), below, schema)?))
}

/// What is known of the rows of a plan.
#[derive(Debug, Clone)]
struct RowBounds {
    /// Whether there is one at most.
    is_one: bool,
    /// The columns that have one value in all of them.
    constant: Vec<bool>,
}

impl RowBounds {
    fn nothing(plan: &LogicalPlan) -> Self {
        Self { is_one: false, constant: vec![false; plan.schema().fields().len()] }
    }

    fn one(plan: &LogicalPlan) -> Self {
        Self { is_one: true, constant: vec![true; plan.schema().fields().len()] }
    }

    /// Returns whether an expression over the rows has one value.
    fn is_constant(&self, expr: &Expr, input: &LogicalPlan) -> bool {
        let is_known = |column| input.schema().maybe_index_of_column(column).is_some_and(|index| self.constant[index]);
        expr.column_refs().into_iter().all(is_known) && !is_volatile(expr) && !has_subquery(expr)
    }
}

/// Tells which plans have few rows.
#[derive(Debug, Default)]
struct Few {
    /// The recursive queries of which every iteration leaves one row at most.
    queries: BTreeSet<String>,
    /// Whether shared relations have one row at most.
    relations: HashMap<*const SharedRelation, (Arc<SharedRelation>, bool)>,
}

impl Few {
    /// Returns one that knows of the work tables of these queries: each iteration leaves one row if those before it have left one.
    fn of_queries(queries: &[RecursiveQuery]) -> Result<Self> {
        let mut names: BTreeSet<_> = queries.iter().map(|query| query.name.clone()).collect();
        loop {
            let mut few = Self { queries: names.clone(), ..Self::default() };
            let mut others = vec![];
            for query in queries {
                if !(few.rows(&query.static_term)?.is_one && few.rows(&query.recursive_term)?.is_one) {
                    others.push(&query.name);
                }
            }
            names.retain(|name| !others.contains(&name));
            if names.len() == few.queries.len() {
                return Ok(few);
            }
        }
    }

    /// Returns whether the right side has one row, and the left side may have more.
    fn should_swap(&mut self, join: &Join) -> Result<bool> {
        let keeps_both = matches!(join.join_type, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full);
        Ok(keeps_both && self.rows(&join.right)?.is_one && !self.rows(&join.left)?.is_one)
    }

    #[recursive::recursive]
    fn rows(&mut self, plan: &LogicalPlan) -> Result<RowBounds> {
        let known = match plan {
            LogicalPlan::Projection(node) => {
                let input = self.rows(&node.input)?;
                let constant = node.expr.iter().map(|expr| input.is_constant(expr, &node.input)).collect();
                RowBounds { is_one: input.is_one, constant }
            }
            LogicalPlan::Filter(node) => self.rows(&node.input)?,
            LogicalPlan::Repartition(node) => self.rows(&node.input)?,
            LogicalPlan::SubqueryAlias(node) => self.rows(&node.input)?,
            LogicalPlan::Distinct(Distinct::All(input)) => self.rows(input)?,
            LogicalPlan::Sort(node) if node.fetch.is_none_or(|rows| rows > 1) => self.rows(&node.input)?,
            LogicalPlan::Limit(node) if !matches!(node.get_fetch_type()?, FetchType::Literal(Some(0 | 1))) => {
                self.rows(&node.input)?
            }
            LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => RowBounds::one(plan),
            LogicalPlan::Distinct(Distinct::On(DistinctOn { input, .. })) => {
                RowBounds { is_one: self.rows(input)?.is_one, ..RowBounds::nothing(plan) }
            }
            LogicalPlan::Window(node) => {
                let mut known = self.rows(&node.input)?;
                known.constant.resize(plan.schema().fields().len(), false);
                known
            }
            LogicalPlan::Aggregate(node) => self.groups(node, plan)?,
            LogicalPlan::Join(node) => self.join(node, plan)?,
            LogicalPlan::TableScan(scan) => match (SharedRelation::scanned(scan), work_table(scan)) {
                (Some(relation), _) => self.relation(&relation, plan)?,
                (None, Some(name)) if self.queries.contains(&name) => RowBounds::one(plan),
                (None, _) if scan.fetch.is_some_and(|rows| rows <= 1) => RowBounds::one(plan),
                (None, _) => RowBounds::nothing(plan),
            },
            LogicalPlan::EmptyRelation(_) => RowBounds::one(plan),
            LogicalPlan::Values(node) if node.values.len() <= 1 => RowBounds::one(plan),
            LogicalPlan::Values(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::RecursiveQuery(_)
            | LogicalPlan::Unnest(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::Extension(_)
            | non_query_nodes!() => RowBounds::nothing(plan),
        };
        Ok(if known.is_one { RowBounds::one(plan) } else { known })
    }

    /// Rows with the same keys are one group.
    fn groups(&mut self, node: &Aggregate, plan: &LogicalPlan) -> Result<RowBounds> {
        if matches!(node.group_expr.as_slice(), [Expr::GroupingSet(_)]) {
            return Ok(RowBounds::nothing(plan));
        }
        let input = self.rows(&node.input)?;
        let mut constant: Vec<_> = node.group_expr.iter().map(|key| input.is_constant(key, &node.input)).collect();
        let is_one = constant.iter().all(|is_constant| *is_constant);
        constant.resize(plan.schema().fields().len(), false);
        Ok(RowBounds { is_one, constant })
    }

    fn join(&mut self, node: &Join, plan: &LogicalPlan) -> Result<RowBounds> {
        let (left, right) = (self.rows(&node.left)?, self.rows(&node.right)?);
        let none = |side: &RowBounds| vec![false; side.constant.len()];
        let is_one = left.is_one && right.is_one;
        Ok(match node.join_type {
            JoinType::Inner => RowBounds { is_one, constant: [left.constant, right.constant].concat() },
            // A row that has no other is extended by NULL.
            JoinType::Left => RowBounds { is_one, constant: [left.constant.clone(), none(&right)].concat() },
            JoinType::Right => RowBounds { is_one, constant: [none(&left), right.constant].concat() },
            JoinType::LeftSemi | JoinType::LeftAnti => left,
            JoinType::RightSemi | JoinType::RightAnti => right,
            JoinType::LeftMark => RowBounds { is_one: left.is_one, constant: [left.constant, vec![false]].concat() },
            JoinType::RightMark => RowBounds { is_one: right.is_one, constant: [right.constant, vec![false]].concat() },
            JoinType::Full => RowBounds::nothing(plan),
        })
    }

    /// Returns what is known of a scan of a shared relation.
    fn relation(&mut self, relation: &Arc<SharedRelation>, scan: &LogicalPlan) -> Result<RowBounds> {
        let key = Arc::as_ptr(relation);
        let is_one = match self.relations.get(&key) {
            Some((_, is_one)) => *is_one,
            None => self.rows(relation.plan())?.is_one,
        };
        self.relations.insert(key, (Arc::clone(relation), is_one));
        Ok(RowBounds { is_one, ..RowBounds::nothing(scan) })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::SessionContext;
    use datafusion_common::Result;

    #[tokio::test]
    async fn datafusion_holds_the_data_still() -> Result<()> {
        let ctx = SessionContext::new();
        ctx.sql("CREATE TABLE d (x DOUBLE) AS VALUES (1.0), (2.0)").await?.collect().await?;
        let sql = "WITH RECURSIVE fit AS (SELECT 0 AS step, 0.5 AS w UNION ALL
                     SELECT step + 1, w - AVG(w * x) FROM d CROSS JOIN fit WHERE step < 3 GROUP BY step, w) SELECT w FROM fit";
        let plan = ctx.sql(sql).await?.create_physical_plan().await?;
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        let held = shown
            .split_once("CrossJoinExec")
            .map(|(_, below)| below.find("DataSourceExec") < below.find("WorkTableExec"));
        assert_eq!(held, Some(true), "the fault is gone: take this file away, and what it is called by\n{shown}");
        Ok(())
    }
}
