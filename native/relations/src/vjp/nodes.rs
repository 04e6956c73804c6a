//! The nodes of a plan: which are the same relation, and which read a variable.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::LogicalPlan;
use datafusion_expr::logical_plan::Subquery;
use std::collections::HashMap;
use std::sync::Arc;

use crate::shared_relation::SharedRelation;
use crate::vocabulary::identity::{IdentityKey, PlanPath};

/// The identity of a node, and whether it reads a variable.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Equal nodes have the same number: DataFusion plans a CTE again for each reader.
    pub id: usize,
    /// Whether it, a subquery or a shared relation in it reads the rows of a variable.
    pub reads: bool,
}

/// Whether a node scans the rows of a variable.
type IsVariable<'v> = &'v dyn Fn(&LogicalPlan) -> bool;

/// The nodes of the current plan, numbered by what they compute (value numbering).
#[derive(Debug, Default)]
pub struct Nodes {
    /// The numbers of nodes. The key is a node without its inputs, what equality ignores, and the numbers of the
    /// inputs.
    ids: HashMap<(LogicalPlan, IdentityKey, Vec<usize>), usize>,
    /// The numbers of shared relations.
    relations: Vec<(Arc<SharedRelation>, usize)>,
    /// The number of the next node.
    count: usize,
    /// How often each node occurs in the current plan.
    times: HashMap<usize, usize>,
    /// The plans that replace nodes of the current plan. They are kept alive because nodes are identified by address.
    kept: Vec<Arc<LogicalPlan>>,
    /// The path to the current node.
    path: PlanPath,
    /// The nodes by address. An address identifies a node as long as the plan is alive.
    seen: HashMap<*const LogicalPlan, Node>,
}

impl Nodes {
    /// Starts with another plan, and forgets the addresses of the last one.
    pub fn enter(&mut self, plan: &LogicalPlan, is_variable: IsVariable) -> Result<Node> {
        self.seen.clear();
        self.path = PlanPath::default();
        self.kept.clear();
        self.times.clear();
        self.identify(plan, is_variable)
    }

    /// Returns how often the plan has a node.
    pub fn times(&self, node: Node) -> usize {
        self.times.get(&node.id).copied().unwrap_or_default()
    }

    /// Keeps alive a plan that replaces a node.
    pub fn keep(&mut self, plan: LogicalPlan) -> Arc<LogicalPlan> {
        let plan = Arc::new(plan);
        self.kept.push(Arc::clone(&plan));
        plan
    }

    /// Keeps alive the plans that `other` keeps alive.
    pub fn keep_those_of(&mut self, other: &Self) {
        self.kept.extend(other.kept.iter().cloned());
    }

    /// Returns a node of the plan that has been entered, or of a relation that it reads.
    #[recursive::recursive]
    pub fn identify(&mut self, plan: &LogicalPlan, is_variable: IsVariable) -> Result<Node> {
        if let Some(node) = self.seen.get(&std::ptr::from_ref(plan)) {
            return Ok(*node);
        }
        if let Some(relation) = SharedRelation::scanned_by(plan) {
            // Each scan gives the columns names of its own.
            let path = std::mem::take(&mut self.path);
            let reads = is_variable(plan) || self.identify(relation.plan(), is_variable)?.reads;
            self.path = path;
            let known = self.relations.iter().find(|(known, _)| Arc::ptr_eq(known, &relation)).map(|(_, id)| *id);
            let id = known.unwrap_or_else(|| self.next());
            if known.is_none() {
                self.relations.push((relation, id));
            }
            return Ok(Node { id, reads });
        }
        let mut reads = false;
        let mut inputs = vec![];
        let path = std::mem::take(&mut self.path);
        let mut visit = |input: &LogicalPlan| {
            let input = match input {
                LogicalPlan::Subquery(Subquery { subquery, .. }) => subquery,
                other => other,
            };
            self.path = path.below(plan, inputs.len());
            let node = self.identify(input, is_variable)?;
            *self.times.entry(node.id).or_default() += 1;
            reads |= node.reads;
            inputs.push(node.id);
            Ok(TreeNodeRecursion::Continue)
        };
        plan.apply_children(&mut visit)?;
        plan.apply_subqueries(&mut visit)?;
        self.path = path.clone();
        let alone = plan.clone().map_children(|_| Ok(Transformed::yes(LogicalPlan::default())))?.data;
        let next = self.next();
        let id = *self.ids.entry((alone, IdentityKey::new(plan, &path), inputs)).or_insert(next);
        let node = Node { id, reads };
        self.seen.insert(plan, node);
        Ok(node)
    }

    fn next(&mut self) -> usize {
        self.count += 1;
        self.count
    }
}
