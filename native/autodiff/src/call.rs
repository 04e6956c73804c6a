//! A call of a differential operator, as the planner hands it over and as messages show it.

use datafusion_expr::Expr;
use datafusion_sql::unparser::Unparser;
use std::fmt;

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
    /// is then NULL only where its column is.
    pub total: bool,
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}({}", self.operator, abbreviated(self.expression))?;
        for direction in &self.directions {
            write!(f, ", {}", abbreviated(direction.column))?;
            if let Some(factor) = direction.factor {
                write!(f, ", {}", abbreviated(factor))?;
            }
        }
        write!(f, ")")
    }
}

/// An expression in SQL, cut where it would drown a message.
pub fn abbreviated(expr: &Expr) -> String {
    const LONGEST: usize = 200;
    let sql = Unparser::default().with_pretty(true).expr_to_sql(expr);
    let text = sql.map_or_else(|_| expr.human_display().to_string(), |sql| sql.to_string());
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}
