//! Cotangents swept down from a value to the rows of the variable.

use arrow::datatypes::DataType;
use datafusion_common::{Column, JoinType, NullEquality, Result, ScalarValue, internal_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::logical_plan::JoinConstraint;
use datafusion_expr::{
    Aggregate, Expr, Filter, Join, LogicalPlan, Operator, Projection, ScalarUDF, binary_expr, cast, lit, union, when,
};
use datafusion_functions::core::expr_fn::nullif;
use datafusion_functions_aggregate::count::count_all;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use xql_autodiff::is_smooth;

use super::cotangents::{Cotangents, RowCotangents, is_not_zero, positive_zero, sums};
use super::region::{Leaf, Region, joined};
use super::stage::{Rows, Stages, read, renamed};
use crate::shared::SharedRelation;
use crate::vocabulary::names::{Names, with_columns};

/// The gradients of the first column of a region of one row, by the number of the variable, without those that it does not vary
/// with. `tangent` is the `jvp` of a single expression.
pub fn gradients(
    region: &Region,
    stages: &Stages,
    names: &mut Names,
    tangent: &Arc<ScalarUDF>,
) -> Result<BTreeMap<usize, RowCotangents>> {
    let mut gradients = BTreeMap::new();
    let mut cotangents = Cotangents::default();
    match region.columns.first() {
        Some(value) if region.varying.contains(&value.name) => cotangents.add(&value.name, lit(1.0)),
        _ => return Ok(gradients),
    }
    let contributions = (0..stages.count()).map(|_| vec![]).collect();
    let mut sweep = Sweep { names, stages, tangent, contributions };
    sweep.region(region, region.plan.clone(), cotangents)?;
    let variables: HashMap<_, _> = stages.of_variables().collect();
    // A stage reads lower ones only, so that by its turn all that reads it has contributed.
    for id in (0..stages.count()).rev() {
        let contributions = std::mem::take(&mut sweep.contributions[id]);
        let Some(total) = sweep.total(contributions)? else { continue };
        match variables.get(&id) {
            Some(variable) => {
                gradients.insert(*variable, total);
            }
            None => sweep.stage(id, total)?,
        }
    }
    Ok(gradients)
}

struct Sweep<'a> {
    names: &'a mut Names,
    stages: &'a Stages,
    tangent: &'a Arc<ScalarUDF>,
    /// What the readers of each stage have contributed so far.
    contributions: Vec<Vec<RowCotangents>>,
}

