//! The reverse sweep over a plan: from a value down to the rows of its variables.
//!
//! This is reverse accumulation (A. Griewank and A. Walther, "Evaluating Derivatives", 2nd edition, SIAM 2008, chapter
//! 3) with relations in the place of numbers. A residual reads only residuals with lower numbers, so their numbers are
//! a topological order, and the sweep visits them from the last to the first. When it reaches a residual, all readers
//! have contributed, and the sum of the contributions is the complete cotangent of each row. The pullback of the
//! residual joins it to the rows of the segment below, and the segment propagates it, step by step, to the residuals
//! that it reads.
//!
//! ```text
//! SELECT SUM(exp(w.val * d.x)) FROM w JOIN d ON d.k = w.k
//!
//! the group          has the cotangent 1
//! a row of w JOIN d  gets it from its group, and w.val gets 1 * exp(w.val * d.x) * d.x in that row
//! a row of w         gets the sum over the rows of w JOIN d in which it is
//! ```
//!
//! A cotangent that is NULL contributes nothing. That is not the same as 0, which an infinite derivative would turn
//! into NaN.

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchema, Result, ScalarValue, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{
    Expr, Filter, LogicalPlan, Operator, Projection, ScalarUDF, binary_expr, cast, lit, union, when,
};
use datafusion_functions::core::expr_fn::nullif;
use std::collections::BTreeMap;
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviate;
use xql_autodiff::vocabulary::types::value_type;

use super::adjoint::contributions;
use super::contraction::{PulledJoin, materialize_groups};
use super::cotangents::{Cotangents, RowCotangents, is_not_zero, positive_zero, product_at_zero};
use super::linear::Linear;
use super::residuals::{LinearizedIterations, PulledBack, ResidualKind, Residuals, Stored};
use super::segment::{Leaf, LinearStep, Segment};
use crate::shared_relation::SharedRelation;
use crate::tangents::linearize::LinearizedExpr;
use crate::tangents::tangent::{Tangent, Tangents};
use crate::vocabulary::names::{Names, with_columns};

/// Returns the gradients of the first column of a segment, by the number of the variable. A variable with which the
/// column does not vary has no gradient. `of` is the column that numbers the rows of the segment, each of which has a
/// value with a gradient of its own; it is `None` if the segment has one row. `tangent` is the `jvp` of a single
/// expression.
pub fn gradients(
    (segment, of): (&Segment, Option<&Column>),
    residuals: &Residuals,
    names: &mut Names,
    tangent: &Arc<ScalarUDF>,
    sweeping: Sweeping,
) -> Result<BTreeMap<usize, RowCotangents>> {
    let mut cotangents = Cotangents::default();
    match segment.columns.first() {
        Some(value) if segment.varying.contains(&value.name) => cotangents.add(&value.name, lit(1.0)),
        _ => return Ok(BTreeMap::new()),
    }
    // A contraction sums by the number of one relation. The gradients of several values are also by the number of the
    // value.
    let contracts = sweeping.contracts && of.is_none();
    let mut sweep = Sweep::new(residuals, names, tangent, Sweeping { contracts, ..sweeping });
    sweep.segment(segment, Rows { plan: segment.plan.clone(), of: of.cloned() }, cotangents)?;
    let gradients = sweep.through(residuals)?.into_iter();
    let planned = gradients.map(|(variable, rows)| {
        // Sums of contributions are by the numbers of rows, and are computed like those of products.
        let is_sum = contracts && rows.row.is_some() && matches!(rows.plan, LogicalPlan::Aggregate(_));
        Ok((variable, if is_sum { rows.isolate(names)? } else { rows }))
    });
    planned.collect()
}

/// The options of a sweep.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sweeping {
    /// Plans each sum of products as a plan of its own, in which `xql_contraction` finds it.
    pub contracts: bool,
    /// Distinguishes a contribution of 0 from none, which is NULL. Gradients that are differentiated again need this,
    /// since a gradient of 0 has a derivative of its own. So do gradients whose factor may be infinite, since 0 times
    /// that is NaN.
    ///
    /// ```sql
    /// grad(sqrt((SELECT SUM(greatest(x, 0)) FROM t)), x)        -- where all x are negative, sqrt' is infinite
    /// ```
    pub keeps_zeros: bool,
}

