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
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Operator, binary_expr};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviated;
use xql_autodiff::vocabulary::types::{can_vary, is_float};

use crate::forward::carrier::{Carried, Carrier, Reading, Variable};
use super::cells::{has_cells_of_its_own, numbered, numbered_by_value};
use super::{Windows, over_columns, with_windows};
use crate::rows::own_cell::{OwnCell, is_choice, is_known_by_own_cell, or_zero};
use crate::rows::{Over, arguments};
use crate::tangents::linearize::null_with_column;
use crate::tangents::tangent::{Tangent, Tangents};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::with_columns;

/// How the derivative of a window function is found.
enum Way {
    /// As a sum over the row's own cell and the windows below, whose values are these columns.
    Sum(Vec<Column>),
    /// As if all rows moved, which must have one cell.
    OneCell,
}

/// A window function that varies.
struct Varying {
    /// The number of its column.
    index: usize,
    function: Expr,
    way: Way,
}

/// The cells of the rows below a window node.
struct Cells {
    number: Option<Column>,
    repeat: bool,
}

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

/// The tangents of the columns that window functions are over.
struct Passes {
    /// By the row's own cell.
    all: Pass,
    /// By the row's own cell, while the windows below stay as they are.
    own: Pass,
    /// By the value of each window below.
    along: Vec<(Column, Pass)>,
}

/// What is computed over the input of a window node, each from that before it.
struct Layers {
    /// The node's own functions, and others over the same rows.
    functions: Vec<Expr>,
    terms: Vec<Expr>,
    sums: Vec<Expr>,
    derivatives: Vec<Expr>,
}

