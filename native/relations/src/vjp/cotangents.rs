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
    /// Which of the columns the sweep has reached. The others have the cotangent 0 in all rows, and what they are computed from gets
    /// none of them, though their derivatives be infinite.
    pub reached: Vec<bool>,
    /// The columns of the residual, if the plan has them.
    pub own: Vec<Column>,
    /// Whether a row may be there more than once.
    pub repeated: bool,
}

impl RowCotangents {
    /// Returns the same under names of their own.
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

    /// Returns the same, computed once, however often they are read.
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

    /// Returns the same without the columns of the residual.
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
    /// Their sums over the rows of groups: `groups` has the number of a group beside that of each of its rows.
    pub fn by_group(self, groups: &LogicalPlan, names: &mut Names) -> Result<Self> {
        let members = renamed(groups.clone(), names)?;
        let [group, of] = members.columns.as_slice() else { return internal_err!("groups have no rows") };
        let on = self.row.map(|row| (Expr::Column(row), Expr::Column(of.clone()))).into_iter().collect();
        let plan = joined(self.plan, members.plan, on, None, JoinType::Inner, NullEquality::NullEqualsNothing)?;
        sums(plan, [Some(group.clone()), self.of], self.cotangents, self.reached, names)
    }

    /// Returns the same with each row once.
    pub fn summed(self, names: &mut Names) -> Result<Self> {
        sums(self.plan, [self.row, self.of], self.cotangents, self.reached, names)
    }

    /// Their sum along a direction by the variable of this position. It is NULL if the direction of a cell is, and a cell that is NULL
    /// itself does not move. `counts` asks for the number of rows that contribute.
    pub fn along(
        self,
        variable: &RowVariable,
        position: usize,
        direction: &Expr,
        counts: bool,
        names: &mut Names,
    ) -> Result<Along> {
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
        Ok(Along { plan, of: number, sum, moved })
    }
}

/// The derivative of a value along a direction, in one row, or in one for each value.
pub struct Along {
    /// The rows.
    pub plan: LogicalPlan,
    /// The column with the numbers of the values, if there are several.
    pub of: Option<Column>,
    /// The column with the derivative, a DOUBLE.
    pub sum: Column,
    /// The column with the number of rows that contribute to it, if it is asked for.
    pub moved: Option<Column>,
}

/// Returns the sums of cotangents of rows by their numbers and by those of the values, as far as there are such.
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

/// The cotangents of columns, as sums. One that is NULL contributes nothing: where it meets others it is 0, and sums over rows leave
/// it out.
#[derive(Debug, Default)]
pub struct Cotangents(BTreeMap<String, Vec<Expr>>);

impl Cotangents {
    /// Adds a term to the cotangent of a column.
    pub fn add(&mut self, column: &str, cotangent: Expr) {
        self.0.entry(column.to_owned()).or_default().push(cotangent);
    }

    /// Returns the cotangent of a column of rows, if there is one. `keeps_zeros`: see `Sweeping`.
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
        // Where no term contributes, nor does the sum: FILTER (WHERE k = 2) leaves out the same rows of two aggregates of exp(x).
        match sum {
            Some(sum) if may_be_none && keeps_zeros => {
                let is_there = terms.iter().map(|term| term.clone().is_not_null()).reduce(Expr::or);
                when(is_there.unwrap_or_else(|| lit(true)), sum).end().map(Some)
            }
            sum => Ok(if may_be_none { sum.map(|sum| nullif(sum, lit(0.0))) } else { sum }),
        }
    }
}

/// Returns an expression, or 0 where it is NULL. To DataFusion the result may be NULL: what it knows of a `coalesce` when it
/// plans an aggregate over it is less than what it knew before, and it takes that for an error.
fn or_zero(expr: Expr, nullable: bool) -> Result<Expr> {
    if nullable { when(expr.clone().is_null(), lit(0.0)).otherwise(expr) } else { Ok(expr) }
}

/// Returns a number, with 0 in place of -0: Arrow tells them apart.
pub fn positive_zero(number: Expr) -> Expr {
    binary_expr(number, Operator::Plus, lit(0.0))
}

/// Returns a cotangent times a partial derivative, whose product is known where the cotangent is not 0. Where it is, the derivative of the
/// product may be another one: of `power(x, 2)` at 0 it is 2. A derivative that is infinite contributes nothing there.
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
