//! Where columns originate, as paths down a plan.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result};
use datafusion_expr::{Expr, LogicalPlan, ScalarUDF};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::functions::stop_gradient_argument;
use xql_autodiff::vocabulary::types::can_vary;

use crate::aggregate_rules::arguments;
use crate::shared_relation::SharedRelation;
use crate::vocabulary::names::Names;
use crate::vocabulary::nodes::computed;
use crate::vocabulary::operators::Recognize;
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::work_table::{is_work_table, source_column};

/// The operators, and the `jvp` that has replaced the calls of one.
#[derive(Debug, Clone, Copy)]
pub struct Derivatives<'d> {
    /// Tells the operators among the functions of the session.
    pub recognize: Recognize,
    /// The function that has replaced calls.
    pub jvp: &'d ScalarUDF,
}

impl Derivatives<'_> {
    fn has(self, function: &ScalarUDF) -> bool {
        (self.recognize)(function).is_some() || function == self.jvp
    }
}

/// A column of a node of a plan, found by the path down to the node: two references to one table are equal nodes, and may even
/// be the same, but the paths to them differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    path: Vec<PathStep>,
    /// The number of the column in the node.
    pub index: usize,
}

impl Position {
    /// Returns the column of this number, one step from the end of a path.
    fn below(path: &[PathStep], step: PathStep, index: usize) -> Self {
        Self { path: path.iter().copied().chain([step]).collect(), index }
    }
}

/// One step of the path to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathStep {
    /// To the input of this number.
    Input(usize),
    /// To the subquery of this number among those of an expression, which are beside the inputs.
    Subquery(usize),
    /// From nowhere to the inputs of the outer query of this number: no path leads there from those of the query itself.
    OuterQuery(usize),
    /// From nowhere to the recursive query of this number: no path leads there from its recursive term.
    RecursiveQuery(usize),
    /// From the scan of a shared relation to its plan.
    Relation,
}

/// The inputs of a node, of a query itself or of an outer one.
#[derive(Debug)]
pub struct Scope<'p> {
    /// The inputs.
    pub inputs: Vec<&'p LogicalPlan>,
    /// The path to their node.
    pub path: Vec<PathStep>,
}

impl<'p> Scope<'p> {
    /// Returns the inputs of the query itself.
    pub fn here(inputs: &'p [LogicalPlan]) -> Self {
        Self { inputs: inputs.iter().collect(), path: vec![] }
    }

    /// Returns the inputs of the outer query of this number.
    pub fn outer(inputs: &'p [Arc<LogicalPlan>], number: usize) -> Self {
        Self { inputs: inputs.iter().map(Arc::as_ref).collect(), path: vec![PathStep::OuterQuery(number)] }
    }
}

