//! Sums of products among the nodes of a plan.

mod computed;
mod joined;
mod product;
mod terms;

use arrow::array::Array;
use arrow::datatypes::Schema;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, internal_err};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::{Partitioning, PhysicalExpr, conjunction_opt};
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::repartition::RepartitionExec;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::exec::ContractionExec;
use crate::handover::with_children;
use crate::keys::has_positions;
use crate::lookup::LookupExec;
use crate::numbered::NumberedSumsExec;
use crate::numbers::{Columns, are_numbers};
use crate::option::Contractions;
use crate::spec::{Contraction, Equality, Kind, Side, Term};
use crate::version::statistics;
use joined::{Joined, SHAPES, is_shuffle, row_of_nulls};
use terms::{Terms, summed_by};

/// A plan in which sums of products over joins are computed as arrays, if the session says so. All else stays as it is.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn contracted(plan: Arc<dyn ExecutionPlan>, how: Contractions) -> Result<Arc<dyn ExecutionPlan>> {
    if how == Contractions::Off {
        return Ok(plan);
    }
    let contracted = on_top(plan, how)?.transform_down(|node| match contraction(&node, how)? {
        Some(contraction) => {
            // What stands above it may count on equal keys being in one partition.
            let partitioning = match node.output_partitioning() {
                hash @ Partitioning::Hash(..) => hash.clone(),
                other => Partitioning::RoundRobinBatch(other.partition_count()),
            };
            dealt_out(contraction, partitioning).map(Transformed::yes)
        }
        None => Ok(Transformed::no(node)),
    })?;
    // Joins that no sum has taken.
    let looked_up = contracted.data.transform_down(|node| match LookupExec::of(&node, how)? {
        Some(lookup) => Ok(Transformed::yes(Arc::new(lookup) as _)),
        None => Ok(Transformed::no(node)),
    })?;
    Ok(looked_up.data)
}

/// A plan whose rows are a sum under other names, of which nobody counts on its partitions.
fn on_top(plan: Arc<dyn ExecutionPlan>, how: Contractions) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(contraction) = contraction(&plan, how)? {
        return dealt_out(contraction, Partitioning::RoundRobinBatch(plan.output_partitioning().partition_count()));
    }
    match plan.children().as_slice() {
        [below] if plan.is::<ProjectionExec>() => {
            let below = on_top(Arc::clone(below), how)?;
            with_children(&plan, vec![below])
        }
        _ => Ok(plan),
    }
}

/// The rows of a plan with one partition in so many.
fn dealt_out(plan: Arc<dyn ExecutionPlan>, partitioning: Partitioning) -> Result<Arc<dyn ExecutionPlan>> {
    match partitioning.partition_count() {
        1 => Ok(plan),
        _ => Ok(Arc::new(RepartitionExec::try_new(plan, partitioning)?)),
    }
}

/// The sums by positions that a node is.
fn contraction(node: &Arc<dyn ExecutionPlan>, how: Contractions) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(grouped) = grouped(node) else { return Ok(None) };
    match of_products(node, grouped, how)? {
        Some(contraction) => Ok(Some(contraction)),
        None => by_number(node, grouped, how),
    }
}

/// The sum of products over a join that a node is.
fn of_products(
    node: &Arc<dyn ExecutionPlan>,
    grouped: &AggregateExec,
    how: Contractions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    for shape in SHAPES {
        let Some(joined) = Joined::of(grouped.input(), shape)? else { continue };
        let Some(spec) = spec(grouped, &joined)? else { continue };
        let Some(condition) = condition(grouped, &joined, spec.kind)? else { continue };
        let handover = with_rows(node, grouped.input(), &joined.plan)?;
        let rows = statistics(node, None)?;
        let sums = Arc::new(ContractionExec::new(joined.inputs, Arc::new(spec), handover, how, rows));
        return match condition {
            Some(condition) => Ok(Some(Arc::new(FilterExec::try_new(condition, sums)?))),
            None => Ok(Some(sums)),
        };
    }
    Ok(None)
}

