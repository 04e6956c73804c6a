//! Aggregates over a join as sums of products.

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

use super::column_reuse::reuse_columns;
use super::join_tree::JoinTree;
use super::product::{Product, as_product, null_unless};
use crate::outputs::Output;
use crate::spec::Term;

/// The terms that are summed, and the aggregates computed from them.
#[derive(Default)]
pub struct Terms {
    /// The terms.
    pub terms: Vec<Term>,
    /// The aggregates.
    pub outputs: Vec<Output>,
}

impl Terms {
    /// Describes the aggregates of an aggregation, if all are sums, counts or averages of sums of products.
    pub fn from_aggregate(grouped: &AggregateExec, tree: &JoinTree) -> Result<Option<Self>> {
        let schema = grouped.input_schema();
        let mut found = Self::default();
        for (aggregate, condition) in grouped.aggr_expr().iter().zip(grouped.filter_expr()) {
            let Some(argument) = plain_argument(aggregate) else { return Ok(None) };
            let over_inputs = tree.over_inputs(&argument)?;
            let condition = condition.as_ref().map(|condition| tree.over_inputs(condition)).transpose()?;
            let Some(terms) = as_terms(&over_inputs, condition.as_ref(), tree)? else { return Ok(None) };
            let function = aggregate.fun();
            let is_double = argument.data_type(&schema)? == DataType::Float64;
            if function.inner().is::<Count>() {
                let count = found.add_count(&terms);
                found.outputs.push(Output::Count(count));
            } else if is_double && function.inner().is::<Sum>() {
                let terms = found.add(terms);
                found.outputs.push(Output::Sum(terms));
            } else if is_double && function.inner().is::<Avg>() {
                let count = found.add_count(&terms);
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
                let Some(factor_over_inputs) = factor.take() else { continue };
                let local = tree.local(side, factor_over_inputs)?;
                // The row of NULLs of an outer join is NULL in each column, also in those that map NULL to a value.
                let may_be_missing =
                    tree.outer == Some(side) || tree.extension.as_ref().is_some_and(|extension| extension.by == side);
                *factor = Some(if may_be_missing { local } else { reuse_columns(&tree.inputs[side], local)? });
            }
        }
        Ok(Some(found))
    }

    fn add(&mut self, terms: Vec<Term>) -> Vec<usize> {
        let first = self.terms.len();
        self.terms.extend(terms);
        (first..self.terms.len()).collect()
    }

    /// Adds a term that counts where terms are not NULL, which is in the same rows for all of them, and returns its index.
    fn add_count(&mut self, terms: &[Term]) -> usize {
        self.terms.extend(terms.first().map(|term| Term { counts: true, single_precision: false, ..term.clone() }));
        self.terms.len() - 1
    }
}

/// Returns the argument of an aggregate over all values of one expression.
fn plain_argument(aggregate: &AggregateFunctionExpr) -> Option<Arc<dyn PhysicalExpr>> {
    let mut arguments = aggregate.expressions();
    let argument = arguments.pop().filter(|_| arguments.is_empty());
    argument.filter(|_| !aggregate.is_distinct() && aggregate.order_bys().is_empty())
}

/// Returns the argument of a sum of doubles.
pub fn sum_argument(aggregate: &AggregateFunctionExpr, schema: &Schema) -> Option<Arc<dyn PhysicalExpr>> {
    let argument = plain_argument(aggregate).filter(|_| aggregate.fun().inner().is::<Sum>())?;
    (argument.data_type(schema).ok()? == DataType::Float64).then_some(argument)
}

/// Splits an expression into products whose sum it is, each NULL where the expression is. Returns `None` if it is no such sum.
fn as_terms(
    expr: &Arc<dyn PhysicalExpr>,
    condition: Option<&Arc<dyn PhysicalExpr>>,
    tree: &JoinTree,
) -> Result<Option<Vec<Term>>> {
    let mut products = vec![];
    for part in split_sum(expr, tree)? {
        let Some(Product { factors, single_precision }) = as_product(&part, condition, tree)? else { return Ok(None) };
        products.push(Term { factors, single_precision, counts: false });
    }
    if products.len() > 1 && products.iter().any(|term| term.single_precision) {
        return Ok(None);
    }
    let mut terms = vec![];
    for (number, term) in products.iter().enumerate() {
        let mut factors = term.factors.clone();
        let others = products.iter().enumerate().filter(|(other, _)| *other != number);
        for factor in others.flat_map(|(_, other)| other.factors.iter().flatten()) {
            if !factor.nullable(&tree.schema)? {
                continue;
            }
            let is_not_null: Arc<dyn PhysicalExpr> = Arc::new(IsNotNullExpr::new(Arc::clone(factor)));
            let Some(guarded) = null_unless(&is_not_null, factors, tree)? else { return Ok(None) };
            factors = guarded;
        }
        terms.push(Term { factors, ..term.clone() });
    }
    Ok(Some(terms))
}

/// Splits an expression that reads several inputs at `+` and `-`: `a.x * b.y + a.z * b.w` has two parts.
fn split_sum(expr: &Arc<dyn PhysicalExpr>, tree: &JoinTree) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    let sum = expr.downcast_ref::<BinaryExpr>().filter(|sum| matches!(sum.op(), Operator::Plus | Operator::Minus));
    let Some(sum) = sum.filter(|_| tree.sides_of(expr).len() > 1) else { return Ok(vec![Arc::clone(expr)]) };
    if tree.type_of(expr)? != DataType::Float64 {
        return Ok(vec![Arc::clone(expr)]);
    }
    let mut parts = split_sum(sum.left(), tree)?;
    for part in split_sum(sum.right(), tree)? {
        parts.push(if *sum.op() == Operator::Minus { Arc::new(NegativeExpr::new(part)) } else { part });
    }
    Ok(parts)
}
