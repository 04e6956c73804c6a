//! Sums over frames of the rows of a residual.

use datafusion_common::{Column, JoinType, NullEquality, Result, ScalarValue, internal_err};
use datafusion_expr::builder::union;
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Operator, Projection, binary_expr, lit, when};
use datafusion_functions_aggregate::sum::sum;
use std::sync::Arc;

use crate::aggregate_rules::frame_sums::FrameSum;
use crate::aggregate_rules::frames::with_windows;
use crate::vjp::cotangents::{Cotangents, RowCotangents};
use crate::vjp::segment::{RenamedRows, joined};
use crate::vocabulary::names::{Names, with_columns};

/// A frame of more rows is a range of numbers.
const MOST_PLACES: i64 = 1024;

/// A column with sums over frames.
pub struct FramedSum {
    /// The column.
    output: Column,
    /// The column that is summed.
    input: Column,
    /// What a row has in the value of its frame, 1 if it is none.
    pub share: Option<Expr>,
    /// How many rows there are at most in a frame, if they are counted.
    pub width: Option<i64>,
    /// The window that sums cotangents, which is its first argument.
    transpose: WindowFunction,
}

impl FramedSum {
    /// Creates the column that a call gives, which is a sum of this project over a column.
    pub fn from_call(output: &Column, call: &WindowFunction) -> Option<Self> {
        let Some(Expr::Column(input)) = call.params.args.first() else { return None };
        let fun = FrameSum::from_function(&call.fun)?.transpose().function();
        let transpose = WindowFunction { fun, params: call.params.clone() };
        Some(Self { output: output.clone(), input: input.clone(), share: None, width: None, transpose })
    }

    /// Returns whether it is a column.
    pub fn is(&self, column: &Column) -> bool {
        self.output == *column
    }

    /// Returns the columns that carrying cotangents back reads.
    pub fn reads(&self) -> Vec<Column> {
        let params = &self.transpose.params;
        let orders = params.order_by.iter().map(|sort| &sort.expr);
        // In the place of the first argument is the cotangent.
        let exprs = params.args.iter().skip(1).chain(&params.partition_by).chain(orders).chain(&self.share);
        exprs.flat_map(Expr::column_refs).cloned().collect()
    }

    /// Returns sources, which have a copy of the rows, joined to the rows that are in the sum of each: those in its frame, or those in whose
    /// frames it is.
    ///
    /// DataFusion compares each row with each where a join asks for a range of numbers. A frame of few rows has one number each:
    ///
    /// ```text
    /// Inner Join: s.number BETWEEN r.low AND r.high          Inner Join: s.number = r.low + place
    ///   the rows r                                    ->       Cross Join:
    ///   the rows s                                               the rows r
    ///                                                            Values: place from 0 on
    ///                                                          the rows s
    /// ```
    fn reached_from(
        &self,
        sources: LogicalPlan,
        copy: &RenamedRows,
        rows: &LogicalPlan,
        names: &mut Names,
    ) -> Result<LogicalPlan> {
        let params = &self.transpose.params;
        let ([_, low, high], [order]) = (params.args.as_slice(), params.order_by.as_slice()) else {
            return internal_err!("a frame has no bounds");
        };
        let keys = params.partition_by.iter().map(|key| Ok((copy.over(key.clone())?, key.clone())));
        let mut on = keys.collect::<Result<Vec<_>>>()?;
        let number = order.expr.clone();
        let (mut sources, mut in_frame) = (sources, None);
        if FrameSum::from_function(&self.transpose.fun) == Some(FrameSum::OverFrame) {
            in_frame = Some(copy.over(number)?.between(low.clone(), high.clone()));
        } else if let Some(width) = self.width.filter(|width| (1..=MOST_PLACES).contains(width)) {
            let place = Column::new_unqualified(names.part("place"));
            on.push((binary_expr(copy.over(low.clone())?, Operator::Plus, Expr::Column(place.clone())), number));
            sources = at_places(sources, width, &place)?;
        } else {
            in_frame = Some(number.between(copy.over(low.clone())?, copy.over(high.clone())?));
        }
        joined(sources, rows.clone(), on, in_frame, JoinType::Inner, NullEquality::NullEqualsNull)
    }

    /// Returns what the frames with a cotangent have for each of their rows. One without a value has no rows.
    fn of_frame(&self, cotangent: Expr) -> Result<Expr> {
        match &self.share {
            Some(share) => {
                let share = binary_expr(cotangent, Operator::Multiply, share.clone());
                when(Expr::Column(self.output.clone()).is_not_null(), share).end()
            }
            None => Ok(cotangent),
        }
    }
}

/// Returns each row of a plan with each of so many numbers from 0 on.
fn at_places(plan: LogicalPlan, number: i64, place: &Column) -> Result<LogicalPlan> {
    let places = LogicalPlanBuilder::values((0..number).map(|number| vec![lit(number)]).collect())?;
    let first = places.schema().columns();
    let places =
        places.project(first.into_iter().map(|column| Expr::Column(column).alias(place.name.clone())))?.build()?;
    joined(plan, places, vec![], None, JoinType::Inner, NullEquality::NullEqualsNothing)
}

