//! Columns of shared relations that their readers read, beside which none is computed.
//!
//! ```text
//! Projection: h.d                                      Projection: h.d
//!   TableScan: h                                         TableScan: h
//! h: Projection: x / y AS q, x - y AS d         ->     h: Projection: x - y AS d
//! ```
//!
//! A shared relation is planned apart from its readers, so that DataFusion's rule would take all columns of it for ones that are read. What
//! all readers need of it is found here: first in the plan of the statement, then in the relations, those of readers before what they read.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result};
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::relation::SharedRelation;
use crate::plan::columns_of_inputs::{add_positions_in, columns_of_inputs};
use crate::version::PRUNES_RECURSIVE_QUERIES;
use crate::vocabulary::work_table::source_column;

/// Finds the columns that a plan reads of the shared relations that it scans, be it through others, and tells these.
///
/// # Errors
/// If a plan cannot be traversed.
pub fn find_columns_read(plan: &LogicalPlan) -> Result<()> {
    let relations = SharedRelation::scanned_in(plan)?;
    if relations.is_empty() {
        return Ok(());
    }
    let mut readers = Readers::default();
    for plan in relations.iter().map(|relation| relation.plan()).chain([plan]) {
        readers.add_outer_columns(plan)?;
    }
    readers.add_columns_of(plan)?;
    // Those that others read stand before these.
    for relation in relations.iter().rev() {
        relation.add_columns_read(readers.read.remove(&Arc::as_ptr(relation)).unwrap_or_default());
        let width = relation.plan().schema().fields().len();
        let columns = relation.columns_computed().into_iter().filter(|column| *column < width);
        readers.add_columns(relation.plan(), columns.collect())?;
    }
    Ok(())
}

/// What is known of the relations that a statement scans.
#[derive(Default)]
struct Readers {
    /// The columns that subqueries read of what stands around them, wherever that is.
    outer: Vec<Column>,
    /// Whether all columns of all nodes are needed.
    is_whole: bool,
    /// The columns that have been found to be read.
    read: HashMap<*const SharedRelation, BTreeSet<usize>>,
}

impl Readers {
    /// Adds the columns that subqueries in a plan read of what stands around them.
    fn add_outer_columns(&mut self, plan: &LogicalPlan) -> Result<()> {
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    if let Expr::OuterReferenceColumn(_, column) = part {
                        self.outer.push(column.clone());
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(())
    }

    /// Adds what a plan reads of which all columns are needed.
    fn add_columns_of(&mut self, plan: &LogicalPlan) -> Result<()> {
        self.add_columns(plan, (0..plan.schema().fields().len()).collect())
    }

    /// Adds what a plan reads of which these columns are needed.
    #[recursive::recursive]
    fn add_columns(&mut self, plan: &LogicalPlan, mut needed: BTreeSet<usize>) -> Result<()> {
        if self.is_whole {
            needed.extend(0..plan.schema().fields().len());
        }
        if !self.outer.is_empty() {
            add_positions_in(&self.outer, plan.schema(), &mut needed);
        }
        if !PRUNES_RECURSIVE_QUERIES && matches!(plan, LogicalPlan::RecursiveQuery(_)) && !self.is_whole {
            self.is_whole = true;
            let added = self.add_columns(plan, needed);
            self.is_whole = false;
            return added;
        }
        if let LogicalPlan::TableScan(scan) = plan
            && let Some(relation) = SharedRelation::scanned(scan)
        {
            let columns = needed.iter().map(|column| source_column(scan, *column));
            self.read.entry(Arc::as_ptr(&relation)).or_default().extend(columns);
        }
        for (input, needed) in plan.inputs().into_iter().zip(columns_of_inputs(plan, &needed)?) {
            self.add_columns(input, needed)?;
        }
        let mut queries = vec![];
        plan.apply_subqueries(|query| {
            queries.push(query.clone());
            Ok(TreeNodeRecursion::Continue)
        })?;
        queries.iter().try_for_each(|query| self.add_columns_of(query))
    }
}
