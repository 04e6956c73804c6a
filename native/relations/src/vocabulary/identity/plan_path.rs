//! Paths to nodes within named queries.

use datafusion_common::Result;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::LogicalPlan;
use std::collections::HashSet;

use super::derived::{NameKind, kind_of};
use crate::vocabulary::nodes::common_scanned_by;

/// The path to a node within a named query. It is all that distinguishes equal nodes of two queries that read the same
/// relations.
///
/// ```sql
/// WITH n AS (...), a AS (SELECT 2 * x AS v FROM n), b AS (SELECT 2 * x AS v FROM n) ...
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlanPath {
    /// The name of the CTE, view or derived table, none outside of all.
    name: Option<String>,
    /// Whether no other query can read it: it has no name, or that of a derived table.
    pub is_unread: bool,
    /// Whether it is unknown if the name is that of a derived table.
    pub is_unsure: bool,
    /// The numbers of the inputs by which one comes from its query to the node.
    inputs: Vec<usize>,
}

impl Default for PlanPath {
    fn default() -> Self {
        Self { name: None, is_unread: true, is_unsure: false, inputs: vec![] }
    }
}

impl PlanPath {
    /// Returns the path to the input of this number of the node at this path. Subqueries are counted after the inputs.
    pub fn below(&self, node: &LogicalPlan, input: usize) -> Self {
        match node {
            LogicalPlan::SubqueryAlias(alias) => {
                let (name, kind) = (Some(alias.alias.table().to_owned()), kind_of(&alias.alias));
                let (is_unread, is_unsure) = (kind == Some(NameKind::Derived), kind == Some(NameKind::Unsure));
                Self { name, is_unread, is_unsure, inputs: vec![] }
            }
            _ => Self { inputs: self.inputs.iter().copied().chain([input]).collect(), ..self.clone() },
        }
    }

    /// Returns whether two paths can lead to one node. Outside of all names a path says nothing.
    pub fn fits(&self, other: &Self) -> bool {
        self.name.is_none() || other.name.is_none() || self == other
    }
}

/// Goes through the nodes of a plan at a path, of the subqueries in it, and of the CTEs and views that it scans, each of
/// these once, until one is wanted.
pub fn any_at_path(
    plan: &LogicalPlan,
    path: &PlanPath,
    is: &mut dyn FnMut(&LogicalPlan, &PlanPath) -> Result<bool>,
) -> Result<bool> {
    any_beside(plan, path, &mut HashSet::new(), is)
}

/// Returns the same without the CTEs and views that have been gone through.
#[recursive::recursive]
fn any_beside(
    plan: &LogicalPlan,
    path: &PlanPath,
    seen: &mut HashSet<*const LogicalPlan>,
    is: &mut dyn FnMut(&LogicalPlan, &PlanPath) -> Result<bool>,
) -> Result<bool> {
    let mut found = is(plan, path)?;
    if let Some(common) = common_scanned_by(plan) {
        return Ok(found || seen.insert(common) && any_beside(common, &PlanPath::default(), seen, is)?);
    }
    let mut number = 0;
    let mut visit = |below: &LogicalPlan| {
        if !found {
            found = any_beside(below, &path.below(plan, number), seen, is)?;
            number += 1;
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    };
    plan.apply_children(&mut visit)?;
    plan.apply_subqueries(&mut visit)?;
    Ok(found)
}
