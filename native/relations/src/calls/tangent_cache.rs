//! The inputs of a node with calls, with the tangents that its calls need.

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchema, ExprSchema, Result};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, ScalarUDF};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use xql_autodiff::vocabulary::types::{can_vary, is_float};

use super::by_row::ByRow;
use super::context::Context;
use super::derivative::{DirectionalDerivative, TangentsOf};
use crate::jvp::{ColumnRequest, Direction, Perturb, Variable, VariableOrigin, is_one_cell, is_plain, propagate};
use crate::tangents::linearize::depends_on;
use crate::tangents::tangent::{Tangent, Tangents};

/// Returns the input that has a column, and the column as it is called there.
pub fn find<'p>(inputs: impl IntoIterator<Item = &'p LogicalPlan>, column: &Column) -> Option<(usize, Column)> {
    inputs.into_iter().enumerate().find_map(|(number, input)| {
        let index = input.schema().maybe_index_of_column(column)?;
        Some((number, Column::from(input.schema().qualified_field(index))))
    })
}

/// The inputs of a node whose calls are being replaced.
pub struct Inputs {
    /// The inputs, with the tangents that calls have requested.
    pub plans: Vec<LogicalPlan>,
    /// The inputs without these tangents.
    pub before: Vec<LogicalPlan>,
    /// The variables by row that its calls have.
    pub by_row: ByRow,
    known: Vec<CachedTangent>,
}

/// A tangent that an input has already.
#[derive(Debug)]
struct CachedTangent {
    jvp: Arc<ScalarUDF>,
    perturb: Perturb,
    variable: Column,
    column: Column,
    tangent: Tangent,
}

/// A request for tangents by a variable, with the values of it that move.
#[derive(Debug, Clone, Copy)]
pub struct TangentRequest<'b> {
    /// The operator that linearizes an expression.
    pub jvp: &'b Arc<ScalarUDF>,
    /// The values of the variable that move.
    pub perturb: Perturb,
    /// The input that has the variable among its columns; none if an outer query has it.
    pub owner: Option<usize>,
    /// The variable.
    pub variable: &'b Column,
    /// The seed, over the columns of the relation from which the variable comes. `None` is 1.
    pub along: Option<&'b Expr>,
}

/// The tangents by one variable that several calls need.
struct SharedRequest<'c> {
    jvp: &'c Arc<ScalarUDF>,
    variable: Column,
    columns: BTreeMap<usize, Column>,
}

impl Inputs {
    /// Creates the inputs of a node that has no calls by row.
    pub fn new(plans: Vec<LogicalPlan>) -> Self {
        Self { before: plans.clone(), plans, by_row: ByRow::default(), known: vec![] }
    }

    /// Returns the input that has a column, and the column as it is called there.
    pub fn find(&self, column: &Column) -> Option<(usize, Column)> {
        find(&self.plans, column)
    }

    /// Returns the columns of all inputs.
    pub fn schema(&self) -> DFSchema {
        merge_schema(&self.plans.iter().collect::<Vec<_>>())
    }

    fn known(&self, request: &TangentRequest, column: &Column) -> Option<Tangent> {
        let known = self.known.iter().find(|known| {
            &known.jvp == request.jvp
                && known.perturb == request.perturb
                && &known.variable == request.variable
                && &known.column == column
        });
        known.filter(|_| request.along.is_none()).map(|known| known.tangent.clone())
    }

    /// Returns the columns of an input other than the variable among those that are read, which may vary.
    fn may_vary(&self, read: &HashSet<Column>, input: usize, variable: &Column) -> BTreeMap<usize, Column> {
        let schema = self.plans[input].schema();
        let indices = read.iter().filter_map(|column| schema.maybe_index_of_column(column));
        let columns = indices.map(|index| (index, Column::from(schema.qualified_field(index))));
        let varying = columns.filter(|(index, column)| {
            column != variable && !self.by_row.has_value(column) && can_vary(schema.field(*index).data_type())
        });
        varying.collect()
    }

    /// Returns the columns other than the variable that an expression reads and that vary, with their tangents.
    pub fn tangents(
        &mut self,
        expression: &Expr,
        request: TangentRequest,
        context: &mut Context,
    ) -> Result<TangentsOf> {
        let merged = self.schema();
        let read = depends_on(expression, &merged)?;
        let of_variable =
            |owner: usize| Some((owner, self.plans[owner].schema().maybe_index_of_column(request.variable)?));
        let origins = match request.owner.and_then(of_variable) {
            Some((owner, index)) => VariableOrigin::all_of(&self.plans[owner], index)?,
            None => vec![],
        };
        let direction = Direction {
            jvp: Arc::clone(request.jvp),
            variable: request.variable.name.clone(),
            // With a column of an outer query nothing varies here but correlated subqueries, which are refused.
            variable_type: merged.data_type(request.variable).cloned().unwrap_or(DataType::Float64),
            origins,
            seed: request.along.cloned(),
            cell: None,
        };
        let mut tangents = vec![];
        for input in 0..self.plans.len() {
            let mut missing = BTreeMap::new();
            for (index, column) in self.may_vary(&read, input, request.variable) {
                match self.known(&request, &column) {
                    Some(tangent) => tangents.push((column, tangent)),
                    None => {
                        missing.insert(index, column);
                    }
                }
            }
            if !missing.is_empty() {
                tangents.extend(self.propagate_up(input, missing, &request, direction.clone(), context)?);
            }
        }
        tangents.retain(|(_, tangent)| *tangent != Tangent::Zero);
        Ok(tangents)
    }

