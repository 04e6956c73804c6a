//! Cotangents of columns and of rows.

use arrow::datatypes::DataType;
use datafusion_common::{Column, JoinType, NullEquality, Result, internal_err};
use datafusion_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, Operator, Projection, binary_expr, cast, lit, when,
};
use datafusion_functions::core::expr_fn::nullif;
use datafusion_functions::math::expr_fn::abs;
use datafusion_functions_aggregate::count::count;
use datafusion_functions_aggregate::sum::sum;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::row_ids::RowVariable;
use super::segment::{Segment, joined, renamed};
use crate::shared_relation::SharedRelation;
use crate::vocabulary::names::{Names, columns};

/// Cotangents of rows of a residual: their numbers, unless the residual has one row only, and the cotangents of the columns that vary.
pub struct RowCotangents {
    /// The rows, in no order.
    pub plan: LogicalPlan,
    /// The column with the numbers of the residual's rows.
    pub row: Option<Column>,
    /// The column with the numbers of the values that the cotangents are by, if there are several.
    pub of: Option<Column>,
    /// The columns with the cotangents.
    pub cotangents: Vec<Column>,
    /// For each column that varies, whether the sweep has reached it. A column that it has not reached has the
    /// cotangent 0 in all rows. It contributes nothing, even where its derivative is infinite.
    pub reached: Vec<bool>,
    /// The columns of the residual, if the plan has them.
    pub own: Vec<Column>,
    /// Whether a row may be there more than once.
    pub repeated: bool,
}

impl RowCotangents {
    /// Gives all columns new names.
    pub fn renamed(&self, names: &mut Names) -> Result<Self> {
        let segment = renamed(self.plan.clone(), names)?;
        Ok(self.over(segment))
    }

    fn over(&self, segment: Segment) -> Self {
        let mut columns = segment.columns.into_iter();
        let row = self.row.as_ref().and_then(|_| columns.next());
        let of = self.of.as_ref().and_then(|_| columns.next());
        let cotangents = columns.by_ref().take(self.cotangents.len()).collect();
        let reached = self.reached.clone();
        Self { plan: segment.plan, row, of, cotangents, reached, own: columns.collect(), repeated: self.repeated }
    }

    /// Materializes the cotangents for several readers.
    pub fn shared(self, names: &mut Names) -> Result<Self> {
        let this = self.alone()?;
        let relation = Arc::new(SharedRelation::new(names.part("cotangents"), this.plan.clone()));
        Ok(this.over(Segment::reading(&relation, names)?))
    }

    /// Returns the cotangents that the sweep has reached, by the columns that vary.
    pub fn of_columns(&self) -> Vec<Option<Expr>> {
        let cotangents = self.cotangents.iter().cloned().map(Expr::Column).zip(&self.reached);
        cotangents.map(|(cotangent, reached)| reached.then_some(cotangent)).collect()
    }

    /// Removes the columns of the residual.
    pub fn alone(self) -> Result<Self> {
        if self.own.is_empty() {
            return Ok(self);
        }
        let columns = self.row.iter().chain(&self.of).chain(&self.cotangents).cloned().map(Expr::Column).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(self.plan))?);
        Ok(Self { plan, own: vec![], ..self })
    }
}

impl RowCotangents {
    /// Sums the cotangents by group. `groups` has the number of a group and the number of a row in each of its rows.
    pub fn by_group(self, groups: &LogicalPlan, names: &mut Names) -> Result<Self> {
        let members = renamed(groups.clone(), names)?;
        let [group, of] = members.columns.as_slice() else { return internal_err!("groups have no rows") };
        let on = self.row.map(|row| (Expr::Column(row), Expr::Column(of.clone()))).into_iter().collect();
        let plan = joined(self.plan, members.plan, on, None, JoinType::Inner, NullEquality::NullEqualsNothing)?;
        sums(plan, [Some(group.clone()), self.of], self.cotangents, self.reached, names)
    }

