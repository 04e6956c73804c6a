//! The physical optimizer rule that finds sums of products.

mod column_reuse;
mod cross_join;
mod join_tree;
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
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties, InputOrderMode};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::exec::ContractionExec;
use crate::fallback::with_children;
use crate::integer_key_aggregate::IntegerKeyAggregateExec;
use crate::integer_key_sums::{SumColumns, is_integer_key_type};
use crate::key_codes::can_encode;
use crate::option::Contractions;
use crate::spec::{ContractionSpec, GroupKind, InputSpec, KeyEquality, Term};
use crate::unique_key_join::UniqueKeyJoinExec;
use crate::version::statistics;
use cross_join::put_small_side_left;
use join_tree::{JoinTree, SHAPES, is_shuffle, null_row, repartition};
use terms::{Terms, sum_argument};

/// Replaces the sums of products of a plan by [`ContractionExec`], sums by one or two integer keys by [`IntegerKeyAggregateExec`], and the remaining
/// joins by integer keys by [`UniqueKeyJoinExec`]. Small sides of cross joins are put left.
///
/// # Errors
/// If the plan cannot be rebuilt.
pub fn contract_sums(plan: Arc<dyn ExecutionPlan>, mode: Contractions) -> Result<Arc<dyn ExecutionPlan>> {
    if mode == Contractions::Off {
        return Ok(plan);
    }
    let contracted = replace_top(plan, mode)?.transform_down(|node| match replace_aggregate(&node, mode)? {
        Some(contraction) => {
            // A node above may rely on equal keys being in one partition.
            let partitioning = match node.output_partitioning() {
                hash @ Partitioning::Hash(..) => hash.clone(),
                other => Partitioning::RoundRobinBatch(other.partition_count()),
            };
            repartition(contraction, partitioning).map(Transformed::yes)
        }
        None => Ok(Transformed::no(node)),
    })?;
    // The joins that are part of no sum.
    let looked_up = contracted.data.transform_down(|node| match UniqueKeyJoinExec::from_hash_join(&node, mode)? {
        Some(lookup) => Ok(Transformed::yes(Arc::new(lookup) as _)),
        None => Ok(put_small_side_left(&node)?.map_or_else(|| Transformed::no(node), Transformed::yes)),
    })?;
    Ok(looked_up.data)
}

/// Replaces a sum at the top of a plan, below renaming projections. No node above relies on its partitioning.
fn replace_top(plan: Arc<dyn ExecutionPlan>, mode: Contractions) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(contraction) = replace_aggregate(&plan, mode)? {
        return repartition(contraction, Partitioning::RoundRobinBatch(plan.output_partitioning().partition_count()));
    }
    match plan.children().as_slice() {
        [below] if plan.is::<ProjectionExec>() => {
            let below = replace_top(Arc::clone(below), mode)?;
            with_children(&plan, vec![below])
        }
        _ => Ok(plan),
    }
}

/// Replaces an aggregation, if it is a sum of products or by integer keys.
fn replace_aggregate(node: &Arc<dyn ExecutionPlan>, mode: Contractions) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(grouped) = find_grouping(node) else { return Ok(None) };
    match contract_join(node, grouped, mode)? {
        Some(contraction) => Ok(Some(contraction)),
        None => aggregate_by_integer_keys(node, grouped, mode),
    }
}

/// Replaces an aggregation of products over a join.
fn contract_join(
    node: &Arc<dyn ExecutionPlan>,
    grouped: &AggregateExec,
    mode: Contractions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    for shape in SHAPES {
        let Some(tree) = JoinTree::match_shape(grouped.input(), shape)? else { continue };
        let Some(spec) = build_spec(grouped, &tree)? else { continue };
        let Some(condition) = group_condition(grouped, &tree, spec.kind)? else { continue };
        let fallback_plan = replace_input(node, grouped.input(), &tree.plan)?;
        let rows = statistics(node, None)?;
        let sums = Arc::new(ContractionExec::new(tree.inputs, Arc::new(spec), fallback_plan, mode, rows));
        return match condition {
            Some(condition) => Ok(Some(Arc::new(FilterExec::try_new(condition, sums)?))),
            None => Ok(Some(sums)),
        };
    }
    Ok(None)
}

