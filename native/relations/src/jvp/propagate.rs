//! The propagation of tangents up a plan, as far as it is the same at every node.
//!
//! This is forward accumulation (A. Griewank and A. Walther, "Evaluating Derivatives", 2nd edition, SIAM 2008, chapter
//! 3) with columns in the place of numbers. A request names the columns whose tangents are wanted. The node requests
//! from its inputs the tangents of the columns that these read, down to where the variable originates. There the
//! tangent is 1, or the seed of the direction. On the way back, each node adds a column for each tangent that is
//! neither 0 nor 1, and the plan keeps its other columns.
//!
//! ```text
//! Projection: w, y * y AS z        z is wanted: requests y, and computes ∂z = 2 * y * ∂y
//!   Projection: w, w * x AS y      y is wanted: requests w and x, and computes ∂y = x
//!     TableScan: t                 w is the variable, with the tangent 1; x does not vary
//! ```
//!
//! Several directions are propagated in one walk, where all nodes can do that.

use arrow::datatypes::DataType;
use datafusion_common::{Column, JoinType, Result, TableReference, plan_err};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xql_autodiff::vocabulary::types::can_vary;

use super::direction::{Direction, Variable};
use super::shared_tangents::SharedTangents;
use crate::plan::recursion::WorkTable;
use crate::shared_relation::SharedRelation;
use crate::tangents::tangent::{self, Inactive, Tangent, Tangents};
use crate::vocabulary::identity::is_same;
use crate::vocabulary::names::{Names, with_columns};
use crate::vocabulary::nodes::{format_node, non_query_nodes};
use crate::vocabulary::origin::{Origin, origin};

/// The values of the variable that move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Perturb {
    /// The values in all rows move together, as for `jvp`.
    AllRows,
    /// In each row, only the row's own value of the variable moves, as for `grad` and `vjp`.
    OwnRow {
        /// A group above makes one of equal values: all rows with the value move.
        by_value: bool,
    },
    /// The row's own value moves, and the values of window functions stay as they are.
    OwnRowFrozenWindows,
}

/// The tangents that one direction requests from a node.
#[derive(Debug, Clone)]
pub struct ColumnRequest {
    /// The variable as the node sees it.
    pub variable: Variable,
    /// The values of the variable that move.
    pub perturb: Perturb,
    /// The columns whose tangents are wanted.
    pub columns: BTreeSet<usize>,
}

impl ColumnRequest {
    /// Returns a request for no tangents.
    pub fn nothing() -> Self {
        Self { variable: Variable::Outer, perturb: Perturb::AllRows, columns: BTreeSet::new() }
    }

    /// Returns the request for the input of a node that makes one row of those with equal values of the variable.
    pub fn by_value(self) -> Self {
        match self.perturb {
            Perturb::OwnRow { .. } => Self { perturb: Perturb::OwnRow { by_value: true }, ..self },
            Perturb::AllRows | Perturb::OwnRowFrozenWindows => self,
        }
    }
}

/// The request of one direction to a node, with the variable as the inputs of the node see it.
#[derive(Debug, Clone)]
pub struct NodeRequest {
    /// The request to the node.
    pub output: ColumnRequest,
    /// The variable as each input sees it.
    pub inputs: Vec<Variable>,
}

impl NodeRequest {
    /// Returns the request to an input, for the tangents of these columns.
    pub fn of_input(&self, input: usize, columns: BTreeSet<usize>) -> ColumnRequest {
        ColumnRequest { variable: self.inputs[input], perturb: self.output.perturb, columns }
    }

    /// Returns the request to the only input of a node that passes its columns on.
    pub fn passed_on(&self) -> ColumnRequest {
        self.of_input(0, self.output.columns.clone())
    }

    /// Returns whether tangents are wanted.
    pub fn is_active(&self) -> bool {
        !self.output.columns.is_empty()
    }
}

/// A node whose columns have tangents.
#[derive(Debug)]
pub struct WithTangents {
    /// The node, with added columns, in an order of its own.
    pub plan: LogicalPlan,
    /// For each direction the tangents of the columns, by their positions in the node as it was.
    pub tangents: Vec<Tangents>,
}

impl WithTangents {
    /// Returns a node whose columns do not vary in any direction.
    pub fn constant(plan: LogicalPlan, directions: usize) -> Self {
        Self { plan, tangents: vec![Tangents::default(); directions] }
    }
}

/// Propagates tangents through a node: requests the tangents of its inputs, and computes those of its columns from
/// them.
pub type PropagationRule = fn(&mut Propagation, LogicalPlan, &[NodeRequest]) -> Result<WithTangents>;

