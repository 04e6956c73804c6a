//! The derivatives of a subquery by the rows of variables, joined to the input of a node.

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, JoinType, NullEquality, Result};
use datafusion_expr::{Expr, LogicalPlan, Operator, Projection, binary_expr, lit, when};
use datafusion_functions::core::expr_fn::coalesce;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::variables::Numbered;
use crate::plan::pull_up_column::pull_up_column;
use crate::shared_relation::each_row_once;
use crate::tangents::tangent::{Inactive, Tangent, TangentColumn};
use crate::vjp::{Reference, RowCotangents, Segment, Sweeping, joined};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, columns, with_columns};
use crate::vocabulary::origin::{Origin, origin};

/// The options for joining derivatives to the input.
pub struct Joins {
    /// The node has several relations of variables. Then derivatives are joined to the rows of their variable deep in
    /// the input, since each join above the input would have the columns of all relations.
    pub has_others: bool,
    /// Whether rows without a derivative are left out.
    pub drops_zeros: bool,
}

/// A subquery within one sweep.
pub struct Swept {
    /// The number of the sweep.
    pub sweep: usize,
    /// The segment of its one row.
    pub segment: Segment,
    /// The column of the input with the number of the row of the segment whose value it has, unless the segment has one row.
    pub of: Option<Column>,
    /// The gradients by relation, once they have been requested.
    pub gradients: Option<BTreeMap<usize, RowCotangents>>,
    /// The options of the sweep. If zeros are kept, derivatives have a column that tells where they are inactive.
    pub sweeping: Sweeping,
    /// The derivatives by the variables whose rows have such numbers, once joined to the input.
    derivatives: Vec<(Column, Vec<TangentColumn>)>,
    /// Whether derivatives have been joined to the input by the numbers of rows.
    pub is_looked_up: bool,
}

impl Swept {
    /// Creates a subquery that has not been swept. `of` is the column of the input with the number of the row of the segment whose value
    /// it has.
    pub fn new(sweep: usize, segment: Segment, of: Option<Column>, sweeping: Sweeping) -> Self {
        Self { sweep, segment, of, gradients: None, sweeping, derivatives: vec![], is_looked_up: false }
    }

    /// Returns the segment, and the column of it with the numbers of its rows, unless it has one row.
    pub fn values(&self) -> (&Segment, Option<&Column>) {
        (&self.segment, self.of.as_ref().and(self.segment.columns.get(1)))
    }

    /// Joins `other` to the input: by the number of the row of the segment whose value a row has, or to all rows
    /// without numbers.
    pub fn put_beside(&self, input: LogicalPlan, other: LogicalPlan, of: Option<Column>) -> Result<LogicalPlan> {
        let on = self.of_value(of);
        let join_type = if on.is_empty() { JoinType::Inner } else { JoinType::Left };
        joined(input, other, on, None, join_type, NullEquality::NullEqualsNothing)
    }

    /// Replaces a missing derivative by 0: a row of the segment may have none, and `of` is NULL in it. A derivative
    /// that is NULL because its direction is NULL stays NULL.
    pub fn or_zero(derivative: Expr, of: Option<Column>) -> Result<Expr> {
        let Some(of) = of else { return Ok(derivative) };
        when(Expr::Column(of).is_null(), lit(0.0)).otherwise(derivative)
    }

    /// Returns the join keys that pair a row of the input with the row of the segment whose value it has.
    fn of_value(&self, of: Option<Column>) -> Vec<(Expr, Expr)> {
        let keys = self.of.iter().cloned().zip(of);
        keys.map(|(own, of)| (Expr::Column(own), Expr::Column(of))).collect()
    }

    /// Returns the gradient by the relation of a variable, if the value varies with it.
    pub fn gradient_by(&self, variable: &Numbered) -> Option<&RowCotangents> {
        self.gradients.as_ref()?.get(&variable.relation)
    }

