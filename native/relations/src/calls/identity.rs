//! The error for a variable that an expression does not depend on, where it depends on another reference to the same column.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan, ScalarUDF};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::messages::abbreviated;
use xql_autodiff::vocabulary::types::can_vary;

use crate::rows::arguments;
use crate::vocabulary::nodes::computed;
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::work_table::{is_work_table, source_column};

/// Tells the operators and what calls of them have been replaced by.
pub type IsOperator<'f> = &'f dyn Fn(&ScalarUDF) -> bool;

/// A column of a node of a plan, found by the path down to the node: two references to one table are equal nodes, and may even
/// be the same, but the paths to them differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    path: Vec<Step>,
    index: usize,
}

impl Place {
    /// The column of this number, one step from the end of a path.
    fn below(path: &[Step], step: Step, index: usize) -> Self {
        Self { path: path.iter().copied().chain([step]).collect(), index }
    }
}

/// One step of the path to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// To the input of this number.
    Input(usize),
    /// To the subquery of this number among those of an expression, which are beside the inputs.
    Subquery(usize),
    /// From nowhere to the inputs of the outer query of this number: no path leads there from those of the query itself.
    OuterQuery(usize),
    /// From nowhere to the recursive query of this number: no path leads there from its recursive term.
    RecursiveQuery(usize),
}

/// The inputs of a node, of a query itself or of an outer one.
#[derive(Debug)]
pub struct Scope<'p> {
    inputs: Vec<&'p LogicalPlan>,
    path: Vec<Step>,
}

impl<'p> Scope<'p> {
    /// The inputs of the query itself.
    pub fn here(inputs: &'p [LogicalPlan]) -> Self {
        Self { inputs: inputs.iter().collect(), path: vec![] }
    }

    /// The inputs of the outer query of this number.
    pub fn outer(inputs: &'p [Arc<LogicalPlan>], number: usize) -> Self {
        Self { inputs: inputs.iter().map(Arc::as_ref).collect(), path: vec![Step::OuterQuery(number)] }
    }
}

/// A column that a call names, and where it originates.
#[derive(Debug)]
pub struct Named<'p> {
    column: Column,
    scope: Scope<'p>,
    origins: BTreeMap<Place, LogicalPlan>,
}

impl<'p> Named<'p> {
    pub fn of(column: Column, scope: Scope<'p>) -> Result<Self> {
        let origins = origins(&column, &scope)?;
        Ok(Self { column, scope, origins })
    }
}

/// The error if an expression over these inputs, which does not vary with one of the columns that the call names, is computed
/// from another reference to it, and not by way of the others that are named.
pub fn check(
    call: &Expr,
    expression: &Expr,
    variable: usize,
    named: &[Named],
    here: &Scope,
    iterated: &[LogicalPlan],
    is_operator: IsOperator,
) -> Result<()> {
    let Some(Named { column: variable, scope: of_variable, origins }) = named.get(variable) else { return Ok(()) };
    let ends = named.iter().flat_map(|column| column.origins.keys().cloned()).collect();
    for part in parts_read(expression, is_operator)? {
        let queries = iterated.iter().enumerate();
        let iterated = queries.map(|(number, query)| (query.clone(), vec![Step::RecursiveQuery(number)])).collect();
        let mut sources = Sources { found: BTreeMap::new(), ends: &ends, through: Some(is_operator), iterated };
        let (part, scope) = match part {
            // What is read of a query around can only be another reference if the variable is of that query.
            Expr::OuterReferenceColumn(_, column) => (Expr::Column(column), of_variable),
            part => (part, here),
        };
        sources.expression(&part, &scope.inputs, &scope.path)?;
        let is_other = |place: &Place, node: &LogicalPlan| {
            origins.iter().any(|(known, origin)| known != place && known.index == place.index && origin == node)
        };
        let Some((place, node)) = sources.found.iter().find(|(place, node)| is_other(place, node)) else { continue };
        let source = Column::from(node.schema().qualified_field(place.index));
        let meant = match (&part, passing_on(place, scope)?) {
            (_, Some(column)) => format!("Differentiate by {column}"),
            (Expr::Column(_), None) => {
                format!("Pass on the {} that {part} is computed from, and differentiate by it", source.name)
            }
            _ => format!("Join the subquery instead, with a column for its {}, and differentiate by that", source.name),
        };
        return plan_err!(
            "{}: {} does not vary with {variable}. Both come from {source}, but {variable} is a variable of its own: every \
             reference to a table, view or CTE is. {meant}",
            abbreviated(call),
            abbreviated(expression)
        );
    }
    Ok(())
}

