//! Rules of the user's own.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::{Column, DFSchema, Result, internal_err, plan_datafusion_err, plan_err};
use datafusion_expr::{Expr, ScalarUDF, SimpleScalarUDF, Volatility};
use std::collections::HashSet;
use std::sync::Arc;

use super::formula::Formula;
use super::rule::{Bindings, Derivative, Rule};
use super::scope::OUTPUT;
use crate::algebra::Algebra;
use crate::graph::{NodeId, import};
use crate::table::replacement_of;
use crate::vocabulary::messages::{error_text, truncate};
use crate::vocabulary::plural::count_noun;
use crate::vocabulary::syntax::{Signature, parse};
use crate::vocabulary::transform::is_transform;

/// The most characters of a formula. What is parsed is printed and dropped by recursion, a level for each operator of a
/// long sum.
const MAX_LENGTH: usize = 10_000;

impl Rule {
    /// Creates a rule for a function: its signature, `"hypot(x, y)"`, and its partial derivative by each parameter, `["x / hypot(x, y)", "y
    /// / hypot(x, y)"]`.
    ///
    /// The derivatives are SQL over the parameters and `Ω`, the function's own output: numbers, `+ - * / %`, comparisons, `AND`, `OR`,
    /// `NOT`, `BETWEEN`, `IS NULL`, `CASE`, casts to `REAL` or `DOUBLE`, and calls of DataFusion's own scalar functions or of the function
    /// itself. A call of the function with its own parameters is the same as `Ω`.
    ///
    /// The rule holds for every function of this name or alias that is called with that many arguments, DataFusion's own included, whose
    /// rule it replaces.
    ///
    /// # Errors
    /// A plan error that shows the SQL, the reason and a workaround, if the rule is wrong in any way that shows without evaluating it.
    pub fn new(signature: &str, partials: &[&str]) -> Result<Self> {
        Self::with_functions(signature, partials, [])
    }

    /// Creates a rule whose derivatives also call these functions.
    ///
    /// # Errors
    /// As for [`new`](Self::new), and if two functions have one name.
    pub fn with_functions(
        signature: &str,
        partials: &[&str],
        functions: impl IntoIterator<Item = Arc<ScalarUDF>>,
    ) -> Result<Self> {
        let rule = Self::parse_custom(signature, partials, functions.into_iter().collect());
        rule.map_err(|error| plan_datafusion_err!("the rule for {}: {}", truncate(signature), error_text(error)))
    }

    /// Adds the promise that the function is NULL exactly where one of its arguments is. Its derivative then need not test the function's
    /// value to be NULL where that is.
    ///
    /// Functions of DataFusion that have a rule already need no promise.
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    fn parse_custom(signature: &str, partials: &[&str], functions: Vec<Arc<ScalarUDF>>) -> Result<Self> {
        if let Some(long) = partials.iter().chain([&signature]).find(|sql| sql.len() > MAX_LENGTH) {
            return plan_err!("a formula of {} characters is too long; at most {MAX_LENGTH} are allowed", long.len());
        }
        let call = parse(signature)
            .map_err(|error| plan_datafusion_err!("{}; write it as a call, such as f(x, y)", error_text(error)))?;
        let Signature { name, inputs } = Signature::from_call(&call)?;
        if let Some(replacement) = replacement_of(&name) {
            return plan_err!(
                "DataFusion makes {name} a {replacement} before it is differentiated, so no rule would be used"
            );
        }
        if is_transform(&name) {
            return plan_err!(
                "{name} is a differential operator, which takes no rule: give one to the functions that it differentiates"
            );
        }
        if inputs.is_empty() {
            return plan_err!(
                "{name} has no parameters, so there is nothing to differentiate by; a function of none is a constant and \
                 needs no rule"
            );
        }
        if let Some(twice) = find_duplicate(inputs.iter().map(String::as_str)) {
            return plan_err!("two parameters are called {twice}; give each a name of its own");
        }
        if inputs.iter().any(|input| input == OUTPUT) {
            return plan_err!("no parameter can be called {OUTPUT}, which is the function's own output");
        }
        if partials.len() != inputs.len() {
            return plan_err!(
                "{} for {} ({}); give one for each, 0 where there is none",
                count_noun(partials.len(), "partial derivative"),
                count_noun(inputs.len(), "parameter"),
                truncate(inputs.join(", "))
            );
        }
        if let Some(twice) = find_duplicate(functions.iter().map(|function| function.name())) {
            return plan_err!("two of the functions handed over are called {twice}");
        }
        if functions.iter().any(|function| function.name() == name) {
            return plan_err!("a call of {name} is one of the function itself, so no other {name} can be handed over");
        }
        let mut formulas = vec![];
        for sql in partials {
            formulas.push(Formula::parse(sql)?);
        }
        let rule = Self { name, inputs, derivative: Derivative::Partials(formulas), strict: false, functions };
        rule.check(partials)?;
        Ok(rule)
    }

    /// Evaluates the partial derivatives once, over columns of floats, which finds mistakes in them.
    fn check(&self, partials: &[&str]) -> Result<()> {
        let Derivative::Partials(formulas) = &self.derivative else {
            return internal_err!("the rule for {} is none of the user's", self.name);
        };
        let names = self.inputs.iter().map(String::as_str).chain([OUTPUT]);
        let fields: Vec<_> = names.map(|name| Field::new(name, DataType::Float64, true)).collect();
        let columns: Vec<_> =
            fields.iter().map(|field| Expr::Column(Column::new_unqualified(field.name().clone()))).collect();
        let schema = DFSchema::try_from(Schema::new(fields))?;
        let mut algebra = Algebra::new(&schema);
        let mut inputs = columns.iter().map(|column| import(&mut algebra, column)).collect::<Result<Vec<_>>>()?;
        let Some(output) = inputs.pop() else { return internal_err!("the rule has no output") };
        let function = Arc::new(ScalarUDF::from(SimpleScalarUDF::new(
            self.name.clone(),
            vec![DataType::Float64; inputs.len()],
            DataType::Float64,
            Volatility::Immutable,
            Arc::new(|_| internal_err!("a rule is never evaluated")),
        )));
        let mut bindings = Bindings { rule: self, function: Some(&function), inputs: &inputs, output };
        for ((formula, sql), input) in formulas.iter().zip(partials).zip(&self.inputs) {
            let partial = formula.evaluate(&mut algebra, &mut bindings);
            let partial = partial
                .map_err(|error| plan_datafusion_err!("by {input}, {:?}: {}", truncate(sql), error_text(error)))?;
            if is_null(&algebra, partial) {
                return plan_err!(
                    "by {input}, {:?}: it is NULL everywhere, which is not a derivative; give 0 where the function does not \
                     vary with {input}, and no rule if it cannot be differentiated",
                    truncate(sql)
                );
            }
        }
        Ok(())
    }
}

/// Returns whether a number is NULL for all inputs, because it is computed with NULL.
fn is_null(algebra: &Algebra, root: NodeId) -> bool {
    let mut null = HashSet::new();
    for id in algebra.reachable(root) {
        let node = algebra.node(id);
        let is_null = match &node.shape {
            Expr::Literal(value, _) => value.is_null(),
            Expr::Cast(_) | Expr::Negative(_) | Expr::BinaryExpr(_) => {
                node.children.iter().any(|child| null.contains(child))
            }
            _ => false,
        };
        if is_null {
            null.insert(id);
        }
    }
    null.contains(&root)
}

/// Returns the first name that occurs a second time.
fn find_duplicate<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}
