//! Window functions by the row's own cell of the variable.
//!
//! Relative to the cell of a row, a column has in the rows of its window the tangent
//!
//! ```text
//! own [if that row has the same cell] + the sum over the windows below of k * d
//! ```
//!
//! where `own` is the tangent of the column while the windows below stay as they are, `k` its tangent by such a window alone, and `d`
//! what that window's own derivative is in the row. Where the window below is over whole partitions of no more keys, it moves in all
//! rows alike, so that `d` is a factor:
//!
//! ```sql
//! x - MAX(x) OVER ()                               -- own = 1, k = -1, d = [x is the greatest]
//! SUM(exp(x - m)) OVER ()                          -- exp(x - m) + SUM(-exp(x - m)) OVER () * d
//! ```

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchemaRef, Result, plan_err};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Operator, Projection, binary_expr};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviated;
use xql_autodiff::vocabulary::types::{can_vary, is_float};

use super::carrier::{Carried, Carrier, Reading, Variable};
use super::cells::{has_cells_of_its_own, numbered, numbered_by_value};
use super::stack::Lower;
use super::window::{over_columns, windows};
use crate::rows::own_cell::{OwnCell, is_choice, is_known_by_own_cell, or_zero};
use crate::rows::{Over, arguments};
use crate::tangents::linearize::null_with_column;
use crate::tangents::tangent::{Tangent, Tangents};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::columns;

/// How the derivative of a window function is found.
enum Way {
    /// As a sum over the row's own cell and the windows below.
    Sum(Vec<(Lower, Column)>),
    /// As if all rows moved, which must have one cell.
    OneCell,
}