/// Propagates tangents up a plan, in several directions at once.
pub struct Propagation<'a> {
    /// The names of added columns.
    pub names: &'a mut Names,
    /// The shared relations that have got tangents.
    pub shared: &'a mut SharedTangents,
    /// The variables.
    pub directions: Vec<Direction>,
    /// The recursive queries through whose recursive terms tangents are being propagated, the innermost last.
    pub recursions: Vec<Recursion>,
    rule: PropagationRule,
}

/// The names of the further columns of a recursive query for the tangent of one of its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TangentFields {
    /// The column with the tangent.
    pub tangent: String,
    /// The column that tells where the tangent is inactive, if one of the terms has it.
    pub inactive: Option<String>,
}

/// A recursive query through whose recursive term tangents are being propagated.
#[derive(Debug)]
pub struct Recursion {
    /// The variable of each direction, as the query sees it.
    pub variables: Vec<Variable>,
    /// The columns that vary, each in a direction, with the names of their tangents. These are the further columns of the work table, in
    /// this order.
    pub varying: BTreeMap<(usize, usize), TangentFields>,
    /// The work table with those tangents.
    pub table: WorkTable,
    /// The columns whose tangents the recursive term has requested, each in a direction.
    pub requested: BTreeSet<(usize, usize)>,
}

impl TangentFields {
    /// Returns the number of these columns.
    pub fn width(&self) -> usize {
        1 + usize::from(self.inactive.is_some())
    }

    /// Returns the tangent that these columns of a relation have.
    pub fn to_tangent(&self, relation: Option<TableReference>, data_type: DataType) -> Tangent {
        let column = |name: &String| Column::new(relation.clone(), name);
        let inactive = self.inactive.as_ref().map(|name| Inactive { column: column(name), data_type });
        Tangent::Column(tangent::TangentColumn { column: column(&self.tangent), inactive })
    }
}

/// The step of a direction at a node.
enum TangentStep {
    /// No column varies here.
    Constant,
    /// This column is the variable.
    Is(usize),
    /// This column is the variable, and moves along the seed.
    Moves(usize),
    /// The variable comes from the inputs, which see it so.
    Below(Vec<Variable>),
}

impl<'a> Propagation<'a> {
    /// Creates a propagation in these directions, by a rule for each kind of node.
    pub fn new(
        names: &'a mut Names,
        shared: &'a mut SharedTangents,
        directions: Vec<Direction>,
        rule: PropagationRule,
    ) -> Self {
        Self { names, shared, directions, recursions: vec![], rule }
    }

    /// Propagates tangents up a plan in all directions. The request of a direction names the columns whose tangents are
    /// wanted.
    #[recursive::recursive]
    pub fn propagate(&mut self, plan: LogicalPlan, mut requests: Vec<ColumnRequest>) -> Result<WithTangents> {
        let mut own = vec![];
        for (direction, request) in self.directions.iter().zip(&mut requests) {
            let mut tangents = Tangents::default();
            if let (Variable::Column(index), None) = (request.variable, &direction.seed)
                && request.columns.remove(&index)
            {
                tangents.set(index, Tangent::One);
            }
            request.columns.retain(|index| can_vary(plan.schema().field(*index).data_type()));
            own.push(tangents);
        }
        if requests.iter().all(|request| request.columns.is_empty()) || self.is_constant(&plan, &requests) {
            return Ok(WithTangents { plan, tangents: own });
        }
        let mut propagated = self.node(plan, requests)?;
        for (tangents, own) in propagated.tangents.iter_mut().zip(own) {
            tangents.extend(own);
        }
        Ok(propagated)
    }

    /// Propagates tangents up a plan in one direction after the other, for nodes that cannot do so in several at once.
    pub fn propagate_one_by_one(&mut self, mut plan: LogicalPlan, requests: &[NodeRequest]) -> Result<WithTangents> {
        let schema = Arc::clone(plan.schema());
        let mut all = vec![];
        for (number, NodeRequest { output, .. }) in requests.iter().enumerate() {
            // Tangents in other directions may have moved the columns.
            let now = |index: usize| plan.schema().index_of_column(&Column::from(schema.qualified_field(index)));
            let variable = match output.variable {
                Variable::Column(index) => Variable::Column(now(index)?),
                other => other,
            };
            let moved = output.columns.iter().map(|index| Ok((now(*index)?, *index)));
            let moved = moved.collect::<Result<BTreeMap<_, _>>>()?;
            let columns = moved.keys().copied().collect();
            let propagated =
                self.propagate_in(number, plan, ColumnRequest { variable, perturb: output.perturb, columns })?;
            plan = propagated.0;
            let mut tangents = Tangents::default();
            for (index, tangent) in propagated.1.iter() {
                if let Some(index) = moved.get(&index) {
                    tangents.set(*index, tangent.clone());
                }
            }
            all.push(tangents);
        }
        Ok(WithTangents { plan, tangents: all })
    }

