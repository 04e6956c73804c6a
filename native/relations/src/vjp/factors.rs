//! Products over a join of two sides as products of a factor of each.

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchema, Result, internal_err};
use datafusion_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Filter, Join, LogicalPlan, Operator, Projection, binary_expr, lit,
};
use std::collections::HashSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{has_subquery, is_volatile};

use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, columns};

/// The products that an aggregate sums over a join of two sides.
pub struct Products<'a> {
    aggregate: &'a Aggregate,
    join: &'a Join,
    /// The conditions of the filters between the aggregation and the join.
    conditions: Vec<&'a Expr>,
    /// The factors of the argument of each aggregate, `None` if it is no product.
    of_calls: Vec<Option<Factors>>,
}

/// An aggregate with factors as columns of the sides.
pub struct Factored {
    /// The aggregate.
    pub aggregate: Aggregate,
    /// The sides that have such columns.
    pub sides: Vec<Arc<LogicalPlan>>,
}

impl<'a> Products<'a> {
    /// Factors the arguments of an aggregation of sums, averages and counts, over a join with conditions above it.
    ///
    /// # Errors
    /// If the type of an expression is not known.
    pub fn try_new(aggregate: &'a Aggregate, join: &'a Join, conditions: Vec<&'a Expr>) -> Result<Self> {
        let sides = [join.left.as_ref(), join.right.as_ref()];
        let of_call = |call: &Expr| match unaliased(call) {
            Expr::AggregateFunction(call) => match call.params.args.as_slice() {
                [argument] => Factors::match_product(argument, sides, &join.schema),
                _ => Ok(None),
            },
            _ => Ok(None),
        };
        let of_calls = aggregate.aggr_expr.iter().map(of_call).collect::<Result<_>>()?;
        Ok(Self { aggregate, join, conditions, of_calls })
    }

    /// Returns the distinct factors of a side that are expressions and not columns of it.
    pub fn computed_of(&self, side: usize) -> Vec<&Expr> {
        let mut found = vec![];
        for factor in self.of_calls.iter().flatten().filter_map(|factors| factors.of_sides[side].as_ref()) {
            let is_computed = !matches!(factor, Expr::Column(_)) && !factor.column_refs().is_empty();
            if is_computed && !found.contains(&factor) {
                found.push(factor);
            }
        }
        found
    }

    /// Rewrites the aggregation over a join in which these sides have their factors as columns. The sides keep the
    /// columns that keys and conditions read.
    ///
    /// # Errors
    /// If the plan cannot be put together again.
    pub fn factored(&self, sides: [bool; 2], names: &mut Names) -> Result<Factored> {
        let mut known = [vec![], vec![]];
        for (side, known) in known.iter_mut().enumerate().filter(|(side, _)| sides[*side]) {
            let columns = self.computed_of(side).into_iter();
            known.extend(columns.map(|factor| (factor, Column::new_unqualified(names.part("factor")))));
        }
        let calls = self.calls_over(&known, names)?;
        let Join { left, right, on, filter, join_type, join_constraint, null_equality, null_aware, .. } = self.join;
        let beside = on.iter().flat_map(|(a, b)| [a, b]).chain(filter).chain(self.conditions.iter().copied());
        let read: HashSet<_> =
            calls.iter().chain(&self.aggregate.group_expr).chain(beside).flat_map(Expr::column_refs).collect();
        let mut factored = vec![];
        let mut of_join = vec![];
        for (side, known) in [left, right].into_iter().zip(&known) {
            if known.is_empty() {
                of_join.push(Arc::clone(side));
                continue;
            }
            let mut exprs = columns(side.schema());
            exprs.retain(|column| matches!(column, Expr::Column(column) if read.contains(column)));
            exprs.extend(known.iter().map(|(factor, column)| (*factor).clone().alias(column.name.clone())));
            let projection = Projection::try_new(exprs, Arc::clone(side))?;
            let side = Arc::new(LogicalPlan::Projection(projection));
            factored.push(Arc::clone(&side));
            of_join.push(side);
        }
        let Ok([left, right]) = <[_; 2]>::try_from(of_join) else { return internal_err!("a join has two sides") };
        let (on, filter) = (on.clone(), filter.clone());
        let join = Join::try_new(left, right, on, filter, *join_type, *join_constraint, *null_equality, *null_aware)?;
        let mut input = Arc::new(LogicalPlan::Join(join));
        for condition in self.conditions.iter().rev() {
            input = Arc::new(LogicalPlan::Filter(Filter::try_new((*condition).clone(), input)?));
        }
        let aggregate = Aggregate::try_new(input, self.aggregate.group_expr.clone(), calls)?;
        Ok(Factored { aggregate, sides: factored })
    }

    /// Rewrites the aggregates to read the columns of factors.
    fn calls_over(&self, known: &[Vec<(&Expr, Column)>; 2], names: &mut Names) -> Result<Vec<Expr>> {
        let mut calls = vec![];
        for (call, factors) in self.aggregate.aggr_expr.iter().zip(&self.of_calls) {
            let replaced = factors.as_ref().and_then(|factors| factors.over(known));
            calls.push(match (replaced, unaliased(call)) {
                (Some(product), Expr::AggregateFunction(function)) => {
                    let mut function = function.clone();
                    function.params.args = vec![product];
                    let name = names.part(function.func.name());
                    Expr::AggregateFunction(function).alias(name)
                }
                _ => call.clone(),
            });
        }
        Ok(calls)
    }
}