impl Carrier<'_> {
    /// The window functions over an input whose column number `variable` is the variable.
    pub fn window_by_own_cell(&mut self, windows: Windows, variable: usize) -> Result<Carried> {
        let Windows { input, shown, .. } = &windows;
        let columns_below = input.schema().columns();
        let of = &columns_below[variable];
        let by_value = self.reading == Reading::OwnCell { by_value: true };
        let repeat = by_value || !has_cells_of_its_own(input, variable)?;
        let mut plan = input.clone();
        let (mut varying, mut needs_cell) = (vec![], false);
        for (index, function) in windows.asked() {
            let Expr::WindowFunction(call) = unaliased(function) else { continue };
            if self.varies(&plan, plan.schema().index_of_column(of)?, &arguments(function))? {
                let way = self.way(&mut plan, of, function, call, repeat)?;
                needs_cell |= repeat || is_choice(&call.fun);
                varying.push(Varying { index, function: function.clone(), way });
            }
        }
        let mut cells = Cells { number: None, repeat };
        if needs_cell {
            let position = plan.schema().index_of_column(of)?;
            let numbered = if by_value { numbered_by_value } else { numbered };
            let (with_numbers, number) = numbered(plan, position, self.names)?;
            plan = with_numbers;
            cells.number = Some(number);
        }
        let below = windows.passed_on();
        let shown_below = below.iter().map(|index| &columns_below[*index]);
        let passes = self.passes(&mut plan, of, shown_below, &varying)?;

        let mut tangents = Tangents::default();
        for index in below {
            tangents.set(index, passes.all.of(&columns_below[index])?);
        }
        let count = windows.functions.len();
        let mut layers =
            Layers { functions: windows.functions.clone(), terms: vec![], sums: vec![], derivatives: vec![] };
        for varying in varying {
            let derivative = self.derivative(&varying, shown, &passes, &cells, &mut layers, plan.schema())?;
            let Some(derivative) = derivative else { continue };
            let field = shown.field(varying.index);
            let derivative = self.of_type(derivative, &self.tangent_type(field.data_type()));
            let derivative = self.add_computed(derivative, field.name(), &mut layers.derivatives);
            tangents.set(varying.index, Tangent::Column(derivative));
        }
        let mut read = vec![];
        for added in layers.functions.iter_mut().skip(count) {
            over_columns(added, &mut read, self.names);
        }
        plan = with_columns(plan, read)?;
        plan = with_windows(plan, layers.functions)?;
        plan = with_columns(plan, layers.terms)?;
        plan = with_windows(plan, layers.sums)?;
        plan = with_columns(plan, layers.derivatives)?;
        Ok(Carried { plan, tangents })
    }

    /// The tangents of columns of a plan, which gets columns for them: of those that are shown, and those that functions are over.
    fn passes<'c>(
        &mut self,
        plan: &mut LogicalPlan,
        of: &Column,
        shown: impl Iterator<Item = &'c Column>,
        varying: &[Varying],
    ) -> Result<Passes> {
        let mut wanted = shown.cloned().collect::<Vec<_>>();
        let mut of_one_cell = vec![];
        let mut sums: Vec<(&Expr, &[Column])> = vec![];
        for Varying { function, way, .. } in varying {
            match way {
                Way::Sum(lower) => {
                    wanted.extend(lower.iter().cloned());
                    sums.push((function, lower));
                }
                Way::OneCell => of_one_cell.push(function),
            }
        }
        let mut read = self.read(plan, of, of_one_cell)?;
        for column in &wanted {
            read.insert(plan.schema().index_of_column(column)?);
        }
        let all = self.pass(plan, of, self.reading, read)?;
        let read = self.read(plan, of, sums.iter().map(|(function, _)| *function))?;
        let own = self.pass(plan, of, Reading::WindowsFixed, read)?;
        let mut along: Vec<(Column, Pass)> = vec![];
        for value in sums.iter().flat_map(|(_, lower)| *lower) {
            if along.iter().any(|(known, _)| known == value) {
                continue;
            }
            let readers = sums.iter().filter(|(_, lower)| lower.contains(value));
            let read = self.read(plan, of, readers.map(|(function, _)| *function))?;
            along.push((value.clone(), self.along(plan, value, read)?));
        }
        Ok(Passes { all, own, along })
    }

    /// The columns that the arguments of functions may vary with.
    fn read<'e>(
        &self,
        plan: &LogicalPlan,
        of: &Column,
        functions: impl IntoIterator<Item = &'e Expr>,
    ) -> Result<BTreeSet<usize>> {
        let variable = Variable::Column(plan.schema().index_of_column(of)?);
        self.needs(plan, variable, functions.into_iter().flat_map(arguments))
    }

    /// The derivative of a function by the row's own cell, NULL where the function is; nothing if it is zero.
    fn derivative(
        &mut self,
        Varying { index, function, way }: &Varying,
        shown: &DFSchemaRef,
        passes: &Passes,
        cells: &Cells,
        layers: &mut Layers,
        carried: &DFSchemaRef,
    ) -> Result<Option<Expr>> {
        let value = Expr::Column(Column::from(shown.qualified_field(*index)));
        let Way::Sum(lower) = way else {
            let has_value = shown.field(*index).is_nullable().then(|| value.is_not_null());
            let mut rows = self.rows(&passes.all, cells, layers, carried);
            return rows.tangent_of_one_cell(function, has_value);
        };
        let mut sum = self.rows(&passes.own, cells, layers, carried).tangent(function, &value)?;
        for (lower, along) in passes.along.iter().filter(|(column, _)| lower.contains(column)) {
            let Tangent::Column(moved) = passes.all.of(lower)? else { continue };
            let by_lower = self.rows(along, cells, layers, carried).tangent_along(function, &value)?;
            let Some(by_lower) = by_lower else { continue };
            let moved = Expr::Column(moved).cast_to(&DataType::Float64, carried)?;
            let term = or_zero(binary_expr(by_lower, Operator::Multiply, moved));
            sum = Some(match sum {
                None => term,
                Some(sum) => binary_expr(sum, Operator::Plus, term),
            });
        }
        sum.map(|sum| null_with_column(sum, shown, *index)).transpose()
    }

    /// How the derivative of a function is found. The plan gets the values of the windows below that this reads.
    fn way(
        &mut self,
        plan: &mut LogicalPlan,
        of: &Column,
        function: &Expr,
        call: &WindowFunction,
        repeat: bool,
    ) -> Result<Way> {
        let variable = plan.schema().index_of_column(of)?;
        let read = self.read(plan, of, [function])?;
        let lower = self.windows_below(plan, variable, read, &call.params.partition_by)?;
        let apart = lower.iter().find(|lower| !lower.is_nested);
        if let (Some(apart), false) = (apart, repeat) {
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
        let mut is_known = is_known_by_own_cell(call, repeat)?;
        for argument in arguments(function) {
            let data_type = argument.get_type(plan.schema())?;
            is_known &= is_float(&data_type) || !can_vary(&data_type);
        }
        if !is_known && !repeat {
            return plan_err!(
                "{}: its derivative by the row's own {} is not known. Write jvp(..., {}, 1) for the derivative in which all rows move",
                abbreviated(function),
                self.variable,
                self.variable
            );
        }
        if apart.is_some() || !is_known {
            return Ok(Way::OneCell);
        }
        let mut found = vec![];
        for lower in lower {
            let variable = plan.schema().index_of_column(of)?;
            let (with_value, column) = lower.lifted(std::mem::take(plan), variable, self.names)?;
            *plan = with_value;
            found.push(column);
        }
        Ok(Way::Sum(found))
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
        // What gradients by row have computed from the variable stays.
        let cell = self.cell.take();
        let pass = self.pass(plan, value, Reading::WindowsFixed, wanted);
        (self.variable, self.variable_type, self.cell) = (variable, variable_type, cell);
        pass
    }

    /// The rows that functions are over, with tangents.
    fn rows<'r>(
        &'r mut self,
        pass: &'r Pass,
        cells: &Cells,
        layers: &'r mut Layers,
        carried: &'r DFSchemaRef,
    ) -> OwnCell<'r> {
        let Layers { functions, terms, sums, .. } = layers;
        let over = Over {
            columns: &pass.schema,
            tangents: &pass.tangents,
            carried,
            jvp: &self.jvp,
            variable: &self.variable,
            names: self.names,
            computed: functions,
        };
        OwnCell { over, cell: cells.number.clone(), repeats: cells.repeat, terms, sums }
    }
}
