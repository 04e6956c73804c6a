//! A call of an operator, and the sum of `jvp` that replaces it.

use datafusion_common::{Column, DFSchema, Result, internal_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{Expr, ExprSchemable, Operator, ScalarUDF, binary_expr, lit};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::messages::abbreviate;
use xql_autodiff::vocabulary::transform::Transform;

use crate::tangents::linearize::check_subqueries;
use crate::tangents::tangent::Tangent;
use crate::vocabulary::expressions::unaliased;

/// The columns that vary with one variable, with their tangents.
pub type TangentsOf = Vec<(Column, Tangent)>;

/// A parsed call: the derivative of a function as a sum over variables.
///
/// ```sql
/// grad(f, x)                  -- the partial derivative by x
/// jvp(f, x, t, y, u)          -- t times that by x, and u times that by y
/// vjp(f, x, c)                -- c times that by x
/// ```
#[derive(Debug)]
pub struct DirectionalDerivative<'c> {
    /// The call itself.
    pub call: &'c Expr,
    /// The operator.
    pub transform: Transform,
    /// The expression to differentiate.
    pub function: &'c Expr,
    /// The terms of the sum.
    pub terms: Vec<Term<'c>>,
}

/// A partial derivative times its seed.
#[derive(Debug)]
pub struct Term<'c> {
    /// The column to differentiate by.
    pub variable: &'c Expr,
    /// The tangent of the variable, or the cotangent of the function; 1 if there is none.
    pub seed: Option<&'c Expr>,
}

impl<'c> DirectionalDerivative<'c> {
    /// Parses a call. Returns `None` if arguments are missing, which `simplify` reports.
    pub fn parse(call: &'c Expr) -> Option<Self> {
        let Expr::ScalarFunction(ScalarFunction { func, args }) = call else { return None };
        let transform = Transform::from_key(func.name())?;
        let (function, arguments) = args.split_first()?;
        let terms = transform.seeds(arguments).into_iter();
        let terms: Vec<_> = terms.map(|(variable, seed)| Term { variable: unaliased(variable), seed }).collect();
        (!terms.is_empty()).then_some(Self { call, transform, function, terms })
    }

    /// Returns whether the seeds are tangents, along which all rows move, as for `jvp`.
    pub fn is_along_tangents(&self) -> bool {
        self.transform == Transform::Jvp
    }

    /// Returns whether `simplify` can expand the call by its node alone: no column has a tangent, and all columns are
    /// qualified, so that none looks like a computed one.
    pub fn is_local(&self, tangents: &[TangentsOf]) -> bool {
        tangents.iter().all(Vec::is_empty) && columns_read(self.function).iter().all(|column| column.relation.is_some())
    }

    /// Returns the arguments of `jvp` for each term: `function, variable, 1, column, tangent, ...`.
    pub fn arguments(&self, tangents: &[TangentsOf]) -> Result<Vec<Vec<Expr>>> {
        let mut calls = vec![];
        for (term, tangents) in self.terms.iter().zip(tangents) {
            let mut arguments = vec![self.function.clone(), term.variable.clone(), lit(1.0)];
            for (column, tangent) in tangents {
                arguments.extend([Expr::Column(column.clone()), factor(tangent)?]);
            }
            check_subqueries(&arguments)?;
            calls.push(arguments);
        }
        Ok(calls)
    }

    /// Emits the sum of `seed * jvp(arguments)` over the terms, for inputs of this schema, plus the `jvp` along the
    /// columns whose tangents are along the seeds already.
    pub fn emit(
        &self,
        arguments: Vec<Vec<Expr>>,
        seeded: TangentsOf,
        jvp: &Arc<ScalarUDF>,
        schema: &DFSchema,
    ) -> Result<Expr> {
        let result = self.call.get_type(schema)?;
        let mut terms = vec![];
        for (term, arguments) in self.terms.iter().zip(arguments) {
            let partial = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(jvp), arguments));
            terms.push(match term.seed {
                None => partial,
                Some(seed) => {
                    let seed = seed.clone().cast_to(&partial.get_type(schema)?, schema)?;
                    binary_expr(seed, Operator::Multiply, partial)
                }
            });
        }
        for (column, tangent) in seeded {
            let arguments = vec![self.function.clone(), Expr::Column(column), factor(&tangent)?];
            terms.push(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(jvp), arguments)));
        }
        // Terms may be REAL and DOUBLE. Types have been coerced before, so the sum needs its casts here.
        let mut sum: Option<Expr> = None;
        for term in terms {
            let term = term.cast_to(&result, schema)?;
            sum = Some(match sum {
                None => term,
                Some(sum) => binary_expr(sum, Operator::Plus, term),
            });
        }
        sum.map_or_else(|| internal_err!("{} has no variable", abbreviate(self.call)), Ok)
    }
}

/// Returns a tangent as an argument of `jvp`.
fn factor(tangent: &Tangent) -> Result<Expr> {
    match tangent {
        Tangent::Zero => Ok(lit(0.0)),
        Tangent::One => Ok(lit(1.0)),
        Tangent::Column(tangent) => tangent.factor(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_expr::col;

    fn call(name: &str, arguments: Vec<Expr>) -> Expr {
        let function = xql_autodiff::functions().into_iter().find(|function| function.name() == name);
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function.expect("an operator")), arguments))
    }

    /// Variables with their seeds.
    type Shown = Vec<(String, Option<String>)>;

    fn terms(call: &Expr) -> Option<(bool, Shown)> {
        let derivative = DirectionalDerivative::parse(call)?;
        let terms = derivative.terms.iter();
        let terms = terms.map(|term| (term.variable.to_string(), term.seed.map(ToString::to_string)));
        Some((derivative.is_along_tangents(), terms.collect()))
    }

    #[test]
    fn calls_are_sums_over_variables() {
        let pair = |variable: &str, seed: Option<&str>| (variable.to_owned(), seed.map(str::to_owned));
        let named = col("x").alias("y");
        assert_eq!(terms(&call("grad", vec![col("f"), named])), Some((false, vec![pair("x", None)])));
        let seeded = vec![pair("x", Some("t")), pair("y", Some("u"))];
        let arguments = ["f", "x", "t", "y", "u"].map(col).to_vec();
        assert_eq!(terms(&call("jvp", arguments)), Some((true, seeded)));
        let pulled = call("vjp", ["f", "x", "c"].map(col).to_vec());
        assert_eq!(terms(&pulled), Some((false, vec![pair("x", Some("c"))])));
        assert_eq!(terms(&call("grad", vec![col("f")])), None);
        assert_eq!(terms(&col("f")), None);
    }
}
