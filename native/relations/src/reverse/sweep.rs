//! Cotangents swept down from a value to the rows of the variable.

use arrow::datatypes::DataType;
use datafusion_common::{Column, JoinType, NullEquality, Result, internal_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{
    Aggregate, Expr, ExprSchemable, Filter, LogicalPlan, Projection, ScalarUDF, binary_expr, cast, lit, union,
};
use datafusion_expr::Operator;
use datafusion_functions::core::expr_fn::coalesce;
use datafusion_functions_aggregate::sum::sum;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::partials::Group;
use super::region::{Leaf, Reduction, Region, Regions, Source, joined};
use super::variable::RowVariable;
use crate::names::{Names, columns};
use crate::shared::scan;

/// The derivatives of a value by the rows of the variables that it depends on, each row once.
pub struct ByRow {
    pub plan: LogicalPlan,
    /// The number of the row.
    pub row: Column,
    /// The derivative by each of the variables.
    pub derivatives: Vec<Column>,
}

/// The region of one row that a plan of one value is.
pub fn value(plan: &LogicalPlan, variable: &RowVariable, names: &mut Names) -> Result<Region> {
    Regions { names, variable }.only_row(plan)
}

/// The gradient of the first column of a region of one row; none if it does not vary. `tangent` is the `jvp` of a single
/// expression.
pub fn gradient(
    region: &Region,
    variable: &RowVariable,
    names: &mut Names,
    tangent: &Arc<ScalarUDF>,
) -> Result<Option<ByRow>> {
    let mut cotangents = Cotangents::default();
    match region.columns.first() {
        Some(value) if region.varying.contains(&value.name) => cotangents.add(&value.name, lit(1.0)),
        _ => return Ok(None),
    }
    let mut sweep = Sweep { regions: Regions { names, variable }, tangent, contributions: vec![] };
    sweep.region(region, region.plan.clone(), cotangents)?;
    sweep.summed()
}

/// The cotangents of columns, as sums. None of them is NULL: what has no value contributes nothing.
#[derive(Debug, Default)]
struct Cotangents(BTreeMap<String, Vec<Expr>>);

impl Cotangents {
    fn add(&mut self, column: &str, cotangent: Expr) {
        self.0.entry(column.to_owned()).or_default().push(cotangent);
    }

    fn take(&mut self, column: &str) -> Option<Expr> {
        self.0.remove(column)?.into_iter().reduce(|sum, term| binary_expr(sum, Operator::Plus, term))
    }
}

struct Sweep<'a> {
    regions: Regions<'a>,
    tangent: &'a Arc<ScalarUDF>,
    /// Rows of the variable with what they contribute, and whether a row may be among them more than once.
    contributions: Vec<(ByRow, bool)>,
}

