//! Derivatives in the place of calls, all else as it was written.

use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::binding::Binding;
use crate::derive;
use crate::expr::{Surroundings, bound_sql};
use crate::functions::Site;
use crate::names::quoted_if_needed;
use crate::source::{Source, WrittenCall};
use crate::values::LINE_BREAK;

/// A part of a text and what takes its place.
#[derive(Debug, Clone)]
pub struct Edit {
    pub range: Range<usize>,
    pub text: String,
}

/// A text with other parts.
pub fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for edit in edits {
        out += &text[done..edit.range.start];
        out += &edit.text;
        done = edit.range.end;
    }
    out + &text[done..]
}

/// The calls in a plan by their numbers, each with its text and how tightly that binds; none if one cannot be written where it
/// stands, or stands for several things.
pub fn derivatives(
    plan: &LogicalPlan,
    source: &Source<'_>,
    calls: &[WrittenCall],
    options: &Arc<ConfigOptions>,
) -> Result<Option<BTreeMap<usize, (String, Binding)>>> {
    let mut found: BTreeMap<usize, (String, Binding)> = BTreeMap::new();
    let mut is_unique = true;
    plan.apply_with_subqueries(|node| {
        let context = derive::context(node, options)?;
        for expr in node.expressions() {
            expr.apply(|part| {
                let Some(number) = Site::number_of(part) else { return Ok(TreeNodeRecursion::Continue) };
                let derivative = derive::expression(part.clone(), &context)?.data;
                let derivative = inlined(derivative, node)?;
                let call = &calls[number];
                let mut place = Place { spelled: source.spellings(&call.inside), read: columns_of(part)? };
                match bound_sql(&derivative, &mut place) {
                    Ok((text, binding)) => {
                        let text = (text.replace(LINE_BREAK, "\n"), binding);
                        is_unique &= *found.entry(number).or_insert_with(|| text.clone()) == text;
                    }
                    Err(_) => is_unique = false,
                }
                Ok(TreeNodeRecursion::Jump)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // The planner takes two calls that are the same for one.
    for (number, call) in calls.iter().enumerate().filter(|(_, call)| call.is_planned()) {
        let written = |call: &WrittenCall| &source.text[call.range.clone()];
        if !found.contains_key(&number) {
            let twin = found.keys().copied().find(|other| written(&calls[*other]) == written(call));
            match twin {
                Some(twin) => {
                    let text = found[&twin].clone();
                    found.insert(number, text);
                }
                None => return Ok(None),
            }
        }
    }
    Ok(is_unique.then_some(found))
}

/// What a node reads of an aggregate or a window below it, written out.
fn inlined(expr: Expr, node: &LogicalPlan) -> Result<Expr> {
    let inputs = node.inputs();
    let &[mut input] = inputs.as_slice() else { return Ok(expr) };
    let mut expr = expr;
    loop {
        let (computed, below) = match input {
            LogicalPlan::Filter(filter) => (vec![], &filter.input),
            LogicalPlan::Sort(sort) => (vec![], &sort.input),
            LogicalPlan::Window(window) => (window.window_expr.clone(), &window.input),
            LogicalPlan::Aggregate(aggregate) => {
                let computed = aggregate.group_expr.iter().chain(&aggregate.aggr_expr).cloned().collect();
                (computed, &aggregate.input)
            }
            _ => return Ok(expr),
        };
        expr = expr
            .transform_up(|part| {
                let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
                let known = computed.iter().find(|known| {
                    let (relation, name) = known.qualified_name();
                    relation == column.relation && name == column.name
                });
                Ok(known.map_or_else(|| Transformed::no(part), |known| Transformed::yes(known.clone().unalias())))
            })?
            .data;
        if matches!(input, LogicalPlan::Aggregate(_)) {
            return Ok(expr);
        }
        input = below;
    }
}

fn columns_of(expr: &Expr) -> Result<Vec<Column>> {
    let mut columns = vec![];
    expr.apply(|part| {
        if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = part
            && !columns.contains(column)
        {
            columns.push(column.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(columns)
}

/// The place of a call.
struct Place {
    /// Columns as they are written in the call, each in its parts as the planner reads them.
    spelled: Vec<(Vec<String>, String)>,
    /// The columns that the call reads.
    read: Vec<Column>,
}

impl Surroundings for Place {
    fn column(&mut self, column: &Column) -> Result<String> {
        let relation = column.relation.as_ref().map(|relation| relation.to_vec()).unwrap_or_default();
        let is_only = self.read.iter().filter(|other| other.name == column.name).count() <= 1;
        let fits = |parts: &&(Vec<String>, String)| match parts.0.split_last() {
            Some((name, [])) => *name == column.name && is_only,
            Some((name, qualifier)) => *name == column.name && relation.ends_with(qualifier),
            None => false,
        };
        if let Some((_, text)) = self.spelled.iter().find(fits) {
            return Ok(text.clone());
        }
        if relation.is_empty() {
            return plan_err!("{column} has no name where the call stands");
        }
        let parts = relation.iter().chain([&column.name]).map(|part| quoted_if_needed(part));
        Ok(parts.collect::<Vec<_>>().join("."))
    }

    fn outer_column(&mut self, column: &Column) -> Result<String> {
        self.column(column)
    }

    fn query(&mut self, _plan: &LogicalPlan) -> Result<String> {
        plan_err!("a subquery is written with all that is around it")
    }
}