    /// Propagates tangents up a plan in one direction.
    pub fn propagate_in(
        &mut self,
        direction: usize,
        plan: LogicalPlan,
        request: ColumnRequest,
    ) -> Result<(LogicalPlan, Tangents)> {
        let mut all = vec![ColumnRequest::nothing(); self.directions.len()];
        all[direction] = request;
        let mut propagated = self.propagate(plan, all)?;
        Ok((propagated.plan, propagated.tangents.swap_remove(direction)))
    }

    /// Propagates tangents up a plan in a further direction.
    pub fn propagate_along(
        &mut self,
        direction: Direction,
        plan: LogicalPlan,
        request: ColumnRequest,
    ) -> Result<(LogicalPlan, Tangents)> {
        self.directions.push(direction);
        let propagated = self.propagate_in(self.directions.len() - 1, plan, request);
        self.directions.pop();
        propagated
    }

    /// Propagates tangents up a plan in a further direction, on copies of the names and shared relations. The caller
    /// drops the result, or only looks at it.
    pub fn propagate_on_copy(
        &mut self,
        direction: Direction,
        plan: LogicalPlan,
        request: ColumnRequest,
    ) -> Result<(LogicalPlan, Tangents)> {
        let (mut names, mut shared) = (self.names.clone(), self.shared.clone());
        let mut propagation = Propagation::new(&mut names, &mut shared, vec![direction], self.rule);
        propagation.propagate_in(0, plan, request)
    }

    /// Returns the name of the variable in the first direction that wants tangents, for messages.
    pub fn variable_of(&self, requests: &[NodeRequest]) -> &str {
        let mut wanting = self.directions.iter().zip(requests).filter(|(_, request)| request.is_active());
        wanting.next().map_or("", |(direction, _)| &direction.variable)
    }

    /// Returns whether a plan only passes on columns of tables, so that none of them varies with another.
    fn is_constant(&self, plan: &LogicalPlan, requests: &[ColumnRequest]) -> bool {
        let mut active = self.directions.iter().zip(requests).filter(|(_, request)| !request.columns.is_empty());
        let by_columns = active
            .all(|(direction, request)| direction.seed.is_none() && matches!(request.variable, Variable::Column(_)));
        by_columns && self.recursions.is_empty() && computes_nothing(plan)
    }

    fn node(&mut self, plan: LogicalPlan, outputs: Vec<ColumnRequest>) -> Result<WithTangents> {
        let mut requests = vec![];
        let mut here = vec![];
        for (number, mut output) in outputs.into_iter().enumerate() {
            let step = match output.columns.is_empty() {
                true => TangentStep::Constant,
                false => self.step(&plan, &output, number)?,
            };
            let inputs = match &step {
                TangentStep::Below(inputs) => inputs.clone(),
                TangentStep::Constant | TangentStep::Is(_) | TangentStep::Moves(_) => {
                    output.columns.clear();
                    vec![Variable::Outer; plan.inputs().len()]
                }
            };
            here.push(step);
            requests.push(NodeRequest { output, inputs });
        }
        let schema = Arc::clone(plan.schema());
        let is_constant = !requests.iter().any(NodeRequest::is_active);
        let mut propagated = match is_constant {
            true => WithTangents::constant(plan, requests.len()),
            false => (self.rule)(self, plan, &requests)?,
        };
        let mut moved = vec![];
        for ((direction, step), tangents) in self.directions.iter().zip(here).zip(&mut propagated.tangents) {
            match (step, &direction.seed) {
                (TangentStep::Is(index), _) => tangents.set(index, Tangent::One),
                (TangentStep::Moves(index), Some(seed)) => {
                    let field = schema.field(index);
                    let seed = seed.clone().cast_to(&direction.tangent_type(field.data_type()), &schema)?;
                    tangents.set(index, direction.add_computed(seed, field.name(), &mut moved, self.names).into());
                }
                _ => {}
            }
        }
        Ok(WithTangents { plan: with_columns(propagated.plan, moved)?, ..propagated })
    }

