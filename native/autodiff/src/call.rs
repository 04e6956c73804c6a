//! A call of a differential operator, as the planner hands it over and as messages show it.

use datafusion_expr::Expr;
use std::fmt;

use crate::vocabulary::messages::{abbreviated, cut};

/// What to do where one node of a plan does not tell how a value was computed.
pub const SEE_ALL_NODES: &str = "Add the analyzer rule that sees all nodes to the session (in Python, register the operator with \
                                 it), or move the derivative inside (avg(grad(f, x)) instead of grad(avg(f), x))";

/// A column to differentiate by, and what its partial derivative is multiplied with.
pub struct Direction<'a> {
    pub column: &'a Expr,
    pub factor: Option<&'a Expr>,
}

/// A call of a differential operator. Displayed as the SQL it was written as, for error messages.
pub struct Call<'a> {
    pub operator: &'a str,
    pub expression: &'a Expr,
    pub directions: Vec<Direction<'a>>,
    /// Whether the directions are all columns that vary, each with its tangent, so that all others are constants. A tangent
    /// that is carried is then NULL exactly where its column is.
    pub total: bool,
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let directions = self.directions.iter().flat_map(|direction| [Some(direction.column), direction.factor]);
        let directions: Vec<_> = directions.flatten().map(abbreviated).collect();
        write!(f, "{}({}, {})", self.operator, abbreviated(self.expression), cut(directions.join(", ")))
    }
}
