//! Statements without calls.

use arrow::datatypes::Schema;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DFSchemaRef, Result, plan_err};
use datafusion_expr::LogicalPlan;
use std::collections::BTreeMap;
use std::sync::Arc;
use xql_autodiff::Rules;

use crate::names::DERIVATIVES;
use crate::plan::{
    Catalog, Planner, Site, columns_of, differentiated, has_words_in, is_call, loses_columns, query_or_all, simplified,
    spelled, tidied, typed, with_held_views,
};
use crate::splice::{Derivative, Edit, derivatives, edited};
use crate::statement::{
    Source, Written, WrittenCall, calls, needed_at, outer_query, parse_one, parse_written, unnamed_items, with_sites,
};
use crate::write::{Form, query_sql};

/// The statements of a text without calls of the operators. A text without calls is given back as it is.
///
/// # Errors
/// What makes a statement invalid, what has no derivative, and what cannot be written as text.
pub fn expand(text: &str, catalog: &Catalog, rules: &Rules) -> Result<String> {
    Ok(edited(text, edits(text, catalog, rules)?))
}

/// What of a text is to be written otherwise, so that its statements are without calls of the operators: calls, a name behind an
/// item of `SELECT`, or a whole query.
///
/// # Errors
/// As for [`expand`].
pub fn edits(text: &str, catalog: &Catalog, rules: &Rules) -> Result<Vec<Edit>> {
    let folded = text.to_ascii_lowercase();
    if !DERIVATIVES.iter().any(|name| folded.contains(name)) {
        return Ok(vec![]);
    }
    let source = Source::new(text)?;
    let planner = Planner::new(catalog, rules);
    let options = Arc::new(ConfigOptions::new());
    let mut expansion = Expansion { source, planner, options, rereads: catalog.rereads };
    let mut all = vec![];
    for written in expansion.source.statements()? {
        let edits = expansion.statement(&written)?;
        expansion.follow(&written, &edits);
        all.extend(edits);
    }
    Ok(all)
}

/// The columns of the query that a statement is or has, with or without calls.
///
/// # Errors
/// What makes the statement invalid.
pub fn columns(text: &str, catalog: &Catalog, rules: &Rules) -> Result<Schema> {
    let planner = Planner::new(catalog, rules);
    Ok(columns_of(&parse_one(text)?, &planner, &ConfigOptions::new())?.as_arrow().clone())
}

/// The derivative of an expression by a column, both over these columns of one relation.
///
/// # Errors
/// What makes the expression invalid, what has no derivative, and what cannot be written as text.
pub fn differentiate(expression: &str, column: &str, catalog: &Catalog, table: &str, rules: &Rules) -> Result<String> {
    let start = "SELECT grad(";
    // A comment at the end of the expression ends with its line.
    let text = format!("{start}{expression}\n, {column}\n) FROM {table}");
    let source = Source::new(&text)?;
    let planner = Planner::new(catalog, rules);
    let options = Arc::new(ConfigOptions::new());
    let expansion = Expansion { source, planner, options, rereads: catalog.rereads };
    let statements = expansion.source.statements()?;
    // What is handed over may not close the call that is around it.
    let whole = start.len() - "grad(".len()..text.len() - format!(" FROM {table}").len();
    let is_whole = |call: &WrittenCall| call.range == whole;
    let [written] = statements.as_slice() else { return plan_err!("{expression} is not one expression") };
    let calls = calls(&expansion.source, written)?;
    if !calls.first().is_some_and(is_whole) {
        return plan_err!("{expression} is not one expression");
    }
    match expansion.differentiated(written, &calls)?.local.and_then(|found| found.get(&0).cloned()) {
        Some((derivative, _)) => Ok(derivative),
        None => {
            plan_err!("the derivative of {expression} reads more than the columns of one row: expand a whole statement")
        }
    }
}

struct Expansion<'a> {
    source: Source<'a>,
    planner: Planner<'a>,
    options: Arc<ConfigOptions>,
    /// Whether a recursive term may read the rows of the last iteration several times.
    rereads: bool,
}

/// A statement whose derivatives see through relations.
struct Differentiated {
    plan: LogicalPlan,
    /// The columns of the statement.
    schema: DFSchemaRef,
    /// The derivatives by the numbers of the calls, if these say all by themselves.
    local: Option<Derivatives>,
}

type Derivatives = BTreeMap<usize, Derivative>;

