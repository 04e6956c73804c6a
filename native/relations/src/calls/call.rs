//! A call whose variables are known.

use datafusion_common::Result;
use datafusion_expr::{Expr, ScalarUDF};
use std::sync::Arc;

use super::context::Context;
use super::derivative::{DirectionalDerivative, Term};
use super::resolve::ResolvedVariable;
use super::tangent_cache::Inputs;

/// A call whose variables are columns of the inputs, or of an outer query.
#[derive(Debug)]
pub struct ResolvedCall<'c> {
    /// The parsed call.
    pub derivative: DirectionalDerivative<'c>,
    /// The variables, in the order of its terms.
    pub variables: Vec<ResolvedVariable>,
    /// The operator that linearizes an expression.
    pub jvp: &'c Arc<ScalarUDF>,
}

impl<'c> ResolvedCall<'c> {
    /// Parses a call and resolves its variables. Returns `None` if arguments are missing or an argument cannot be a
    /// variable, which `simplify` reports.
    pub fn resolve(
        call: &'c Expr,
        jvp: &'c Arc<ScalarUDF>,
        inputs: &Inputs,
        context: &Context,
    ) -> Result<Option<Self>> {
        let Some(derivative) = DirectionalDerivative::parse(call) else { return Ok(None) };
        let variables =
            derivative.terms.iter().map(|term| ResolvedVariable::resolve(term.variable, call, inputs, context));
        let variables = variables.collect::<Result<Option<_>>>()?;
        Ok(variables.map(|variables| Self { derivative, variables, jvp }))
    }

    /// Returns the expression to differentiate.
    pub fn function(&self) -> &'c Expr {
        self.derivative.function
    }

    /// Returns the variables, each with the term that it is of.
    pub fn terms(&self) -> impl Iterator<Item = (&ResolvedVariable, &Term<'c>)> {
        self.variables.iter().zip(&self.derivative.terms)
    }
}
