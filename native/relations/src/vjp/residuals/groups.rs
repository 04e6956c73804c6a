//! Residuals with groups of the rows of a segment.

use datafusion_common::{Column, JoinType, NullEquality, Result, internal_err};
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::logical_plan::JoinConstraint;
use datafusion_expr::{Aggregate, Expr, ExprSchemable, Filter, Join, LogicalPlan, Operator, binary_expr, lit, when};
use datafusion_functions_aggregate::count::count_all;
use std::sync::Arc;
use xql_autodiff::vocabulary::types::can_vary;

use super::materialized::{PulledBack, Stored};
use super::partials::{Partials, Shares};
use crate::shared_relation::SharedRelation;
use crate::vjp::cotangents::{Cotangents, RowCotangents, is_not_zero, product_at_zero};
use crate::vjp::segment::{RenamedRows, Segment, joined};
use crate::vocabulary::expressions::is_of_one_row;
use crate::vocabulary::names::{Names, columns, named};

/// The number of rows that a group may have.
#[derive(Debug, Clone, Copy)]
pub enum Members {
    /// One. More are an error when the query runs.
    One,
    /// As many as there are.
    Any,
}

/// Groups of the rows of a segment by keys.
pub struct Groups {
    /// The segment.
    below: Segment,
    /// The keys, among its columns.
    keys: Vec<Column>,
    /// The columns of the groups that vary: keys, and then aggregates.
    aggregates: Vec<Partials>,
}

/// A column of the groups that the sweep has reached.
struct ReachedColumn<'g> {
    partials: &'g Partials,
    /// Its position among the columns of the groups.
    position: usize,
    cotangent: Expr,
    /// The number of rows with the value of a minimum or maximum.
    ties: Option<Expr>,
}

/// The groups with columns that the partial derivatives read.
struct Table {
    plan: LogicalPlan,
    /// The columns of the groups, the number of the group last.
    columns: Vec<Expr>,
    /// The column with the numbers of the values that the cotangents are by, if there are several.
    of: Option<Column>,
}

impl Table {
    fn new(plan: LogicalPlan, columns: Vec<Column>) -> Self {
        Self { plan, columns: columns.into_iter().map(Expr::Column).collect(), of: None }
    }
}