/// Returns the columns and scalar subqueries from which an expression is computed. The variables of derivatives in it
/// are none of them, and neither are the arguments of `stop_gradient`.
pub fn parts_read(expression: &Expr, derivatives: Derivatives) -> Result<Vec<Expr>> {
    let mut parts = vec![];
    expression.apply(|part| {
        match part {
            Expr::Column(_) | Expr::OuterReferenceColumn(..) => parts.push(part.clone()),
            part if stop_gradient_argument(part).is_some() => return Ok(TreeNodeRecursion::Jump),
            Expr::ScalarSubquery(_) => {
                parts.push(part.clone());
                parts.extend(columns_read(part).into_iter().map(Expr::Column));
            }
            Expr::ScalarFunction(call) if derivatives.has(&call.func) => {
                for argument in call.args.iter().step_by(2) {
                    parts.extend(parts_read(argument, derivatives)?);
                }
                return Ok(TreeNodeRecursion::Jump);
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(parts)
}

/// Returns where a column of the inputs originates.
pub fn origins(column: &Column, scope: &Scope) -> Result<BTreeMap<Position, LogicalPlan>> {
    let ends = BTreeSet::new();
    let mut sources = Sources {
        found: BTreeMap::new(),
        ends: &ends,
        reached: BTreeSet::new(),
        through: None,
        iterated: vec![],
        added: None,
        relations: HashSet::new(),
    };
    for (number, input) in scope.inputs.iter().enumerate() {
        if let Some(index) = input.schema().maybe_index_of_column(column) {
            sources.column(input, Position::below(&scope.path, PathStep::Input(number), index))?;
        }
    }
    Ok(sources.found)
}

/// The positions where columns originate, each with its node.
pub struct Sources<'e> {
    /// What has been found.
    pub found: BTreeMap<Position, LogicalPlan>,
    /// Positions that are not looked into.
    pub ends: &'e BTreeSet<Position>,
    /// The ends that the search has reached.
    pub reached: BTreeSet<Position>,
    /// With this, the search continues to the columns from which a column is computed.
    pub through: Option<Derivatives<'e>>,
    /// The recursive queries whose recursive terms are being looked into, the innermost last, and the paths to them.
    pub iterated: Vec<(LogicalPlan, Vec<PathStep>)>,
    /// The names of columns that have been added, if what these are computed from is left out.
    pub added: Option<&'e Names>,
    /// The columns of shared relations that have been looked into.
    pub relations: HashSet<(*const SharedRelation, usize)>,
}

impl Sources<'_> {
    /// Adds the sources of an expression over the inputs of the node at `path`.
    pub fn expression(&mut self, expression: &Expr, inputs: &[&LogicalPlan], path: &[PathStep]) -> Result<()> {
        let Some(derivatives) = self.through else { return Ok(()) };
        for part in parts_read(expression, derivatives)? {
            match part {
                Expr::ScalarSubquery(subquery) => {
                    let step = PathStep::Subquery(self.found.len());
                    self.column(&subquery.subquery, Position::below(path, step, 0))?;
                }
                Expr::Column(column) if self.added.is_some_and(|names| names.has_given(&column.name)) => {}
                Expr::Column(column) => {
                    for (number, input) in inputs.iter().enumerate() {
                        if let Some(index) = input.schema().maybe_index_of_column(&column) {
                            self.column(input, Position::below(path, PathStep::Input(number), index))?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the sources of a column of a node. A column that cannot vary has none.
    #[recursive::recursive]
    fn column(&mut self, plan: &LogicalPlan, Position { path, index }: Position) -> Result<()> {
        if !can_vary(plan.schema().field(index).data_type()) {
            return Ok(());
        }
        let inputs = plan.inputs();
        let below = |number: usize, index| Position::below(&path, PathStep::Input(number), index);
        if let Origin::Below(columns) = origin(plan, index)? {
            for (number, column) in columns {
                if let Some(input) = inputs.get(number) {
                    self.column(input, below(number, column))?;
                }
            }
            return Ok(());
        }
        let position = Position { path: path.clone(), index };
        if self.ends.contains(&position) {
            self.reached.insert(position);
            return Ok(());
        }
        if self.found.insert(position, plan.clone()).is_some() || self.through.is_none() {
            return Ok(());
        }
        self.computed(plan, Position { path, index }, &inputs)
    }

    /// Adds the sources of the expressions that compute a column of a node.
    fn computed(
        &mut self,
        plan: &LogicalPlan,
        Position { path, index }: Position,
        inputs: &[&LogicalPlan],
    ) -> Result<()> {
        let below = |number: usize, index| Position::below(&path, PathStep::Input(number), index);
        match plan {
            LogicalPlan::RecursiveQuery(query) => {
                self.column(&query.static_term, below(0, index))?;
                self.iterated.push((plan.clone(), path.clone()));
                let found = self.column(&query.recursive_term, below(1, index));
                self.iterated.pop();
                return found;
            }
            LogicalPlan::Unnest(unnest) => {
                return match (unnest.dependency_indices.get(index), inputs.first()) {
                    (Some(list), Some(input)) => self.column(input, below(0, *list)),
                    _ => Ok(()),
                };
            }
            LogicalPlan::TableScan(scan) => {
                let query = self.iterated.iter().rev().find(|(plan, _)| match plan {
                    LogicalPlan::RecursiveQuery(query) => is_work_table(scan, &query.name),
                    _ => false,
                });
                if let Some((query, path)) = query.cloned() {
                    return self.column(&query, Position { path, index: source_column(scan, index) });
                }
                let relation = SharedRelation::column_scanned_by(plan, index).filter(|_| self.added.is_none());
                return match relation {
                    Some((relation, Some(column))) if self.relations.insert((Arc::as_ptr(&relation), column)) => {
                        self.column(relation.plan(), Position::below(&path, PathStep::Relation, column))
                    }
                    _ => Ok(()),
                };
            }
            _ => {}
        }
        for expr in computing(plan, index)? {
            for argument in arguments(&expr) {
                self.expression(argument, inputs, &path)?;
            }
        }
        Ok(())
    }
}

/// Returns the expressions that compute a column.
fn computing(plan: &LogicalPlan, index: usize) -> Result<Vec<Expr>> {
    let name = plan.schema().field(index).name();
    Ok(match plan {
        LogicalPlan::Projection(projection) => projection.expr.get(index).cloned().into_iter().collect(),
        LogicalPlan::Aggregate(aggregate) => computed(aggregate)?[index].cloned().into_iter().collect(),
        _ => plan.expressions().into_iter().filter(|expr| &expr.qualified_name().1 == name).collect(),
    })
}
