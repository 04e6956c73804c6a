//! The adjoint of the iterations of a recursive query.
//!
//! Reverse mode runs the iterations from the last to the first. The transpose of one iteration maps the cotangents of
//! its rows to the cotangents of the rows before it and of the residuals that all iterations read. It is planned once,
//! here; [`AdjointExec`](crate::physical::AdjointExec) executes the plan for each iteration.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion_expr::{EmptyRelation, Expr, Filter, LogicalPlan, Projection, cast, lit, union};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::cotangents::RowCotangents;
use super::residuals::{LinearizedIterations, Stored};
use super::segment::{ResidualId, Segment, renamed};
use crate::physical::{BEFORE, FIRST};
use crate::shared_relation::{self, Given, SharedRelation};
use crate::vocabulary::names::Names;

/// Maps the cotangents of the rows of an iteration to those of the variables with which its residuals begin.
pub type Transpose<'t> = &'t mut dyn FnMut(RowCotangents, &mut Names) -> Result<BTreeMap<usize, RowCotangents>>;

/// Plans the adjoint of the iterations, and returns its contributions to the residuals around them. `total` has the
/// cotangents of the rows of all iterations, and `transpose` is the transpose of one iteration. A cotangent of one
/// column may reach further columns in the iteration before, so `transpose` is called until it reaches no further
/// columns.
///
/// ```text
/// Adjoint: r
///   TableScan: ∂r                          the rows of all iterations
///   Projection: ∂row, ∂cotangent           their cotangents from outside
///   Union                                  what an iteration contributes
///     Projection: 0 AS ∂to, ∂row, ...        to the rows before
///     Projection: 2 AS ∂to, ∂row, ...        to what all iterations read
/// ```
pub fn contributions(
    iterations: &LinearizedIterations,
    residual: &Stored,
    total: RowCotangents,
    names: &mut Names,
    transpose: Transpose,
) -> Result<Vec<(ResidualId, RowCotangents)>> {
    let total = total.alone()?;
    let incoming = Incoming::try_new(residual, names)?;
    let rows = &iterations.body.all()[iterations.rows].stored;
    let mut reached = total.reached.clone();
    let contributions = loop {
        let contributions = transpose(incoming.cotangents(rows, &reached)?, names)?;
        let mut further = reached.clone();
        if let Some(before) = contributions.get(&0) {
            further.iter_mut().zip(&before.reached).for_each(|(reached, also)| *reached |= also);
        }
        if further == reached {
            break contributions;
        }
        reached = further;
    };
    let Some(begin) = &iterations.body.begin else { return internal_err!("an iteration begins with nothing") };
    let schema = schema(&contributions, residual.varying.len(), names)?;
    let step = step(&contributions, &schema)?;
    let inputs = [residual.relation.scan()?, outside(total)?, step];
    let of = (iterations.query.as_str(), Arc::clone(&iterations.columns), residual.varying.clone());
    let adjoint = shared_relation::IterationsNode::adjoint(of, incoming.given, inputs, Arc::new(schema));
    let adjoint = Arc::new(SharedRelation::new(names.part("adjoint"), adjoint));
    let mut found = vec![];
    // The first rows may be computed from fewer columns that vary.
    let first = &iterations.first_varying;
    let positions = residual.varying.iter().enumerate().filter(|(_, column)| first.contains(column)).map(|(at, _)| at);
    let positions: Vec<_> = positions.collect();
    let of_first: Vec<_> = positions.iter().map(|at| reached[*at]).collect();
    if of_first.contains(&true) {
        found.push((iterations.start, sums(&adjoint, FIRST, &positions, of_first, names)?));
    }
    for (number, residual) in begin.around.iter().enumerate() {
        let Some(rows) = contributions.get(&(number + 1)) else { continue };
        let positions: Vec<_> = (0..rows.cotangents.len()).collect();
        found.push((*residual, sums(&adjoint, to(number + 1), &positions, rows.reached.clone(), names)?));
    }
    Ok(found)
}

/// Returns the number that marks contributions to a variable of an iteration.
fn to(variable: usize) -> u64 {
    if variable == 0 { BEFORE } else { FIRST + variable as u64 }
}

/// The cotangents of the rows of one iteration.
struct Incoming {
    given: Given,
    /// The positions of the columns of the query that they are of.
    varying: Vec<usize>,
    rows: Segment,
}

