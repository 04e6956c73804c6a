//! Expansion of the calls in statements.

use arrow::datatypes::Schema;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DFSchemaRef, Result, plan_err};
use datafusion_expr::LogicalPlan;
use std::collections::BTreeMap;
use std::sync::Arc;
use xql_autodiff::Rules;

use crate::edits::{Derivative, Edit, apply_edits, local_derivatives};
use crate::names::DERIVATIVES;
use crate::plan::{
    CallSite, Catalog, Planner, coerce_types, columns_of, differentiate_plan, expand_calls, has_fragments, is_call,
    loses_columns, make_fragments_opaque, prune_columns, query_or_statement, read_stale_views_by_name,
};
use crate::statement::{
    ParsedStatement, Source, SourceCall, find_calls, outer_query, parse_generated, parse_one, required_precedence,
    unnamed_items, with_sites,
};
use crate::unparse::{UnparseOptions, query_sql};

/// Rewrites the statements of a text without calls of the operators. A text without calls is returned as it is.
///
/// # Errors
/// If a statement is invalid, if it has no derivative, or if the derivative cannot be written as text.
pub fn expand(text: &str, catalog: &Catalog, rules: &Rules) -> Result<String> {
    Ok(apply_edits(text, edits(text, catalog, rules)?))
}

/// Returns the edits that remove all derivative calls: of calls, of a name behind an item of `SELECT`, or of a whole query.
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
    let mut expansion = Expansion { source, planner, options, multi_read_recursion: catalog.multi_read_recursion };
    let mut all = vec![];
    for written in expansion.source.statements()? {
        let edits = expansion.expand_statement(&written)?;
        expansion.track(&written, &edits);
        all.extend(edits);
    }
    Ok(all)
}

/// Returns the columns of the query that a statement is or contains, with or without calls.
///
/// # Errors
/// If the statement is invalid.
pub fn columns(text: &str, catalog: &Catalog, rules: &Rules) -> Result<Schema> {
    let planner = Planner::new(catalog, rules);
    Ok(columns_of(&parse_one(text)?, &planner, &ConfigOptions::new())?.as_arrow().clone())
}