    /// Sums the cotangents by row. Each row then occurs once.
    pub fn sum_by_row(self, names: &mut Names) -> Result<Self> {
        sums(self.plan, [self.row, self.of], self.cotangents, self.reached, names)
    }

    /// Returns the derivative along a direction by the variable at this position: the sum over its rows of the
    /// cotangent times the direction. It is NULL if the direction is NULL in one of the rows, except for rows in which
    /// the variable itself is NULL and does not move. With `counts`, the result also has the number of rows that
    /// contribute.
    pub fn along(
        self,
        variable: &RowVariable,
        position: usize,
        direction: &Expr,
        counts: bool,
        names: &mut Names,
    ) -> Result<DirectionalSum> {
        let mut rows = columns(variable.scan()?.schema());
        let number = rows.pop();
        let cell = rows.get(variable.columns[position]).cloned();
        let (Some(number), Some(cell), Some(cotangent)) = (number, cell, self.cotangents.get(position)) else {
            return internal_err!("a variable has no rows");
        };
        let on = self.row.iter().map(|row| (number.clone(), Expr::Column(row.clone()))).collect();
        let plan = joined(variable.scan()?, self.plan, on, None, JoinType::Inner, NullEquality::NullEqualsNothing)?;
        let direction = cast(direction.clone(), DataType::Float64);
        let product = binary_expr(Expr::Column(cotangent.clone()), Operator::Multiply, direction.clone());
        let moves = cell.is_not_null();
        let unknown = moves.clone().and(direction.is_null());
        let [total, missing] = ["sum", "missing"].map(|name| names.part(name));
        let product = when(moves, product).end()?;
        let mut sums =
            vec![sum(product.clone()).alias(total.clone()), count(when(unknown, lit(1)).end()?).alias(missing.clone())];
        let moved = counts.then(|| Column::new_unqualified(names.part("moved")));
        sums.extend(moved.iter().map(|moved| count(product.clone()).alias(moved.name.clone())));
        let of = self.of.map(Expr::Column);
        let plan = Aggregate::try_new(Arc::new(plan), of.iter().cloned().collect(), sums)?;
        let plan = LogicalPlan::Aggregate(plan);
        let [total, missing] = [total, missing].map(|name| Expr::Column(Column::new_unqualified(name)));
        let known = when(missing.eq(lit(0_i64)), or_zero(total, true)?).end()?;
        let sum = Column::new_unqualified(names.part("sum"));
        let number = of.as_ref().map(|_| Column::new_unqualified(names.part("of")));
        let numbers = of.into_iter().zip(&number).map(|(of, number)| of.alias(number.name.clone()));
        let counted = moved.iter().cloned().map(Expr::Column);
        let exprs = numbers.chain([known.alias(sum.name.clone())]).chain(counted).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
        Ok(DirectionalSum { plan, of: number, sum, moved })
    }
}

/// The derivative of a value along a direction, in one row, or in one for each value.
pub struct DirectionalSum {
    /// The rows.
    pub plan: LogicalPlan,
    /// The column with the numbers of the values, if there are several.
    pub of: Option<Column>,
    /// The column with the derivative, a DOUBLE.
    pub sum: Column,
    /// The column with the number of rows that contribute to it, if `counts` has requested it.
    pub moved: Option<Column>,
}

/// Sums cotangents by the number of the row and the number of the value, where there are such columns.
pub fn sums(
    plan: LogicalPlan,
    by: [Option<Column>; 2],
    cotangents: Vec<Column>,
    reached: Vec<bool>,
    names: &mut Names,
) -> Result<RowCotangents> {
    let mut keys = vec![];
    let mut key = |number: Option<Column>, name: &str| {
        let number = Expr::Column(number?);
        let named = Column::new_unqualified(names.part(name));
        keys.push(number.alias(named.name.clone()));
        Some(named)
    };
    let [row, of] = by;
    let (row, of) = (key(row, "row"), key(of, "of"));
    let mut sums = vec![];
    let mut summed = vec![];
    for cotangent in cotangents {
        let name = names.part("cotangent");
        sums.push(sum(Expr::Column(cotangent)).alias(name.clone()));
        summed.push(Column::new_unqualified(name));
    }
    let plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plan), keys, sums)?);
    Ok(RowCotangents { plan, row, of, cotangents: summed, reached, own: vec![], repeated: false })
}

