//! Errors on their way across the boundary, and the end of panics.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use datafusion_common::{DataFusionError, Result};

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

/// The error for bytes that are not what the ABI says.
pub(crate) fn malformed(what: impl Display) -> DataFusionError {
    DataFusionError::Ffi(format!("malformed simplify message: {what}"))
}

/// Runs `work`; a panic becomes an error that names what was being done.
pub(crate) fn guard<T>(what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic_message(panic.as_ref()).to_owned();
        // A payload may panic when dropped, which would unwind after all.
        std::mem::forget(panic);
        Err(DataFusionError::Ffi(format!("{what} panicked: {message}")))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    if let Some(message) = panic.downcast_ref::<&str>() {
        message
    } else if let Some(message) = panic.downcast_ref::<String>() {
        message
    } else {
        "(no message)"
    }
}