    /// Returns the step of a direction at a node from which it wants tangents.
    fn step(&self, plan: &LogicalPlan, request: &ColumnRequest, number: usize) -> Result<TangentStep> {
        let (direction, names) = (&self.directions[number], &*self.names);
        let inputs = plan.inputs();
        let index = match (request.variable, &direction.cell) {
            (Variable::Outer, cell) if plan.all_out_ref_exprs().is_empty() => {
                // A gradient by row may have been joined to rows that do not vary themselves, also in a relation that is planned apart.
                let may_move =
                    |node: &LogicalPlan| has_by_row_beside(node, names) || self.is_moved_iteration(node, number);
                if cell.is_none() || !SharedRelation::any_node_in(plan, &may_move)? {
                    return Ok(TangentStep::Constant);
                }
                None
            }
            (Variable::Everywhere, Some(cell)) if is_same(plan, &cell.origin) => {
                return Ok(TangentStep::Is(cell.position));
            }
            (Variable::Everywhere, Some(cell)) if self.shared.moves(plan, cell)? => {
                return Ok(TangentStep::Below(vec![Variable::Everywhere; inputs.len()]));
            }
            (Variable::Everywhere, _) => return Ok(TangentStep::Constant),
            (Variable::Outer, _) => None,
            (Variable::Column(index), _) => Some(index),
        };
        let from = index.map(|index| origin(plan, index)).transpose()?;
        let sources = match index.zip(from) {
            Some((index, Origin::Here)) if direction.seed.is_some() => return Ok(TangentStep::Moves(index)),
            Some((_, Origin::Here)) if is_constant_beside(plan) => return Ok(TangentStep::Constant),
            Some((_, Origin::Here)) | None => vec![],
            Some((_, Origin::Below(sources))) => sources,
        };
        if let (Some(seed), Some(_)) = (&direction.seed, index) {
            check_one_row_each(plan, seed, &direction.variable)?;
        }
        let seen_by =
            |(number, input): (usize, &&LogicalPlan)| match sources.iter().find(|(source, _)| *source == number) {
                // The rows of a relation that a gradient by row has numbered have the variable.
                Some((_, column)) if direction.cell.is_none() => Variable::Column(*column),
                _ if is_by_row(input, names) => Variable::Everywhere,
                Some((_, column)) => Variable::Column(*column),
                None => Variable::Outer,
            };
        Ok(TangentStep::Below(inputs.iter().enumerate().map(seen_by).collect()))
    }

    /// Returns whether a node scans the work table of a recursive query of which columns vary in a direction.
    fn is_moved_iteration(&self, node: &LogicalPlan, direction: usize) -> bool {
        let LogicalPlan::TableScan(scan) = node else { return false };
        let recursion = self.recursions.iter().rev().find(|recursion| recursion.table.is_read_by(scan));
        recursion.is_some_and(|recursion| recursion.varying.range((direction, 0)..(direction + 1, 0)).next().is_some())
    }
}

/// Returns whether the other columns of a node that computes the variable are known not to be computed from it.
pub fn is_constant_beside(plan: &LogicalPlan) -> bool {
    match plan {
        // The recursive query knows which columns of its work table vary.
        LogicalPlan::RecursiveQuery(_) | LogicalPlan::TableScan(_) => false,
        // A node of another library may pass the variable on, and compute anything from it.
        LogicalPlan::Extension(_) => plan.inputs().is_empty(),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_)
        | non_query_nodes!() => true,
    }
}

/// Refuses a seed that differs between rows, if the node makes one row of several or several rows of one.
fn check_one_row_each(plan: &LogicalPlan, seed: &Expr, variable: &str) -> Result<()> {
    if keeps_rows_apart(plan) {
        return Ok(());
    }
    plan_err!(
        "the direction {seed} is not the same in all rows, and cannot pass from {variable} through {}. Take the derivative by a \
         column of one row, along {variable} + eps * {seed}",
        format_node(plan)
    )
}

/// Returns whether each row of a node comes from one row of its input.
fn keeps_rows_apart(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_) => false,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => true,
    }
}

/// Returns whether a gradient by row has added all columns of a plan. The variable is none of them then.
pub fn is_by_row(plan: &LogicalPlan, names: &Names) -> bool {
    let fields = plan.schema().fields();
    !fields.is_empty() && fields.iter().all(|field| names.has_given(field.name()))
}

/// Returns whether a node joins the rows of a variable with a gradient by these rows.
fn has_by_row_beside(node: &LogicalPlan, names: &Names) -> bool {
    match node {
        LogicalPlan::Join(join) => {
            join.join_type == JoinType::Left && is_by_row(&join.right, names) && !is_by_row(&join.left, names)
        }
        _ => false,
    }
}

/// Returns whether a plan passes on columns of tables only, so that none of them varies with another.
#[recursive::recursive]
fn computes_nothing(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => SharedRelation::scanned(scan).is_none(),
        LogicalPlan::Join(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) | LogicalPlan::Sort(_) => {
            plan.inputs().into_iter().all(computes_nothing)
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => false,
    }
}
