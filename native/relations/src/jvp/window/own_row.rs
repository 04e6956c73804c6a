//! Derivatives of window functions by the row's own value of the variable.
//!
//! Let the variable move in one row `r` alone. In a row `s` of the window, a column then has the tangent
//!
//! ```text
//! [s has the same value of the variable as r] * own + the sum over the windows below of k * d
//! ```
//!
//! This is the chain rule. `own` is the tangent of the column with the windows below held constant, `k` is its tangent
//! by such a window alone, and `d` is the derivative of that window. If the window below is over whole partitions by no
//! more keys, it moves equally in all rows, and `d` is a factor of the sum over the rows:
//!
//! ```sql
//! x - MAX(x) OVER ()                               -- own = 1, k = -1, d = [x is the greatest]
//! SUM(exp(x - m)) OVER ()                          -- exp(x - m) + SUM(-exp(x - m)) OVER () * d
//! ```

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchemaRef, Result, plan_err};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, lit, when};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviate;
use xql_autodiff::vocabulary::types::{can_vary, is_float};

use super::cells::{has_cells_of_its_own, number_cells, number_cells_by_value};
use super::functions::{Windows, over_columns};
use super::nested_windows::{WindowSearch, windows_below};
use crate::aggregate_rules::calls::is_choice;
use crate::aggregate_rules::frames::with_windows;
use crate::aggregate_rules::own_row::{OwnRow, is_known_by_own_cell, or_zero};
use crate::aggregate_rules::{AggregateRows, Guarded, arguments};
use crate::jvp::dependence::varies;
use crate::jvp::direction::{Direction, Variable};
use crate::jvp::propagate::{ColumnRequest, NodeRequest, Perturb, Propagation, WithTangents};
use crate::tangents::linearize::{null_with_column, of_type};
use crate::tangents::tangent::{Tangent, Tangents};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, with_columns};

/// The way to compute the derivative of a window function.
enum DerivativeMethod {
    /// As a sum over the row's own cell and the windows below, whose values are these columns.
    Sum(Vec<Column>),
    /// As if all rows moved, which must have one cell.
    OneCell,
}

/// A window function that varies.
struct VaryingWindow {
    /// The number of its column.
    index: usize,
    function: Expr,
    /// Whether it chooses one row of the window.
    is_choice: bool,
    method: DerivativeMethod,
}

/// The inputs of the derivatives.
struct DerivativeInputs<'f> {
    /// The columns of the node.
    shown: &'f DFSchemaRef,
    passes: &'f Passes,
    /// The column with the number of the cell that a row has, where it is asked for.
    number: Option<Column>,
}

/// The tangents of the columns of a plan, which has become a plan with more.
struct Pass {
    schema: DFSchemaRef,
    tangents: Tangents,
}

