//! Replacement of calls by row-local derivatives, with all else as it was written.

use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, TableReference, plan_err};
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::expr::Precedence;
use crate::expr::{Scope, sql_with_precedence};
use crate::names::quote_if_needed;
use crate::plan::{CallSite, Planner, expand_expr, simplify_context};
use crate::statement::{ColumnSpellings, Source, SourceCall, column_spellings};

/// A replacement of a part of a text.
#[derive(Debug, Clone)]
pub struct Edit {
    /// The range of the part.
    pub range: Range<usize>,
    /// The text that replaces it.
    pub text: String,
}

/// Applies edits that do not overlap.
pub fn apply_edits(text: &str, mut edits: Vec<Edit>) -> String {
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

/// The text of a derivative and its precedence.
pub type Derivative = (String, Precedence);

/// Writes the derivative of each call of a plan, by number. Returns `None` if one cannot be written in the scope of its call, or a call has
/// several derivatives.
pub fn local_derivatives(
    plan: &LogicalPlan,
    source: &Source<'_>,
    calls: &[SourceCall],
    planner: &Planner<'_>,
    options: &Arc<ConfigOptions>,
) -> Result<Option<BTreeMap<usize, Derivative>>> {
    let mut found: BTreeMap<usize, Derivative> = BTreeMap::new();
    let mut is_unique = true;
    plan.apply_with_subqueries(|node| {
        let sites = find_sites(node)?;
        if sites.is_empty() {
            return Ok(TreeNodeRecursion::Continue);
        }
        let context = simplify_context(node, options)?;
        let inputs = InputExprs::from_node(node);
        for (number, part) in sites {
            let derivative = inputs.inline(expand_expr(part.clone(), &context)?.data)?;
            planner.catalog().check_special(&derivative)?;
            let mut scope = CallScope::new(column_spellings(source, &calls[number]), &part)?;
            match sql_with_precedence(&derivative, &mut scope) {
                Ok(text) => is_unique &= *found.entry(number).or_insert_with(|| text.clone()) == text,
                Err(_) => is_unique = false,
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // The planner merges calls that are equal.
    let source_text = |number: &usize| &source.text[calls[*number].range.clone()];
    let by_text: HashMap<_, _> =
        found.iter().map(|(number, derivative)| (source_text(number), derivative.clone())).collect();
    for number in (0..calls.len()).filter(|number| calls[*number].is_planned()) {
        let Some(derivative) = by_text.get(source_text(&number)) else { return Ok(None) };
        found.entry(number).or_insert_with(|| derivative.clone());
    }
    Ok(is_unique.then_some(found))
}

/// Finds the calls in the expressions of a node, with their numbers.
fn find_sites(node: &LogicalPlan) -> Result<Vec<(usize, Expr)>> {
    let mut sites = vec![];
    node.apply_expressions(|expr| {
        expr.apply(|part| {
            let Some(number) = CallSite::number_of(part) else { return Ok(TreeNodeRecursion::Continue) };
            sites.push((number, part.clone()));
            Ok(TreeNodeRecursion::Jump)
        })
    })?;
    Ok(sites)
}

/// The expressions of the windows and the aggregate below a node, by the columns that the node reads of them, uppermost first.
struct InputExprs<'a>(Vec<HashMap<(Option<TableReference>, String), &'a Expr>>);

impl<'a> InputExprs<'a> {
    fn from_node(node: &'a LogicalPlan) -> Self {
        let mut inputs = vec![];
        let mut node = match node.inputs()[..] {
            [input] => Some(input),
            _ => None,
        };
        let named =
            |exprs: &mut dyn Iterator<Item = &'a Expr>| exprs.map(|expr| (expr.qualified_name(), expr)).collect();
        while let Some(input) = node.take() {
            if let LogicalPlan::Filter(filter) = input {
                node = Some(&filter.input);
            } else if let LogicalPlan::Sort(sort) = input {
                node = Some(&sort.input);
            } else if let LogicalPlan::Window(window) = input {
                inputs.push(named(&mut window.window_expr.iter()));
                node = Some(&window.input);
            } else if let LogicalPlan::Aggregate(aggregate) = input {
                inputs.push(named(&mut aggregate.group_expr.iter().chain(&aggregate.aggr_expr)));
            }
        }
        Self(inputs)
    }

    /// Replaces columns by the expressions that compute them.
    fn inline(&self, expr: Expr) -> Result<Expr> {
        self.0.iter().try_fold(expr, |expr, computed| {
            let inlined = expr.transform_up(|part| {
                let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
                let known = computed.get(&(column.relation.clone(), column.name.clone()));
                Ok(known.map_or_else(|| Transformed::no(part), |known| Transformed::yes((*known).clone().unalias())))
            })?;
            Ok(inlined.data)
        })
    }
}

/// The scope of a call.
struct CallScope {
    spellings: ColumnSpellings,
    /// The number of columns of each name that the call reads.
    reads: HashMap<String, usize>,
}

impl CallScope {
    fn new(spellings: ColumnSpellings, call: &Expr) -> Result<Self> {
        let mut columns = HashSet::new();
        let mut reads = HashMap::new();
        call.apply(|part| {
            if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = part
                && columns.insert(column.clone())
            {
                *reads.entry(column.name.clone()).or_default() += 1;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self { spellings, reads })
    }
}

impl Scope for CallScope {
    fn column(&mut self, column: &Column) -> Result<String> {
        let relation = column.relation.as_ref().map(|relation| relation.to_vec()).unwrap_or_default();
        let is_only = self.reads.get(&column.name).is_none_or(|count| *count <= 1);
        let fits = |parts: &&(Vec<String>, String)| match parts.0.split_last() {
            Some((_, [])) => is_only,
            Some((_, qualifier)) => relation.ends_with(qualifier),
            None => false,
        };
        if let Some((_, text)) = self.spellings.get(&column.name).and_then(|known| known.iter().find(fits)) {
            return Ok(text.clone());
        }
        if relation.is_empty() {
            return plan_err!("the call cannot name {column} where it stands");
        }
        let parts = relation.iter().chain([&column.name]).map(|part| quote_if_needed(part));
        Ok(parts.collect::<Vec<_>>().join("."))
    }

    fn outer_column(&mut self, column: &Column) -> Result<String> {
        self.column(column)
    }

    fn query(&mut self, _plan: &LogicalPlan) -> Result<String> {
        plan_err!("a subquery cannot be written without the query around it")
    }
}
