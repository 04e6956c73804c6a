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
pub struct Place {
    /// The name of the CTE, view or derived table, none outside of all.
    name: Option<String>,
    /// Whether no other query can read it: it has no name, or that of a derived table.
    pub is_unread: bool,
    /// Whether it is unknown if the name is that of a derived table.
    pub is_unsure: bool,
    /// The numbers of the inputs by which one comes from its query to the node.
    path: Vec<usize>,
}

impl Default for Place {
    fn default() -> Self {
        Self { name: None, is_unread: true, is_unsure: false, path: vec![] }
    }
}

impl Place {
    /// Returns the place of the input of this number of a node that stands here; behind the inputs its subqueries are counted.
    pub fn below(&self, node: &LogicalPlan, input: usize) -> Self {
        match node {
            LogicalPlan::SubqueryAlias(alias) => {
                let (name, kind) = (Some(alias.alias.table().to_owned()), kind_of(&alias.alias));
                let (is_unread, is_unsure) = (kind == Some(NameKind::Derived), kind == Some(NameKind::Unsure));
                Self { name, is_unread, is_unsure, path: vec![] }
            }
            _ => Self { path: self.path.iter().copied().chain([input]).collect(), ..self.clone() },
        }
    }

    /// Returns whether two places can be one. Outside of all names a place says nothing.
    pub fn fits(&self, other: &Self) -> bool {
        self.name.is_none() || other.name.is_none() || self == other
    }
}

/// Goes through the nodes of a plan that stands in a place, of the subqueries in it, and of the CTEs and views that it scans, each of
/// these once, until one is wanted.
pub fn any_placed(
    plan: &LogicalPlan,
    place: &Place,
    is: &mut dyn FnMut(&LogicalPlan, &Place) -> Result<bool>,
) -> Result<bool> {
    any_beside(plan, place, &mut HashSet::new(), is)
}

/// Returns the same without the CTEs and views that have been gone through.
#[recursive::recursive]
fn any_beside(
    plan: &LogicalPlan,
    place: &Place,
    seen: &mut HashSet<*const LogicalPlan>,
    is: &mut dyn FnMut(&LogicalPlan, &Place) -> Result<bool>,
) -> Result<bool> {
    let mut found = is(plan, place)?;
    if let Some(common) = common_scanned_by(plan) {
        return Ok(found || seen.insert(common) && any_beside(common, &Place::default(), seen, is)?);
    }
    let mut number = 0;
    let mut visit = |below: &LogicalPlan| {
        if !found {
            found = any_beside(below, &place.below(plan, number), seen, is)?;
            number += 1;
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    };
    plan.apply_children(&mut visit)?;
    plan.apply_subqueries(&mut visit)?;
    Ok(found)
}
