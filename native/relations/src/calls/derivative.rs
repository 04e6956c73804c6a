//! A call of an operator, and the sum of `jvp` that stands for it.

use datafusion_common::{Column, DFSchema, Result, internal_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{Expr, ExprSchemable, Operator, ScalarUDF, binary_expr, lit};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::messages::abbreviated;

use crate::tangents::linearize::check_subqueries;
use crate::tangents::tangent::Tangent;
use crate::vocabulary::expressions::unaliased;

/// The columns that vary with one variable, with their tangents.
pub type TangentsOf = Vec<(Column, Tangent)>;

/// What a call says: the derivative of a function in some directions.
///
/// ```sql
/// grad(f, x)                  -- x
/// jvp(f, x, t, y, u)          -- t times x, u times y
/// vjp(f, x, c)                -- c times x
/// ```
#[derive(Debug)]
pub struct DirectionalDerivative<'c> {
    pub call: &'c Expr,
    pub function: &'c Expr,
    pub directions: Vec<Direction<'c>>,
}

/// A column to differentiate by, and what the partial derivative is multiplied with.
#[derive(Debug)]
pub struct Direction<'c> {
    pub variable: &'c Expr,
    pub seed: Option<&'c Expr>,
}

impl<'c> DirectionalDerivative<'c> {
    /// Reads a call; nothing if arguments are missing, which `simplify` says.
    pub fn parse(call: &'c Expr) -> Option<Self> {
        let Expr::ScalarFunction(ScalarFunction { args, .. }) = call else { return None };
        let (function, directions) = args.split_first()?;
        let directions = match directions {
            [] => return None,
            [variable] => vec![Direction { variable: unaliased(variable), seed: None }],
            pairs => {
                let pairs = pairs.chunks(2);
                pairs.map(|pair| Direction { variable: unaliased(&pair[0]), seed: pair.get(1) }).collect()
            }
        };
        Some(Self { call, function, directions })
    }

    /// Whether it is `jvp`, whose directions move all rows.
    pub fn is_along_directions(&self) -> bool {
        matches!(self.call, Expr::ScalarFunction(call) if call.func.name() == "jvp")
    }

    /// Whether the node of the call says all of it, and no column looks as if it were computed, which it has turned out not to
    /// be.
    pub fn is_local(&self, tangents: &[TangentsOf]) -> bool {
        tangents.iter().all(Vec::is_empty) && columns_read(self.function).iter().all(|column| column.relation.is_some())
    }

    /// What `jvp` is called with for each direction: `function, variable, 1, column, tangent, ...`.
    pub fn arguments(&self, tangents: &[TangentsOf]) -> Result<Vec<Vec<Expr>>> {
        let mut calls = vec![];
        for (direction, tangents) in self.directions.iter().zip(tangents) {
            let mut arguments = vec![self.function.clone(), direction.variable.clone(), lit(1.0)];
            for (column, tangent) in tangents {
                arguments.extend([Expr::Column(column.clone()), factor(tangent)]);
            }
            check_subqueries(&arguments)?;
            calls.push(arguments);
        }
        Ok(calls)
    }

    /// The sum of `seed * jvp(arguments)` over the directions, for inputs of this schema, and of `jvp` along the tangents of columns
    /// that have the seeds in them.
    pub fn emit(
        &self,
        arguments: Vec<Vec<Expr>>,
        seeded: TangentsOf,
        jvp: &Arc<ScalarUDF>,
        schema: &DFSchema,
    ) -> Result<Expr> {
        let result = self.call.get_type(schema)?;
        let mut terms = vec![];
        for (direction, arguments) in self.directions.iter().zip(arguments) {
            let partial = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(jvp), arguments));
            terms.push(match direction.seed {
                None => partial,
                Some(seed) => {
                    let seed = seed.clone().cast_to(&partial.get_type(schema)?, schema)?;
                    binary_expr(seed, Operator::Multiply, partial)
                }
            });
        }
        for (column, tangent) in seeded {
            let arguments = vec![self.function.clone(), Expr::Column(column), factor(&tangent)];
            terms.push(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(jvp), arguments)));
        }
        // The one may be REAL where the other is DOUBLE, and types have been coerced before.
        let mut sum: Option<Expr> = None;
        for term in terms {
            let term = term.cast_to(&result, schema)?;
            sum = Some(match sum {
                None => term,
                Some(sum) => binary_expr(sum, Operator::Plus, term),
            });
        }
        sum.map_or_else(|| internal_err!("{} has no direction", abbreviated(self.call)), Ok)
    }
}

/// A tangent as an argument of `jvp`.
fn factor(tangent: &Tangent) -> Expr {
    match tangent {
        Tangent::Zero => lit(0.0),
        Tangent::One => lit(1.0),
        Tangent::Column(tangent) => Expr::Column(tangent.clone()),
    }
}
