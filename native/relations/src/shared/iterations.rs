//! Nodes for the iterations of a recursive query that are kept, and for their adjoint.

use datafusion_catalog::Session;
use datafusion_common::{DFSchemaRef, Result, internal_err};
use datafusion_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion_physical_plan::ExecutionPlan;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::given::Given;
use crate::physical::{AdjointExec, TapeExec};

/// The iterations of a recursive query, as the plan of a shared relation.
#[derive(Debug, Clone)]
pub struct Iterations {
    /// The name of the recursive query.
    name: String,
    kind: Kind,
    /// What an iteration is given.
    given: Given,
    inputs: Vec<LogicalPlan>,
    schema: DFSchemaRef,
}

/// What is done with the iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// They are run.
    Tape,
    /// Cotangents are carried back through them.
    Adjoint,
}

impl Iterations {
    /// The rows of all iterations. `start` are the first rows, and `step` those after the rows that are given; both have one more
    /// column, which numbers them.
    pub fn tape(name: &str, work: Given, start: LogicalPlan, step: LogicalPlan, schema: DFSchemaRef) -> LogicalPlan {
        Self { name: name.to_owned(), kind: Kind::Tape, given: work, inputs: vec![start, step], schema }.plan()
    }

    /// What the iterations contribute to what they read: `tape` are their rows, `outside` the cotangents of these by their numbers,
    /// and `step` is what an iteration contributes for the cotangents that are given, as [`AdjointExec`] says.
    pub fn adjoint(
        name: &str,
        incoming: Given,
        [tape, outside, step]: [LogicalPlan; 3],
        schema: DFSchemaRef,
    ) -> LogicalPlan {
        Self { name: name.to_owned(), kind: Kind::Adjoint, given: incoming, inputs: vec![tape, outside, step], schema }
            .plan()
    }

    fn plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// The iterations that a node is.
    pub fn of(node: &LogicalPlan) -> Option<&Self> {
        let LogicalPlan::Extension(extension) = node else { return None };
        extension.node.as_any().downcast_ref()
    }

    /// The name of the recursive query.
    pub fn query(&self) -> &str {
        &self.name
    }

    /// The physical plan.
    ///
    /// # Errors
    /// If an input cannot be planned.
    pub async fn planned(&self, state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let mut inputs = vec![];
        for input in &self.inputs {
            inputs.push(state.create_physical_plan(input).await?);
        }
        let (name, schema) = (self.name.as_str(), Arc::clone(self.schema.inner()));
        match (self.kind, inputs.as_slice()) {
            (Kind::Tape, [start, step]) => {
                let inputs = [start, step].map(Arc::clone);
                Ok(Arc::new(TapeExec::new(name, self.given.id(), inputs, schema)))
            }
            (Kind::Adjoint, [tape, outside, step]) => {
                let inputs = [tape, outside, step].map(Arc::clone);
                let incoming = (self.given.id(), Arc::clone(self.given.schema()));
                Ok(Arc::new(AdjointExec::new(name, incoming, inputs, schema)))
            }
            _ => internal_err!("the iterations of {name} have lost an input"),
        }
    }

    fn key(&self) -> (&str, Kind, &[LogicalPlan]) {
        (&self.name, self.kind, &self.inputs)
    }
}

impl PartialEq for Iterations {
    fn eq(&self, other: &Self) -> bool {
        self.given.id() == other.given.id() && self.key() == other.key()
    }
}

impl Eq for Iterations {}

impl PartialOrd for Iterations {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let order = self.given.id().cmp(&other.given.id());
        Some(order).filter(|order| order.is_ne() || self == other)
    }
}

impl Hash for Iterations {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl UserDefinedLogicalNodeCore for Iterations {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Tape => "Iterations",
            Kind::Adjoint => "Adjoint",
        }
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", UserDefinedLogicalNodeCore::name(self), self.name)
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { inputs, ..self.clone() })
    }
}
