//! The differential operators as transformations of an expression: their names and arguments.

use datafusion_common::{Result, plan_err};

use super::plural::count_noun;

/// A transformation of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transform {
    /// The derivative by a column.
    Grad,
    /// The directional derivative along tangents of columns.
    Jvp,
    /// The cotangent of the expression pulled back to a column.
    Vjp,
    /// [`Jvp`](Self::Jvp) along the tangents of all columns that vary, as the analyzer rule emits it.
    Tangent,
}

impl Transform {
    /// Returns the name of the operator in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grad => "grad",
            Self::Jvp | Self::Tangent => "jvp",
            Self::Vjp => "vjp",
        }
    }

    /// Returns its key in a batch request.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tangent => "tangent",
            other => other.name(),
        }
    }

    /// Returns the transformation of a key.
    pub fn from_key(key: &str) -> Option<Self> {
        [Self::Grad, Self::Jvp, Self::Vjp, Self::Tangent].into_iter().find(|transform| transform.key() == key)
    }

    /// Returns how the operator is called.
    pub fn usage(self) -> &'static str {
        match self {
            Self::Grad => "grad(expression, column)",
            Self::Jvp | Self::Tangent => "jvp(expression, column, tangent[, column, tangent, ...])",
            Self::Vjp => "vjp(expression, column, cotangent)",
        }
    }

    /// Checks that this operator takes `count` arguments.
    ///
    /// # Errors
    /// A plan error that shows how the operator is called.
    pub fn check_arity(self, count: usize) -> Result<()> {
        let fits = match self {
            Self::Grad => count == 2,
            Self::Jvp | Self::Tangent => count >= 3 && count % 2 == 1,
            Self::Vjp => count == 3,
        };
        if fits {
            Ok(())
        } else {
            let (given, is) = (count_noun(count, "argument"), if count == 1 { "is" } else { "are" });
            plan_err!("{given} {is} given to {}; call it as {}", self.name(), self.usage())
        }
    }

    /// Splits the arguments after the first into columns and what each is seeded with: its tangent, or the cotangent.
    pub fn seeds<T>(self, arguments: &[T]) -> Vec<(&T, Option<&T>)> {
        match self {
            Self::Grad => arguments.iter().map(|column| (column, None)).collect(),
            Self::Jvp | Self::Vjp | Self::Tangent => arguments.chunks(2).map(|pair| (&pair[0], pair.get(1))).collect(),
        }
    }
}

/// Returns whether a function of this name is a differential operator.
pub fn is_transform(name: &str) -> bool {
    [Transform::Grad, Transform::Jvp, Transform::Vjp].iter().any(|transform| transform.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_columns_with_their_seeds() {
        assert_eq!(Transform::Grad.seeds(&["x"]), [(&"x", None)]);
        assert_eq!(Transform::Vjp.seeds(&["x", "c"]), [(&"x", Some(&"c"))]);
        assert_eq!(Transform::Jvp.seeds(&["x", "t", "y", "u"]), [(&"x", Some(&"t")), (&"y", Some(&"u"))]);
    }

    #[test]
    fn each_operator_takes_its_numbers_of_arguments() {
        let taken =
            |transform: Transform| (0..8).filter(|count| transform.check_arity(*count).is_ok()).collect::<Vec<_>>();
        assert_eq!(taken(Transform::Grad), [2]);
        assert_eq!(taken(Transform::Vjp), [3]);
        assert_eq!(taken(Transform::Jvp), [3, 5, 7]);
    }

    #[test]
    fn keys_lead_back() {
        for transform in [Transform::Grad, Transform::Jvp, Transform::Vjp, Transform::Tangent] {
            assert_eq!(Transform::from_key(transform.key()), Some(transform));
            assert!(is_transform(transform.name()));
        }
        assert!(Transform::from_key("sin").is_none() && !is_transform("tangent"));
    }
}