impl Groups {
    /// Returns a residual with the groups of the rows of a segment: first their keys, then the aggregates, each with the call as the user
    /// wrote it.
    pub fn computed(
        mut below: Segment,
        keys: Vec<Column>,
        calls: Vec<(AggregateFunction, Expr)>,
        members: Members,
        names: &mut Names,
    ) -> Result<(Stored, Self)> {
        let mut functions = vec![];
        let mut varying = vec![];
        let mut aggregates = vec![];
        for (number, key) in keys.iter().enumerate() {
            if below.varying.contains(&key.name) {
                varying.push(number);
                aggregates.push(Partials::of_key(key));
            }
        }
        for (number, (call, original)) in calls.iter().enumerate() {
            let function = Expr::AggregateFunction(call.clone());
            let mut varies = false;
            for argument in &call.params.args {
                varies |= below.varies(argument)?;
            }
            if varies && can_vary(&function.get_type(below.plan.schema())?) {
                varying.push(keys.len() + number);
                aggregates.push(partials_of(call, original, members, &below)?);
            }
            functions.push(function.alias(names.part(call.func.name())));
        }
        let mut shares = Shares::default();
        for partials in &mut aggregates {
            partials.add_share(&mut shares, below.plan.schema(), &keys, names)?;
            partials.add_statistics(&mut functions, keys.len(), names)?;
        }
        below.plan = shares.over(below.plan)?;
        let group = keys.iter().cloned().map(Expr::Column).collect();
        let groups = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(below.plan.clone()), group, functions)?);
        let single = keys.is_empty();
        let relation = if single {
            SharedRelation::new(names.part("groups"), groups)
        } else {
            let exprs = columns(groups.schema());
            let groups = named(groups, &exprs, names)?;
            SharedRelation::numbered(names.part("groups"), groups, &names.part("row"))
        };
        let stored = Stored { relation: Arc::new(relation), single, varying };
        Ok((stored, Self { below, keys, aggregates }))
    }

    /// Returns the rows below, each with the cotangents of its group times the partial derivatives by the row.
    ///
    /// ```text
    /// Join: the keys of the rows IS NOT DISTINCT FROM those of the groups
    ///   the rows below
    ///   Join: the numbers of the groups
    ///     the groups
    ///     the cotangents of the groups
    /// ```
    pub fn pullback(
        &self,
        residual: &Stored,
        total: RowCotangents,
        keeps_zeros: bool,
        names: &mut Names,
    ) -> Result<PulledBack<'_>> {
        let of_columns = self.aggregates.iter().zip(&residual.varying).zip(total.of_columns());
        let reached = of_columns.filter_map(|((partials, position), cotangent)| {
            Some(ReachedColumn { partials, position: *position, cotangent: cotangent?, ties: None })
        });
        let mut reached = reached.collect();
        let groups = self.with_cotangents(residual, total, &mut reached, names)?;
        let rows = self.with_groups(groups.plan, &groups.columns)?;
        let mut cotangents = Cotangents::default();
        for ReachedColumn { partials, position, cotangent, ties } in reached {
            let value = &groups.columns[position];
            let has_value = value.clone().is_not_null();
            let factors = Factors { cotangent: &cotangent, are_finite: partials.are_shares(), keeps_zeros };
            let partials = partials.over_group(value, &groups.columns, ties)?;
            for (input, product) in products(partials, &has_value, &factors)? {
                if self.below.varying.contains(&input.name) {
                    cotangents.add(&input.name, product);
                }
            }
        }
        Ok(PulledBack { below: &self.below, rows, of: groups.of, cotangents })
    }

    /// Returns the groups with their cotangents and ties, under names of their own.
    fn with_cotangents(
        &self,
        residual: &Stored,
        total: RowCotangents,
        reached: &mut Vec<ReachedColumn>,
        names: &mut Names,
    ) -> Result<Table> {
        // Ties are counted over the groups alone, and what has come with its group needs no join.
        let has_ties = reached.iter().any(|column| column.partials.has_ties());
        let of = total.of.clone().map(Expr::Column);
        let (mut groups, total) = if has_ties || total.own.is_empty() {
            let own = residual.scan(names)?;
            (Table::new(own.plan, own.columns), Some(total))
        } else {
            (Table::new(total.plan, total.own), None)
        };
        for column in reached.iter_mut() {
            if let Some(chosen) = column.partials.chosen(&groups.columns[column.position]) {
                column.ties = Some(self.ties(&mut groups, chosen, names)?);
            }
        }
        if let Some(total) = total {
            let on = groups.columns.last().cloned().zip(total.row.map(Expr::Column)).into_iter().collect();
            let nulls = NullEquality::NullEqualsNothing;
            groups.plan = joined(groups.plan, total.plan, on, None, JoinType::Inner, nulls)?;
        }
        // DataFusion orders inner joins anew, and would join all rows below to both, one after the other, but for the projection
        // that gives the names.
        let own = RenamedRows::new(groups.plan, names)?;
        let now = |expr: &Expr| match expr.try_as_col().and_then(|column| own.column(column)) {
            Some(column) => Ok(Expr::Column(column.clone())),
            None => internal_err!("{expr} is no column of the groups"),
        };
        for column in reached {
            column.cotangent = now(&column.cotangent)?;
            column.ties = column.ties.as_ref().map(now).transpose()?;
        }
        let columns = groups.columns.iter().map(now).collect::<Result<_>>()?;
        let of = of.as_ref().map(now).transpose()?.and_then(|of| of.try_as_col().cloned());
        Ok(Table { plan: own.plan, columns, of })
    }

    /// Adds to each group the number of its rows that are chosen.
    fn ties(&self, groups: &mut Table, chosen: Expr, names: &mut Names) -> Result<Expr> {
        let on = groups.columns.iter().cloned().zip(self.keys.iter().cloned().map(Expr::Column)).collect();
        let nulls = NullEquality::NullEqualsNull;
        // Groups are fewer than their rows, and DataFusion holds the left side where it knows of neither how many rows it has.
        let rows = joined(groups.plan.clone(), self.below.plan.clone(), on, None, JoinType::Inner, nulls)?;
        let rows = LogicalPlan::Filter(Filter::try_new(chosen, Arc::new(rows))?);
        let count = Column::new_unqualified(names.part("ties"));
        let counted = count_all().unalias_nested().data.alias(count.name.clone());
        let mut on = vec![];
        let mut group = vec![];
        if let Some(row) = groups.columns.last().filter(|_| !self.keys.is_empty()) {
            let number = Column::new_unqualified(names.part("row"));
            group.push(row.clone().alias(number.name.clone()));
            on.push((row.clone(), Expr::Column(number)));
        }
        let counted = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(rows), group, vec![counted])?);
        let all = std::mem::take(&mut groups.plan);
        groups.plan = joined(all, counted, on, None, JoinType::Left, NullEquality::NullEqualsNothing)?;
        Ok(Expr::Column(count))
    }

    /// Returns the rows below, each with its group.
    ///
    /// An inner join would need null-safe keys (see [`null_safe_keys`](crate::vjp::segment::null_safe_keys)), which are
    /// slower. DataFusion does not merge an outer join with others, and a row whose group has no cotangents contributes
    /// nothing.
    fn with_groups(&self, groups: LogicalPlan, by_group: &[Expr]) -> Result<LogicalPlan> {
        let rows = self.below.plan.clone();
        if self.keys.is_empty() {
            // DataFusion holds the left side of a product, and goes through the other one for each of its rows.
            return joined(groups, rows, vec![], None, JoinType::Inner, NullEquality::NullEqualsNothing);
        }
        let on = by_group.iter().cloned().zip(self.keys.iter().cloned().map(Expr::Column)).collect();
        let (of, nulls) = (JoinConstraint::On, NullEquality::NullEqualsNull);
        let join = Join::try_new(Arc::new(groups), Arc::new(rows), on, None, JoinType::Right, of, nulls, false)?;
        Ok(LogicalPlan::Join(join))
    }
}

