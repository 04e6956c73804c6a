//! Names of the columns that are added to a plan, and the projection that takes them away.

use datafusion_common::{Column, DFSchema, Result};
use datafusion_expr::utils::exprlist_to_fields;
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::nodes::any_node_behind;

/// With this the name of every added column starts.
const MARK: char = '∂';

/// Returns whether a name looks like that of a column that has been added. A statement may have columns that are called
/// likewise, which [`OwnNames`] and [`Names`] know.
pub fn is_added(name: &str) -> bool {
    name.starts_with(MARK)
}

/// Returns the name of a column that has been added, without the number that tells it from others of the same name.
pub fn unnumbered(name: &str) -> &str {
    match name.rsplit_once(" #") {
        Some((name, number)) if number.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => name,
    }
}

/// Tells what has been added to the plan of a statement from the columns of the statement itself, which may be called likewise.
#[derive(Debug, Clone, Default)]
pub struct OwnNames(HashSet<String>);

impl OwnNames {
    /// Creates those of a statement, in whose plan nothing has been added yet.
    pub fn from_plan(plan: &LogicalPlan) -> Result<Self> {
        let mut own = HashSet::new();
        any_node_behind(plan, |node| {
            let names = node.schema().fields().iter().map(|field| field.name());
            own.extend(names.filter(|name| is_added(name)).cloned());
            Ok(false)
        })?;
        Ok(Self(own))
    }

    /// Returns whether a column of this name has been added.
    pub fn are_without(&self, name: &str) -> bool {
        is_added(name) && !self.0.contains(name)
    }
}

/// Gives names that no column of the plan has.
#[derive(Debug, Clone, Default)]
pub struct Names {
    taken: HashSet<String>,
    /// Those that have been given, not found.
    given: HashSet<String>,
    /// The last number that a name has been given with.
    numbers: HashMap<String, usize>,
}

impl Names {
    /// Returns names beside those in a plan.
    pub fn from_plan(plan: &LogicalPlan) -> Result<Self> {
        let OwnNames(taken) = OwnNames::from_plan(plan)?;
        Ok(Self { taken, given: HashSet::new(), numbers: HashMap::new() })
    }

    /// Returns the name of the tangent of a column by a variable.
    pub fn tangent(&mut self, column: &str, variable: &str) -> String {
        self.fresh(&format!("{MARK}{column}/{MARK}{variable}"))
    }

    /// Returns the name of something a tangent is computed from.
    pub fn part(&mut self, what: &str) -> String {
        // What has been added before goes by the same name with another number.
        let plain = unnumbered(what.trim_start_matches(MARK));
        self.fresh(&format!("{MARK}{plain}"))
    }

    /// Returns the column that is computed by an expression and has a name given here, which `name` gives if there is none yet.
    ///
    /// A column of the statement's own is none, even if it has that value: it may be a variable. In
    /// `SELECT x * z AS y, grad(x * z, x) AS g`, `g` is not the tangent of `y`, so that `y` does not vary with `g`.
    pub fn column(&mut self, expr: Expr, computed: &mut Vec<Expr>, name: impl FnOnce(&mut Self) -> String) -> Column {
        let known = computed.iter().find_map(|known| match known {
            Expr::Alias(alias) if self.given.contains(&alias.name) && *alias.expr == expr => Some(alias.name.clone()),
            _ => None,
        });
        let name = known.unwrap_or_else(|| {
            let name = name(self);
            computed.push(expr.alias(name.clone()));
            name
        });
        Column::new_unqualified(name)
    }

    /// Returns the names given here to columns among those that are computed, by what computes them.
    pub fn given_to(&self, computed: &[Expr]) -> HashMap<Expr, String> {
        let given = computed.iter().filter_map(|expr| match expr {
            Expr::Alias(alias) if self.given.contains(&alias.name) => Some((*alias.expr.clone(), alias.name.clone())),
            _ => None,
        });
        given.collect()
    }

    /// Returns whether a name has been given here.
    pub fn has_given(&self, name: &str) -> bool {
        self.given.contains(name)
    }

    fn fresh(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let number = self.numbers.entry(name.clone()).or_insert(1);
        while !self.taken.insert(name.clone()) {
            *number += 1;
            name = format!("{wanted} #{number}");
        }
        self.given.insert(name.clone());
        name
    }
}

/// Returns the columns of a schema as expressions.
pub fn columns(schema: &DFSchema) -> Vec<Expr> {
    schema.columns().into_iter().map(Expr::Column).collect()
}

/// Returns the plan with more columns; itself if there are none.
pub fn with_columns(plan: LogicalPlan, exprs: Vec<Expr>) -> Result<LogicalPlan> {
    if exprs.is_empty() {
        return Ok(plan);
    }
    // DataFusion would look up each column by its name, among all of them.
    let before = plan.schema();
    let mut fields: Vec<_> = before.iter().map(|(table, field)| (table.cloned(), Arc::clone(field))).collect();
    let same: Vec<_> = (0..fields.len()).collect();
    fields.extend(exprlist_to_fields(&exprs, &plan)?);
    let dependencies = before.functional_dependencies().project_functional_dependencies(&same, fields.len());
    let schema = DFSchema::new_with_metadata(fields, before.metadata().clone())?;
    let schema = Arc::new(schema.with_functional_dependencies(dependencies)?);
    let exprs = columns(before).into_iter().chain(exprs).collect();
    Ok(LogicalPlan::Projection(Projection::try_new_with_schema(exprs, Arc::new(plan), schema)?))
}

/// Returns these expressions under names of their own.
pub fn named(plan: LogicalPlan, exprs: &[Expr], names: &mut Names) -> Result<LogicalPlan> {
    let named = exprs.iter().map(|expr| {
        let name = names.part(&expr.qualified_name().1);
        expr.clone().unalias().alias(name)
    });
    let named = named.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(named, Arc::new(plan))?))
}

/// Returns the columns of a plan, in their order, under the names of a schema.
pub fn under_names_of(schema: &DFSchema, plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = columns(plan.schema()).into_iter().zip(schema.iter());
    let exprs = columns.map(|(column, (table, field))| column.alias_qualified(table.cloned(), field.name()));
    Ok(LogicalPlan::Projection(Projection::try_new(exprs.collect(), Arc::new(plan))?))
}

/// `plan` with the columns of `schema` only, in that order.
pub fn restore(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let same = plan.schema().fields().len() == schema.fields().len()
        && plan.schema().iter().zip(schema.iter()).all(|(a, b)| a.0 == b.0 && a.1.name() == b.1.name());
    if same {
        return Ok(plan);
    }
    Ok(LogicalPlan::Projection(Projection::try_new(columns(schema), Arc::new(plan))?))
}
