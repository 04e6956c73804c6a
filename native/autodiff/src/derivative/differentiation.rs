//! What is asked of the calculus: an expression, and what to differentiate it by.

use datafusion_expr::Expr;
use std::fmt;

use crate::vocabulary::messages::{abbreviated, cut};

/// A column to differentiate by, and what its partial derivative is multiplied with: its tangent, or the cotangent of the
/// expression.
pub struct Seed<'a> {
    /// The column.
    pub column: &'a Expr,
    /// 1 if there is none.
    pub factor: Option<&'a Expr>,
}

/// A call of a differential operator. Displayed as the SQL it was written as, for error messages.
pub struct Differentiation<'a> {
    /// The name of the operator.
    pub operator: &'a str,
    /// What is differentiated.
    pub expression: &'a Expr,
    /// What it is differentiated by.
    pub seeds: Vec<Seed<'a>>,
    /// Whether all other columns are known not to vary with those of the seeds.
    pub analyzed: bool,
    /// Whether the seeds are all columns that vary, each with its tangent, so that all others are constants. A tangent
    /// that is carried is then NULL exactly where its column is.
    pub total: bool,
}

impl fmt::Display for Differentiation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let arguments = self.seeds.iter().flat_map(|seed| [Some(seed.column), seed.factor]);
        let arguments: Vec<_> = arguments.flatten().map(abbreviated).collect();
        write!(f, "{}({}, {})", self.operator, abbreviated(self.expression), cut(arguments.join(", ")))
    }
}
