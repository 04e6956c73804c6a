//! The aggregates of groups over a join as sums of products.

use arrow::datatypes::{DataType, Schema};
use datafusion_common::Result;
use datafusion_expr::Operator;
use datafusion_functions_aggregate::average::Avg;
use datafusion_functions_aggregate::count::Count;
use datafusion_functions_aggregate::sum::Sum;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, IsNotNullExpr, NegativeExpr};
use datafusion_physical_plan::aggregates::AggregateExec;
use std::sync::Arc;

use super::computed::read_from;
use super::joined::Joined;
use super::product::{Product, product, where_true};
use crate::outputs::Output;
use crate::spec::Term;

/// What is summed, and the aggregates that are made of it.
#[derive(Default)]
pub struct Terms {
    /// What is summed.
    pub terms: Vec<Term>,
    /// The aggregates.
    pub outputs: Vec<Output>,
}

impl Terms {
    /// The aggregates of groups, if all are sums, counts or averages of products over a join, or of sums of products.
    pub fn of(grouped: &AggregateExec, joined: &Joined) -> Result<Option<Self>> {
        let schema = grouped.input_schema();
        let mut found = Self::default();
        for (aggregate, condition) in grouped.aggr_expr().iter().zip(grouped.filter_expr()) {
            let Some(argument) = argument(aggregate) else { return Ok(None) };
            let argument_of_inputs = joined.over_inputs(&argument)?;
            let condition = condition.as_ref().map(|condition| joined.over_inputs(condition)).transpose()?;
            let Some(terms) = terms(&argument_of_inputs, condition.as_ref(), joined)? else { return Ok(None) };
            let function = aggregate.fun();
            let is_double = argument.data_type(&schema)? == DataType::Float64;
            if function.inner().is::<Count>() {
                let count = found.count(&terms);
                found.outputs.push(Output::Count(count));
            } else if is_double && function.inner().is::<Sum>() {
                let terms = found.add(terms);
                found.outputs.push(Output::Sum(terms));
            } else if is_double && function.inner().is::<Avg>() {
                let count = found.count(&terms);
                let terms = found.add(terms);
                found.outputs.push(Output::Average(terms, count));
            } else {
                return Ok(None);
            }
        }
        let is_sum = found.outputs.iter().any(|output| !matches!(output, Output::Count(_)));
        if !is_sum {
            return Ok(None);
        }
        for term in &mut found.terms {
            for (side, factor) in term.factors.iter_mut().enumerate() {
                let Some(of_inputs) = factor.take() else { continue };
                let of_side = joined.local(side, of_inputs)?;
                // A row that stands for a missing one has NULL in each column, whatever an expression makes of NULLs.
                let may_be_missing = joined.outer == Some(side)
                    || joined.extension.as_ref().is_some_and(|extension| extension.by == side);
                *factor = Some(if may_be_missing { of_side } else { read_from(&joined.inputs[side], of_side)? });
            }
        }
        Ok(Some(found))
    }

    fn add(&mut self, terms: Vec<Term>) -> Vec<usize> {
        let first = self.terms.len();
        self.terms.extend(terms);
        (first..self.terms.len()).collect()
    }

    /// The number of the term that counts where terms are not NULL, of which each is where the others are.
    fn count(&mut self, terms: &[Term]) -> usize {
        self.terms.extend(terms.first().map(|term| Term { counts: true, single: false, ..term.clone() }));
        self.terms.len() - 1
    }
}

/// What an aggregate is of, if it is of all values of one expression.
fn argument(aggregate: &AggregateFunctionExpr) -> Option<Arc<dyn PhysicalExpr>> {
    let mut arguments = aggregate.expressions();
    let argument = arguments.pop().filter(|_| arguments.is_empty());
    argument.filter(|_| !aggregate.is_distinct() && aggregate.order_bys().is_empty())
}

/// What an aggregate sums, if it is a sum of doubles.
pub fn summed_by(aggregate: &AggregateFunctionExpr, schema: &Schema) -> Option<Arc<dyn PhysicalExpr>> {
    let argument = argument(aggregate).filter(|_| aggregate.fun().inner().is::<Sum>())?;
    (argument.data_type(schema).ok()? == DataType::Float64).then_some(argument)
}

/// An expression as products that are added, each of which is NULL where the expression is. None if it is no such sum.
fn terms(
    expr: &Arc<dyn PhysicalExpr>,
    condition: Option<&Arc<dyn PhysicalExpr>>,
    joined: &Joined,
) -> Result<Option<Vec<Term>>> {
    let mut products = vec![];
    for part in added(expr, joined)? {
        let Some(Product { factors, single }) = product(&part, condition, joined)? else { return Ok(None) };
        products.push(Term { factors, single, counts: false });
    }
    if products.len() > 1 && products.iter().any(|term| term.single) {
        return Ok(None);
    }
    let mut terms = vec![];
    for (number, term) in products.iter().enumerate() {
        let mut factors = term.factors.clone();
        let others = products.iter().enumerate().filter(|(other, _)| *other != number);
        for factor in others.flat_map(|(_, other)| other.factors.iter().flatten()) {
            if !factor.nullable(&joined.schema)? {
                continue;
            }
            let is_known: Arc<dyn PhysicalExpr> = Arc::new(IsNotNullExpr::new(Arc::clone(factor)));
            let Some(known) = where_true(&is_known, factors, joined)? else { return Ok(None) };
            factors = known;
        }
        terms.push(Term { factors, ..term.clone() });
    }
    Ok(Some(terms))
}

/// The parts that an expression adds, if it reads several inputs: `a.x * b.y + a.z * b.w` has two.
fn added(expr: &Arc<dyn PhysicalExpr>, joined: &Joined) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    let sum = expr.downcast_ref::<BinaryExpr>().filter(|sum| matches!(sum.op(), Operator::Plus | Operator::Minus));
    let Some(sum) = sum.filter(|_| joined.sides_of(expr).len() > 1) else { return Ok(vec![Arc::clone(expr)]) };
    if joined.type_of(expr)? != DataType::Float64 {
        return Ok(vec![Arc::clone(expr)]);
    }
    let mut parts = added(sum.left(), joined)?;
    for part in added(sum.right(), joined)? {
        parts.push(if *sum.op() == Operator::Minus { Arc::new(NegativeExpr::new(part)) } else { part });
    }
    Ok(parts)
}
