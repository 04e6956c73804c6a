//! Derivatives in the place of calls, all else as it was written.

use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, TableReference, plan_err};
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::expr::Binding;
use crate::expr::{Surroundings, bound_sql};
use crate::names::quoted_if_needed;
use crate::plan::{Planner, Site, context, expression};
use crate::statement::{Source, Spellings, WrittenCall, spellings};

/// A part of a text and what takes its place.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Where the part stands.
    pub range: Range<usize>,
    /// What takes its place.
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

/// The text of a derivative, and how tightly it binds.
pub type Derivative = (String, Binding);

/// The calls in a plan by their numbers, each with its derivative; none if one cannot be written where it stands, or stands for
/// several things.
pub fn derivatives(
    plan: &LogicalPlan,
    source: &Source<'_>,
    calls: &[WrittenCall],
    planner: &Planner<'_>,
    options: &Arc<ConfigOptions>,
) -> Result<Option<BTreeMap<usize, Derivative>>> {
    let mut found: BTreeMap<usize, Derivative> = BTreeMap::new();
    let mut is_unique = true;
    plan.apply_with_subqueries(|node| {
        let sited = sited_in(node)?;
        if sited.is_empty() {
            return Ok(TreeNodeRecursion::Continue);
        }
        let context = context(node, options)?;
        let below = Below::of(node);
        for (number, part) in sited {
            let derivative = below.inlined(expression(part.clone(), &context)?.data)?;
            planner.catalog().check_special(&derivative)?;
            let mut place = Place::new(spellings(source, &calls[number]), &part)?;
            match bound_sql(&derivative, &mut place) {
                Ok(text) => is_unique &= *found.entry(number).or_insert_with(|| text.clone()) == text,
                Err(_) => is_unique = false,
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    // The planner takes two calls that are the same for one.
    let written = |number: &usize| &source.text[calls[*number].range.clone()];
    let twins: HashMap<_, _> = found.iter().map(|(number, derivative)| (written(number), derivative.clone())).collect();
    for number in (0..calls.len()).filter(|number| calls[*number].is_planned()) {
        let Some(derivative) = twins.get(written(&number)) else { return Ok(None) };
        found.entry(number).or_insert_with(|| derivative.clone());
    }
    Ok(is_unique.then_some(found))
}

/// The calls in the expressions of a node, with their numbers.
fn sited_in(node: &LogicalPlan) -> Result<Vec<(usize, Expr)>> {
    let mut sited = vec![];
    node.apply_expressions(|expr| {
        expr.apply(|part| {
            let Some(number) = Site::number_of(part) else { return Ok(TreeNodeRecursion::Continue) };
            sited.push((number, part.clone()));
            Ok(TreeNodeRecursion::Jump)
        })
    })?;
    Ok(sited)
}

/// What the aggregate and the windows below a node compute, by the columns that a node reads of them: those of the uppermost first.
struct Below<'a>(Vec<HashMap<(Option<TableReference>, String), &'a Expr>>);

impl<'a> Below<'a> {
    fn of(node: &'a LogicalPlan) -> Self {
        let mut below = vec![];
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
                below.push(named(&mut window.window_expr.iter()));
                node = Some(&window.input);
            } else if let LogicalPlan::Aggregate(aggregate) = input {
                below.push(named(&mut aggregate.group_expr.iter().chain(&aggregate.aggr_expr)));
            }
        }
        Self(below)
    }

    /// An expression with what is computed below in the place of its columns.
    fn inlined(&self, expr: Expr) -> Result<Expr> {
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

/// The place of a call.
struct Place {
    spelled: Spellings,
    /// How many columns of a name the call reads.
    read: HashMap<String, usize>,
}

impl Place {
    fn new(spelled: Spellings, call: &Expr) -> Result<Self> {
        let mut columns = HashSet::new();
        let mut read = HashMap::new();
        call.apply(|part| {
            if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = part
                && columns.insert(column.clone())
            {
                *read.entry(column.name.clone()).or_default() += 1;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self { spelled, read })
    }
}

impl Surroundings for Place {
    fn column(&mut self, column: &Column) -> Result<String> {
        let relation = column.relation.as_ref().map(|relation| relation.to_vec()).unwrap_or_default();
        let is_only = self.read.get(&column.name).is_none_or(|count| *count <= 1);
        let fits = |parts: &&(Vec<String>, String)| match parts.0.split_last() {
            Some((_, [])) => is_only,
            Some((_, qualifier)) => relation.ends_with(qualifier),
            None => false,
        };
        if let Some((_, text)) = self.spelled.get(&column.name).and_then(|known| known.iter().find(fits)) {
            return Ok(text.clone());
        }
        if relation.is_empty() {
            return plan_err!("the call cannot name {column} where it stands");
        }
        let parts = relation.iter().chain([&column.name]).map(|part| quoted_if_needed(part));
        Ok(parts.collect::<Vec<_>>().join("."))
    }

    fn outer_column(&mut self, column: &Column) -> Result<String> {
        self.column(column)
    }

    fn query(&mut self, _plan: &LogicalPlan) -> Result<String> {
        plan_err!("a subquery cannot be written without the query around it")
    }
}
