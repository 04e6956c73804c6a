//! The error for a variable that an expression does not depend on, where it depends on another reference to the same column.

use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Column, Result, TableReference, plan_err};
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use xql_autodiff::vocabulary::messages::abbreviate;

use super::sources::{Derivatives, PathStep, Position, Scope, Sources, origins, parts_read};
use crate::calls::call::ResolvedCall;
use crate::calls::context::Context;
use crate::calls::derivative::Term;
use crate::calls::resolve::Owner;
use crate::shared_relation::SharedRelation;
use crate::vocabulary::identity::is_same;
use crate::vocabulary::names::Names;
use crate::vocabulary::nodes::has_one_row_at_most;

/// A column that a call names, and where it originates.
struct Named<'p> {
    column: Column,
    scope: Scope<'p>,
    origins: BTreeMap<Position, LogicalPlan>,
}

/// The references that a call makes to columns of its inputs.
pub struct References<'p> {
    call: &'p ResolvedCall<'p>,
    here: Scope<'p>,
    named: Vec<Named<'p>>,
    /// The origins of the variables, at which the search ends.
    ends: BTreeSet<Position>,
    derivatives: Derivatives<'p>,
    iterated: &'p [LogicalPlan],
    /// The names of columns that have been added.
    names: &'p Names,
}

impl<'p> References<'p> {
    /// Creates those of a call over these inputs.
    pub fn try_new(call: &'p ResolvedCall<'p>, plans: &'p [LogicalPlan], context: &'p Context) -> Result<Self> {
        let mut named = vec![];
        for variable in &call.variables {
            let scope = match variable.owner {
                Owner::Input(_) => Scope::here(plans),
                Owner::OuterQuery { query, .. } => Scope::outer(&context.outer[query], query),
            };
            let origins = origins(&variable.column, &scope)?;
            named.push(Named { column: variable.column.clone(), scope, origins });
        }
        let ends = named.iter().flat_map(|column| column.origins.keys().cloned()).collect();
        let derivatives = Derivatives { recognize: context.recognize, jvp: call.jvp };
        Ok(Self {
            call,
            here: Scope::here(plans),
            named,
            ends,
            derivatives,
            iterated: &context.iterated,
            names: &context.names,
        })
    }