    /// Joins the derivative of the value by the row's own value of a variable to the input, and returns its tangent.
    /// Returns `None` if the value does not vary.
    pub fn by_cell(
        &mut self,
        variable: &Numbered,
        value: &Column,
        (input, joins): (&mut LogicalPlan, &Joins),
        names: &mut Names,
    ) -> Result<Option<TangentColumn>> {
        let Some(gradient) = self.gradient_by(variable) else { return Ok(None) };
        let Reference { number, groups } = variable.cell.as_ref();
        if !self.derivatives.iter().any(|(cell, _)| cell == number) {
            let mut is_summed = matches!(gradient.plan, LogicalPlan::Aggregate(_));
            let mut gradient = gradient.renamed(names)?;
            if let Some(groups) = groups {
                (gradient, is_summed) = (gradient.by_group(groups, names)?, true);
            }
            // A row number that occurred twice would duplicate a row of the statement.
            if gradient.of.is_some() {
                gradient = if is_summed { gradient } else { gradient.sum_by_row(names)? };
                gradient = if self.sweeping.contracts { gradient.isolate(names)? } else { gradient };
            } else if let Some(row) = &gradient.row {
                gradient.plan = each_row_once(gradient.plan, row, names)?;
            }
            self.is_looked_up |= gradient.row.is_some();
            let row = gradient.row.clone().filter(|_| joins.has_others && gradient.of.is_none());
            let pairs = self.of.as_ref().zip(gradient.of.clone()).zip(gradient.row.clone());
            let cotangents = match row {
                _ if let (true, Some(((own, of), row))) = (joins.drops_zeros, pairs) => {
                    let keys = [(own.clone(), of), (number.clone(), row)];
                    *input = with_pairs(std::mem::take(input), keys, gradient.plan)?;
                    gradient.cotangents
                }
                Some(row) => at_origin(input, number, (gradient.plan, row, gradient.cotangents), names)?,
                None => {
                    let mut on = self.of_value(gradient.of);
                    on.extend(gradient.row.map(|of| (Expr::Column(number.clone()), Expr::Column(of))));
                    let left = std::mem::take(input);
                    *input = joined(left, gradient.plan, on, None, JoinType::Left, NullEquality::NullEqualsNothing)?;
                    gradient.cotangents
                }
            };
            let mut exprs = vec![];
            let mut derivatives = vec![];
            for cotangent in cotangents {
                // The derivative is 0 for rows on which the value does not depend, and NULL where the value is NULL.
                let name = names.tangent("value", &variable.column.name);
                let nothing = self.sweeping.keeps_zeros.then(|| Expr::Column(cotangent.clone()).is_null());
                let derivative = coalesce(vec![Expr::Column(cotangent), lit(0.0)]);
                let derivative = null_with(&Expr::Column(value.clone()), derivative)?;
                let (added, derivative) = tangent_columns(derivative, name, nothing, names)?;
                exprs.extend(added);
                derivatives.push(derivative);
            }
            *input = with_further_columns(std::mem::take(input), exprs)?;
            self.derivatives.push((number.clone(), derivatives));
        }
        let known = self.derivatives.iter().find(|(cell, _)| cell == number);
        Ok(known.and_then(|(_, derivatives)| derivatives.get(variable.position)).cloned())
    }
}

/// Returns the cotangents of a plan by the number of the row, joined to an input where the column with that number originates, as
/// columns of it.
///
/// ```text
/// Full Join: w.part = v.part                   Full Join: w.part = v.part
///   Projection: ∂rows.val, ∂row                  Left Join: ∂row = ∂row #2
///     TableScan: ∂rows                  ->         Projection: ∂rows.val, ∂row
///   ...                                              TableScan: ∂rows
///                                                  TableScan: ∂sums
///                                                ...
/// ```
fn at_origin(
    input: &mut LogicalPlan,
    number: &Column,
    (plan, row, cotangents): (LogicalPlan, Column, Vec<Column>),
    names: &mut Names,
) -> Result<Vec<Column>> {
    let before = columns(input.schema());
    let mut passed = vec![];
    for cotangent in cotangents {
        let index = input.schema().index_of_column(number)?;
        let (with, column) = pull_up_column(std::mem::take(input), index, names, &mut |node, index, _| {
            // The join is there already, for another cotangent.
            if node.schema().has_column(&cotangent) {
                return Ok(Some((node.clone(), cotangent.clone())));
            }
            let is_passed_on = match node {
                // The numbered rows, under the names of the relation.
                LogicalPlan::Projection(projection)
                    if matches!(projection.input.as_ref(), LogicalPlan::TableScan(_)) =>
                {
                    false
                }
                LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Join(_) => {
                    origin(node, index)? != Origin::Here
                }
                _ => false,
            };
            if is_passed_on {
                return Ok(None);
            }
            let number = Column::from(node.schema().qualified_field(index));
            let on = vec![(Expr::Column(number), Expr::Column(row.clone()))];
            let null_equality = NullEquality::NullEqualsNothing;
            let with = joined(node.clone(), plan.clone(), on, None, JoinType::Left, null_equality)?;
            Ok(Some((with, cotangent.clone())))
        })?;
        *input = with;
        passed.push(column);
    }
    // Added columns come after the others.
    if columns(input.schema())[..before.len()] != before {
        let exprs = before.into_iter().chain(passed.iter().cloned().map(Expr::Column)).collect();
        *input = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(std::mem::take(input)))?);
    }
    Ok(passed)
}