impl Sweep<'_> {
    /// Carries the cotangents of columns through a region to its leaves. `rows` are the rows of the region, with columns that
    /// the cotangents read.
    fn region(&mut self, region: &Region, mut rows: LogicalPlan, mut cotangents: Cotangents) -> Result<()> {
        for step in region.steps.iter().rev() {
            let Some(cotangent) = cotangents.get(&step.output, &rows)? else { continue };
            if let Expr::Column(input) = &step.expr {
                cotangents.add(&input.name, cotangent);
                continue;
            }
            let cotangent = self.column(&mut rows, cotangent)?;
            let tangent = |input: &Column, direction: &Expr| {
                let arguments = vec![step.expr.clone(), Expr::Column(input.clone()), direction.clone()];
                let tangent = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(self.tangent), arguments));
                cast(tangent, DataType::Float64)
            };
            let inputs = region.varying_in(&step.expr);
            // A row that does not contribute has the cotangent NULL, and so have its inputs.
            if is_smooth(&step.expr, rows.schema())? {
                for input in inputs {
                    let partial = tangent(&input, &lit(1.0));
                    cotangents.add(&input.name, binary_expr(cotangent.clone(), Operator::Multiply, partial));
                }
                continue;
            }
            // Its derivative may be infinite, as in max(sqrt(x)) at 0. Where it is 0, as that of a value which a choice does not take,
            // what the input is computed from contributes nothing, though it be NaN:
            // SUM(CASE WHEN isnan(x) THEN 0 ELSE a END) over SELECT x, x * w AS a
            let contributes = is_not_zero(cotangent.clone());
            for input in inputs {
                let product = when(contributes.clone(), tangent(&input, &cotangent)).end()?;
                let product = nullif(positive_zero(product), lit(0.0));
                cotangents.add(&input.name, product);
            }
        }
        let mut contributions = vec![];
        for leaf in &region.leaves {
            let found = leaf.columns.iter().map(|column| cotangents.get(column, &rows)).collect::<Result<Vec<_>>>()?;
            if found.iter().any(Option::is_some) {
                contributions.push((leaf, found));
            }
        }
        if contributions.len() > 1 && !region.single {
            return self.shared_contributions(contributions, rows);
        }
        for (leaf, found) in contributions {
            let own = if leaf.repeated { &[] } else { leaf.own.as_slice() };
            self.contribution(leaf, leaf.row.clone(), leaf.present.clone(), rows.clone(), found, own)?;
        }
        Ok(())
    }

    /// A cotangent as a column of the rows.
    fn column(&mut self, rows: &mut LogicalPlan, cotangent: Expr) -> Result<Expr> {
        if matches!(cotangent, Expr::Column(_) | Expr::Literal(..)) {
            return Ok(cotangent);
        }
        let name = self.names.part("cotangent");
        *rows = with_columns(std::mem::take(rows), vec![cotangent.alias(name.clone())])?;
        Ok(Expr::Column(Column::new_unqualified(name)))
    }

    /// What the rows of a region, which are computed once, contribute to several stages.
    fn shared_contributions(
        &mut self,
        contributions: Vec<(&Leaf, Vec<Option<Expr>>)>,
        rows: LogicalPlan,
    ) -> Result<()> {
        let mut exprs: Vec<Expr> = vec![];
        let mut positions = vec![];
        for (leaf, cotangents) in &contributions {
            let mut position = |expr: Expr| {
                exprs.push(expr.alias(self.names.part("cotangent")));
                exprs.len() - 1
            };
            let [row, present] =
                [&leaf.row, &leaf.present].map(|column| column.clone().map(Expr::Column).map(&mut position));
            let cotangents: Vec<_> = cotangents.iter().map(|cotangent| cotangent.clone().map(&mut position)).collect();
            positions.push((row, present, cotangents));
        }
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows))?);
        let relation = Arc::new(SharedRelation::new(self.names.part("cotangents"), plan));
        for ((leaf, _), (row, present, cotangents)) in contributions.into_iter().zip(positions) {
            let rows = read(&relation, self.names)?;
            let column = |position: usize| rows.columns[position].clone();
            let cotangents =
                cotangents.into_iter().map(|cotangent| cotangent.map(|at| Expr::Column(column(at)))).collect();
            self.contribution(leaf, row.map(column), present.map(column), rows.plan.clone(), cotangents, &[])?;
        }
        Ok(())
    }

    /// What the rows of a region contribute to rows of a stage that it reads.
    fn contribution(
        &mut self,
        leaf: &Leaf,
        number: Option<Column>,
        present: Option<Column>,
        mut rows: LogicalPlan,
        cotangents: Vec<Option<Expr>>,
        own: &[Column],
    ) -> Result<()> {
        let mut exprs = vec![];
        let mut row = None;
        if let Some(column) = number.as_ref().or(present.as_ref()) {
            rows = where_known(rows, column)?;
        }
        if let Some(number) = number {
            let named = Column::new_unqualified(self.names.part("row"));
            exprs.push(Expr::Column(number).alias(named.name.clone()));
            row = Some(named);
        }
        let reached = cotangents.iter().map(Option::is_some).collect();
        let mut named = vec![];
        for cotangent in cotangents {
            let name = self.names.part("cotangent");
            // Nothing is not 0: another reader may reach the column in other rows, and the derivative may be NaN in these.
            exprs.push(cotangent.unwrap_or_else(|| lit(ScalarValue::Float64(None))).alias(name.clone()));
            named.push(Column::new_unqualified(name));
        }
        let mut beside = vec![];
        for column in own {
            let name = self.names.part(&column.name);
            exprs.push(Expr::Column(column.clone()).alias(name.clone()));
            beside.push(Column::new_unqualified(name));
        }
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows))?);
        let repeated = leaf.repeated;
        self.contributions[leaf.stage].push(RowCotangents {
            plan,
            row,
            cotangents: named,
            reached,
            own: beside,
            repeated,
        });
        Ok(())
    }

    /// All contributions to the rows of a stage, each row once.
    fn total(&mut self, contributions: Vec<RowCotangents>) -> Result<Option<RowCotangents>> {
        let several = contributions.len() > 1;
        let mut contributions = contributions.into_iter();
        let Some(first) = contributions.next() else { return Ok(None) };
        if !several && !first.repeated {
            return Ok(Some(first));
        }
        let mut first = first.alone()?;
        for other in contributions {
            let other = other.alone()?;
            first.plan = union(first.plan, other.plan)?;
            first.reached.iter_mut().zip(other.reached).for_each(|(reached, also)| *reached |= also);
        }
        sums(first.plan, first.row, first.cotangents, first.reached, self.names).map(Some)
    }

    /// Carries the cotangents of the rows of a stage to what it is computed from.
    fn stage(&mut self, id: usize, total: RowCotangents) -> Result<()> {
        let Some(stage) = self.stages.get(id) else { return internal_err!("stage {id} is missing") };
        let reached = total.cotangents.iter().cloned().map(Expr::Column).zip(&total.reached);
        let cotangents: Vec<_> = reached.map(|(cotangent, reached)| reached.then_some(cotangent)).collect();
        let none = NullEquality::NullEqualsNothing;
        match &stage.rows {
            Rows::Variable(_) | Rows::Constant => Ok(()),
            // The rows as they were computed, each with its cotangents.
            Rows::Same { below, columns } => {
                let (Some(row), Some(number)) = (total.row, below.columns.last()) else {
                    return internal_err!("rows have no numbers");
                };
                let on = vec![(Expr::Column(number.clone()), Expr::Column(row))];
                let rows = joined(below.plan.clone(), total.plan, on, None, JoinType::Inner, none)?;
                let mut found = Cotangents::default();
                for (column, cotangent) in columns.iter().zip(cotangents) {
                    if let Some(cotangent) = cotangent {
                        found.add(&column.name, cotangent);
                    }
                }
                self.region(below, rows, found)
            }
            // ```text
            // Join: the keys of the rows IS NOT DISTINCT FROM those of the groups
            //   the rows below
            //   Join: the numbers of the groups
            //     the groups
            //     the cotangents of the groups
            // ```
            Rows::Groups { below, keys, aggregates } => {
                // Ties are counted over the groups alone, and what has come with its group needs no join.
                let reached: Vec<_> = aggregates
                    .iter()
                    .zip(&stage.varying)
                    .zip(cotangents)
                    .filter_map(|(aggregate, cotangent)| Some((aggregate, cotangent?)))
                    .collect();
                let ties = reached.iter().any(|((partials, _), _)| partials.has_ties());
                let (mut groups, by_group, total) = if ties || total.own.is_empty() {
                    let own = stage.scan(self.names)?;
                    (own.plan, own.columns, Some((total.row, total.plan)))
                } else {
                    (total.plan, total.own, None)
                };
                let by_group: Vec<_> = by_group.into_iter().map(Expr::Column).collect();
                let mut ties = vec![];
                for ((partials, value), _) in &reached {
                    let chosen = partials.chosen(&by_group[**value]);
                    ties.push(match chosen {
                        Some(chosen) => Some(self.ties(below, keys, &mut groups, &by_group, chosen)?),
                        None => None,
                    });
                }
                if let Some((row, total)) = total {
                    let on = by_group.last().cloned().zip(row.map(Expr::Column)).into_iter().collect();
                    groups = joined(groups, total, on, None, JoinType::Inner, none)?;
                }
                // DataFusion orders inner joins anew, and would join all rows below to both, one after the other, but for the
                // projection that gives the names.
                let known = groups.schema().columns();
                let groups = renamed(groups, self.names)?;
                let now = |expr: &Expr| {
                    let position = known.iter().position(|column| matches!(expr, Expr::Column(own) if own == column));
                    let renamed = position.and_then(|position| groups.columns.get(position)).cloned();
                    renamed.map_or_else(
                        || internal_err!("{expr} is no column of the groups"),
                        |column| Ok(Expr::Column(column)),
                    )
                };
                let by_group: Vec<_> = by_group.iter().map(now).collect::<Result<_>>()?;
                let ties: Vec<_> = ties.iter().map(|ties| ties.as_ref().map(now).transpose()).collect::<Result<_>>()?;
                let groups = groups.plan;
                let rows = with_groups(below, keys, groups, &by_group)?;
                let mut found = Cotangents::default();
                for (((partials, value), cotangent), ties) in reached.into_iter().zip(ties) {
                    let cotangent = now(&cotangent)?;
                    let value = &by_group[*value];
                    let mut contributes = value.clone().is_not_null();
                    if !partials.are_shares() {
                        contributes = contributes.and(is_not_zero(cotangent.clone()));
                    }
                    let partials = partials.over_group(value, &by_group, ties)?;
                    for (input, product) in products(partials, &contributes, &cotangent)? {
                        if below.varying.contains(&input.name) {
                            found.add(&input.name, product);
                        }
                    }
                }
                self.region(below, rows, found)
            }
        }
    }

    /// Adds to groups how many of their rows have the value of an aggregate.
    fn ties(
        &mut self,
        below: &Region,
        keys: &[Column],
        groups: &mut LogicalPlan,
        by_group: &[Expr],
        chosen: Expr,
    ) -> Result<Expr> {
        let on: Vec<_> = keys.iter().cloned().map(Expr::Column).zip(by_group.iter().cloned()).collect();
        let nulls = NullEquality::NullEqualsNull;
        let rows = joined(below.plan.clone(), groups.clone(), on, None, JoinType::Inner, nulls)?;
        let rows = LogicalPlan::Filter(Filter::try_new(chosen, Arc::new(rows))?);
        let count = Column::new_unqualified(self.names.part("ties"));
        let counted = count_all().unalias_nested().data.alias(count.name.clone());
        let mut on = vec![];
        let mut group = vec![];
        if let Some(row) = by_group.last().filter(|_| !keys.is_empty()) {
            let number = Column::new_unqualified(self.names.part("row"));
            group.push(row.clone().alias(number.name.clone()));
            on.push((row.clone(), Expr::Column(number)));
        }
        let counted = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(rows), group, vec![counted])?);
        let all = std::mem::take(groups);
        *groups = joined(all, counted, on, None, JoinType::Left, NullEquality::NullEqualsNothing)?;
        Ok(Expr::Column(count))
    }
}