type Find<'f> = &'f dyn Fn(&mut OwnCell<'_>, &Expr, &Expr) -> Result<Option<Expr>>;

/// The tangents of the columns of a plan, which has become a plan with more.
struct Pass {
    schema: DFSchemaRef,
    tangents: Tangents,
}

impl Pass {
    fn of(&self, column: &Column) -> Result<Tangent> {
        Ok(self.tangents.get(self.schema.index_of_column(column)?))
    }
}

impl Carrier<'_> {
    /// The window functions `window_expr` over an input, whose column number `variable` is the variable. `shown` are the columns of
    /// the node.
    pub fn window_by_own_cell(
        &mut self,
        input: LogicalPlan,
        window_expr: Vec<Expr>,
        shown: &DFSchemaRef,
        variable: usize,
        wanted: &BTreeSet<usize>,
    ) -> Result<Carried> {
        let own_columns = input.schema().columns();
        // What has been drawn stands behind the columns that the node had.
        let width = shown.fields().len() - window_expr.len();
        let by_value = self.reading == Reading::OwnCell { by_value: true };
        let repeats = by_value || !has_cells_of_its_own(&input, variable)?;
        let cell_of = &own_columns[variable];
        let mut plan = input;
        let mut ways = vec![];
        let mut needs_cell = false;
        for index in wanted.iter().copied().filter(|index| *index >= width) {
            let Some(function) = window_expr.get(index - width) else { continue };
            if !self.varies(&plan, plan.schema().index_of_column(cell_of)?, &arguments(function))? {
                continue;
            }
            let Expr::WindowFunction(call) = unaliased(function) else { continue };
            let (with_lower, way) = self.way(plan, cell_of, function, call, repeats)?;
            plan = with_lower;
            needs_cell |= repeats || is_choice(&call.fun) || matches!(way, Way::OneCell);
            ways.push((index, function.clone(), way));
        }
        let mut cell = None;
        if needs_cell {
            let position = plan.schema().index_of_column(cell_of)?;
            let (with_cell, column) = match by_value {
                true => numbered_by_value(plan, position, self.names)?,
                false => numbered(plan, position, self.names)?,
            };
            plan = with_cell;
            cell = Some(column);
        }

        let mut read = BTreeSet::new();
        for index in wanted.iter().filter(|index| **index < width) {
            read.insert(plan.schema().index_of_column(&own_columns[*index])?);
        }
        for (_, function, way) in &ways {
            match way {
                Way::Sum(lower) => {
                    for (_, column) in lower {
                        read.insert(plan.schema().index_of_column(column)?);
                    }
                }
                Way::OneCell => read.extend(self.needs(&plan, Variable::Outer, arguments(function))?),
            }
        }
        let reading = self.reading;
        let all = self.pass(&mut plan, cell_of, reading, read)?;
        let sums: Vec<_> = ways.iter().filter(|(_, _, way)| matches!(way, Way::Sum(_))).collect();
        let read = self.needs(&plan, Variable::Outer, sums.iter().flat_map(|(_, function, _)| arguments(function)))?;
        let own = self.pass(&mut plan, cell_of, Reading::WindowsFixed, read)?;
        let mut along: Vec<(Column, Pass)> = vec![];
        for (_, function, way) in &ways {
            let Way::Sum(lower) = way else { continue };
            for (_, column) in lower {
                // One that other functions read too has all of their columns.
                if !along.iter().any(|(known, _)| known == column) {
                    let readers = ways.iter().flat_map(|(_, function, _)| arguments(function));
                    let read = self.needs(&plan, Variable::Outer, readers)?;
                    let pass = self.along(&mut plan, column, read)?;
                    along.push((column.clone(), pass));
                }
            }
            let _ = function;
        }

        let carried = Arc::clone(plan.schema());
        let mut tangents = Tangents::default();
        for index in wanted.iter().filter(|index| **index < width) {
            tangents.set(*index, all.of(&own_columns[*index])?);
        }
        let mut computed = window_expr.clone();
        let (mut terms, mut parts, mut exprs) = (vec![], vec![], vec![]);
        for (index, function, way) in ways {
            let value = Expr::Column(Column::from(shown.qualified_field(index)));
            let is_nullable = shown.field(index).is_nullable();
            let mut over = |carrier: &mut Self, pass: &Pass, find: Find| {
                let over = carrier.over_pass(pass, &carried, &mut computed);
                let mut rows = OwnCell { over, cell: cell.clone(), repeats, terms: &mut terms, sums: &mut parts };
                find(&mut rows, &function, &value)
            };
            let derivative = match way {
                Way::OneCell => over(self, &all, &|rows, function, value| {
                    let has_value = is_nullable.then(|| value.clone().is_not_null());
                    rows.tangent_of_one_cell(function, has_value)
                })?,
                Way::Sum(lower) => {
                    let mut sum = over(self, &own, &|rows, function, value| rows.tangent(function, value))?;
                    for (_, column) in &lower {
                        let Some((_, pass)) = along.iter().find(|(known, _)| known == column) else { continue };
                        let Tangent::Column(moved) = all.of(column)? else { continue };
                        let Some(by_lower) =
                            over(self, pass, &|rows, function, value| rows.tangent_along(function, value))?
                        else {
                            continue;
                        };
                        let moved = Expr::Column(moved).cast_to(&DataType::Float64, &carried)?;
                        let term = or_zero(binary_expr(by_lower, Operator::Multiply, moved));
                        sum = Some(match sum {
                            None => term,
                            Some(sum) => binary_expr(sum, Operator::Plus, term),
                        });
                    }
                    sum.map(|sum| null_with_column(sum, shown, index)).transpose()?
                }
            };
            let Some(derivative) = derivative else { continue };
            let field = shown.field(index);
            let derivative = self.of_type(derivative, &self.tangent_type(field.data_type()));
            tangents.set(index, Tangent::Column(self.add_computed(derivative, field.name(), &mut exprs)));
        }

        let mut below = columns(&carried);
        let count = below.len();
        for added in computed.iter_mut().skip(window_expr.len()) {
            over_columns(added, &mut below, self.names);
        }
        if below.len() > count {
            plan = LogicalPlan::Projection(Projection::try_new(below, Arc::new(plan))?);
        }
        plan = windows(plan, computed)?;
        plan = beside(plan, terms)?;
        plan = windows(plan, parts)?;
        plan = beside(plan, exprs)?;
        Ok(Carried { plan, tangents })
    }

    /// How the derivative of a function is found, and the plan with the values of the windows below that this reads.
    fn way(
        &mut self,
        mut plan: LogicalPlan,
        cell_of: &Column,
        function: &Expr,
        call: &WindowFunction,
        repeats: bool,
    ) -> Result<(LogicalPlan, Way)> {
        let variable = plan.schema().index_of_column(cell_of)?;
        let read = self.needs(&plan, Variable::Column(variable), arguments(function))?;
        let lower = self.windows_below(&plan, variable, read, &call.params.partition_by)?;
        let apart = lower.iter().find(|lower| !lower.is_nested);
        if let (Some(apart), false) = (apart, repeats) {
            return plan_err!(
                "{}: by the row's own {} it varies by way of {}, which is not over whole partitions of the same keys or fewer. Write \
                 jvp(..., {}, 1) for the derivative in which all rows move, or grad((SELECT ...), {}) of a value of all rows",
                abbreviated(function),
                self.variable,
                abbreviated(&apart.function),
                self.variable,
                self.variable
            );
        }
        // The pairs by which the tangent of a least or greatest value is found are no floats.
        let mut is_known = is_known_by_own_cell(call, repeats)?;
        for argument in arguments(function) {
            let data_type = argument.get_type(plan.schema())?;
            is_known &= is_float(&data_type) || !can_vary(&data_type);
        }
        if !is_known && !repeats {
            return plan_err!(
                "{}: its derivative by the row's own {} is not known. Write jvp(..., {}, 1) for the derivative in which all rows move",
                abbreviated(function),
                self.variable,
                self.variable
            );
        }
        if apart.is_some() || !is_known {
            return Ok((plan, Way::OneCell));
        }
        let mut found = vec![];
        for lower in lower {
            let variable = plan.schema().index_of_column(cell_of)?;
            let (with_value, column) = lower.lifted(plan, variable, self.names)?;
            plan = with_value;
            found.push((lower, column));
        }
        Ok((plan, Way::Sum(found)))
    }

    /// Carries tangents of columns up to a plan, which gets columns for them.
    fn pass(
        &mut self,
        plan: &mut LogicalPlan,
        variable: &Column,
        reading: Reading,
        wanted: BTreeSet<usize>,
    ) -> Result<Pass> {
        let schema = Arc::clone(plan.schema());
        let variable = Variable::Column(schema.index_of_column(variable)?);
        let before = std::mem::replace(&mut self.reading, reading);
        let carried = self.carry(std::mem::take(plan), variable, &wanted);
        self.reading = before;
        let Carried { plan: with_tangents, tangents } = carried?;
        *plan = with_tangents;
        Ok(Pass { schema, tangents })
    }

    /// The same by the value of a window below.
    fn along(&mut self, plan: &mut LogicalPlan, value: &Column, wanted: BTreeSet<usize>) -> Result<Pass> {
        let data_type = plan.schema().field(plan.schema().index_of_column(value)?).data_type().clone();
        let variable = std::mem::replace(&mut self.variable, value.name.clone());
        let variable_type = std::mem::replace(&mut self.variable_type, data_type);
        let pass = self.pass(plan, value, Reading::WindowsFixed, wanted);
        (self.variable, self.variable_type) = (variable, variable_type);
        pass
    }

    fn over_pass<'r>(&'r mut self, pass: &'r Pass, carried: &'r DFSchemaRef, computed: &'r mut Vec<Expr>) -> Over<'r> {
        Over {
            columns: &pass.schema,
            tangents: &pass.tangents,
            carried,
            jvp: &self.jvp,
            variable: &self.variable,
            names: self.names,
            computed,
        }
    }
}

/// The plan with more columns.
fn beside(plan: LogicalPlan, exprs: Vec<Expr>) -> Result<LogicalPlan> {
    if exprs.is_empty() {
        return Ok(plan);
    }
    let exprs = columns(plan.schema()).into_iter().chain(exprs).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
}
