//! Keeping the columns of recursive queries.
//!
//! DataFusion 54 removes columns of a recursive query that are not read outside of it, although its recursive term reads them,
//! and then fails (`project index 2 out of bounds`) or reads a wrong column.

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::{LogicalPlan, Partitioning, Repartition};
use datafusion_optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

use super::nullability::{Static, nullable_by_either_term};
use crate::vocabulary::names::columns;

/// The analyzer rule that keeps DataFusion from removing columns that a recursive query reads itself, and from taking its
/// columns for not nullable that only the first rows are.
///
/// A plan without recursive queries stays as it is, and so does one that the rule has seen before. For statements that are
/// prepared, which DataFusion does not analyze, it is also a rule of the optimizer, to be put before all others.
#[derive(Debug, Default)]
pub struct KeepRecursiveColumns;

const NAME: &str = "keep_recursive_columns";

impl AnalyzerRule for KeepRecursiveColumns {
    fn name(&self) -> &str {
        NAME
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(rewrite(plan)?.data)
    }
}

impl OptimizerRule for KeepRecursiveColumns {
    fn name(&self) -> &str {
        NAME
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        rewrite(plan)
    }
}

fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    nullable_by_either_term(plan, Static::Settled)?.transform_data(keep_recursive_columns)
}

/// Puts above each recursive query a node that reads all of its columns and costs nothing: a partitioning by them into one
/// partition, which the planner of physical plans removes.
///
/// ```text
/// Projection: r.c                              Projection: r.c
///   SubqueryAlias: r                             SubqueryAlias: r
///     RecursiveQuery: is_distinct=false            Repartition: Hash(s, b, c) partition_count=1
///                                                    RecursiveQuery: is_distinct=false
/// ```
pub fn keep_recursive_columns(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // Without such a query nothing is copied.
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = matches!(node, LogicalPlan::RecursiveQuery(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if found { keep(plan, false) } else { Ok(Transformed::no(plan)) }
}

/// [`keep_recursive_columns`] below a node that may keep the columns of the plan already.
#[recursive::recursive]
fn keep(plan: LogicalPlan, kept: bool) -> Result<Transformed<LogicalPlan>> {
    let keeps = match &plan {
        LogicalPlan::Repartition(above) => above.partitioning_scheme == all_columns(&above.input),
        // One that DataFusion has pushed down.
        LogicalPlan::Filter(_) => kept,
        _ => false,
    };
    plan.map_subqueries(|subquery| keep(subquery, false))?
        .transform_data(|plan| plan.map_children(|child| keep(child, keeps)))?
        .transform_data(|plan| match plan {
            LogicalPlan::RecursiveQuery(_) if !kept => {
                let partitioning_scheme = all_columns(&plan);
                let above = Repartition { input: Arc::new(plan), partitioning_scheme };
                Ok(Transformed::yes(LogicalPlan::Repartition(above)))
            }
            other => Ok(Transformed::no(other)),
        })
}

fn all_columns(plan: &LogicalPlan) -> Partitioning {
    Partitioning::Hash(columns(plan.schema()), 1)
}