fn partials_of(call: &AggregateFunction, original: &Expr, members: Members, below: &Segment) -> Result<Partials> {
    match (members, call.params.args.first()) {
        (Members::One, Some(value)) => Ok(Partials::of_only(value)),
        (_, Some(value)) if is_of_one_row(original) => {
            let row = below.leaves.first().and_then(|leaf| leaf.row.clone());
            let Some(row) = row else { return internal_err!("the rows of a group have no numbers") };
            Partials::of_chosen(call, value, row)
        }
        _ => Partials::try_new(call, original, below.plan.schema()),
    }
}

/// Returns the cotangents of a row of a group: those of the group, times the partial derivatives by the row. An
/// aggregate without a value, such as `regr_slope` of one row, has no derivative and contributes nothing. A group whose
/// cotangent is 0 contributes nothing either, even if its derivative is infinite, as that of `corr` is where all values
/// of one side are equal.
fn products(partials: Vec<(Expr, Expr)>, has_value: &Expr, factors: &Factors) -> Result<Vec<(Column, Expr)>> {
    let Factors { cotangent, are_finite, keeps_zeros } = *factors;
    let mut products = vec![];
    for (input, partial) in partials {
        let Expr::Column(input) = input else { continue };
        let product = || binary_expr(cotangent.clone(), Operator::Multiply, partial.clone());
        let product = if partial == lit(1.0) {
            cotangent.clone()
        } else if are_finite {
            when(has_value.clone(), product()).end()?
        } else if keeps_zeros {
            when(has_value.clone(), product_at_zero(cotangent, product(), partial.clone())?).end()?
        } else {
            when(has_value.clone().and(is_not_zero(cotangent.clone())), product()).end()?
        };
        products.push((input, product));
    }
    Ok(products)
}

/// The factors of partial derivatives.
struct Factors<'f> {
    cotangent: &'f Expr,
    /// Whether the partial derivatives are always finite.
    are_finite: bool,
    /// Whether a product that is 0 stays 0, and is not NULL.
    keeps_zeros: bool,
}
