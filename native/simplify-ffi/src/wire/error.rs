//! Conversion of errors to messages and back.

use std::fmt::Display;

use datafusion_common::DataFusionError;

use crate::wire::{Failure, FailureKind};

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        let (kind, message) = match error {
            DataFusionError::Plan(message) => (FailureKind::Plan, message),
            DataFusionError::NotImplemented(message) => (FailureKind::NotImplemented, message),
            DataFusionError::Configuration(message) => (FailureKind::Configuration, message),
            DataFusionError::Execution(message) => (FailureKind::Execution, message),
            DataFusionError::ResourcesExhausted(message) => (FailureKind::ResourcesExhausted, message),
            DataFusionError::Internal(message) => (FailureKind::Internal, message),
            DataFusionError::Ffi(message) => (FailureKind::Ffi, message),
            DataFusionError::Diagnostic(_, error) => return Self::from(*error),
            error => (FailureKind::Ffi, error.to_string()),
        };
        Self { kind: kind.into(), message }
    }
}

impl From<Failure> for DataFusionError {
    fn from(failure: Failure) -> Self {
        let kind = failure.kind();
        let message = failure.message;
        match kind {
            FailureKind::Plan => Self::Plan(message),
            FailureKind::NotImplemented => Self::NotImplemented(message),
            FailureKind::Configuration => Self::Configuration(message),
            FailureKind::Execution => Self::Execution(message),
            FailureKind::ResourcesExhausted => Self::ResourcesExhausted(message),
            FailureKind::Internal => Self::Internal(message),
            FailureKind::Ffi => Self::Ffi(message),
        }
    }
}

/// Creates the error for bytes that violate the ABI.
pub(crate) fn malformed(what: impl Display) -> DataFusionError {
    DataFusionError::Ffi(format!("malformed simplify message: {what}"))
}