impl Incoming {
    fn try_new(residual: &Stored, names: &mut Names) -> Result<Self> {
        let mut fields = vec![Field::new(names.part("row"), DataType::UInt64, false)];
        for _ in &residual.varying {
            fields.push(Field::new(names.part("cotangent"), DataType::Float64, true));
        }
        let given = Given::new(names.part("incoming"), Arc::new(Schema::new(fields)));
        let rows = renamed(given.scan()?, names)?;
        Ok(Self { given, varying: residual.varying.clone(), rows })
    }

    /// Returns the cotangents of the residual that an iteration computes, in which fewer columns of the query may vary.
    fn cotangents(&self, residual: &Stored, reached: &[bool]) -> Result<RowCotangents> {
        let mut found = RowCotangents {
            plan: self.rows.plan.clone(),
            row: self.rows.columns.first().cloned(),
            of: None,
            cotangents: vec![],
            reached: vec![],
            own: vec![],
            repeated: false,
        };
        for column in &residual.varying {
            let Some(at) = self.varying.iter().position(|known| known == column) else {
                return internal_err!("a column of a recursive query varies and is not known to");
            };
            found.cotangents.push(self.rows.columns[at + 1].clone());
            found.reached.push(reached[at]);
        }
        Ok(found)
    }
}

/// Returns the columns of contributions: the mark, the number of the row, and as many cotangents as the widest
/// contribution has.
fn schema(contributions: &BTreeMap<usize, RowCotangents>, width: usize, names: &mut Names) -> Result<DFSchema> {
    let widest = contributions.values().map(|rows| rows.cotangents.len()).chain([width]).max().unwrap_or_default();
    let mut fields = vec![];
    for name in ["to", "row"] {
        fields.push(Field::new(names.part(name), DataType::UInt64, false));
    }
    for _ in 0..widest {
        fields.push(Field::new(names.part("cotangent"), DataType::Float64, true));
    }
    DFSchema::try_from(Schema::new(fields))
}

/// Returns the union of the contributions of one iteration.
fn step(contributions: &BTreeMap<usize, RowCotangents>, schema: &DFSchema) -> Result<LogicalPlan> {
    let mut step = None;
    for (variable, rows) in contributions {
        let Some(row) = rows.row.clone() else { return internal_err!("rows have no numbers") };
        let none = lit(ScalarValue::Float64(None));
        let cotangents = rows.cotangents.iter().map(|column| cast(Expr::Column(column.clone()), DataType::Float64));
        let exprs = [lit(to(*variable)), Expr::Column(row)].into_iter().chain(cotangents);
        let exprs = exprs.chain(std::iter::repeat(none)).zip(schema.fields());
        let exprs = exprs.map(|(expr, field)| expr.alias(field.name())).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows.plan.clone()))?);
        step = Some(match step {
            Some(before) => union(before, plan)?,
            None => plan,
        });
    }
    let nothing = || EmptyRelation { produce_one_row: false, schema: Arc::new(schema.clone()) };
    Ok(step.unwrap_or_else(|| LogicalPlan::EmptyRelation(nothing())))
}

/// Returns the numbers of the rows and the cotangents that the rows have from outside of the iterations.
fn outside(total: RowCotangents) -> Result<LogicalPlan> {
    let cotangents = total.cotangents.iter().map(|column| {
        let name = column.name.clone();
        cast(Expr::Column(column.clone()), DataType::Float64).alias(name)
    });
    let exprs = total.row.iter().cloned().map(Expr::Column).chain(cotangents).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(total.plan))?))
}

/// Returns the sums of the contributions with the mark `to`, with the cotangents at these positions.
fn sums(
    adjoint: &Arc<SharedRelation>,
    to: u64,
    positions: &[usize],
    reached: Vec<bool>,
    names: &mut Names,
) -> Result<RowCotangents> {
    let Segment { plan, columns, .. } = Segment::reading(adjoint, names)?;
    let [of, row, cotangents @ ..] = columns.as_slice() else { return internal_err!("contributions have no columns") };
    let is_to = Expr::Column(of.clone()).eq(lit(to));
    // A union with other contributions to the same residual has columns without qualifiers.
    let read = std::iter::once(row).chain(positions.iter().map(|at| &cotangents[*at]));
    let exprs = read.map(|column| Expr::Column(column.clone()).alias(column.name.clone())).collect();
    let plan = LogicalPlan::Filter(Filter::try_new(is_to, Arc::new(plan))?);
    let plan = Projection::try_new(exprs, Arc::new(plan))?;
    let mut columns = plan.schema.columns();
    let cotangents = columns.split_off(1);
    let plan = LogicalPlan::Projection(plan);
    Ok(RowCotangents { plan, row: columns.pop(), of: None, cotangents, reached, own: vec![], repeated: false })
}
