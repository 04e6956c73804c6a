//! Texts that may be operands.

/// How tightly the outermost operator of a text binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    /// The parser takes all that follows for its right side.
    Open,
    /// `OR`.
    Or,
    /// `AND`.
    And,
    /// `NOT`.
    Not,
    /// Comparisons, and all operators that are rare.
    Comparison,
    /// `+` and `-`.
    Sum,
    /// `*`, `/` and `%`.
    Product,
    /// `-` before its operand.
    Sign,
    /// Nothing can be torn out of it.
    Atom,
}

/// The text of an expression.
pub struct SqlText {
    /// The text.
    pub sql: String,
    /// How tightly it binds.
    pub precedence: Precedence,
}

impl SqlText {
    /// A text that nothing can be torn out of.
    pub fn atom(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), precedence: Precedence::Atom }
    }

    /// A text whose outermost operator binds so.
    pub fn new(precedence: Precedence, sql: String) -> Self {
        Self { sql, precedence }
    }

    /// The text where what binds less needs parentheses.
    pub fn parenthesize(self, least: Precedence) -> String {
        if self.precedence >= least { self.sql } else { format!("({})", self.sql) }
    }
}