/// Rows of a segment, each once for each of the values that its cotangents are by.
struct Rows {
    plan: LogicalPlan,
    /// The column with the numbers of these values, if there are several.
    of: Option<Column>,
}

/// Masks the cotangent of `input`: it is NULL in the rows in which `expr` takes a branch that does not vary with
/// `input`.
fn where_taken(cotangent: Expr, expr: &Expr, input: &Column, schema: &DFSchema) -> Result<Expr> {
    let mut tangents = Tangents::default();
    tangents.set(schema.index_of_column(input)?, Tangent::One);
    let none = ScalarValue::Float64(None);
    match LinearizedExpr::try_new(expr.clone(), schema)?.inactive(schema, &tangents, schema)? {
        Some(inactive) => when(inactive, lit(none)).otherwise(cotangent),
        None => Ok(cotangent),
    }
}

struct Sweep<'a> {
    names: &'a mut Names,
    tangent: &'a Arc<ScalarUDF>,
    sweeping: Sweeping,
    /// The contributions of the readers of each residual so far.
    contributions: Vec<Vec<RowCotangents>>,
}

impl<'a> Sweep<'a> {
    fn new(residuals: &Residuals, names: &'a mut Names, tangent: &'a Arc<ScalarUDF>, sweeping: Sweeping) -> Self {
        let contributions = (0..residuals.all().len()).map(|_| vec![]).collect();
        Self { names, tangent, sweeping, contributions }
    }

    /// Propagates the contributions to the residuals down to the variables. Returns the cotangents of the rows of each
    /// variable, by its number.
    fn through(mut self, residuals: &Residuals) -> Result<BTreeMap<usize, RowCotangents>> {
        let mut gradients = BTreeMap::new();
        // A residual reads only residuals with lower numbers, so all of its readers have contributed by now.
        for (id, residual) in residuals.all().iter().enumerate().rev() {
            let contributions = std::mem::take(&mut self.contributions[id]);
            let Some(total) = self.total(contributions)? else { continue };
            if let ResidualKind::Variable(variable) = residual.kind {
                gradients.insert(variable, total);
            } else if let ResidualKind::Iterations(iterations) = &residual.kind {
                self.iterations(iterations, &residual.stored, total)?;
            } else if let Some(PulledBack { below, rows, of, cotangents }) =
                residual.pullback(total, self.sweeping.keeps_zeros, self.names)?
            {
                self.segment(below, Rows { plan: rows, of }, cotangents)?;
            }
        }
        Ok(gradients)
    }

    /// Propagates the cotangents of the rows of all iterations of a recursive query to what the iterations read.
    #[recursive::recursive]
    fn iterations(&mut self, iterations: &LinearizedIterations, residual: &Stored, total: RowCotangents) -> Result<()> {
        if total.of.is_some() {
            return plan_err!(
                "a correlated subquery reads the recursive query {}, which varies, and its derivative through the iterations is not \
                 known for each of its values. Compute what it reads in a CTE of one row, or write it as a join",
                iterations.query
            );
        }
        let (tangent, sweeping) = (self.tangent, self.sweeping);
        let contributions = contributions(iterations, residual, total, self.names, &mut |rows, names| {
            let mut sweep = Sweep::new(&iterations.body, names, tangent, sweeping);
            sweep.contributions[iterations.rows].push(rows);
            sweep.through(&iterations.body)
        })?;
        for (residual, rows) in contributions {
            self.contributions[residual].push(rows);
        }
        Ok(())
    }