/// The sums by whole numbers that a node is.
fn by_number(
    node: &Arc<dyn ExecutionPlan>,
    grouped: &AggregateExec,
    how: Contractions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(columns) = summed_by_number(grouped)? else { return Ok(None) };
    let mut input = grouped.input();
    while is_shuffle(input)
        && let [below] = input.children().as_slice()
    {
        input = below;
    }
    let rows = Joined::input(input, 0);
    let handover = with_rows(node, input, &rows.plan)?;
    let statistics = statistics(node, None)?;
    Ok(Some(Arc::new(NumberedSumsExec::new(Arc::clone(input), columns, handover, how, statistics))))
}

/// The columns of which groups by a column of whole numbers have the sums, and nothing else.
fn summed_by_number(grouped: &AggregateExec) -> Result<Option<Columns>> {
    let schema = grouped.input_schema();
    let [(key, _)] = grouped.group_expr().expr() else { return Ok(None) };
    let Some(key) = key.downcast_ref::<Column>() else { return Ok(None) };
    let mut summed = vec![];
    for aggregate in grouped.aggr_expr() {
        let argument = summed_by(aggregate, &schema);
        let Some(column) = argument.as_ref().and_then(|sum| sum.downcast_ref::<Column>()) else { return Ok(None) };
        summed.push(column.index());
    }
    let are_all = grouped.filter_expr().iter().all(Option::is_none);
    let read: BTreeSet<_> = summed.iter().copied().chain([key.index()]).collect();
    let others_may_be_null =
        schema.fields().iter().enumerate().all(|(index, field)| read.contains(&index) || field.is_nullable());
    let are_sums = !summed.is_empty() && are_all && others_may_be_null;
    Ok((are_sums && are_numbers(&key.data_type(&schema)?)).then(|| Columns { number: key.index(), summed }))
}

/// The node that groups rows, of a node that has the groups. The groups of partitions may be put together above it.
fn grouped(node: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let aggregate = node.downcast_ref::<AggregateExec>()?;
    let is_plain = |aggregate: &AggregateExec| {
        aggregate.limit_options().is_none() && *aggregate.input_order_mode() == InputOrderMode::Linear
    };
    let grouped = match aggregate.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => aggregate,
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            let mut below = aggregate.input();
            while is_shuffle(below) {
                below = below.children().first().copied()?;
            }
            below.downcast_ref::<AggregateExec>().filter(|partial| *partial.mode() == AggregateMode::Partial)?
        }
        AggregateMode::Partial | AggregateMode::PartialReduce => return None,
    };
    (is_plain(aggregate) && is_plain(grouped) && grouped.group_expr().is_single() && !grouped.group_expr().is_empty())
        .then_some(grouped)
}

/// What the sum is over, if it is one of products over the join.
fn spec(grouped: &AggregateExec, joined: &Joined) -> Result<Option<Contraction>> {
    let mut sides: Vec<_> = joined.inputs.iter().map(|_| Side::default()).collect();
    for (position, (key, _)) in grouped.group_expr().expr().iter().enumerate() {
        let key = joined.over_inputs(key)?;
        let (Some(side), true) = (joined.side_of(&key), is_key(&key, joined)?) else { return Ok(None) };
        sides[side].groups.push((joined.local(side, key)?, position));
    }
    let Some(Terms { terms, outputs }) = Terms::of(grouped, joined)? else { return Ok(None) };
    let mut equalities = vec![];
    for Equality { sides: [a, b], keys: [left, right], nulls } in &joined.equalities {
        if !(is_key(left, joined)? && is_key(right, joined)?) {
            return Ok(None);
        }
        let keys = [joined.local(*a, Arc::clone(left))?, joined.local(*b, Arc::clone(right))?];
        equalities.push(Equality { sides: [*a, *b], keys, nulls: *nulls });
    }
    let Some(kind) = kind(&sides, &terms, &equalities, joined)? else { return Ok(None) };
    let is_possible = kind == Kind::Pairs || !terms.iter().any(|term| term.single);
    Ok(is_possible.then_some(Contraction {
        sides,
        equalities,
        extension: joined.extension.clone(),
        kind,
        terms,
        outputs,
    }))
}