/// Returns an input joined to a derivative for pairs of a row of a query in FROM and one of a variable, without the other pairs. `keys`
/// are the numbers of both rows in the input, each with that in the derivative.
///
/// ```text
/// Cross Join:                            Inner Join: h.∂of = ∂of #2
///   SubqueryAlias: h                       SubqueryAlias: h
///   Projection: w.val, ∂row      ->        Inner Join: ∂row #2 = ∂row
///                                            TableScan: the derivative
///                                            Projection: w.val, ∂row
/// ```
fn with_pairs(input: LogicalPlan, keys: [(Column, Column); 2], pairs: LogicalPlan) -> Result<LogicalPlan> {
    let inner = |left, right, on: Vec<(Column, Column)>| {
        let on = on.into_iter().map(|(a, b)| (Expr::Column(a), Expr::Column(b))).collect();
        joined(left, right, on, None, JoinType::Inner, NullEquality::NullEqualsNothing)
    };
    let [(own, of), (number, row)] = keys;
    match input {
        // A projection that only reorders the columns of the join.
        LogicalPlan::Projection(projection) if projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_))) => {
            let keys = [(own, of), (number, row)];
            let mut exprs = projection.expr;
            exprs.extend(columns(pairs.schema()));
            let input = with_pairs(Arc::unwrap_or_clone(projection.input), keys, pairs)?;
            Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?))
        }
        LogicalPlan::Join(join)
            if join.join_type == JoinType::Inner
                && join.left.schema().has_column(&own) != join.left.schema().has_column(&number) =>
        {
            let (left, right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
            let ends = if join.left.schema().has_column(&own) {
                [(own, of), (number, row)]
            } else {
                [(number, row), (own, of)]
            };
            let [first, second] = ends;
            let right = inner(pairs, right, vec![(second.1, second.0)])?;
            let mut on = vec![(Expr::Column(first.0), Expr::Column(first.1))];
            on.extend(join.on);
            joined(left, right, on, join.filter, JoinType::Inner, join.null_equality)
        }
        other => inner(other, pairs, vec![(own, of), (number, row)]),
    }
}

/// Returns the plan with further columns, in its topmost projection where that only passes on what they read.
fn with_further_columns(plan: LogicalPlan, exprs: Vec<Expr>) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(projection) = &plan else { return with_columns(plan, exprs) };
    let mut all = projection.expr.clone();
    let mut is_passed_on = true;
    for expr in &exprs {
        let below = expr.clone().transform_up(|part| {
            let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
            let index = projection.schema.index_of_column(column)?;
            match unaliased(&projection.expr[index]) {
                Expr::Column(below) => Ok(Transformed::yes(Expr::Column(below.clone()))),
                _ => {
                    is_passed_on = false;
                    Ok(Transformed::no(part))
                }
            }
        })?;
        all.push(below.data);
    }
    if !is_passed_on {
        return with_columns(plan, exprs);
    }
    Ok(LogicalPlan::Projection(Projection::try_new(all, Arc::clone(&projection.input))?))
}

/// Returns the columns of a derivative, and these as a tangent. `nothing` is the condition that nothing contributes to
/// it.
pub fn tangent_columns(
    derivative: Expr,
    name: String,
    nothing: Option<Expr>,
    names: &mut Names,
) -> Result<(Vec<Expr>, TangentColumn)> {
    let mut exprs = vec![derivative.alias(name.clone())];
    let mut inactive = None;
    if let Some(nothing) = nothing {
        let name = names.part("inactive");
        exprs.push(Inactive::number(nothing)?.alias(name.clone()));
        inactive = Some(Inactive { column: Column::new_unqualified(name), data_type: DataType::Float64 });
    }
    Ok((exprs, TangentColumn { column: Column::new_unqualified(name), inactive }))
}

/// Records a derivative of a value by one of the origins of the variable.
pub fn add_part(parts: &mut Vec<(Column, Vec<TangentColumn>)>, value: &Column, derivative: Option<TangentColumn>) {
    match parts.iter_mut().find(|(known, _)| known == value) {
        Some((_, known)) => known.extend(derivative),
        None => parts.push((value.clone(), derivative.into_iter().collect())),
    }
}

/// Returns the derivatives of values. Each is the sum of the derivatives by all origins of the variable.
pub fn totals(
    parts: Vec<(Column, Vec<TangentColumn>)>,
    variable: &Column,
    input: &mut LogicalPlan,
    names: &mut Names,
) -> Result<Vec<(Column, Tangent)>> {
    let mut tangents = vec![];
    for (value, parts) in parts {
        if let [part] = parts.as_slice() {
            tangents.push((value, Tangent::Column(part.clone())));
            continue;
        }
        let nothing: Option<Vec<_>> = parts.iter().map(TangentColumn::condition).collect();
        let nothing = nothing.and_then(|parts| parts.into_iter().reduce(Expr::and));
        let parts = parts.into_iter().map(|part| Expr::Column(part.column));
        let Some(total) = parts.reduce(|sum, part| binary_expr(sum, Operator::Plus, part)) else { continue };
        let name = names.tangent("value", &variable.name);
        let (exprs, total) = tangent_columns(total, name, nothing, names)?;
        *input = with_columns(std::mem::take(input), exprs)?;
        tangents.push((value, Tangent::Column(total)));
    }
    Ok(tangents)
}

/// Returns a derivative by row, NULL where the row's own value is NULL.
pub fn null_with(variable: &Expr, derivative: Expr) -> Result<Expr> {
    when(variable.clone().is_not_null(), derivative).end()
}