impl Pass {
    fn tangent(&self, column: &Column) -> Result<Tangent> {
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

/// The layers of expressions over the input of a window node. Each reads those before it.
struct Layers {
    /// The node's own functions, and others over the same rows.
    functions: Vec<Expr>,
    ranks: Vec<Expr>,
    terms: Vec<Expr>,
    sums: Vec<Expr>,
    derivatives: Vec<Expr>,
}

/// Propagates tangents through window functions, by the row's own value of the variable of a direction. With
/// `by_value`, all rows with an equal value move together.
pub fn by_own_cell(
    propagation: &mut Propagation,
    direction: usize,
    windows: &Windows,
    request: &NodeRequest,
    by_value: bool,
) -> Result<WithTangents> {
    let Variable::Column(variable) = request.inputs[0] else {
        return plan_err!("the variable of a window is no column of its input");
    };
    let (wanted, directions) = (&request.output.columns, propagation.directions.len());
    let columns_below = windows.input.schema().columns();
    let repeat = by_value || !has_cells_of_its_own(&windows.input, variable)?;
    let mut own = OwnRows { propagation, direction, of: columns_below[variable].clone(), repeat };
    let mut plan = windows.input.clone();
    let varying = own.varying(&mut plan, windows, wanted)?;
    let needs_number = |varying: &VaryingWindow| repeat || varying.is_choice;
    let number = match varying.iter().any(needs_number) {
        true => Some(own.number(&mut plan, by_value)?),
        false => None,
    };
    let below = windows.passed_on(wanted);
    let shown_below = below.iter().map(|index| columns_below[*index].clone()).collect();
    let passes = own.passes(&mut plan, Perturb::OwnRow { by_value }, shown_below, &varying)?;

    let mut tangents = Tangents::default();
    for index in below {
        tangents.set(index, passes.all.tangent(&columns_below[index])?);
    }
    let mut layers = Layers::new(windows.functions.clone());
    let inputs = DerivativeInputs { shown: &windows.shown, passes: &passes, number };
    for varying in varying {
        let Some(mut derivative) = own.derivative(&varying, &inputs, &mut layers, plan.schema())? else { continue };
        let field = windows.shown.field(varying.index);
        let direction = &own.propagation.directions[direction];
        let data_type = direction.tangent_type(field.data_type());
        derivative.tangent = of_type(derivative.tangent, &data_type);
        let (own_names, derivatives) = (&mut *own.propagation.names, &mut layers.derivatives);
        let tangent = direction.add_guarded(derivative, (field.name(), data_type), derivatives, own_names)?;
        tangents.set(varying.index, tangent);
    }
    let mut propagated =
        WithTangents::constant(layers.over(plan, windows.functions.len(), own.propagation.names)?, directions);
    propagated.tangents[direction] = tangents;
    Ok(propagated)
}

impl Layers {
    fn new(functions: Vec<Expr>) -> Self {
        Self { functions, ranks: vec![], terms: vec![], sums: vec![], derivatives: vec![] }
    }

    /// Adds all layers to a plan. The first `own` functions are those of the node.
    fn over(mut self, mut plan: LogicalPlan, own: usize, names: &mut Names) -> Result<LogicalPlan> {
        self.functions.append(&mut self.ranks);
        let mut read = vec![];
        for added in self.functions.iter_mut().skip(own) {
            over_columns(added, &mut read, names);
        }
        plan = with_columns(plan, read)?;
        plan = with_windows(plan, self.functions)?;
        plan = with_columns(plan, self.terms)?;
        plan = with_windows(plan, self.sums)?;
        with_columns(plan, self.derivatives)
    }
}

/// The cells of a variable below a window node.
struct OwnRows<'c, 'a> {
    propagation: &'c mut Propagation<'a>,
    /// The number of the direction.
    direction: usize,
    /// The column that is the variable.
    of: Column,
    /// Whether several rows may have one cell.
    repeat: bool,
}

impl OwnRows<'_, '_> {
    fn direction(&self) -> &Direction {
        &self.propagation.directions[self.direction]
    }

    /// Returns the window functions that vary, with how their derivatives are found. The plan gets the values of the windows
    /// below that these read.
    fn varying(
        &mut self,
        plan: &mut LogicalPlan,
        windows: &Windows,
        wanted: &BTreeSet<usize>,
    ) -> Result<Vec<VaryingWindow>> {
        let mut varying = vec![];
        for (index, function) in windows.wanted(wanted) {
            let Expr::WindowFunction(call) = unaliased(function) else { continue };
            let variable = plan.schema().index_of_column(&self.of)?;
            if varies((self.direction(), self.propagation.names), plan, variable, &arguments(function))? {
                let method = self.method(plan, function, call)?;
                varying.push(VaryingWindow {
                    index,
                    function: function.clone(),
                    is_choice: is_choice(call.fun.name()),
                    method,
                });
            }
        }
        Ok(varying)
    }

    /// Returns the column with the number of the cell that a row has, which the plan gets.
    fn number(&mut self, plan: &mut LogicalPlan, by_value: bool) -> Result<Column> {
        let position = plan.schema().index_of_column(&self.of)?;
        let number = if by_value { number_cells_by_value } else { number_cells };
        let (with_numbers, number) = number(std::mem::take(plan), position, self.propagation.names)?;
        *plan = with_numbers;
        Ok(number)
    }

    /// Returns the tangents of columns of a plan, which gets columns for them: of those that are shown, and those that functions are over.
    fn passes(
        &mut self,
        plan: &mut LogicalPlan,
        perturb: Perturb,
        mut wanted: Vec<Column>,
        varying: &[VaryingWindow],
    ) -> Result<Passes> {
        let mut of_one_cell = vec![];
        let mut sums: Vec<(&Expr, &[Column])> = vec![];
        for VaryingWindow { function, method, .. } in varying {
            match method {
                DerivativeMethod::Sum(lower) => {
                    wanted.extend(lower.iter().cloned());
                    sums.push((function, lower));
                }
                DerivativeMethod::OneCell => of_one_cell.push(function),
            }
        }
        let mut read = self.read(plan, of_one_cell)?;
        for column in &wanted {
            read.insert(plan.schema().index_of_column(column)?);
        }
        let all = self.pass(plan, perturb, read)?;
        let read = self.read(plan, sums.iter().map(|(function, _)| *function))?;
        let own = self.pass(plan, Perturb::OwnRowFrozenWindows, read)?;
        let mut along: Vec<(Column, Pass)> = vec![];
        for value in sums.iter().flat_map(|(_, lower)| *lower) {
            if along.iter().any(|(known, _)| known == value) {
                continue;
            }
            let readers = sums.iter().filter(|(_, lower)| lower.contains(value));
            let read = self.read(plan, readers.map(|(function, _)| *function))?;
            along.push((value.clone(), self.along(plan, value, read)?));
        }
        Ok(Passes { all, own, along })
    }

    /// Returns the columns that the arguments of functions may vary with.
    fn read<'e>(&self, plan: &LogicalPlan, functions: impl IntoIterator<Item = &'e Expr>) -> Result<BTreeSet<usize>> {
        let variable = Variable::Column(plan.schema().index_of_column(&self.of)?);
        self.direction().needs(plan.schema(), variable, functions.into_iter().flat_map(arguments))
    }

    /// Returns the derivative of a function by the row's own value, NULL where the function is NULL. Returns `None` if
    /// it is zero.
    fn derivative(
        &mut self,
        VaryingWindow { index, function, method, .. }: &VaryingWindow,
        inputs: &DerivativeInputs,
        layers: &mut Layers,
        with_tangents: &DFSchemaRef,
    ) -> Result<Option<Guarded>> {
        let DerivativeInputs { shown, passes, number } = inputs;
        let value = Expr::Column(Column::from(shown.qualified_field(*index)));
        let DerivativeMethod::Sum(lower) = method else {
            let has_value = shown.field(*index).is_nullable().then(|| value.is_not_null());
            let mut rows = self.rows(&passes.all, number, layers, with_tangents);
            return rows.tangent_of_one_cell(function, has_value);
        };
        let of_own = self.rows(&passes.own, number, layers, with_tangents).tangent(function, &value)?;
        let mut terms: Vec<_> = of_own.into_iter().collect();
        for (lower, along) in passes.along.iter().filter(|(column, _)| lower.contains(column)) {
            let Tangent::Column(moved) = passes.all.tangent(lower)? else { continue };
            let by_lower = self.rows(along, number, layers, with_tangents).tangent_along(function, &value)?;
            let Some(by_lower) = by_lower else { continue };
            let stays = moved.condition().into_iter().chain(by_lower.inactive).reduce(Expr::or);
            let moved = Expr::Column(moved.column).cast_to(&DataType::Float64, with_tangents)?;
            let term = or_zero(binary_expr(by_lower.tangent, Operator::Multiply, moved));
            let tangent = match &stays {
                Some(stays) => when(stays.clone(), lit(0.0)).otherwise(term)?,
                None => term,
            };
            terms.push(Guarded { tangent, inactive: stays });
        }
        let inactive: Option<Vec<_>> = terms.iter().map(|term| term.inactive.clone()).collect();
        let sum = terms.into_iter().map(|term| term.tangent);
        let Some(sum) = sum.reduce(|sum, term| binary_expr(sum, Operator::Plus, term)) else { return Ok(None) };
        let inactive = inactive.and_then(|conditions| conditions.into_iter().reduce(Expr::and));
        Ok(Some(Guarded { tangent: null_with_column(sum, shown, *index)?, inactive }))
    }

    /// Returns the way to compute the derivative of a function. Adds the values of the windows below that it reads to
    /// the plan.
    fn method(&mut self, plan: &mut LogicalPlan, function: &Expr, call: &WindowFunction) -> Result<DerivativeMethod> {
        let variable = plan.schema().index_of_column(&self.of)?;
        let read = self.read(plan, [function])?;
        let keys = &call.params.partition_by;
        let lower =
            windows_below((self.direction(), self.propagation.names), WindowSearch { plan, variable, read, keys })?;
        let apart = lower.iter().find(|lower| !lower.is_nested);
        let name = &self.direction().variable;
        if let (Some(apart), false) = (apart, self.repeat) {
            return plan_err!(
                "{}: by the row's own {name} it varies by way of {}, which is not over whole partitions of the same keys or fewer. \
                 Write jvp(..., {name}, 1) for the derivative in which all rows move, or grad((SELECT ...), {name}) of a value of \
                 all rows",
                abbreviate(function),
                abbreviate(&apart.function)
            );
        }
        // The pairs by which the tangent of a least or greatest value is found are no floats.
        let mut is_known = is_known_by_own_cell(call, self.repeat)?;
        for argument in arguments(function) {
            let data_type = argument.get_type(plan.schema())?;
            is_known &= is_float(&data_type) || !can_vary(&data_type);
        }
        if !is_known && !self.repeat {
            return plan_err!(
                "{}: its derivative by the row's own {name} is not known. Write jvp(..., {name}, 1) for the derivative in which all \
                 rows move",
                abbreviate(function)
            );
        }
        if apart.is_some() || !is_known {
            return Ok(DerivativeMethod::OneCell);
        }
        let mut found = vec![];
        for lower in lower {
            let variable = plan.schema().index_of_column(&self.of)?;
            let (with_value, column) = lower.pull_up(std::mem::take(plan), variable, self.propagation.names)?;
            *plan = with_value;
            found.push(column);
        }
        Ok(DerivativeMethod::Sum(found))
    }

    /// Propagates tangents of columns up to a plan, which gets columns for them.
    fn pass(&mut self, plan: &mut LogicalPlan, perturb: Perturb, columns: BTreeSet<usize>) -> Result<Pass> {
        let schema = Arc::clone(plan.schema());
        let variable = Variable::Column(schema.index_of_column(&self.of)?);
        let request = ColumnRequest { variable, perturb, columns };
        let (with_tangents, tangents) = self.propagation.propagate_in(self.direction, std::mem::take(plan), request)?;
        *plan = with_tangents;
        Ok(Pass { schema, tangents })
    }

    /// Returns the same by the value of a window below.
    fn along(&mut self, plan: &mut LogicalPlan, value: &Column, columns: BTreeSet<usize>) -> Result<Pass> {
        let schema = Arc::clone(plan.schema());
        let index = schema.index_of_column(value)?;
        // What gradients by row have computed from the variable stays.
        let direction = Direction {
            variable: value.name.clone(),
            variable_type: schema.field(index).data_type().clone(),
            cell: None,
            ..self.direction().clone()
        };
        let request =
            ColumnRequest { variable: Variable::Column(index), perturb: Perturb::OwnRowFrozenWindows, columns };
        let (with_tangents, tangents) = self.propagation.propagate_along(direction, std::mem::take(plan), request)?;
        *plan = with_tangents;
        Ok(Pass { schema, tangents })
    }

    /// Returns the rows that functions are over, with tangents.
    fn rows<'r>(
        &'r mut self,
        pass: &'r Pass,
        number: &Option<Column>,
        layers: &'r mut Layers,
        with_tangents: &'r DFSchemaRef,
    ) -> OwnRow<'r> {
        let Layers { functions, ranks, terms, sums, .. } = layers;
        let direction = &self.propagation.directions[self.direction];
        let over = AggregateRows {
            columns: &pass.schema,
            tangents: &pass.tangents,
            with_tangents,
            jvp: &direction.jvp,
            variable: &direction.variable,
            names: self.propagation.names,
            keys: &[],
            ranks,
            computed: functions,
        };
        OwnRow { over, cell: number.clone(), repeats: self.repeat, terms, sums }
    }
}