/// Replaces an aggregation by integer keys.
fn aggregate_by_integer_keys(
    node: &Arc<dyn ExecutionPlan>,
    grouped: &AggregateExec,
    mode: Contractions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(columns) = integer_key_columns(grouped)? else { return Ok(None) };
    let mut input = grouped.input();
    while is_shuffle(input)
        && let [below] = input.children().as_slice()
    {
        input = below;
    }
    let rows = JoinTree::from_input(input, 0);
    let fallback_plan = replace_input(node, input, &rows.plan)?;
    let statistics = statistics(node, None)?;
    Ok(Some(Arc::new(IntegerKeyAggregateExec::new(Arc::clone(input), columns, fallback_plan, mode, statistics))))
}

/// Returns the columns of an aggregation that has only sums by one or two integer columns.
fn integer_key_columns(grouped: &AggregateExec) -> Result<Option<SumColumns>> {
    let schema = grouped.input_schema();
    let mut keys = vec![];
    for (key, _) in grouped.group_expr().expr() {
        let Some(column) = key.downcast_ref::<Column>() else { return Ok(None) };
        if !is_integer_key_type(&key.data_type(&schema)?) {
            return Ok(None);
        }
        keys.push(column.index());
    }
    let mut summed = vec![];
    for aggregate in grouped.aggr_expr() {
        let argument = sum_argument(aggregate, &schema);
        let Some(column) = argument.as_ref().and_then(|sum| sum.downcast_ref::<Column>()) else { return Ok(None) };
        summed.push(column.index());
    }
    let is_unfiltered = grouped.filter_expr().iter().all(Option::is_none);
    let read: BTreeSet<_> = summed.iter().chain(&keys).copied().collect();
    let others_may_be_null =
        schema.fields().iter().enumerate().all(|(index, field)| read.contains(&index) || field.is_nullable());
    let is_sum = (1..=2).contains(&keys.len()) && !summed.is_empty() && is_unfiltered && others_may_be_null;
    Ok(is_sum.then_some(SumColumns { keys, summed }))
}