/// The factors of a product, those of each side together: `e.val * (u.val / t.t)` is `e.val / t.t * u.val`, where `e` and `t` are one side.
#[derive(Default)]
pub struct Factors {
    /// The factor of each side, `None` if it has none.
    pub of_sides: [Option<Expr>; 2],
    /// The divisor of a side that has no factor yet.
    divisors: [Option<Expr>; 2],
}

impl Factors {
    /// Factors an expression over a join. Returns `None` if it is no product with one factor of each side, all of them
    /// DOUBLE.
    ///
    /// # Errors
    /// If the type of an expression is not known.
    pub fn match_product(expr: &Expr, sides: [&LogicalPlan; 2], joined: &DFSchema) -> Result<Option<Self>> {
        if is_volatile(expr) || has_subquery(expr) {
            return Ok(None);
        }
        let Some(mut found) = factors(expr, sides, joined)? else { return Ok(None) };
        for (factor, divisor) in found.of_sides.iter_mut().zip(&mut found.divisors) {
            if let Some(divisor) = divisor.take() {
                *factor = Some(binary_expr(lit(1.0), Operator::Divide, divisor));
            }
        }
        let mut are_double = true;
        for factor in found.of_sides.iter().flatten() {
            are_double &= factor.get_type(joined)? == DataType::Float64;
        }
        Ok(are_double.then_some(found))
    }

    /// Writes the product over the columns of factors. Returns `None` if no factor is a column.
    fn over(&self, known: &[Vec<(&Expr, Column)>; 2]) -> Option<Expr> {
        let mut is_replaced = false;
        let factors = self.of_sides.iter().zip(known).filter_map(|(factor, known)| {
            let factor = factor.as_ref()?;
            let column = known.iter().find(|(known, _)| *known == factor).map(|(_, column)| column.clone());
            is_replaced |= column.is_some();
            Some(column.map_or_else(|| factor.clone(), Expr::Column))
        });
        let product = factors.reduce(|a, b| binary_expr(a, Operator::Multiply, b));
        product.filter(|_| is_replaced)
    }

    fn multiply(mut self, by: Self) -> Self {
        for (((factor, divisor), of), divided) in
            self.of_sides.iter_mut().zip(&mut self.divisors).zip(by.of_sides).zip(by.divisors)
        {
            *factor = match (factor.take(), of) {
                (Some(a), Some(b)) => Some(binary_expr(a, Operator::Multiply, b)),
                (a, b) => a.or(b),
            };
            *divisor = match (divisor.take(), divided) {
                (Some(a), Some(b)) => Some(binary_expr(a, Operator::Multiply, b)),
                (a, b) => a.or(b),
            };
            if factor.is_some()
                && let Some(by) = divisor.take()
            {
                *factor = factor.take().map(|value| binary_expr(value, Operator::Divide, by));
            }
        }
        self
    }

    /// Divides two products. Returns `None` where the result would differ: the quotient of integers is truncated, and a
    /// quotient of quotients is rounded differently.
    fn divided(self, by: Self, joined: &DFSchema) -> Result<Option<Self>> {
        let is_double = |expr: &Option<Expr>| -> Result<bool> {
            let data_type = expr.as_ref().map(|expr| expr.get_type(joined)).transpose()?;
            Ok(data_type.is_none_or(|data_type| data_type == DataType::Float64))
        };
        let mut is_known = by.divisors.iter().all(Option::is_none);
        for (factor, divisor) in self.of_sides.iter().zip(&by.of_sides) {
            is_known &= is_double(factor)? || is_double(divisor)?;
        }
        Ok(is_known.then(|| self.multiply(Self { of_sides: [None, None], divisors: by.of_sides })))
    }
}

fn factors(expr: &Expr, sides: [&LogicalPlan; 2], joined: &DFSchema) -> Result<Option<Factors>> {
    let read = expr.column_refs();
    let side = sides.iter().position(|side| read.iter().all(|column| side.schema().has_column(column)));
    if let Some(side) = side {
        let data_type = expr.get_type(joined)?;
        let mut found = Factors::default();
        found.of_sides[side] = Some(expr.clone());
        // Products of REAL values are rounded to single precision, in their order.
        return Ok((data_type == DataType::Float64 || data_type.is_integer()).then_some(found));
    }
    let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Multiply | Operator::Divide), right }) = expr else {
        return Ok(None);
    };
    let Some((a, b)) = factors(left, sides, joined)?.zip(factors(right, sides, joined)?) else { return Ok(None) };
    match op {
        Operator::Multiply => Ok(Some(a.multiply(b))),
        // The quotient of integers is truncated.
        _ if left.get_type(joined)? == DataType::Float64 => a.divided(b, joined),
        _ => Ok(None),
    }
}
