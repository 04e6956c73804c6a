//! A request to the calculus: an expression, and what to differentiate it by.

use datafusion_expr::Expr;
use std::fmt;

use crate::vocabulary::messages::{abbreviate, is_added, truncate};
use crate::vocabulary::transform::Transform;

/// A column to differentiate by, and what its partial derivative is multiplied with: its tangent, or the cotangent of the
/// expression.
pub struct Seed<'a> {
    /// The column.
    pub column: &'a Expr,
    /// `None` for 1.
    pub factor: Option<&'a Expr>,
}

/// A call of a differential operator. Displayed as the SQL it was written as, for error messages.
pub struct Differentiation<'a> {
    /// The name of the operator.
    pub operator: &'a str,
    /// The expression.
    pub expression: &'a Expr,
    /// The columns to differentiate by.
    pub seeds: Vec<Seed<'a>>,
    /// Whether all other columns are known not to vary with those of the seeds.
    pub analyzed: bool,
    /// Whether the seeds are all columns that vary, each with its tangent, so that all others are constants. A tangent
    /// that is carried is then NULL exactly where its column is.
    pub seeds_complete: bool,
}

impl fmt::Display for Differentiation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // What the user has asked for is no derivative along or by what derivatives have added.
        let added = |seed: &Seed| is_added(seed.column) || seed.factor.is_some_and(is_added);
        if let Some(first) = self.seeds.first().filter(|_| self.seeds.iter().any(added)) {
            let (expression, column) = (abbreviate(self.expression), abbreviate(first.column));
            return write!(f, "{}({expression}, {column})", Transform::Grad.name());
        }
        let arguments = self.seeds.iter().flat_map(|seed| [Some(seed.column), seed.factor]);
        let arguments: Vec<_> = arguments.flatten().map(abbreviate).collect();
        write!(f, "{}({}, {})", self.operator, abbreviate(self.expression), truncate(arguments.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_common::Column;
    use datafusion_expr::{col, lit};

    #[test]
    fn what_derivatives_have_added_is_not_shown() {
        let [x, factor, one] = [col("x"), col("y"), lit(1.0)];
        let added = Expr::Column(Column::new(Some("∂rows"), "∂val #2"));
        let shown = |expression: &Expr, column: &Expr, factor: &Expr| {
            let seeds = vec![Seed { column, factor: Some(factor) }];
            Differentiation { operator: "jvp", expression, seeds, analyzed: true, seeds_complete: true }.to_string()
        };
        assert_eq!(shown(&x, &x, &factor), "jvp(x, x, y)");
        assert_eq!(shown(&x, &x, &added), "grad(x, x)");
        assert_eq!(shown(&added, &added, &one), "grad(val, val)");
    }
}
