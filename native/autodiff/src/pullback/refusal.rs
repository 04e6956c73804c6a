//! Reasons why an expression has no derivative.

use datafusion_common::DataFusionError;

use crate::graph::NodeId;

/// The reason why an expression has no derivative, without words.
#[derive(Debug)]
pub enum Refusal {
    /// A decimal that varies with a float.
    Decimal(NodeId),
    /// An expression that varies and has no rule.
    NoRule(NodeId),
    /// A varying input that is no number, of a function whose rule is over numbers.
    NoNumber {
        /// The input.
        input: NodeId,
        /// The function.
        function: String,
    },
    /// A function with a user rule that returns no floats.
    UnusedRule(NodeId),
    /// A formula of a rule that cannot be evaluated over the inputs of this call.
    Formula {
        /// The function.
        function: String,
        /// What is wrong with the formula.
        reason: DataFusionError,
    },
}

/// The error of a sweep.
#[derive(Debug)]
pub enum PullbackError {
    /// There is no derivative.
    Refused(Box<Refusal>),
    /// An expression could not be built.
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