impl Sweep<'_> {
    /// Carries the cotangents of columns through a region to its leaves. `rows` are the rows of the region, with columns that
    /// the cotangents read.
    fn region(&mut self, region: &Region, mut rows: LogicalPlan, mut cotangents: Cotangents) -> Result<()> {
        for step in region.steps.iter().rev() {
            let Some(cotangent) = cotangents.take(&step.output) else { continue };
            let cotangent = self.column(&mut rows, &step.output, cotangent)?;
            for input in region.varying_in(&step.expr) {
                let arguments = vec![step.expr.clone(), Expr::Column(input.clone()), cotangent.clone()];
                let product = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(self.tangent), arguments));
                let product = cast(product, DataType::Float64);
                let is_null = step.expr.nullable(rows.schema())?;
                cotangents.add(&input.name, if is_null { coalesce(vec![product, lit(0.0)]) } else { product });
            }
        }
        for leaf in &region.leaves {
            match &leaf.source {
                Source::Variable(columns) => {
                    let cotangents: Vec<_> = columns.iter().map(|column| cotangents.take(column)).collect();
                    if cotangents.iter().any(Option::is_some) {
                        self.contribution(leaf, rows.clone(), columns, cotangents)?;
                    }
                }
                Source::Reduction(reduction) => self.reduction(leaf, reduction, rows.clone(), &mut cotangents)?,
            }
        }
        Ok(())
    }

    /// A cotangent as a column of the rows.
    fn column(&mut self, rows: &mut LogicalPlan, of: &str, cotangent: Expr) -> Result<Expr> {
        if matches!(cotangent, Expr::Column(_) | Expr::Literal(..)) {
            return Ok(cotangent);
        }
        let name = self.regions.names.part(&format!("cotangent of {}", of.trim_start_matches('∂')));
        let mut exprs = columns(rows.schema());
        exprs.push(cotangent.alias(name.clone()));
        let below = std::mem::take(rows);
        *rows = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(below))?);
        Ok(Expr::Column(Column::new_unqualified(name)))
    }

    /// What the rows of a region contribute to rows of the variables.
    fn contribution(
        &mut self,
        leaf: &Leaf,
        rows: LogicalPlan,
        variables: &[String],
        cotangents: Vec<Option<Expr>>,
    ) -> Result<()> {
        let Some(number) = &leaf.row else { return internal_err!("rows of the variable have no numbers") };
        let row = Column::new_unqualified(self.regions.names.part("row"));
        let mut exprs = vec![Expr::Column(number.clone()).alias(row.name.clone())];
        let mut derivatives = vec![];
        for (variable, cotangent) in variables.iter().zip(cotangents) {
            let name = self.regions.names.part(&format!("d {}", variable.trim_start_matches('∂')));
            exprs.push(cotangent.unwrap_or_else(|| lit(0.0)).alias(name.clone()));
            derivatives.push(Column::new_unqualified(name));
        }
        let rows = present(rows, number)?;
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows))?);
        self.contributions.push((ByRow { plan, row, derivatives }, leaf.repeated));
        Ok(())
    }

    /// Carries the cotangents of groups to the rows of the groups.
    ///
    /// ```text
    /// Join: the keys of the rows IS NOT DISTINCT FROM those of the groups
    ///   the rows below
    ///   Join: the numbers of the groups
    ///     the groups
    ///     Aggregate: the number of the group, the sums of its cotangents
    ///       the rows above
    /// ```
    fn reduction(
        &mut self,
        leaf: &Leaf,
        reduction: &Reduction,
        mut rows: LogicalPlan,
        cotangents: &mut Cotangents,
    ) -> Result<()> {
        let mut summed = vec![];
        for output in &reduction.outputs {
            if let Some(cotangent) = cotangents.take(&output.above) {
                let cotangent = self.column(&mut rows, &output.above, cotangent)?;
                summed.push((output, cotangent));
            }
        }
        if summed.is_empty() {
            return Ok(());
        }
        let groups = self.regions.renamed(scan(reduction.table.clone(), &reduction.source)?)?;
        let by_group: Vec<_> = groups.columns.iter().cloned().map(Expr::Column).collect();
        let mut named = vec![];
        for (output, cotangent) in summed {
            let name = self.regions.names.part(&format!("cotangent of {}", output.above.trim_start_matches('∂')));
            named.push((output, cotangent, Expr::Column(Column::new_unqualified(name))));
        }
        let alias = |expr: Expr, column: &Expr| expr.alias(column.qualified_name().1);
        let mut on_group = vec![];
        let of_groups = match &leaf.row {
            Some(row) => {
                let number = self.regions.names.part("row");
                let rows = present(rows, row)?;
                let row = Expr::Column(row.clone()).alias(number.clone());
                if let Some(own) = by_group.last() {
                    on_group.push((own.clone(), Expr::Column(Column::new_unqualified(number.clone()))));
                }
                if leaf.repeated {
                    let sums: Vec<_> = named.iter().map(|(_, cotangent, column)| alias(sum(cotangent.clone()), column)).collect();
                    LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(rows), vec![row], sums)?)
                } else {
                    let exprs = named.iter().map(|(_, cotangent, column)| alias(cotangent.clone(), column));
                    let exprs = std::iter::once(row).chain(exprs).collect();
                    LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows))?)
                }
            }
            None => {
                let sums = named.iter().map(|(_, cotangent, column)| {
                    let total = if leaf.repeated { coalesce(vec![sum(cotangent.clone()), lit(0.0)]) } else { cotangent.clone() };
                    (total, column)
                });
                if leaf.repeated {
                    self.summed_up(rows, &named)?
                } else {
                    let exprs = sums.map(|(total, column)| alias(total, column)).collect();
                    LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows))?)
                }
            }
        };
        let nulls = NullEquality::NullEqualsNothing;
        let mut groups = joined(groups.plan, of_groups, on_group, None, JoinType::Inner, nulls)?;
        let mut ties = vec![];
        for (output, ..) in &named {
            ties.push(match output.partials.shares() {
                true => Some(self.ties(reduction, &mut groups, &by_group, output.value, &output.partials.chosen(&by_group[output.value]))?),
                false => None,
            });
        }
        let on = reduction.keys.iter().cloned().map(Expr::Column).zip(by_group.iter().cloned()).collect();
        let rows = joined(reduction.below.plan.clone(), groups, on, None, JoinType::Inner, NullEquality::NullEqualsNull)?;
        let mut below = Cotangents::default();
        for ((output, _, cotangent), ties) in named.into_iter().zip(ties) {
            let group = Group { value: by_group[output.value].clone(), columns: &by_group, ties };
            for (input, partial) in output.partials.by_input(&group)? {
                if let Expr::Column(input) = &input
                    && reduction.below.varying.contains(&input.name)
                {
                    let product = match &partial {
                        Expr::Literal(..) if partial == lit(1.0) => cotangent.clone(),
                        _ => binary_expr(cotangent.clone(), Operator::Multiply, partial),
                    };
                    let nullable = product.nullable(rows.schema())?;
                    below.add(&input.name, if nullable { coalesce(vec![product, lit(0.0)]) } else { product });
                }
            }
        }
        self.region(&reduction.below, rows, below)
    }

    /// The sums of cotangents over all rows.
    fn summed_up(&mut self, rows: LogicalPlan, named: &[(&super::region::Output, Expr, Expr)]) -> Result<LogicalPlan> {
        let sums = named.iter().map(|(_, cotangent, column)| sum(cotangent.clone()).alias(column.qualified_name().1));
        let sums = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(rows), vec![], sums.collect())?);
        // Of no rows, the sum is NULL.
        let exprs = named.iter().map(|(_, _, column)| {
            coalesce(vec![column.clone(), lit(0.0)]).alias(column.qualified_name().1)
        });
        Ok(LogicalPlan::Projection(Projection::try_new(exprs.collect(), Arc::new(sums))?))
    }

    /// Adds to groups how many of their rows have the value of an aggregate.
    fn ties(
        &mut self,
        reduction: &Reduction,
        groups: &mut LogicalPlan,
        by_group: &[Expr],
        _value: usize,
        chosen: &Expr,
    ) -> Result<Expr> {
        let below = &reduction.below.plan;
        let on: Vec<_> = reduction.keys.iter().cloned().map(Expr::Column).zip(by_group.iter().cloned()).collect();
        let rows = joined(below.clone(), groups.clone(), on, None, JoinType::Inner, NullEquality::NullEqualsNull)?;
        let rows = LogicalPlan::Filter(Filter::try_new(chosen.clone(), Arc::new(rows))?);
        let count = Column::new_unqualified(self.regions.names.part("ties"));
        let counted = datafusion_functions_aggregate::count::count_all().unalias().alias(count.name.clone());
        let group = Column::new_unqualified(self.regions.names.part("group"));
        let mut on = vec![];
        let keys = match by_group.last() {
            Some(row) if !reduction.keys.is_empty() => {
                on.push((row.clone(), Expr::Column(group.clone())));
                vec![row.clone().alias(group.name)]
            }
            _ => vec![],
        };
        let counted = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(rows), keys, vec![counted])?);
        let all = std::mem::take(groups);
        *groups = joined(all, counted, on, None, JoinType::Left, NullEquality::NullEqualsNothing)?;
        Ok(Expr::Column(count))
    }

    /// All contributions to each row of the variable.
    fn summed(self) -> Result<Option<ByRow>> {
        let mut contributions = self.contributions;
        let several = contributions.len() > 1;
        let Some((first, repeated)) = contributions.pop() else { return Ok(None) };
        if !several && !repeated {
            return Ok(Some(first));
        }
        let ByRow { plan, row, derivatives } = first;
        let plan = contributions.into_iter().try_fold(plan, |all, (other, _)| union(all, other.plan))?;
        let number = Column::new_unqualified(self.regions.names.part("row"));
        let mut sums = vec![];
        let mut totals = vec![];
        for derivative in derivatives {
            let name = self.regions.names.part("gradient");
            sums.push(sum(Expr::Column(derivative)).alias(name.clone()));
            totals.push(Column::new_unqualified(name));
        }
        let keys = vec![Expr::Column(row).alias(number.name.clone())];
        let plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plan), keys, sums)?);
        Ok(Some(ByRow { plan, row: number, derivatives: totals }))
    }
}

/// The rows that have a row of the leaf, which those do not that a join has extended by NULL.
fn present(rows: LogicalPlan, row: &Column) -> Result<LogicalPlan> {
    let (_, field) = rows.schema().qualified_field_from_column(row)?;
    if !field.is_nullable() {
        return Ok(rows);
    }
    let is_there = Expr::Column(row.clone()).is_not_null();
    Ok(LogicalPlan::Filter(Filter::try_new(is_there, Arc::new(rows))?))
}