    /// Returns whether the function is computed from a variable of the call.
    pub fn reach(&self, variable: usize) -> Result<bool> {
        let Some(Named { origins, .. }) = self.named.get(variable) else { return Ok(false) };
        for part in parts_read(self.call.function(), self.derivatives)? {
            let (sources, ..) = self.sources(part, variable, None)?;
            if sources.reached.iter().any(|position| origins.contains_key(position)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the error if the function, which does not vary with a variable of the call, is computed from another reference to it,
    /// and not by way of the other variables.
    ///
    /// A function `of_gradients` varies with it by what gradients by row have computed, for which all references are one.
    pub fn check(&self, variable: usize, of_gradients: bool) -> Result<()> {
        let Some(Named { column: named, origins, .. }) = self.named.get(variable) else { return Ok(()) };
        for part in parts_read(self.call.function(), self.derivatives)? {
            let (sources, part, scope) = self.sources(part, variable, of_gradients.then_some(self.names))?;
            let is_other = |position: &Position, node: &LogicalPlan| {
                origins.iter().any(|(known, origin)| {
                    known != position && known.index == position.index && is_same_table(origin, node)
                })
            };
            let other = sources.found.iter().find(|(position, node)| is_other(position, node));
            let Some((position, node)) = other else { continue };
            let source = match SharedRelation::scanned_by(node).filter(|rows| !rows.is_common()) {
                Some(_) => named.clone(),
                None => Column::from(node.schema().qualified_field(position.index)),
            };
            let meant = match (&part, passing_on(position, scope)?, only_row(&part, scope)?) {
                (_, Some(column), _) => format!("Differentiate by {column}"),
                (Expr::Column(value), None, Some(relation)) => self.by_row(value, named, &relation),
                (Expr::Column(_), None, None) => {
                    format!("Pass on the {} that {part} is computed from, and differentiate by it", source.name)
                }
                _ => format!(
                    "Join the subquery instead, with a column for its {}, and differentiate by that",
                    source.name
                ),
            };
            return plan_err!(
                "{}: {} does not vary with {named}. Both come from {source}, but {named} is a variable of its own: every \
                 reference to a table, view or CTE is. {meant}",
                abbreviate(self.call.derivative.call),
                abbreviate(self.call.function())
            );
        }
        Ok(())
    }

    /// Returns what to write for the derivative of a value, the column of a relation of one row, by each row's own cell of the variable.
    ///
    /// ```text
    /// SELECT grad(l, val) FROM w CROSS JOIN loss                   grad((SELECT l FROM loss), val)
    /// ```
    fn by_row(&self, value: &Column, variable: &Column, relation: &TableReference) -> String {
        let value = abbreviate(&Expr::Column(Column::new_unqualified(&value.name)));
        let subquery = format!("(SELECT {value} FROM {})", relation.to_quoted_string());
        let written = match (self.call.function(), self.call.derivative.terms.as_slice()) {
            (Expr::Column(_), [Term { seed, .. }]) => {
                let (call, variable) = (self.call.derivative.transform.name(), Expr::Column(variable.clone()));
                let seed = seed.map_or(String::new(), |seed| format!(", {}", abbreviate(seed)));
                format!("write {call}({subquery}, {}{seed})", abbreviate(&variable))
            }
            _ => format!("write {subquery} in the place of {value}"),
        };
        format!("For the derivative by each row's own {}, with {relation} as a CTE or view, {written}", variable.name)
    }

    /// Returns where a part of the function originates, the part as a column of inputs, and these inputs.
    fn sources<'s>(
        &'s self,
        part: Expr,
        variable: usize,
        added: Option<&'s Names>,
    ) -> Result<(Sources<'s>, Expr, &'s Scope<'p>)> {
        let queries = self.iterated.iter().enumerate();
        let mut sources = Sources {
            found: BTreeMap::new(),
            ends: &self.ends,
            reached: BTreeSet::new(),
            through: Some(self.derivatives),
            added,
            relations: HashSet::new(),
            iterated: queries.map(|(number, query)| (query.clone(), vec![PathStep::RecursiveQuery(number)])).collect(),
        };
        let (part, scope) = match part {
            // An outer column can be another reference only if the variable is of that query.
            Expr::OuterReferenceColumn(_, column) => (Expr::Column(column), &self.named[variable].scope),
            part => (part, &self.here),
        };
        sources.expression(&part, &scope.inputs, &scope.path)?;
        Ok((sources, part, scope))
    }
}

/// Returns whether two nodes are one table, or scan the same numbered rows of one.
fn is_same_table(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    is_same(a, b) || SharedRelation::scanned_by(a).is_some_and(|rows| rows.is_numbered() && rows.is_scan(b))
}

/// Returns the relation with a name that has a column, if it has one row at most.
fn only_row(column: &Expr, scope: &Scope) -> Result<Option<TableReference>> {
    let Expr::Column(Column { relation: Some(relation), .. }) = column else { return Ok(None) };
    for input in &scope.inputs {
        let is_one = input.exists(|node| {
            Ok(match node {
                LogicalPlan::SubqueryAlias(named) => named.alias == *relation && has_one_row_at_most(node),
                _ => false,
            })
        })?;
        if is_one {
            return Ok(Some(relation.clone()));
        }
    }
    Ok(None)
}

/// Returns the column of the inputs that originates in a position.
fn passing_on(position: &Position, scope: &Scope) -> Result<Option<Column>> {
    for column in scope.inputs.iter().flat_map(|input| input.schema().columns()) {
        if origins(&column, scope)?.contains_key(position) {
            return Ok(Some(column));
        }
    }
    Ok(None)
}