    /// Propagates the cotangents of columns through a segment to its leaves. `rows` are the rows of the segment, with
    /// the columns that the cotangents read.
    fn segment(&mut self, segment: &Segment, rows: Rows, mut cotangents: Cotangents) -> Result<()> {
        let Rows { plan: mut rows, of } = rows;
        for step in segment.steps.iter().rev() {
            let Some(cotangent) = cotangents.get(&step.output, &rows, self.sweeping.keeps_zeros)? else { continue };
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
            let inputs = segment.varying_in(&step.expr);
            for input in &inputs {
                check_float(input, rows.schema())?;
            }
            // A row that does not contribute has the cotangent NULL, and so have its inputs.
            if let Some(linear) = Linear::match_expr(&step.expr, segment)? {
                for input in inputs {
                    let partial = linear.partial(&input, tangent(&input, &lit(1.0)))?;
                    cotangents.add(&input.name, binary_expr(cotangent.clone(), Operator::Multiply, partial));
                }
                continue;
            }
            for input in inputs {
                let product = self.product_of(step, (&input, &cotangent), &tangent, rows.schema())?;
                cotangents.add(&input.name, product);
            }
        }
        let mut contributions = vec![];
        for leaf in &segment.leaves {
            let found = leaf.columns.iter().map(|column| cotangents.get(column, &rows, self.sweeping.keeps_zeros));
            let found = found.collect::<Result<Vec<_>>>()?;
            if found.iter().any(Option::is_some) {
                contributions.push((leaf, found));
            }
        }
        if self.sweeping.contracts {
            self.contractions(segment, &mut contributions, &mut rows)?;
        }
        if contributions.len() > 1 && !segment.single {
            return self.shared_contributions(contributions, Rows { plan: rows, of });
        }
        for (leaf, found) in contributions {
            let own = if leaf.repeated { &[] } else { leaf.own.as_slice() };
            let rows = Rows { plan: rows.clone(), of: of.clone() };
            self.contribution(leaf, leaf.row.clone(), leaf.present.clone(), rows, found, own)?;
        }
        Ok(())
    }

    /// Returns the contribution of a step to the cotangent of `input` if a partial derivative may be infinite or NaN,
    /// as that of `max(sqrt(x))` at 0. A cotangent of 0 contributes nothing, even where the partial derivative is NaN.
    /// Here the cotangent of `a` is 0 wherever `x`, its derivative by `w`, is NaN:
    ///
    /// ```sql
    /// SUM(CASE WHEN isnan(x) THEN 0 ELSE a END)                                 -- over SELECT x, x * w AS a
    /// ```
    fn product_of(
        &self,
        step: &LinearStep,
        (input, cotangent): (&Column, &Expr),
        tangent: &dyn Fn(&Column, &Expr) -> Expr,
        schema: &DFSchema,
    ) -> Result<Expr> {
        let along = tangent(input, cotangent);
        if self.sweeping.keeps_zeros {
            let product = product_at_zero(cotangent, along, tangent(input, &lit(1.0)))?;
            return where_taken(product, &step.expr, input, schema);
        }
        Ok(nullif(positive_zero(when(is_not_zero(cotangent.clone()), along).end()?), lit(0.0)))
    }

    /// Adds the contributions that are sums of products over a join, each in a plan of its own. Leaves the others in
    /// `contributions`.
    fn contractions(
        &mut self,
        segment: &Segment,
        contributions: &mut Vec<(&Leaf, Vec<Option<Expr>>)>,
        rows: &mut LogicalPlan,
    ) -> Result<()> {
        let Some(pulled) = PulledJoin::match_segment(segment, rows) else { return Ok(()) };
        let (mut products, mut others) = (vec![], vec![]);
        for (leaf, cotangents) in std::mem::take(contributions) {
            let kind = if pulled.is_product(leaf, &cotangents)? { &mut products } else { &mut others };
            kind.push((leaf, cotangents));
        }
        if !products.is_empty() && products.len() + others.len() > 1 {
            *rows = materialize_groups(std::mem::take(rows), self.names)?;
        }
        for (leaf, cotangents) in products {
            let rows = Rows { plan: pulled.rows_of(leaf, rows.clone())?, of: None };
            self.contribution(leaf, leaf.row.clone(), None, rows, cotangents, &[])?;
            if let Some(contribution) = self.contributions[leaf.residual].pop() {
                let summed = contribution.isolate_sums(self.names)?;
                self.contributions[leaf.residual].push(summed);
            }
        }
        *contributions = others;
        Ok(())
    }

