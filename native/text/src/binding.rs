//! Texts that may be operands.

/// How tightly the outermost operator of a text binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
    /// The parser takes all that follows for its right side.
    Open,
    Or,
    And,
    Not,
    /// Comparisons, and all operators that are rare.
    Comparison,
    Sum,
    Product,
    Sign,
    /// Nothing can be torn out of it.
    Closed,
}

pub struct Text {
    pub sql: String,
    pub binding: Binding,
}

impl Text {
    pub fn closed(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), binding: Binding::Closed }
    }

    pub fn at(binding: Binding, sql: String) -> Self {
        Self { sql, binding }
    }

    /// The text where what binds less needs parentheses.
    pub fn within(self, least: Binding) -> String {
        if self.binding >= least { self.sql } else { format!("({})", self.sql) }
    }
}
