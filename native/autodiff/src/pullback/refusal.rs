//! Why an expression has no derivative.

use datafusion_common::DataFusionError;

use crate::graph::NodeId;

/// Why an expression has no derivative: the facts, for whoever words them.
#[derive(Debug)]
pub enum Refusal {
    /// A decimal that varies with a float.
    Decimal(NodeId),
    /// An expression that varies and has no rule.
    NoRule(NodeId),
    /// An input that varies and is no number, to a function whose rule is over numbers.
    NoNumber {
        /// The input.
        input: NodeId,
        /// The function.
        function: String,
    },
    /// A function that the user gave a rule, though it gives no floats.
    UnusedRule(NodeId),
    /// A formula of a rule that cannot be evaluated over the inputs of this call.
    Formula {
        /// The function.
        function: String,
        /// What is wrong with the formula.
        reason: DataFusionError,
    },
}

/// Why a sweep has stopped.
#[derive(Debug)]
pub enum PullbackError {
    /// There is no derivative.
    Refused(Box<Refusal>),
    /// An expression could not be made.
    Failed(DataFusionError),
}

impl From<DataFusionError> for PullbackError {
    fn from(error: DataFusionError) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for PullbackError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}
