//! Keeping the columns of recursive queries.
//!
//! DataFusion 54 removes columns of a recursive query that are not read outside of it, although its recursive term reads them,
//! and then fails (`project index 2 out of bounds`) or reads a wrong column.

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_expr::{LogicalPlan, Partitioning, Repartition};
use datafusion_optimizer::AnalyzerRule;
use std::sync::Arc;

use super::nullability::{Static, nullable_by_either_term};
use crate::names::columns;

/// The analyzer rule that keeps DataFusion from removing columns that a recursive query reads itself, and from taking its
/// columns for not nullable that only the first rows are.
///
/// A plan without recursive queries stays as it is.
#[derive(Debug, Default)]
pub struct KeepRecursiveColumns;

impl AnalyzerRule for KeepRecursiveColumns {
    fn name(&self) -> &str {
        "keep_recursive_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        keep_recursive_columns(nullable_by_either_term(plan, Static::Settled)?)
    }
}

/// Puts above each recursive query a node that reads all of its columns and costs nothing: a partitioning by them into one
/// partition, which the planner of physical plans removes.
pub fn keep_recursive_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = found || matches!(node, LogicalPlan::RecursiveQuery(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let kept = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::RecursiveQuery(_) => {
            let partitioning_scheme = Partitioning::Hash(columns(node.schema()), 1);
            let keeping = Repartition { input: Arc::new(node), partitioning_scheme };
            Ok(Transformed::yes(LogicalPlan::Repartition(keeping)))
        }
        // The rule has been here before.
        LogicalPlan::Repartition(outer) => match outer.input.as_ref() {
            LogicalPlan::Repartition(inner)
                if inner.partitioning_scheme == outer.partitioning_scheme
                    && matches!(inner.input.as_ref(), LogicalPlan::RecursiveQuery(_)) =>
            {
                Ok(Transformed::yes(outer.input.as_ref().clone()))
            }
            _ => Ok(Transformed::no(LogicalPlan::Repartition(outer))),
        },
        other => Ok(Transformed::no(other)),
    })?;
    Ok(kept.data)
}