/// The columns and scalar subqueries that an expression is computed from. What a derivative in it is by is none of them.
fn parts_read(expression: &Expr, is_operator: IsOperator) -> Result<Vec<Expr>> {
    let mut parts = vec![];
    expression.apply(|part| {
        match part {
            Expr::Column(_) | Expr::OuterReferenceColumn(..) => parts.push(part.clone()),
            Expr::ScalarSubquery(_) => {
                parts.push(part.clone());
                parts.extend(columns_read(part).into_iter().map(Expr::Column));
            }
            Expr::ScalarFunction(call) if is_operator(&call.func) => {
                for argument in call.args.iter().step_by(2) {
                    parts.extend(parts_read(argument, is_operator)?);
                }
                return Ok(TreeNodeRecursion::Jump);
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(parts)
}

/// Where a column of the inputs originates.
fn origins(column: &Column, scope: &Scope) -> Result<BTreeMap<Place, LogicalPlan>> {
    let ends = BTreeSet::new();
    let mut sources = Sources { found: BTreeMap::new(), ends: &ends, through: None, iterated: vec![] };
    for (number, input) in scope.inputs.iter().enumerate() {
        if let Some(index) = input.schema().maybe_index_of_column(column) {
            sources.column(input, Place::below(&scope.path, Step::Input(number), index))?;
        }
    }
    Ok(sources.found)
}

/// The column of the inputs that originates in a place.
fn passing_on(place: &Place, scope: &Scope) -> Result<Option<Column>> {
    for column in scope.inputs.iter().flat_map(|input| input.schema().columns()) {
        if origins(&column, scope)?.contains_key(place) {
            return Ok(Some(column));
        }
    }
    Ok(None)
}

/// The places where columns originate, each with its node.
struct Sources<'e> {
    found: BTreeMap<Place, LogicalPlan>,
    /// Places that are not looked into.
    ends: &'e BTreeSet<Place>,
    /// With this, also the places count that the columns there are computed from.
    through: Option<IsOperator<'e>>,
    /// The recursive queries whose recursive terms are being looked into, the innermost last, and the paths to them.
    iterated: Vec<(LogicalPlan, Vec<Step>)>,
}

impl Sources<'_> {
    /// Adds those of what an expression reads, over the inputs of the node that this is the path to.
    fn expression(&mut self, expression: &Expr, inputs: &[&LogicalPlan], path: &[Step]) -> Result<()> {
        let Some(is_operator) = self.through else { return Ok(()) };
        for part in parts_read(expression, is_operator)? {
            match part {
                Expr::ScalarSubquery(subquery) => {
                    let step = Step::Subquery(self.found.len());
                    self.column(&subquery.subquery, Place::below(path, step, 0))?;
                }
                Expr::Column(column) => {
                    for (number, input) in inputs.iter().enumerate() {
                        if let Some(index) = input.schema().maybe_index_of_column(&column) {
                            self.column(input, Place::below(path, Step::Input(number), index))?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds those of a column of a node. What cannot vary has none.
    #[recursive::recursive]
    fn column(&mut self, plan: &LogicalPlan, Place { path, index }: Place) -> Result<()> {
        if !can_vary(plan.schema().field(index).data_type()) {
            return Ok(());
        }
        let inputs = plan.inputs();
        let below = |number: usize, index| Place::below(&path, Step::Input(number), index);
        if let Origin::Below(columns) = origin(plan, index)? {
            for (number, column) in columns {
                if let Some(input) = inputs.get(number) {
                    self.column(input, below(number, column))?;
                }
            }
            return Ok(());
        }
        let place = Place { path: path.clone(), index };
        if self.ends.contains(&place) || self.found.insert(place, plan.clone()).is_some() || self.through.is_none() {
            return Ok(());
        }
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
                return match query.cloned() {
                    Some((query, path)) => self.column(&query, Place { path, index: source_column(scan, index) }),
                    None => Ok(()),
                };
            }
            _ => {}
        }
        for expr in computing(plan, index)? {
            for argument in arguments(&expr) {
                self.expression(argument, &inputs, &path)?;
            }
        }
        Ok(())
    }
}

/// The expressions that compute a column.
fn computing(plan: &LogicalPlan, index: usize) -> Result<Vec<Expr>> {
    let name = plan.schema().field(index).name();
    Ok(match plan {
        LogicalPlan::Projection(projection) => projection.expr.get(index).cloned().into_iter().collect(),
        LogicalPlan::Aggregate(aggregate) => computed(aggregate)?[index].cloned().into_iter().collect(),
        _ => plan.expressions().into_iter().filter(|expr| &expr.qualified_name().1 == name).collect(),
    })
}