impl Expansion<'_> {
    /// What of a statement is to be written otherwise.
    fn statement(&self, written: &Written) -> Result<Vec<Edit>> {
        let calls = calls(&self.source, written)?;
        if calls.is_empty() {
            return Ok(vec![]);
        }
        self.planner.check_readable(&written.statement)?;
        let Differentiated { plan, schema, local } = self.differentiated(written, &calls)?;
        let local = local.filter(|_| !self.source.has_words(written));
        if let Some(found) = local {
            let edits = self.spliced(written, &calls, &found, &schema);
            if self.is_read_as_meant(written, &edits, &schema)? {
                return Ok(edits);
            }
        }
        let Some(range) = self.source.query(written) else {
            return plan_err!(
                "text cannot have a derivative that sees through relations in this statement: compute it in a query first"
            );
        };
        let plan = simplified(with_held_views(plan, &self.planner, &self.options)?, &self.options)?;
        let keeps_words = has_words_in(&plan)?;
        let unites_values = self.source.has_columns_of_a_table(written);
        let form = Form { options: &self.options, unites_values, rereads: self.rereads };
        let plan = tidied(plan, &self.options)?;
        check_special(&plan, self.planner.catalog())?;
        let text = query_sql(&plan, form)?;
        if keeps_words {
            // Only with the words in it is it a statement.
            return Ok(vec![Edit { range, text }]);
        }
        let written = columns_of(&parse_written(&text)?, &self.planner, &self.options)?;
        if !same_columns(&schema, &written, true) {
            return plan_err!("the text of the derivative would have other columns than the statement");
        }
        Ok(vec![Edit { range, text }])
    }

    /// Knows from here on what a statement makes that is written otherwise.
    fn follow(&mut self, written: &Written, edits: &[Edit]) {
        if let Ok(statement) = parse_one(&self.written_otherwise(written, edits)) {
            self.planner.follow(&statement);
        }
    }

    fn written_otherwise(&self, written: &Written, edits: &[Edit]) -> String {
        let range = self.source.range(written);
        let here = |edit: &Edit| Edit {
            range: edit.range.start - range.start..edit.range.end - range.start,
            text: edit.text.clone(),
        };
        edited(&self.source.text[range.clone()], edits.iter().map(here).collect())
    }

    fn differentiated(&self, written: &Written, calls: &[WrittenCall]) -> Result<Differentiated> {
        let planned = |statement| spelled(typed(self.planner.plan(query_or_all(statement))?, &self.options)?);
        // DataFusion names a column by the orders and conditions of its function, and does not find it again when a call in these has
        // no number any more. Then the query is written as a whole:
        // SELECT rank() OVER (ORDER BY grad(x * x, x)) FROM t
        let statement = with_sites(&self.source, written, calls)?;
        let sited = planned(&statement);
        let is_sited = sited.is_ok();
        let plan = sited.or_else(|_| planned(&written.statement))?;
        let (before, schema) = (calls_in(&plan)?, Arc::clone(plan.schema()));
        let plan = differentiated(plan, &self.options)?;
        // Calls that say all by themselves are left in the plan.
        let local = if is_sited && before == calls_in(&plan)? {
            derivatives(&plan, &self.source, calls, &self.planner, &self.options)?
        } else {
            None
        };
        Ok(Differentiated { plan, schema, local })
    }

    fn spliced(&self, written: &Written, calls: &[WrittenCall], found: &Derivatives, schema: &DFSchema) -> Vec<Edit> {
        let mut edits = vec![];
        for (number, call) in calls.iter().enumerate().filter(|(_, call)| !call.is_inner) {
            match found.get(&number) {
                Some((text, binding)) => {
                    let needed = needed_at(&self.source, call);
                    let text = if *binding >= needed { text.clone() } else { format!("({text})") };
                    edits.push(Edit { range: call.range.clone(), text });
                }
                // stop_gradient(x) is x.
                None => {
                    edits.push(Edit { range: call.range.start..call.inside.start, text: "(".to_owned() });
                    edits.push(Edit { range: call.inside.end..call.range.end, text: ")".to_owned() });
                }
            }
        }
        if outer_query(&written.statement).is_some() && !self.source.is_insert(written) {
            for (end, index) in unnamed_items(&self.source, written, calls, schema.fields().len()) {
                let name = schema.field(index).name().replace('"', "\"\"");
                edits.push(Edit { range: end..end, text: format!(" AS \"{name}\"") });
            }
        }
        edits
    }

    /// Whether a statement with other parts has these columns, which it had, and no call.
    fn is_read_as_meant(&self, written: &Written, edits: &[Edit], schema: &DFSchema) -> Result<bool> {
        let Ok(statement) = parse_one(&self.written_otherwise(written, edits)) else { return Ok(false) };
        match self.planner.plan(query_or_all(&statement)) {
            Ok(after) => {
                let after = typed(after, &self.options)?;
                let named = !self.source.is_insert(written);
                let is_same = same_columns(schema, after.schema(), named) && calls_in(&after)?.is_empty();
                Ok(is_same && !loses_columns(&after))
            }
            Err(_) => Ok(false),
        }
    }
}

/// Checks that a plan calls no special function that the session has not.
fn check_special(plan: &LogicalPlan, catalog: &Catalog) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| catalog.check_special(expr).map(|()| TreeNodeRecursion::Continue))
    })?;
    Ok(())
}

/// Whether two queries have columns of the same types, and names if these matter.
fn same_columns(a: &DFSchema, b: &DFSchema, named: bool) -> bool {
    a.fields().len() == b.fields().len()
        && a.fields()
            .iter()
            .zip(b.fields())
            .all(|(a, b)| a.data_type() == b.data_type() && (!named || a.name() == b.name()))
}

/// The calls in a plan, each with its number and arguments.
fn calls_in(plan: &LogicalPlan) -> Result<Vec<String>> {
    let mut calls = vec![];
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if is_call(part) {
                    calls.push(format!("{:?} {part}", Site::number_of(part)));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    calls.sort();
    Ok(calls)
}
