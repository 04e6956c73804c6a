//! Where an expression is NULL, and how its derivative is made NULL exactly there.
//!
//! Arithmetic and most functions are strict: NULL exactly where an operand is. So an expression is NULL exactly where
//! one of its *sources* is: a nullable column, or a sub-expression that can be NULL for reasons of its own, such as
//! CASE. A derivative that lacks a source of its primal (`y` lacks `x` in the derivative of `x * y`) is guarded by it;
//! one that reads all of them costs nothing.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};
use std::collections::{BTreeSet, HashMap};

use crate::dag::{Dag, NodeId};
use crate::rules;
use crate::variable::is_float;

/// The nodes any of which being NULL makes an expression NULL.
pub type Sources = BTreeSet<NodeId>;

/// The sources of all nodes asked for so far.
#[derive(Debug, Default)]
pub struct NullSets {
    known: HashMap<NodeId, Sources>,
}

impl NullSets {
    /// The sources of a node.
    pub fn of(&mut self, dag: &Dag, root: NodeId) -> Result<Sources> {
        if !self.known.contains_key(&root) {
            for id in dag.reachable(root) {
                if !self.known.contains_key(&id) {
                    let sources = self.inherited(dag, id)?;
                    self.known.insert(id, sources);
                }
            }
        }
        Ok(self.known.get(&root).cloned().unwrap_or_default())
    }

    /// Records that a node is NULL exactly where `like` is.
    pub fn equate(&mut self, dag: &Dag, id: NodeId, like: NodeId) -> Result<()> {
        let sources = self.of(dag, like)?;
        self.known.insert(id, sources);
        Ok(())
    }

    fn inherited(&self, dag: &Dag, id: NodeId) -> Result<Sources> {
        let node = dag.node(id);
        if is_strict(dag, id)? {
            Ok(node.children.iter().filter_map(|child| self.known.get(child)).flatten().copied().collect())
        } else if node.field.is_nullable() {
            Ok(Sources::from([id]))
        } else {
            Ok(Sources::new())
        }
    }

    /// `derivative`, NULL wherever one of the `required` sources is.
    pub fn guard(&mut self, dag: &mut Dag, derivative: NodeId, required: &Sources) -> Result<NodeId> {
        if required.iter().any(|source| is_null(dag, *source)) {
            return dag.null();
        }
        let present = self.of(dag, derivative)?;
        let mut condition = None;
        for source in required.difference(&present) {
            let holds = dag.is_not_null(*source)?;
            condition = Some(match condition {
                None => holds,
                Some(others) => dag.and(others, holds)?,
            });
        }
        match condition {
            None => Ok(derivative),
            Some(condition) => dag.case(&[(condition, derivative)], None),
        }
    }

    /// The sources that are not NULL where a condition holds.
    pub fn ruled_out_by(&mut self, dag: &Dag, condition: NodeId) -> Result<Sources> {
        let node = dag.node(condition);
        let holds_only_for_values = match &node.shape {
            Expr::IsNotNull(_) => true,
            Expr::BinaryExpr(binary) => matches!(
                binary.op,
                Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
            ),
            _ => false,
        };
        let conjunction = matches!(&node.shape, Expr::BinaryExpr(binary) if binary.op == Operator::And);
        let mut sources = Sources::new();
        for child in &node.children {
            if conjunction {
                sources.extend(self.ruled_out_by(dag, *child)?);
            } else if holds_only_for_values {
                sources.extend(self.of(dag, *child)?);
            }
        }
        Ok(sources)
    }

    /// `derivative`, which cannot be NULL, in a form that the planner sees cannot be.
    pub fn assert_never(&mut self, dag: &mut Dag, derivative: NodeId) -> Result<NodeId> {
        let zero = dag.number(0.0)?;
        let holds = dag.is_not_null(derivative)?;
        dag.case(&[(holds, derivative)], Some(zero))
    }
}

fn is_null(dag: &Dag, id: NodeId) -> bool {
    matches!(&dag.node(id).shape, Expr::Literal(scalar, _) if scalar.is_null())
}

/// Whether a node is NULL exactly where one of its children is.
fn is_strict(dag: &Dag, id: NodeId) -> Result<bool> {
    let node = dag.node(id);
    Ok(match &node.shape {
        Expr::Negative(_) | Expr::Cast(_) => true,
        // A conversion between floats never fails.
        Expr::TryCast(_) => is_float(node.field.data_type()) && is_float(dag.data_type(node.children[0])),
        Expr::BinaryExpr(binary) => matches!(
            binary.op,
            Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
        ),
        Expr::ScalarFunction(call) => rules::of_function(&call.func, call.args.len())?.is_some_and(|rule| rule.strict),
        _ => false,
    })
}