/// The rows of a region, each with its group.
///
/// An inner join would take keys that may be NULL apart (see [`told_apart`](super::region::told_apart)), which costs. One that keeps
/// all rows DataFusion leaves as it is, and a row whose group has no cotangents contributes nothing.
fn with_groups(below: &Region, keys: &[Column], groups: LogicalPlan, by_group: &[Expr]) -> Result<LogicalPlan> {
    if keys.is_empty() {
        // DataFusion holds the left side of a product, and goes through the other one for each of its rows.
        let none = NullEquality::NullEqualsNothing;
        return joined(groups, below.plan.clone(), vec![], None, JoinType::Inner, none);
    }
    let on = by_group.iter().cloned().zip(keys.iter().cloned().map(Expr::Column)).collect();
    let (groups, rows) = (Arc::new(groups), Arc::new(below.plan.clone()));
    let (of, nulls) = (JoinConstraint::On, NullEquality::NullEqualsNull);
    Ok(LogicalPlan::Join(Join::try_new(groups, rows, on, None, JoinType::Right, of, nulls, false)?))
}

/// The cotangents that a row of a group gets: those of the group times the partial derivatives by the row. Where the aggregate has
/// no value, as `regr_slope` of one row, its derivative has none either, and nothing is contributed. Nor is it by a group that does
/// not count, though its derivative be infinite, as that of `corr` is where all values of one side are equal.
fn products(partials: Vec<(Expr, Expr)>, contributes: &Expr, cotangent: &Expr) -> Result<Vec<(Column, Expr)>> {
    let mut products = vec![];
    for (input, partial) in partials {
        let Expr::Column(input) = input else { continue };
        let product = if partial == lit(1.0) {
            cotangent.clone()
        } else {
            let product = binary_expr(cotangent.clone(), Operator::Multiply, partial);
            when(contributes.clone(), product).end()?
        };
        products.push((input, product));
    }
    Ok(products)
}

/// The rows that have a row of the leaf, by a column of it that is not NULL but where a join has extended them.
fn where_known(rows: LogicalPlan, column: &Column) -> Result<LogicalPlan> {
    let (_, field) = rows.schema().qualified_field_from_column(column)?;
    if !field.is_nullable() {
        return Ok(rows);
    }
    let is_there = Expr::Column(column.clone()).is_not_null();
    Ok(LogicalPlan::Filter(Filter::try_new(is_there, Arc::new(rows))?))
}
