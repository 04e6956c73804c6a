//! Searches for the columns from which values are computed.

use datafusion_common::Result;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::HashSet;
use xql_autodiff::vocabulary::columns::columns_followed;
use xql_autodiff::vocabulary::types::is_float;

use crate::plan::over_input::computed_over_input;
use crate::shared_relation::SharedRelation;
use crate::vocabulary::identity::is_same;
use crate::vocabulary::source::{Source, sources_of};

/// Returns whether a plan computes a float column from that of a source, rather than pass it on. The search includes
/// the shared relations that the plan scans. Keys and conditions do not count as computing a value.
pub fn computes_value_from(plan: &LogicalPlan, source: &Source) -> Result<bool> {
    let mut search = Search { source, seen: HashSet::new() };
    for (index, field) in plan.schema().fields().iter().enumerate() {
        if !is_float(field.data_type()) {
            continue;
        }
        let is_passed_on = |from: &Source| is_same(&from.origin, &source.origin) && from.position == source.position;
        if !sources_of(plan, index)?.iter().all(is_passed_on) && search.finds(plan, index)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A search for a source below columns.
struct Search<'s> {
    source: &'s Source,
    /// The nodes and columns that have been looked at.
    seen: HashSet<(*const LogicalPlan, usize)>,
}

impl Search<'_> {
    /// Returns whether a column of a plan is computed from the source.
    #[recursive::recursive]
    fn finds(&mut self, plan: &LogicalPlan, index: usize) -> Result<bool> {
        if is_same(plan, &self.source.origin) {
            return Ok(index == self.source.position);
        }
        if !self.seen.insert((std::ptr::from_ref(plan), index)) {
            return Ok(false);
        }
        if let Some((relation, position)) = SharedRelation::column_scanned_by(plan, index) {
            return position.map_or(Ok(false), |position| self.finds(relation.plan(), position));
        }
        for (number, input) in plan.inputs().into_iter().enumerate() {
            let is_found = match plan {
                // Any column may go into any other, from one iteration to the next.
                LogicalPlan::RecursiveQuery(_) | LogicalPlan::Extension(_) => self.finds_any(input)?,
                _ => match computed_over_input(plan, number)?.get(index) {
                    Some(Some(expr)) => self.finds_in(expr, input)?,
                    _ => false,
                },
            };
            if is_found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether any column of a plan is computed from the source.
    fn finds_any(&mut self, plan: &LogicalPlan) -> Result<bool> {
        for index in 0..plan.schema().fields().len() {
            if self.finds(plan, index)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether an expression over an input is computed from the source.
    fn finds_in(&mut self, expr: &Expr, input: &LogicalPlan) -> Result<bool> {
        for column in columns_followed(expr) {
            if let Some(index) = input.schema().maybe_index_of_column(&column)
                && self.finds(input, index)?
            {
                return Ok(true);
            }
        }
        let mut found = false;
        expr.apply(|part| {
            if let Expr::ScalarSubquery(query) = part {
                found = found || self.finds(&query.subquery, 0)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    }
}