/// Whether an expression has a position for each of its values, and the same value in all rows of the join that a row of an input is in.
fn is_key(expr: &Arc<dyn PhysicalExpr>, joined: &Joined) -> Result<bool> {
    Ok(has_positions(&joined.type_of(expr)?) && !expr.exists(|part| Ok(part.is_volatile_node()))?)
}

/// What groups have to fulfil, if that is what the rows of a join have to: `a.item <= b.item` over groups by both. None if rows of one
/// group differ in it.
fn condition(grouped: &AggregateExec, joined: &Joined, kind: Kind) -> Result<Option<Option<Arc<dyn PhysicalExpr>>>> {
    if joined.conditions.is_empty() {
        return Ok(Some(None));
    }
    if kind != Kind::Pairs {
        return Ok(None);
    }
    let keys = grouped.group_expr().expr().iter().map(|(key, _)| joined.over_inputs(key));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let schema = grouped.schema();
    let mut of_groups = vec![];
    for condition in &joined.conditions {
        let mut is_of_keys = !condition.exists(|part| Ok(part.is_volatile_node()))?;
        let of_group = Arc::clone(condition).transform_down(|part| {
            if let Some(key) = keys.iter().position(|key| key.as_ref() == part.as_ref()) {
                let column = Arc::new(Column::new(schema.field(key).name(), key)) as _;
                return Ok(Transformed::new(column, true, TreeNodeRecursion::Jump));
            }
            is_of_keys &= !part.is::<Column>();
            Ok(Transformed::no(part))
        })?;
        if !is_of_keys {
            return Ok(None);
        }
        of_groups.push(of_group.data);
    }
    Ok(Some(conjunction_opt(of_groups)))
}

/// What the groups are, if such sums are computed.
fn kind(sides: &[Side], terms: &[Term], equalities: &[Equality], joined: &Joined) -> Result<Option<Kind>> {
    let joins = |a, b| equalities.iter().any(|equality| equality.is_of(a, b));
    if sides.len() == 2 {
        // Where rows are extended, and grouped by one of the inputs alone, each looks one other up.
        let is_product = joined.extension.is_none() || sides.iter().all(|side| !side.groups.is_empty());
        return Ok((joins(0, 1) && is_product).then_some(Kind::Pairs));
    }
    let mut of_groups = (0..sides.len()).filter(|side| !sides[*side].groups.is_empty());
    let (Some(by), None) = (of_groups.next(), of_groups.next()) else { return Ok(None) };
    // Rows that have no key in common with one of the two that are multiplied meet all of its rows, as one group.
    let [a, b] = Kind::Chosen { by, outer: None }.multiplied();
    if !(joins(a, b) && (joins(by, a) || joins(by, b))) || joined.outer == Some(by) {
        return Ok(None);
    }
    // Rows that choose may be those that stay without a partner.
    if joined.extension.as_ref().is_some_and(|extension| extension.of != by) {
        return Ok(None);
    }
    // What a row gets that has none of an input must be nothing.
    if let Some(outer) = joined.outer {
        for term in terms {
            let Some(factor) = &term.factors[outer] else { return Ok(None) };
            if !is_null_for_nulls(factor, &joined.inputs[outer].schema())? {
                return Ok(None);
            }
        }
    }
    Ok(Some(Kind::Chosen { by, outer: joined.outer }))
}

/// Whether an expression is NULL where all columns are.
fn is_null_for_nulls(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<bool> {
    // What fails for it may fail for a row.
    let Ok(value) = expr.evaluate(&row_of_nulls(schema)?) else { return Ok(false) };
    Ok(value.into_array(1)?.is_null(0))
}

/// A plan with other rows in the place of those that a node of it reads.
fn with_rows(
    plan: &Arc<dyn ExecutionPlan>,
    below: &Arc<dyn ExecutionPlan>,
    rows: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if Arc::ptr_eq(plan, below) {
        return Ok(Arc::clone(rows));
    }
    match plan.children().as_slice() {
        [child] => with_children(plan, vec![with_rows(child, below, rows)?]),
        _ => internal_err!("{} has not one input", plan.name()),
    }
}