    /// Adds a cotangent to the rows as a column, and returns the column.
    fn column(&mut self, rows: &mut LogicalPlan, cotangent: Expr) -> Result<Expr> {
        if matches!(cotangent, Expr::Column(_) | Expr::Literal(..)) {
            return Ok(cotangent);
        }
        let name = self.names.part("cotangent");
        *rows = with_columns(std::mem::take(rows), vec![cotangent.alias(name.clone())])?;
        Ok(Expr::Column(Column::new_unqualified(name)))
    }

    /// Adds the contributions of a segment to several residuals. The rows of the segment are computed once for all of
    /// them.
    fn shared_contributions(
        &mut self,
        contributions: Vec<(&Leaf, Vec<Option<Expr>>)>,
        Rows { plan: rows, of }: Rows,
    ) -> Result<()> {
        let mut exprs: Vec<Expr> = vec![];
        let mut positions = vec![];
        let of = of.map(|of| {
            exprs.push(Expr::Column(of).alias(self.names.part("of")));
            exprs.len() - 1
        });
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
            let rows = Segment::reading(&relation, self.names)?;
            let column = |position: usize| rows.columns[position].clone();
            let cotangents =
                cotangents.into_iter().map(|cotangent| cotangent.map(|at| Expr::Column(column(at)))).collect();
            let rows_of = Rows { plan: rows.plan.clone(), of: of.map(column) };
            self.contribution(leaf, row.map(column), present.map(column), rows_of, cotangents, &[])?;
        }
        Ok(())
    }

    /// Adds the contribution of a segment to one residual that it reads.
    fn contribution(
        &mut self,
        leaf: &Leaf,
        number: Option<Column>,
        present: Option<Column>,
        Rows { plan: mut rows, of }: Rows,
        cotangents: Vec<Option<Expr>>,
        own: &[Column],
    ) -> Result<()> {
        let mut exprs = vec![];
        for column in number.as_ref().or(present.as_ref()).into_iter().chain(&of) {
            rows = where_known(rows, column)?;
        }
        let mut numbered = |number: Option<Column>, name: &str| {
            let number = Expr::Column(number?);
            let named = Column::new_unqualified(self.names.part(name));
            exprs.push(number.alias(named.name.clone()));
            Some(named)
        };
        let (row, of) = (numbered(number, "row"), numbered(of, "of"));
        let reached = cotangents.iter().map(Option::is_some).collect();
        let mut named = vec![];
        for cotangent in cotangents {
            let name = self.names.part("cotangent");
            // NULL and not 0: another reader may reach the column in other rows, where the derivative may be NaN.
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
        self.contributions[leaf.residual].push(RowCotangents {
            plan,
            row,
            of,
            cotangents: named,
            reached,
            own: beside,
            repeated,
        });
        Ok(())
    }

    /// Sums all contributions to a residual. Each row occurs once in the result.
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
        first.sum_by_row(self.names).map(Some)
    }
}

/// Refuses a column of decimals that varies.
pub fn check_float(column: &Column, schema: &DFSchema) -> Result<()> {
    let data_type = schema.qualified_field_from_column(column)?.1.data_type();
    if value_type(data_type).is_decimal() {
        let shown = abbreviate(&Expr::Column(column.clone()));
        return plan_err!(
            "{shown} varies with a float but is {data_type}, and decimals are not differentiated. Convert the decimals among its \
             inputs, CAST(... AS DOUBLE)"
        );
    }
    Ok(())
}

/// Filters the rows to those with a row of the leaf. `column` is a column of the leaf that is NULL only where an outer
/// join has extended a row.
fn where_known(rows: LogicalPlan, column: &Column) -> Result<LogicalPlan> {
    let (_, field) = rows.schema().qualified_field_from_column(column)?;
    if !field.is_nullable() {
        return Ok(rows);
    }
    let is_there = Expr::Column(column.clone()).is_not_null();
    Ok(LogicalPlan::Filter(Filter::try_new(is_there, Arc::new(rows))?))
}
