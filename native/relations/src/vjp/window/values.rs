//! The values of windows, joined to the rows that they are of.

use datafusion_common::{Column, JoinType, NullEquality, Result, plan_err};
use datafusion_expr::expr::{AggregateFunction, WindowFunction};
use datafusion_expr::{Expr, ExprSchemable, WindowFunctionDefinition, cast, when};
use datafusion_functions_aggregate::count::count_udaf;
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviate;

use super::numbers::{FrameRows, ResidualWindow};
use crate::aggregate_rules::without_formula::way_without;
use crate::vjp::linearize::SegmentBuilder;
use crate::vjp::residuals::Members;
use crate::vjp::segment::{ResidualId, Segment};
use crate::vocabulary::expressions::one_zero;

/// The residual of the rows of windows.
pub struct Frames {
    /// The residual.
    pub residual: ResidualId,
    /// How many columns it has before the number of a row.
    pub total: usize,
}

/// The rows that are aggregated, and the keys of the rows that they are aggregated for with their own.
pub struct Partition {
    /// The rows.
    pub over: Segment,
    /// The keys.
    pub on: Vec<(Expr, Expr)>,
}

impl Frames {
    /// Joins the value of a window function to the rows of the residual.
    pub fn value(&self, builder: &mut SegmentBuilder, outer: &mut Segment, varying: &ResidualWindow) -> Result<Column> {
        let ResidualWindow { function, original, rows, .. } = varying;
        match (&function.fun, rows) {
            (_, FrameRows::Chosen { number, chosen }) => self.chosen_row(builder, outer, varying, [*number, *chosen]),
            (WindowFunctionDefinition::AggregateUDF(_), FrameRows::All) => {
                let over = builder.residuals.numbered_reader(self.residual, self.total, builder.names)?;
                let on = same_partition(outer, &over, varying);
                let call = aggregate_over(&over, varying);
                over_partition(builder, outer, Partition { over, on }, call, original)
            }
            (WindowFunctionDefinition::AggregateUDF(_), FrameRows::Between { number, bounds, extremum }) => {
                self.over_frame(builder, outer, varying, (*number, *bounds, *extremum))
            }
            (other, _) => plan_err!(
                "{} varies, and no derivative by row is known for the function {}. {}",
                abbreviate(original),
                other.name(),
                way_without(other.name())
            ),
        }
    }

    /// Returns the value of the row that is chosen of the partition, by the positions of its number and of the number wanted.
    fn chosen_row(
        &self,
        builder: &mut SegmentBuilder,
        outer: &mut Segment,
        varying: &ResidualWindow,
        [number, chosen]: [usize; 2],
    ) -> Result<Column> {
        let other = builder.residuals.numbered_reader(self.residual, self.total, builder.names)?;
        let mut on = same_partition(outer, &other, varying);
        on.push((Expr::Column(outer.columns[chosen].clone()), Expr::Column(other.columns[number].clone())));
        let value = varying.arguments.first().and_then(|argument| other.columns.get((*argument)?)).cloned();
        let (Some(value), Some(found)) = (value, other.columns.last().cloned()) else {
            return plan_err!("{} has no column as its argument", abbreviate(&varying.original));
        };
        outer.put_beside(other, on, JoinType::Left, NullEquality::NullEqualsNull)?;
        let Some(default) = varying.function.params.args.get(2) else { return Ok(value) };
        let value = Expr::Column(value);
        let default = cast(default.clone(), value.get_type(outer.plan.schema())?);
        let value = when(Expr::Column(found).is_null(), default).otherwise(value)?;
        let name = varying.function.fun.name().to_owned();
        let mut added = outer.add(vec![(name, value)], builder.names)?;
        added.pop().map_or_else(|| plan_err!("a window function has no value"), Ok)
    }