    /// Propagates the tangents of columns to an input.
    fn propagate_up(
        &mut self,
        input: usize,
        columns: BTreeMap<usize, Column>,
        request: &TangentRequest,
        direction: Direction,
        context: &mut Context,
    ) -> Result<TangentsOf> {
        let Context { names, subplan_tangents, swept, .. } = context;
        let seen = match self.plans[input].schema().maybe_index_of_column(request.variable) {
            Some(index) if request.owner == Some(input) => Variable::Column(index),
            _ => Variable::Outer,
        };
        // The columns that a gradient by row has added read shared relations, and the other columns do not read them.
        let width = self.before[input].schema().fields().len();
        let is_added = columns.keys().any(|column| *column >= width);
        let read_from = if is_added { &self.plans[input] } else { &self.before[input] };
        let cell = match seen {
            Variable::Column(index) => {
                let own = self.by_row.swept.iter().filter(|_| is_added);
                VariableOrigin::find(read_from, index, &request.variable.name, swept.iter().chain(own))?
            }
            _ => None,
        };
        // If all rows have the same value of the variable, all rows move.
        let perturb = match seen {
            Variable::Column(index) if cell.is_none() && !is_one_cell(&self.plans[input], index)? => request.perturb,
            _ => Perturb::AllRows,
        };
        let requests = vec![ColumnRequest { variable: seen, perturb, columns: columns.keys().copied().collect() }];
        let directions = vec![Direction { cell: cell.clone(), ..direction }];
        let propagated =
            propagate(std::mem::take(&mut self.plans[input]), requests, directions, names, subplan_tangents)?;
        let mut plan = propagated.plan;
        let mut tangents = vec![];
        for (index, column) in columns {
            let mut tangent = propagated.tangents.first().map_or(Tangent::Zero, |tangents| tangents.get(index));
            if let (Some(cell), Tangent::Column(varies)) = (&cell, &tangent) {
                let checked = cell.checked(plan, &varies.column, &request.variable.name, names)?;
                (plan, tangent) = (checked.0, checked.1.into());
            }
            tangents.push((column.clone(), tangent.clone()));
            if request.along.is_none() {
                let (jvp, variable) = (Arc::clone(request.jvp), request.variable.clone());
                self.known.push(CachedTangent { jvp, perturb: request.perturb, variable, column, tangent });
            }
        }
        self.plans[input] = plan;
        Ok(tangents)
    }

    /// Propagates the tangents that several calls will need to the only input, by all variables in one walk.
    pub fn propagate_ahead(
        &mut self,
        calls: &[(DirectionalDerivative, Arc<ScalarUDF>)],
        context: &mut Context,
    ) -> Result<()> {
        let [input] = self.plans.as_slice() else { return Ok(()) };
        if !is_plain(input)? {
            return Ok(());
        }
        let shared = self.requests_ahead(input, calls)?;
        if shared.len() < 2 {
            return Ok(());
        }
        let mut directions = vec![];
        let mut requests = vec![];
        for SharedRequest { jvp, variable, columns } in &shared {
            let index = input.schema().index_of_column(variable)?;
            directions.push(Direction {
                jvp: Arc::clone(jvp),
                variable: variable.name.clone(),
                variable_type: input.schema().field(index).data_type().clone(),
                origins: VariableOrigin::all_of(input, index)?,
                seed: None,
                cell: None,
            });
            let (variable, perturb) = (Variable::Column(index), Perturb::AllRows);
            requests.push(ColumnRequest { variable, perturb, columns: columns.keys().copied().collect() });
        }
        let Context { names, subplan_tangents, .. } = context;
        let propagated = propagate(input.clone(), requests, directions, names, subplan_tangents)?;
        for (request, tangents) in shared.into_iter().zip(&propagated.tangents) {
            self.note(request, tangents);
        }
        self.plans = vec![propagated.plan];
        Ok(())
    }

    /// Returns the tangents that calls will need over the only input.
    fn requests_ahead<'c>(
        &self,
        input: &LogicalPlan,
        calls: &'c [(DirectionalDerivative, Arc<ScalarUDF>)],
    ) -> Result<Vec<SharedRequest<'c>>> {
        let mut requests: Vec<SharedRequest> = vec![];
        for (call, jvp) in calls {
            let read = depends_on(call.function, input.schema())?;
            for term in &call.terms {
                let Expr::Column(named) = term.variable else { continue };
                // `simplify` reports an argument that cannot be a variable.
                let is_float = term.variable.get_type(input.schema()).is_ok_and(|data_type| is_float(&data_type));
                let Some((_, variable)) = self.find(named).filter(|_| is_float) else { continue };
                let columns = self.may_vary(&read, 0, &variable);
                match requests.iter_mut().find(|known| known.jvp == jvp && known.variable == variable) {
                    Some(known) => known.columns.extend(columns),
                    None => requests.push(SharedRequest { jvp, variable, columns }),
                }
            }
        }
        requests.retain(|request| !request.columns.is_empty());
        Ok(requests)
    }

    /// Records tangents for the calls that will need them.
    fn note(&mut self, SharedRequest { jvp, variable, columns }: SharedRequest, tangents: &Tangents) {
        for (index, column) in columns {
            // Both are the same in a plan that `is_plain`.
            for perturb in [Perturb::AllRows, Perturb::OwnRow { by_value: false }] {
                let (jvp, variable, column) = (Arc::clone(jvp), variable.clone(), column.clone());
                self.known.push(CachedTangent { jvp, perturb, variable, column, tangent: tangents.get(index) });
            }
        }
    }
}