/// Differentiates an expression by a column, both over the columns of one relation.
///
/// # Errors
/// If the expression is invalid, if it has no derivative, or if the derivative cannot be written as text.
pub fn differentiate(expression: &str, column: &str, catalog: &Catalog, table: &str, rules: &Rules) -> Result<String> {
    let start = "SELECT grad(";
    // A comment at the end of the expression ends with its line.
    let text = format!("{start}{expression}\n, {column}\n) FROM {table}");
    let source = Source::new(&text)?;
    let planner = Planner::new(catalog, rules);
    let options = Arc::new(ConfigOptions::new());
    let expansion = Expansion { source, planner, options, multi_read_recursion: catalog.multi_read_recursion };
    let statements = expansion.source.statements()?;
    // The given texts must not close the call around them.
    let whole = start.len() - "grad(".len()..text.len() - format!(" FROM {table}").len();
    let is_whole = |call: &SourceCall| call.range == whole;
    let [written] = statements.as_slice() else { return plan_err!("{expression} is not one expression") };
    let calls = find_calls(&expansion.source, written)?;
    if !calls.first().is_some_and(is_whole) {
        return plan_err!("{expression} is not one expression");
    }
    match expansion.differentiate(written, &calls)?.local.and_then(|found| found.get(&0).cloned()) {
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
    /// Whether a recursive term may read its work table several times.
    multi_read_recursion: bool,
}

/// A statement whose derivatives see through relations.
struct DifferentiatedStatement {
    plan: LogicalPlan,
    /// The columns of the statement.
    schema: DFSchemaRef,
    /// The derivatives by the index of the call, if all of them are row-local.
    local: Option<Derivatives>,
}

type Derivatives = BTreeMap<usize, Derivative>;

impl Expansion<'_> {
    /// Returns the edits of a statement.
    fn expand_statement(&self, written: &ParsedStatement) -> Result<Vec<Edit>> {
        let calls = find_calls(&self.source, written)?;
        if calls.is_empty() {
            return Ok(vec![]);
        }
        self.planner.check_readable(&written.statement)?;
        let DifferentiatedStatement { plan, schema, local } = self.differentiate(written, &calls)?;
        let local = local.filter(|_| !self.source.has_fragments(written));
        if let Some(found) = local {
            let edits = self.splice_calls(written, &calls, &found, &schema);
            if self.preserves_columns(written, &edits, &schema)? {
                return Ok(edits);
            }
        }
        let Some(range) = self.source.query_range(written) else {
            return plan_err!(
                "text cannot have a derivative that sees through relations in this statement: compute it in a query first"
            );
        };
        let plan = expand_calls(read_stale_views_by_name(plan, &self.planner, &self.options)?, &self.options)?;
        let has_fragments = has_fragments(&plan)?;
        let values_as_union = self.source.names_target_columns(written);
        let unparse_options =
            UnparseOptions { config: &self.options, values_as_union, multi_read_recursion: self.multi_read_recursion };
        let plan = prune_columns(plan, &self.options)?;
        check_special(&plan, self.planner.catalog())?;
        let text = query_sql(&plan, unparse_options)?;
        if has_fragments {
            // It becomes a statement only when its fragments are inserted.
            return Ok(vec![Edit { range, text }]);
        }
        let written = columns_of(&parse_generated(&text)?, &self.planner, &self.options)?;
        if !has_same_columns(&schema, &written, true) {
            return plan_err!("the text of the derivative would have other columns than the statement");
        }
        Ok(vec![Edit { range, text }])
    }

    /// Records what a rewritten statement creates, for the statements after it.
    fn track(&mut self, written: &ParsedStatement, edits: &[Edit]) {
        if let Ok(statement) = parse_one(&self.rewrite(written, edits)) {
            self.planner.track_ddl(&statement);
        }
    }

    fn rewrite(&self, written: &ParsedStatement, edits: &[Edit]) -> String {
        let range = self.source.range(written);
        let shift = |edit: &Edit| Edit {
            range: edit.range.start - range.start..edit.range.end - range.start,
            text: edit.text.clone(),
        };
        apply_edits(&self.source.text[range.clone()], edits.iter().map(shift).collect())
    }

    fn differentiate(&self, written: &ParsedStatement, calls: &[SourceCall]) -> Result<DifferentiatedStatement> {
        let plan_statement = |statement| {
            make_fragments_opaque(coerce_types(self.planner.plan(query_or_statement(statement))?, &self.options)?)
        };
        // DataFusion names a column by the orders and conditions of its function, and does not find it again when a call in these has lost
        // its number. Then the query is unparsed as a whole:
        // SELECT rank() OVER (ORDER BY grad(x * x, x)) FROM t
        let statement = with_sites(&self.source, written, calls)?;
        let sited = plan_statement(&statement);
        let is_sited = sited.is_ok();
        let plan = sited.or_else(|_| plan_statement(&written.statement))?;
        let (before, schema) = (list_calls(&plan)?, Arc::clone(plan.schema()));
        let plan = differentiate_plan(plan, &self.options)?;
        // The rule leaves row-local calls in the plan.
        let local = if is_sited && before == list_calls(&plan)? {
            local_derivatives(&plan, &self.source, calls, &self.planner, &self.options)?
        } else {
            None
        };
        Ok(DifferentiatedStatement { plan, schema, local })
    }

    fn splice_calls(
        &self,
        written: &ParsedStatement,
        calls: &[SourceCall],
        found: &Derivatives,
        schema: &DFSchema,
    ) -> Vec<Edit> {
        let mut edits = vec![];
        for (number, call) in calls.iter().enumerate().filter(|(_, call)| !call.is_inner) {
            match found.get(&number) {
                Some((text, precedence)) => {
                    let needed = required_precedence(&self.source, call);
                    let text = if *precedence >= needed { text.clone() } else { format!("({text})") };
                    edits.push(Edit { range: call.range.clone(), text });
                }
                // stop_gradient(x) is x.
                None => {
                    edits.push(Edit { range: call.range.start..call.arguments.start, text: "(".to_owned() });
                    edits.push(Edit { range: call.arguments.end..call.range.end, text: ")".to_owned() });
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

    /// Returns whether a statement has these columns after the edits, and no call.
    fn preserves_columns(&self, written: &ParsedStatement, edits: &[Edit], schema: &DFSchema) -> Result<bool> {
        let Ok(statement) = parse_one(&self.rewrite(written, edits)) else { return Ok(false) };
        match self.planner.plan(query_or_statement(&statement)) {
            Ok(after) => {
                let after = coerce_types(after, &self.options)?;
                let named = !self.source.is_insert(written);
                let is_same = has_same_columns(schema, after.schema(), named) && list_calls(&after)?.is_empty();
                Ok(is_same && !loses_columns(&after))
            }
            Err(_) => Ok(false),
        }
    }
}

/// Checks that a plan calls no special function that the session lacks.
fn check_special(plan: &LogicalPlan, catalog: &Catalog) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| catalog.check_special(expr).map(|()| TreeNodeRecursion::Continue))
    })?;
    Ok(())
}

/// Returns whether two queries have columns of the same types, and of the same names if these matter.
fn has_same_columns(a: &DFSchema, b: &DFSchema, named: bool) -> bool {
    a.fields().len() == b.fields().len()
        && a.fields()
            .iter()
            .zip(b.fields())
            .all(|(a, b)| a.data_type() == b.data_type() && (!named || a.name() == b.name()))
}

/// Lists the calls of a plan, each with its number and arguments.
fn list_calls(plan: &LogicalPlan) -> Result<Vec<String>> {
    let mut calls = vec![];
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if is_call(part) {
                    calls.push(format!("{:?} {part}", CallSite::number_of(part)));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    calls.sort();
    Ok(calls)
}
