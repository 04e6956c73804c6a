//! Relations by whose rows is differentiated.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::LogicalPlan;

use super::occurrence::{is_equal, is_same, reads_values};
use super::plan_path::{PlanPath, any_at_path};

/// A relation by whose rows is differentiated, as other places of the statement read it.
#[derive(Debug, Clone)]
pub struct Relation {
    /// The node that computes it, or the table.
    pub node: LogicalPlan,
    /// The path to it.
    path: PlanPath,
    /// Whether it is known by its text, since nothing else can read it: a derived table has no name for others.
    ///
    /// ```sql
    /// SELECT grad((SELECT SUM(v * v) FROM (SELECT 2 * x AS v FROM t) AS a), v) FROM (SELECT 2 * x AS v FROM t) AS b
    /// ```
    by_text: bool,
    /// Whether it may be known by its text: nothing else reads it, and nobody can tell whether anything could.
    is_unsure: bool,
}

impl Relation {
    /// Returns a relation that is known by the table or query that its name stands for.
    pub fn named(node: LogicalPlan, path: PlanPath) -> Self {
        Self { node, path, by_text: false, is_unsure: false }
    }

    /// Returns the relation of a node to which one comes by these inputs, in the plan of a node that reads it. A derived table is known by
    /// its text.
    pub fn read_by(plan: &LogicalPlan, node: LogicalPlan, inputs: impl Iterator<Item = usize>) -> Result<Self> {
        let mut path = PlanPath::default();
        let (mut is_unread, mut is_unsure) = (true, true);
        let mut reader = plan;
        // The path begins below the only input.
        for number in [0].into_iter().chain(inputs) {
            path = path.below(reader, number);
            is_unread &= path.is_unread;
            is_unsure &= path.is_unread || path.is_unsure;
            let Some(input) = reader.inputs().get(number).copied() else { break };
            reader = input;
        }
        let named = Self::named(node, path);
        let mut readers = 0;
        any_at_path(plan, &PlanPath::default(), &mut |node, path| {
            readers += usize::from(named.is(node, path));
            Ok(readers > 1)
        })?;
        Ok(Self { by_text: is_unread && readers == 1, is_unsure: is_unsure && readers == 1, ..named })
    }

    /// Returns the path to it.
    pub fn path(&self) -> &PlanPath {
        &self.path
    }

    /// Returns whether another relation is the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is(&other.node, &other.path)
    }

    /// Returns whether a node at a path is it.
    pub fn is(&self, node: &LogicalPlan, path: &PlanPath) -> bool {
        let is_named = is_same(node, &self.node) && (matches!(node, LogicalPlan::TableScan(_)) || self.path.fits(path));
        is_named || self.by_text && path.is_unread && is_equal(node, &self.node)
    }

    /// Returns whether a node of a plan, or of a subquery in it, says the same as the relation, and nobody can tell whether it is the
    /// relation.
    pub fn is_unclear_in(&self, plan: &LogicalPlan) -> Result<bool> {
        any_at_path(plan, &PlanPath::default(), &mut |node, path| {
            let may_be = self.is_unsure && (path.is_unread || path.is_unsure) && is_equal(node, &self.node);
            Ok(may_be && !self.is(node, path))
        })
    }

    /// Returns whether a plan does not read it, but `VALUES` of the same text in its place. DataFusion makes `VALUES` anew for each reader
    /// where it puts values in the place of parameters, so that nobody can tell whether they are one.
    pub fn is_rebuilt_in(&self, plan: &LogicalPlan) -> Result<bool> {
        let is_rebuilt = |node: &LogicalPlan, path: &PlanPath| {
            *path == self.path && reads_values(node) && is_equal(node, &self.node) && !self.is(node, path)
        };
        Ok(!self.is_read_in(plan)?
            && any_at_path(plan, &PlanPath::default(), &mut |node, path| Ok(is_rebuilt(node, path)))?)
    }

    /// Returns whether a plan or a subquery in it reads it.
    pub fn is_read_in(&self, plan: &LogicalPlan) -> Result<bool> {
        any_at_path(plan, &PlanPath::default(), &mut |node, path| Ok(self.is(node, path)))
    }

    /// Returns whether another relation is computed from it.
    pub fn is_part_of(&self, other: &Self) -> Result<bool> {
        any_at_path(&other.node, &other.path, &mut |node, path| Ok(self.is(node, path)))
    }

    /// Returns the plan with the relation replaced wherever it is read.
    #[recursive::recursive]
    pub fn replaced(
        &self,
        plan: LogicalPlan,
        path: &PlanPath,
        by: &dyn Fn(&LogicalPlan) -> Result<LogicalPlan>,
    ) -> Result<Transformed<LogicalPlan>> {
        if self.is(&plan, path) {
            return Ok(Transformed::yes(by(&plan)?));
        }
        let around = plan.clone();
        let mut number = 0;
        let mut next = || {
            number += 1;
            path.below(&around, number - 1)
        };
        plan.map_children(|child| self.replaced(child, &next(), by))?
            .transform_data(|plan| plan.map_subqueries(|subquery| self.replaced(subquery, &next(), by)))
    }
}