/// Finds the aggregation that reads the rows: the node itself, or the partial aggregation below a final one.
fn find_grouping(node: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let aggregate = node.downcast_ref::<AggregateExec>()?;
    let is_unordered = |aggregate: &AggregateExec| {
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
    (is_unordered(aggregate)
        && is_unordered(grouped)
        && grouped.group_expr().is_single()
        && !grouped.group_expr().is_empty())
    .then_some(grouped)
}

/// Describes an aggregation over a join as sums of products. Returns `None` if it is none.
fn build_spec(grouped: &AggregateExec, tree: &JoinTree) -> Result<Option<ContractionSpec>> {
    let mut sides: Vec<_> = tree.inputs.iter().map(|_| InputSpec::default()).collect();
    for (position, (key, _)) in grouped.group_expr().expr().iter().enumerate() {
        let key = tree.over_inputs(key)?;
        let (Some(side), true) = (tree.side_of(&key), is_key(&key, tree)?) else { return Ok(None) };
        sides[side].groups.push((tree.local(side, key)?, position));
    }
    let Some(Terms { terms, outputs }) = Terms::from_aggregate(grouped, tree)? else { return Ok(None) };
    let mut equalities = vec![];
    for KeyEquality { sides: [a, b], keys: [left, right], nulls } in &tree.equalities {
        if !(is_key(left, tree)? && is_key(right, tree)?) {
            return Ok(None);
        }
        let keys = [tree.local(*a, Arc::clone(left))?, tree.local(*b, Arc::clone(right))?];
        equalities.push(KeyEquality { sides: [*a, *b], keys, nulls: *nulls });
    }
    let Some(kind) = group_kind(&sides, &terms, &equalities, tree)? else { return Ok(None) };
    let is_possible = kind == GroupKind::Pairs || !terms.iter().any(|term| term.single_precision);
    Ok(is_possible.then_some(ContractionSpec {
        sides,
        equalities,
        extension: tree.extension.clone(),
        kind,
        terms,
        outputs,
    }))
}

/// Returns whether an expression can be a key: it can be encoded, and it is not volatile, so all rows of the join with the same input row
/// agree on it.
fn is_key(expr: &Arc<dyn PhysicalExpr>, tree: &JoinTree) -> Result<bool> {
    Ok(can_encode(&tree.type_of(expr)?) && !expr.exists(|part| Ok(part.is_volatile_node()))?)
}

/// Rewrites the conditions of a join as conditions on the groups: `a.item <= b.item` for groups by both. Returns `None` if rows of one
/// group can differ in it. Returns `Some(None)` if there is no condition.
fn group_condition(
    grouped: &AggregateExec,
    tree: &JoinTree,
    kind: GroupKind,
) -> Result<Option<Option<Arc<dyn PhysicalExpr>>>> {
    if tree.conditions.is_empty() {
        return Ok(Some(None));
    }
    if kind != GroupKind::Pairs {
        return Ok(None);
    }
    let keys = grouped.group_expr().expr().iter().map(|(key, _)| tree.over_inputs(key));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let schema = grouped.schema();
    let mut by_group = vec![];
    for condition in &tree.conditions {
        let mut reads_only_keys = !condition.exists(|part| Ok(part.is_volatile_node()))?;
        let of_group = Arc::clone(condition).transform_down(|part| {
            if let Some(key) = keys.iter().position(|key| key.as_ref() == part.as_ref()) {
                let column = Arc::new(Column::new(schema.field(key).name(), key)) as _;
                return Ok(Transformed::new(column, true, TreeNodeRecursion::Jump));
            }
            reads_only_keys &= !part.is::<Column>();
            Ok(Transformed::no(part))
        })?;
        if !reads_only_keys {
            return Ok(None);
        }
        by_group.push(of_group.data);
    }
    Ok(Some(conjunction_opt(by_group)))
}

/// Returns the shape of the groups, `None` if no kernel has it.
fn group_kind(
    sides: &[InputSpec],
    terms: &[Term],
    equalities: &[KeyEquality],
    tree: &JoinTree,
) -> Result<Option<GroupKind>> {
    let joins = |a, b| equalities.iter().any(|equality| equality.connects(a, b));
    if sides.len() == 2 {
        // An outer join grouped by one input is a lookup, not a product.
        let is_product = tree.extension.is_none() || sides.iter().all(|side| !side.groups.is_empty());
        return Ok((joins(0, 1) && is_product).then_some(GroupKind::Pairs));
    }
    let mut of_groups = (0..sides.len()).filter(|side| !sides[*side].groups.is_empty());
    let (Some(by), None) = (of_groups.next(), of_groups.next()) else { return Ok(None) };
    // A row that has no key in common with one of the two factors meets all of its rows, as one group.
    let [a, b] = GroupKind::Sampled { by, outer: None }.factor_sides();
    if !(joins(a, b) && (joins(by, a) || joins(by, b))) || tree.outer == Some(by) {
        return Ok(None);
    }
    // Only the rows that sample may be kept by the outer join.
    if tree.extension.as_ref().is_some_and(|extension| extension.of != by) {
        return Ok(None);
    }
    // A row without a match in the outer joined input must contribute nothing.
    if let Some(outer) = tree.outer {
        for term in terms {
            let Some(factor) = &term.factors[outer] else { return Ok(None) };
            if !maps_nulls_to_null(factor, &tree.inputs[outer].schema())? {
                return Ok(None);
            }
        }
    }
    Ok(Some(GroupKind::Sampled { by, outer: tree.outer }))
}

/// Returns whether an expression is NULL if all columns are NULL.
fn maps_nulls_to_null(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<bool> {
    // An expression that fails here may fail for a row, too.
    let Ok(value) = expr.evaluate(&null_row(schema)?) else { return Ok(false) };
    Ok(value.into_array(1)?.is_null(0))
}

/// Replaces the node `below`, which a chain of nodes with one input each leads to, by other rows.
fn replace_input(
    plan: &Arc<dyn ExecutionPlan>,
    below: &Arc<dyn ExecutionPlan>,
    rows: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if Arc::ptr_eq(plan, below) {
        return Ok(Arc::clone(rows));
    }
    match plan.children().as_slice() {
        [child] => with_children(plan, vec![replace_input(child, below, rows)?]),
        _ => internal_err!("{} has not one input", plan.name()),
    }
}
