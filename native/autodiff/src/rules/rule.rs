//! Rules, and the bindings of their formulas.

use arrow::datatypes::DataType;
use datafusion_common::{Result, internal_datafusion_err, plan_datafusion_err, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{Expr, ScalarUDF};
use sqlparser::ast::Expr as Sql;
use std::sync::Arc;

use super::evaluate::{check_not_volatile, evaluate};
use super::formula::Formula;
use super::scope::{Call, OUTPUT, Scope};
use crate::algebra::Algebra;
use crate::graph::{Graph, NodeId};
use crate::table::{Choice, Nulls, TableEntry, Treatment};
use crate::vocabulary::functions::find_callable;
use crate::vocabulary::messages::truncate;
use crate::vocabulary::plural::count_noun;
use crate::vocabulary::syntax::name_of;
use crate::vocabulary::types::value_type;

/// How the derivative of a function is given, in SQL over its inputs and its output `Ω`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Derivative {
    /// The partial derivative by each input.
    Partials(Vec<Formula>),
    /// The `CASE` that the function stands for, which is differentiated in its place.
    Choice(Box<Formula>),
}

/// The derivative of a function or operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The name of the function.
    pub(crate) name: String,
    /// The names of its inputs in the formulas.
    pub(crate) inputs: Vec<String>,
    /// Its derivative.
    pub(crate) derivative: Derivative,
    /// Whether the result is NULL exactly where an input is.
    pub(crate) strict: bool,
    /// The functions that the formulas call in addition to DataFusion's own.
    pub(crate) functions: Vec<Arc<ScalarUDF>>,
}

impl Rule {
    /// Creates the rule of a table entry for this number of inputs.
    pub(super) fn from_entry(known: &TableEntry, arity: usize) -> Result<Self> {
        let inputs = match &known.inputs {
            Some(inputs) => inputs.clone(),
            None => (1..=arity).map(|number| format!("x{number}")).collect(),
        };
        let derivative = match &known.line.treatment {
            Treatment::Partials => {
                let partials = known.line.shown.partials;
                if partials.len() != inputs.len() {
                    return Err(internal_datafusion_err!(
                        "the rule for {} has {} partial derivatives for {} inputs",
                        known.line.shown.signature,
                        partials.len(),
                        inputs.len()
                    ));
                }
                Derivative::Partials(partials.iter().map(|sql| Formula::parse(sql)).collect::<Result<_>>()?)
            }
            Treatment::Constant(_) => Derivative::Partials(vec![Formula::parse("0")?; inputs.len()]),
            Treatment::Choice(Choice::Case(case)) => Derivative::Choice(Box::new(Formula::parse(case)?)),
            Treatment::Choice(Choice::Variadic(_, case)) => {
                Derivative::Choice(Box::new(Formula::parse(&case(&inputs))?))
            }
        };
        let strict = known.line.nulls == Nulls::AnyInput;
        Ok(Self { name: known.name.clone(), inputs, derivative, strict, functions: vec![] })
    }
}

/// The bindings of a rule's formulas.
pub struct Bindings<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// The function as the query calls it; none for an operator.
    pub function: Option<&'a Arc<ScalarUDF>>,
    /// The inputs of the function.
    pub inputs: &'a [NodeId],
    /// The output of the function.
    pub output: NodeId,
}

impl Scope for Bindings<'_> {
    fn name(&mut self, name: &str) -> Result<NodeId> {
        if name == OUTPUT {
            return Ok(self.output);
        }
        let position = self.rule.inputs.iter().position(|input| input == name);
        position.and_then(|position| self.inputs.get(position)).copied().ok_or_else(|| {
            plan_datafusion_err!(
                "there is no {name} here, only the parameters ({}) and {OUTPUT}, the function's own output",
                truncate(self.rule.inputs.join(", "))
            )
        })
    }

    /// Evaluates a call of the function that the rule is for.
    fn call(&mut self, algebra: &mut Algebra, call: &Call) -> Result<Option<NodeId>> {
        let rule = self.rule;
        if call.name != rule.name || call.arguments.len() != rule.inputs.len() {
            return Ok(None);
        }
        if call.arguments.iter().zip(&rule.inputs).all(|(argument, input)| name_of(argument).as_ref() == Some(input)) {
            return Ok(Some(self.output));
        }
        let is_callable =
            |function: &ScalarUDF| find_callable(function.name()).is_some_and(|known| known.as_ref() == function);
        match self.function.filter(|function| !is_callable(function)) {
            Some(function) => self.recursive_call(algebra, function, call).map(Some),
            None => Ok(None),
        }
    }

    fn function(&self, name: &str) -> Option<&Arc<ScalarUDF>> {
        self.rule.functions.iter().find(|function| function.name() == name)
    }

    fn callable(&self) -> String {
        format!("those of DataFusion and {} with {}", self.rule.name, count_noun(self.rule.inputs.len(), "argument"))
    }
}

impl Bindings<'_> {
    /// Builds a call of the function that the rule is for with other arguments: it is the instance of the query, and takes arguments of the
    /// types that it takes there.
    fn recursive_call(&mut self, algebra: &mut Algebra, function: &Arc<ScalarUDF>, call: &Call) -> Result<NodeId> {
        check_not_volatile(call.sql, function)?;
        let mut operands = vec![];
        for (argument, input) in call.arguments.iter().zip(self.inputs) {
            let taken = algebra.data_type(*input).clone();
            let value = evaluate(argument, algebra, self)?;
            check_argument_type(algebra, call.sql, argument, value, &taken)?;
            operands.push(algebra.cast(value, &taken)?);
        }
        let call = ScalarFunction::new_udf(Arc::clone(function), Graph::operands(operands.len()));
        algebra.intern(Expr::ScalarFunction(call), operands)
    }
}

fn check_argument_type(algebra: &Algebra, call: &Sql, argument: &Sql, value: NodeId, taken: &DataType) -> Result<()> {
    let given = algebra.data_type(value);
    if given == taken || value_type(given).is_numeric() && value_type(taken).is_numeric() {
        return Ok(());
    }
    plan_err!("{}: {} is {given}, and the function takes {taken} there", truncate(call), truncate(argument))
}