/// Returns all rows of a residual with the sums of the cotangents of the frames that they are in.
///
/// ```text
/// WindowAggr: sum_of_frames(∂cotangent, low, high) PARTITION BY p ORDER BY number
///   the rows, each with the cotangent of its own frame
/// ```
pub fn transposed(
    rows: LogicalPlan,
    sums: Vec<(&FramedSum, Expr)>,
    cotangents: &mut Cotangents,
    names: &mut Names,
) -> Result<LogicalPlan> {
    let mut of_frames = vec![];
    let mut windows = vec![];
    for (sum, cotangent) in sums {
        let of_frame = names.column(sum.of_frame(cotangent)?, &mut of_frames, |names| names.part("cotangent"));
        let mut call = sum.transpose.clone();
        if let Some(value) = call.params.args.first_mut() {
            *value = Expr::Column(of_frame);
        }
        let of_row = names.column(Expr::from(call), &mut windows, |names| names.part("cotangent"));
        cotangents.add(&sum.input.name, Expr::Column(of_row));
    }
    with_windows(with_columns(rows, of_frames)?, windows)
}

/// The rows of a residual that frames with a cotangent reach, once for each of the values that the cotangents are by.
///
/// One window would add the cotangents of all values. So each row with a cotangent is joined to the rows of its frame:
///
/// ```text
/// Inner Join: s.row = c.row
///   the rows s
///   Aggregate: groupBy=[[row, of]], aggr=[[sum(∂cotangent), ...]] AS c
///     Union
///       Inner Join: r.p IS NOT DISTINCT FROM s.p, s.number BETWEEN r.low AND r.high
///         the rows r, each with the cotangents of its frame and the number of the value
///         the rows s
///       the cotangents of the other columns
/// ```
pub struct ByValue<'r> {
    /// The rows of the residual.
    pub rows: &'r LogicalPlan,
    /// The column with their numbers.
    pub number: &'r Column,
    /// What rows and values the cotangents are of.
    pub total: RowCotangents,
}

/// What rows get of cotangents, in several parts.
struct Contributions {
    /// The column of the parts with the numbers of values, and what the columns are called that have the numbers of rows and of values.
    of: Column,
    keys: [String; 2],
    /// The columns with the cotangents.
    cotangents: Vec<Column>,
    all: Option<LogicalPlan>,
}

impl Contributions {
    /// Adds a part: rows with their numbers and some of the cotangents.
    fn add(&mut self, plan: LogicalPlan, row: Expr, known: &[(usize, Expr)]) -> Result<()> {
        let keys = [row, Expr::Column(self.of.clone())].into_iter().zip(&self.keys);
        let mut exprs: Vec<_> = keys.map(|(key, name)| key.alias(name)).collect();
        for (position, column) in self.cotangents.iter().enumerate() {
            let value = known.iter().find(|(known, _)| *known == position).map(|(_, value)| value.clone());
            let value = value.unwrap_or(Expr::Literal(ScalarValue::Float64(None), None));
            exprs.push(value.alias(column.name.clone()));
        }
        let part = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
        self.all = Some(match self.all.take() {
            Some(all) => union(all, part)?,
            None => part,
        });
        Ok(())
    }

    /// Returns the sums by rows and values, and the columns with the numbers of both.
    fn sum_by_row(self) -> Result<(LogicalPlan, [Column; 2])> {
        let Some(all) = self.all else { return internal_err!("a residual has no cotangents") };
        let keys = self.keys.map(Column::new_unqualified);
        let sums = self.cotangents.into_iter().map(|column| sum(Expr::Column(column.clone())).alias(column.name));
        let by = keys.iter().cloned().map(Expr::Column).collect();
        let plan = Aggregate::try_new(Arc::new(all), by, sums.collect())?;
        Ok((LogicalPlan::Aggregate(plan), keys))
    }
}

impl ByValue<'_> {
    /// Returns the rows, and the column with the numbers of values. `sums` have the cotangents of columns that are sums over frames,
    /// `others` those of the others.
    pub fn transposed(
        self,
        sums: Vec<(&FramedSum, Expr)>,
        others: Vec<(&Column, Expr)>,
        cotangents: &mut Cotangents,
        names: &mut Names,
    ) -> Result<(LogicalPlan, Option<Column>)> {
        let Self { rows, number, total } = self;
        let (Some(row), Some(of)) = (total.row, total.of) else { return internal_err!("cotangents have no values") };
        let copy = RenamedRows::new(rows.clone(), names)?;
        let on = vec![(copy.over(Expr::Column(number.clone()))?, Expr::Column(row.clone()))];
        let nulls = NullEquality::NullEqualsNothing;
        let sources = joined(copy.plan.clone(), total.plan, on, None, JoinType::Inner, nulls)?;
        let of_columns = sums.iter().map(|(sum, _)| &sum.input).chain(others.iter().map(|(column, _)| *column));
        let mut found = vec![];
        for column in of_columns {
            let own = Column::new_unqualified(names.part("cotangent"));
            cotangents.add(&column.name, Expr::Column(own.clone()));
            found.push(own);
        }
        let keys = ["row", "of"].map(|name| names.part(name));
        let mut contributions = Contributions { of, keys, cotangents: found, all: None };
        let first = sums.len();
        for (position, (sum, cotangent)) in sums.into_iter().enumerate() {
            let pairs = sum.reached_from(sources.clone(), &copy, rows, names)?;
            let of_frame = copy.over(sum.of_frame(cotangent)?)?;
            contributions.add(pairs, Expr::Column(number.clone()), &[(position, of_frame)])?;
        }
        if !others.is_empty() {
            let positions = first..;
            let known: Vec<_> = positions.zip(others.into_iter().map(|(_, cotangent)| cotangent)).collect();
            contributions.add(sources, Expr::Column(row), &known)?;
        }
        let (all, [row, of]) = contributions.sum_by_row()?;
        let on = vec![(Expr::Column(number.clone()), Expr::Column(row))];
        Ok((joined(rows.clone(), all, on, None, JoinType::Inner, nulls)?, Some(of)))
    }
}
