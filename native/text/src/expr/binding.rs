//! Texts that may be operands.

/// How tightly the outermost operator of a text binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
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
    Closed,
}

/// The text of an expression.
pub struct Text {
    /// The text.
    pub sql: String,
    /// How tightly it binds.
    pub binding: Binding,
}

impl Text {
    /// A text that nothing can be torn out of.
    pub fn closed(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), binding: Binding::Closed }
    }

    /// A text whose outermost operator binds so.
    pub fn at(binding: Binding, sql: String) -> Self {
        Self { sql, binding }
    }

    /// The text where what binds less needs parentheses.
    pub fn within(self, least: Binding) -> String {
        if self.binding >= least { self.sql } else { format!("({})", self.sql) }
    }
}
