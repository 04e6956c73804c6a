//! The differential operators: names and arguments.

use datafusion_common::{Result, plan_err};

/// A differential operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    Grad,
    Jvp,
    Vjp,
    Tangent,
}

impl Operator {
    pub fn name(self) -> &'static str {
        match self {
            Self::Grad => "grad",
            Self::Jvp | Self::Tangent => "jvp",
            Self::Vjp => "vjp",
        }
    }

    pub fn usage(self) -> &'static str {
        match self {
            Self::Grad => "grad(expression, column)",
            Self::Jvp | Self::Tangent => "jvp(expression, column, tangent[, column, tangent, ...])",
            Self::Vjp => "vjp(expression, column, cotangent)",
        }
    }

    /// The error of a call with `count` arguments, if that is not a number of arguments this operator takes.
    pub fn check_arity(self, count: usize) -> Result<()> {
        let fits = match self {
            Self::Grad => count == 2,
            Self::Jvp | Self::Tangent => count >= 3 && count % 2 == 1,
            Self::Vjp => count == 3,
        };
        if fits {
            Ok(())
        } else {
            plan_err!("{} was given {count} argument(s); it is called as {}", self.name(), self.usage())
        }
    }

    /// Splits the arguments after the first into columns and what each is multiplied with.
    pub fn pairs<T>(self, arguments: &[T]) -> Vec<(&T, Option<&T>)> {
        match self {
            Self::Grad => arguments.iter().map(|column| (column, None)).collect(),
            Self::Jvp | Self::Vjp | Self::Tangent => arguments.chunks(2).map(|pair| (&pair[0], pair.get(1))).collect(),
        }
    }
}

/// Whether a function of this name is an operator.
pub fn is_operator(name: &str) -> bool {
    [Operator::Grad, Operator::Jvp, Operator::Vjp].iter().any(|operator| operator.name() == name)
}