    /// Returns the value of an aggregate over the rows of the frame, by the positions of their number, of its bounds and of the value
    /// that rows must have.
    fn over_frame(
        &self,
        builder: &mut SegmentBuilder,
        outer: &mut Segment,
        varying: &ResidualWindow,
        (number, bounds, extremum): (usize, [usize; 2], Option<usize>),
    ) -> Result<Column> {
        let over = builder.residuals.numbered_reader(self.residual, self.total, builder.names)?;
        let of = builder.residuals.numbered_reader(self.residual, self.total, builder.names)?;
        let call = aggregate_over(&over, varying);
        let on = same_partition(&of, &over, varying);
        let number = Expr::Column(over.columns[number].clone());
        let [low, high] = bounds.map(|bound| Expr::Column(of.columns[bound].clone()));
        let mut in_frame = number.between(low, high);
        if let (Some(extremum), Some(value)) = (extremum, call.params.args.first()) {
            // A row has few that have its value, for which DataFusion looks by the value. Both zeros are one.
            let [extremum, value] = [Expr::Column(of.columns[extremum].clone()), value.clone()];
            let data_type = value.get_type(over.plan.schema())?;
            in_frame = one_zero(extremum, &data_type)?.eq(one_zero(value, &data_type)?).and(in_frame);
        }
        let Some(row) = of.columns.last().cloned() else { return plan_err!("a residual has no numbers") };
        let pairs = of.joined(over, on, Some(in_frame), JoinType::Inner, NullEquality::NullEqualsNull)?;
        let calls = vec![(call, varying.original.clone())];
        let groups = builder.groups(pairs, vec![row], calls, Members::Any)?;
        let groups = builder.residuals.reader(groups, 2, builder.names)?;
        let [group, value] = [0, 1].map(|position: usize| groups.columns[position].clone());
        let Some(own) = outer.columns.get(self.total).cloned() else { return plan_err!("a residual has no numbers") };
        let on = vec![(Expr::Column(own), Expr::Column(group))];
        outer.put_beside(groups, on, JoinType::Left, NullEquality::NullEqualsNothing)?;
        Ok(value)
    }
}

/// Returns the value of an aggregate over the whole partition of a row.
pub fn over_partition(
    builder: &mut SegmentBuilder,
    outer: &mut Segment,
    Partition { over, on }: Partition,
    call: AggregateFunction,
    original: &Expr,
) -> Result<Column> {
    let (mut of, mut keys) = (vec![], vec![]);
    for (own, by) in on {
        // A constant keeps all rows together.
        if let Expr::Column(by) = by {
            of.push(own);
            keys.push(by);
        }
    }
    let residual = builder.groups(over, keys, vec![(call, original.clone())], Members::Any)?;
    let groups = builder.residuals.reader(residual, of.len() + 1, builder.names)?;
    let Some(value) = groups.columns.last().cloned() else { return plan_err!("a window function has no value") };
    let on = of.into_iter().zip(groups.columns.iter().cloned().map(Expr::Column)).collect();
    outer.put_beside(groups, on, JoinType::Inner, NullEquality::NullEqualsNull)?;
    Ok(value)
}

fn same_partition(of: &Segment, over: &Segment, varying: &ResidualWindow) -> Vec<(Expr, Expr)> {
    let column = |segment: &Segment, index: usize| Some(Expr::Column(segment.columns.get(index)?.clone()));
    varying.partition.iter().filter_map(|index| Some((column(of, *index)?, column(over, *index)?))).collect()
}

/// Returns the aggregate that a window function computes, over columns of a reader of the residual.
fn aggregate_over(over: &Segment, varying: &ResidualWindow) -> AggregateFunction {
    let column = |index: usize| Expr::Column(over.columns[index].clone());
    let args = varying.function.params.args.iter().zip(&varying.arguments);
    let args = args.map(|(argument, index)| index.map_or_else(|| argument.clone(), column));
    aggregate(&varying.function, args.collect(), varying.filter.map(|filter| Box::new(column(filter))))
}

/// Returns the aggregate that a window function computes over its frame.
pub fn aggregate(function: &WindowFunction, args: Vec<Expr>, filter: Option<Box<Expr>>) -> AggregateFunction {
    let mut call = AggregateFunction::new_udf(count_udaf(), args, function.params.distinct, filter, vec![], None);
    if let WindowFunctionDefinition::AggregateUDF(function) = &function.fun {
        call.func = Arc::clone(function);
    }
    call
}
