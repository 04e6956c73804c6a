//! The precedence of operators in SQL text.

/// The precedence of the outermost operator of a text, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    /// The parser takes all that follows as the right operand.
    Open,
    /// `OR`.
    Or,
    /// `AND`.
    And,
    /// `NOT`.
    Not,
    /// Comparisons and rare operators.
    Comparison,
    /// `+` and `-`.
    Sum,
    /// `*`, `/` and `%`.
    Product,
    /// A unary `-`.
    Sign,
    /// No operator: a name, a call, or a text in parentheses.
    Atom,
}

/// The text of an expression with its precedence.
pub struct SqlText {
    /// The text.
    pub sql: String,
    /// The precedence of its outermost operator.
    pub precedence: Precedence,
}

impl SqlText {
    /// Creates the text of an atom.
    pub fn atom(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), precedence: Precedence::Atom }
    }

    /// Creates a text whose outermost operator has this precedence.
    pub fn new(precedence: Precedence, sql: String) -> Self {
        Self { sql, precedence }
    }

    /// Returns the text, in parentheses if its precedence is lower than `least`.
    pub fn parenthesize(self, least: Precedence) -> String {
        if self.precedence >= least { self.sql } else { format!("({})", self.sql) }
    }
}