/// The cotangents of columns, each as the terms of a sum. A term that is NULL contributes nothing: next to other terms
/// it counts as 0, and sums over rows skip it.
#[derive(Debug, Default)]
pub struct Cotangents(BTreeMap<String, Vec<Expr>>);

impl Cotangents {
    /// Adds a term to the cotangent of a column.
    pub fn add(&mut self, column: &str, cotangent: Expr) {
        self.0.entry(column.to_owned()).or_default().push(cotangent);
    }

    /// Returns the cotangent of a column of rows, `None` if it has no terms. `keeps_zeros` is the option of `Sweeping`.
    pub fn get(&self, column: &str, rows: &LogicalPlan, keeps_zeros: bool) -> Result<Option<Expr>> {
        let Some(terms) = self.0.get(column) else { return Ok(None) };
        if let [term] = terms.as_slice() {
            return Ok(Some(term.clone()));
        }
        let mut known = vec![];
        let mut may_be_none = true;
        for term in terms {
            let nullable = term.nullable(rows.schema())?;
            may_be_none &= nullable;
            known.push(or_zero(term.clone(), nullable)?);
        }
        let sum = known.into_iter().reduce(|sum, term| binary_expr(sum, Operator::Plus, term));
        // The sum is NULL where all terms are, as in the rows that FILTER (WHERE k = 2) leaves out of two aggregates of
        // exp(x).
        match sum {
            Some(sum) if may_be_none && keeps_zeros => {
                let is_there = terms.iter().map(|term| term.clone().is_not_null()).reduce(Expr::or);
                when(is_there.unwrap_or_else(|| lit(true)), sum).end().map(Some)
            }
            sum => Ok(if may_be_none { sum.map(|sum| nullif(sum, lit(0.0))) } else { sum }),
        }
    }
}

/// Replaces NULL by 0, with a CASE that stays nullable by its type. DataFusion knows less of the nullability of a
/// `coalesce` when it plans an aggregate over it than before, and reports the difference as an error.
fn or_zero(expr: Expr, nullable: bool) -> Result<Expr> {
    if nullable { when(expr.clone().is_null(), lit(0.0)).otherwise(expr) } else { Ok(expr) }
}

/// Replaces -0 by 0, which Arrow distinguishes.
pub fn positive_zero(number: Expr) -> Expr {
    binary_expr(number, Operator::Plus, lit(0.0))
}

/// Returns `product` where the cotangent is not 0, and `cotangent * partial` where it is 0. Differentiating the latter
/// gives the right second derivative there, such as 2 for `power(x, 2)` at 0. An infinite or NaN partial derivative
/// contributes nothing.
pub fn product_at_zero(cotangent: &Expr, product: Expr, partial: Expr) -> Result<Expr> {
    let at_zero = binary_expr(cotangent.clone(), Operator::Multiply, partial.clone());
    let at_zero = when(is_finite(partial), at_zero).end()?;
    let is_zero = positive_zero(cotangent.clone()).eq(lit(0.0));
    when(is_not_zero(cotangent.clone()), product).when(is_zero, at_zero).end()
}

/// Returns whether a number is finite.
fn is_finite(number: Expr) -> Expr {
    abs(number).lt(lit(f64::INFINITY))
}

/// Returns whether a number is not 0, of either sign.
pub fn is_not_zero(number: Expr) -> Expr {
    positive_zero(number).not_eq(lit(0.0))
}
