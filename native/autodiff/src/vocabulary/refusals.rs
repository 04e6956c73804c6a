//! The kinds of refusals.

use datafusion_common::DataFusionError;

/// Why a derivative is refused. A message of a kind begins with its name, by which bindings make exceptions of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// No derivative is known.
    MissingRule,
    /// One cannot differentiate by it.
    Variable,
    /// It is no number.
    NotNumeric,
    /// Derivatives do not see through it.
    UnsupportedRelation,
    /// The session does not simplify calls.
    MissingEngine,
    /// Anything else.
    Other,
}

const ALL: [Refused; 6] = [
    Refused::MissingRule,
    Refused::Variable,
    Refused::NotNumeric,
    Refused::UnsupportedRelation,
    Refused::MissingEngine,
    Refused::Other,
];

impl Refused {
    /// Returns the kind of an error of planning or execution, `None` if it is not about a derivative.
    ///
    /// ```
    /// # use datafusion_common::{DataFusionError, plan_datafusion_err};
    /// # use xql_autodiff::Refused;
    /// let error = plan_datafusion_err!("MissingRuleError: no derivative of floor(x)").context("in a view");
    /// assert_eq!(Refused::from_error(&error), Some(Refused::MissingRule));
    /// assert_eq!(Refused::from_error(&plan_datafusion_err!("no table t")), None);
    /// ```
    pub fn from_error(error: &DataFusionError) -> Option<Self> {
        let (DataFusionError::Plan(message) | DataFusionError::Execution(message)) = error.find_root() else {
            return None;
        };
        ALL.into_iter().find(|kind| message.strip_prefix(kind.name()).is_some_and(|rest| rest.starts_with(": ")))
    }

    /// Returns the prefix of messages of this kind, before a colon, which is also the name of the exception in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::MissingRule => "MissingRuleError",
            Self::Variable => "VariableError",
            Self::NotNumeric => "NotNumericError",
            Self::UnsupportedRelation => "UnsupportedRelationError",
            Self::MissingEngine => "MissingEngineError",
            Self::Other => "DifferentiationError",
        }
    }

    /// Marks an error as one of this kind, unless its message already has a kind, as that of a call in a branch of a UNION does.
    pub fn mark(self, error: DataFusionError) -> DataFusionError {
        match error {
            DataFusionError::Plan(message) => DataFusionError::Plan(self.add_mark(message)),
            DataFusionError::Execution(message) => DataFusionError::Execution(self.add_mark(message)),
            other => other,
        }
    }

    fn add_mark(self, message: String) -> String {
        let known = ALL.into_iter().find_map(|kind| {
            let mark = format!("{}: ", kind.name());
            message.contains(&mark).then(|| (kind, message.replacen(&mark, "", 1)))
        });
        let (kind, message) = known.unwrap_or((self, message));
        format!("{}: {message}", kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Refused;
    use datafusion_common::{exec_datafusion_err, internal_datafusion_err, plan_datafusion_err};

    #[test]
    fn the_first_kind_stays() {
        let marked = Refused::MissingRule.mark(plan_datafusion_err!("f(x): why"));
        let around = plan_datafusion_err!("in a branch: {}", marked.strip_backtrace());
        let marked = Refused::UnsupportedRelation.mark(around).strip_backtrace();
        assert_eq!(marked, "Error during planning: MissingRuleError: in a branch: Error during planning: f(x): why");
    }

    #[test]
    fn mistakes_are_no_refusals() {
        let mistake = Refused::Other.mark(internal_datafusion_err!("a mistake")).strip_backtrace();
        assert!(!mistake.contains("DifferentiationError"), "{mistake}");
        let missing = Refused::MissingEngine.mark(exec_datafusion_err!("not simplified")).strip_backtrace();
        assert_eq!(missing, "Execution error: MissingEngineError: not simplified");
    }
}
