//! Cotangents that are sums of products over a join.
//!
//! `SUM(a.v * b.v)` over a join of `a` and `b`, grouped by keys of both, is a product of matrices `C = A B`. With the
//! cotangent `G` of `C`, the cotangents of the factors are products again, `G Bᵀ` and `Aᵀ G` (M. B. Giles, "Collected
//! matrix derivative results for forward and reverse mode algorithmic differentiation", 2008). Each is planned as a
//! plan of its own, in which `xql_contraction` finds it and computes it without the rows of the join.

use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, JoinType, Result, internal_err};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Aggregate, BinaryExpr, Cast, Expr, Join, LogicalPlan, Operator, Projection};
use datafusion_functions_aggregate::average::avg_udaf;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::sum::sum_udaf;
use std::collections::HashSet;
use std::sync::Arc;
use xql_autodiff::never_fails;
use xql_autodiff::vocabulary::columns::{columns_followed, has_subquery, is_volatile};

use super::cotangents::RowCotangents;
use super::expressions::inside;
use super::factors::{Factored, Products};
use super::linear::Linear;
use super::linearize::SegmentBuilder;
use super::residuals::needs_no_residual;
use super::segment::{Leaf, Segment};
use super::sides::in_two_sides;
use crate::shared_relation::SharedRelation;
use crate::vocabulary::names::{Names, columns, named, under_names_of};

/// The rows of a segment that is a join of two sides, each with the cotangent of its group.
pub struct PulledJoin<'r> {
    segment: &'r Segment,
    /// The join.
    join: &'r Join,
    /// Those keys of the groups that are columns of the sides.
    keys: Vec<Column>,
}

impl<'r> PulledJoin<'r> {
    /// Recognizes a segment over a join of two sides whose rows each have the cotangent of their group. Returns `None`
    /// for any other segment, and if a side is expensive to compute, since every sum reads both sides again.
    pub fn match_segment(segment: &'r Segment, rows: &LogicalPlan) -> Option<Self> {
        let groups = match below_projections(rows) {
            LogicalPlan::Join(join) if join.join_type == JoinType::Right && join.filter.is_none() => join,
            _ => return None,
        };
        let LogicalPlan::Join(join) = below_projections(&segment.plan) else { return None };
        let keys = groups.on.iter().filter_map(|(_, key)| source(key, &segment.plan)).collect();
        let pulled = Self { segment, join, keys };
        let are_cheap = pulled.sides().iter().all(|side| needs_no_residual(side).unwrap_or(false));
        (!groups.on.is_empty() && are_cheap && pulled.has_equal_keys()).then_some(pulled)
    }

    /// Returns the two sides.
    fn sides(&self) -> [&'r Arc<LogicalPlan>; 2] {
        [&self.join.left, &self.join.right]
    }

    /// Returns whether the join pairs rows by equal keys. An inner join may have two other kinds of conditions: masks,
    /// and conditions on one side alone, which DataFusion pushes below the join. An outer join may have neither, since
    /// it keeps the rows that do not fulfil them.
    fn has_equal_keys(&self) -> bool {
        let has_keys = !self.join.on.is_empty() || self.parts().any(|part| self.is_equality(part));
        if matches!(self.join.join_type, JoinType::Left | JoinType::Right) {
            return has_keys && self.parts().all(|part| self.is_equality(part));
        }
        let mut masks = self.masks().peekable();
        // The contraction also computes the rows that a mask leaves out, so these must not fail.
        let are_left =
            masks.peek().is_none() || masks.all(|part| self.is_mask(part)) && self.never_fails().unwrap_or(false);
        self.join.join_type == JoinType::Inner && has_keys && are_left
    }

    /// Returns the parts of the condition.
    fn parts(&self) -> impl Iterator<Item = &'r Expr> {
        self.join.filter.iter().flat_map(split_conjunction)
    }

    /// Returns the conditions other than equal keys and conditions on one side alone.
    fn masks(&self) -> impl Iterator<Item = &'r Expr> {
        self.parts().filter(|part| !self.is_of_sides(part))
    }

    /// Returns whether a condition is on one side alone, or compares keys of both sides for equality.
    fn is_of_sides(&self, part: &Expr) -> bool {
        self.is_of_one_side(part) || self.is_equality(part)
    }

    fn is_equality(&self, part: &Expr) -> bool {
        matches!(part, Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
            if self.is_of_one_side(left) && self.is_of_one_side(right))
    }

    /// Returns whether a condition reads only keys of the groups: `k.item <= q.item` over groups by both.
    fn is_mask(&self, part: &Expr) -> bool {
        !is_volatile(part) && part.column_refs().into_iter().all(|column| self.keys.contains(column))
    }

    /// Returns whether no expression of the segment can fail, whichever rows it is evaluated for.
    fn never_fails(&self) -> Result<bool> {
        for step in &self.segment.steps {
            if !never_fails(&step.expr, self.segment.plan.schema())? {
                return Ok(false);
            }
        }
        let mut node = &self.segment.plan;
        while let LogicalPlan::Projection(projection) = node {
            for expr in &projection.expr {
                if !never_fails(&expr.clone().unalias_nested().data, projection.input.schema())? {
                    return Ok(false);
                }
            }
            node = &projection.input;
        }
        Ok(true)
    }

    /// Returns the rows with a row of a leaf, each with the cotangent of its group. Rows that a mask leaves out are
    /// among them: no group has their keys, so they have no cotangent.
    pub fn rows_of(&self, leaf: &Leaf, rows: LogicalPlan) -> Result<LogicalPlan> {
        if self.masks().next().is_none() && !self.is_extended_by(leaf) {
            return Ok(rows);
        }
        over_projections(rows, &mut |rows| match rows {
            LogicalPlan::Join(mut join) => {
                if join.left != self.join.left {
                    join.right = Arc::new(self.rows_of(leaf, Arc::unwrap_or_clone(join.right))?);
                } else {
                    let parts = self.parts().filter(|part| self.is_of_sides(part)).cloned();
                    join.filter = conjunction(parts.collect::<Vec<_>>());
                    if self.is_extended_by(leaf) {
                        join.join_type = JoinType::Inner;
                    }
                }
                // Its columns may be NULL elsewhere than before.
                let Join { left, right, on, filter, join_type, join_constraint, null_equality, null_aware, .. } = join;
                Join::try_new(left, right, on, filter, join_type, join_constraint, null_equality, null_aware)
                    .map(LogicalPlan::Join)
            }
            other => internal_err!("{} is no join", other.display()),
        })
    }

    /// Returns whether an outer join may extend the side of a leaf by NULL.
    fn is_extended_by(&self, leaf: &Leaf) -> bool {
        let side = match self.join.join_type {
            JoinType::Left => &self.join.right,
            JoinType::Right => &self.join.left,
            _ => return false,
        };
        leaf.row.as_ref().is_some_and(|row| side.schema().has_column(row))
    }

    /// Returns whether the cotangents of a leaf, one for each of its columns, are sums of products.
    pub fn is_product(&self, leaf: &Leaf, cotangents: &[Option<Expr>]) -> Result<bool> {
        let [Some(cotangent)] = cotangents else { return Ok(false) };
        if !leaf.repeated || leaf.row.is_none() || leaf.present.is_some() || !is_sum_of_products(cotangent) {
            return Ok(false);
        }
        let mut of_leaf: HashSet<&str> = leaf.columns.iter().map(String::as_str).collect();
        for step in &self.segment.steps {
            if !columns_followed(&step.expr).iter().any(|column| of_leaf.contains(column.name.as_str())) {
                continue;
            }
            of_leaf.insert(&step.output);
            // A derivative by the factors of a product is the product of the others.
            if !self.is_product_of_sides(&step.expr)? || Linear::match_expr(&step.expr, self.segment)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether an expression is a product of expressions over one side each.
    fn is_product_of_sides(&self, expr: &Expr) -> Result<bool> {
        if self.is_of_one_side(expr) {
            return Ok(true);
        }
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right }) => {
                Ok(self.is_product_of_sides(left)? && self.is_product_of_sides(right)?)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right }) => {
                Ok(self.is_product_of_sides(left)? && columns_followed(right).is_empty())
            }
            Expr::Negative(expr) | Expr::Cast(Cast { expr, .. }) => self.is_product_of_sides(expr),
            _ => Ok(false),
        }
    }

    fn is_of_one_side(&self, expr: &Expr) -> bool {
        let read = columns_followed(expr);
        self.sides().iter().any(|side| read.iter().all(|column| is_computed_over(column, side, self.segment)))
    }
}

/// Materializes the cotangents of groups below the rows of a segment, since several sums over these rows read them.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn materialize_groups(rows: LogicalPlan, names: &mut Names) -> Result<LogicalPlan> {
    over_projections(rows, &mut |rows| match rows {
        LogicalPlan::Join(join) if !needs_no_residual(&join.left)? => {
            let schema = Arc::clone(join.left.schema());
            let groups = SharedRelation::new(names.part("cotangents"), Arc::unwrap_or_clone(join.left));
            let left = Arc::new(under_names_of(&schema, Arc::new(groups).scan()?)?);
            Ok(LogicalPlan::Join(Join { left, ..join }))
        }
        other => Ok(other),
    })
}

/// Rewrites the plan below a stack of projections.
fn over_projections(
    plan: LogicalPlan,
    below: &mut dyn FnMut(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            let input = over_projections(Arc::unwrap_or_clone(input), below)?;
            Ok(LogicalPlan::Projection(Projection::try_new(expr, Arc::new(input))?))
        }
        other => below(other),
    }
}

/// Materializes the sides of a join as residuals, if an aggregation sums products of both sides by keys of both. Then
/// the cotangents of a side that is itself a join are sums of products, and the cotangents of the relations in that
/// side follow from these row by row:
///
/// ```text
/// SELECT p.t, v.dim, SUM(p.val * v.val) FROM (SELECT t, u, e / total AS val FROM e JOIN totals ...) p JOIN v ... GROUP BY p.t, v.dim
/// ```
///
/// A side is also materialized if the cotangents of one of its columns are no products, as those of
/// `x * (1 + tanh(x + x * x * x))` where `x * x * x` may be infinite. The factor of each side becomes a column of that
/// side. Several relations may be joined in any order. Returns the rewritten aggregation, `None` if nothing has
/// changed.
pub fn materialize_join_sides(builder: &mut SegmentBuilder, aggregate: &Aggregate) -> Result<Option<Arc<LogicalPlan>>> {
    // In an iteration, these residuals would be kept in memory for all iterations.
    if !builder.contracts || builder.residuals.begin.is_some() {
        return Ok(None);
    }
    let ordered = in_two_sides(aggregate)?.map(|ordered| builder.residuals.nodes.keep(LogicalPlan::Aggregate(ordered)));
    let aggregate = match ordered.as_deref() {
        Some(LogicalPlan::Aggregate(ordered)) => ordered,
        _ => aggregate,
    };
    let Some((join, conditions)) = as_contraction(aggregate) else { return Ok(ordered) };
    if !conditions.iter().all(|condition| accepts_filter(join, condition)) {
        return Ok(ordered);
    }
    let parts: Vec<_> = conditions.iter().flat_map(|part| split_conjunction(part)).map(columns_followed).collect();
    let products = Products::try_new(aggregate, join, conditions)?;
    let mut wanted = [false, false];
    for (number, side) in [&join.left, &join.right].into_iter().enumerate() {
        let node = builder.node(side)?;
        // A condition above the join may be the join condition of a side: FROM a, b, c WHERE a.k = b.k AND b.l = c.l
        let is_asked = parts.iter().any(|read| read.iter().all(|column| side.schema().has_column(column)));
        if is_asked || !node.reads {
            continue;
        }
        let mut segment = builder.segment(side)?;
        if segment.single {
            continue;
        }
        let is_dear = !needs_no_residual(&segment.plan)?;
        // Below an outer join the factor lacks the extended rows. Below any join it is computed for more rows, in which
        // it must not fail.
        let mut computed = products.computed_of(number);
        for factor in &computed {
            if join.join_type != JoinType::Inner || !never_fails(factor, side.schema())? {
                computed.clear();
                break;
            }
        }
        wanted[number] = is_dear && !computed.is_empty();
        for factor in computed {
            // Where 0 may meet an infinite derivative, the contribution of a row is no product with this factor.
            let factor = inside(builder, &mut segment, factor, side.schema())?;
            wanted[number] |= Linear::match_expr(&factor, &segment)?.is_none();
        }
        if (is_dear || !is_linear(&segment)?) && !wanted[number] && builder.residuals.residual_of(node).is_none() {
            builder.stored(node, segment)?;
        }
    }
    if wanted == [false, false] {
        return Ok(ordered);
    }
    let Factored { aggregate, sides } = products.factored(wanted, builder.names)?;
    let aggregate = builder.residuals.nodes.keep(LogicalPlan::Aggregate(aggregate));
    for side in sides {
        let (node, segment) = (builder.node(&side)?, builder.segment(&side)?);
        builder.stored(node, segment)?;
    }
    Ok(Some(aggregate))
}

/// Returns whether a segment propagates cotangents as products. It does not where 0 may meet an infinite derivative,
/// and then its cotangents cannot be part of a sum of products.
fn is_linear(segment: &Segment) -> Result<bool> {
    for step in &segment.steps {
        if Linear::match_expr(&step.expr, segment)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Moves a condition above a join into the join, if the join accepts it. Sums of products are recognized by the
/// conditions of the join, and DataFusion would push the condition there as well:
///
/// ```text
/// FROM x JOIN w ON x.inp = w.inp WHERE w.layer = 0    ->    FROM x JOIN w ON x.inp = w.inp AND w.layer = 0
/// ```
///
/// # Errors
/// If the plan cannot be put together again.
pub fn push_filter_into_join(plan: LogicalPlan, condition: &Expr) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Join(join) if accepts_filter(&join, condition) => {
            let filter = conjunction(join.filter.into_iter().chain([condition.clone()]));
            Ok(Transformed::yes(LogicalPlan::Join(Join { filter, ..join })))
        }
        // Names are unique in the whole statement, so the condition reads the same columns below.
        LogicalPlan::Projection(Projection { expr, input, .. })
            if condition.column_refs().into_iter().all(|column| input.schema().has_column(column)) =>
        {
            let below = push_filter_into_join(Arc::unwrap_or_clone(input), condition)?;
            below.map_data(|below| Ok(LogicalPlan::Projection(Projection::try_new(expr, Arc::new(below))?)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Returns whether a join accepts a filter above it as a condition of its own. A filter with subqueries stays where it
/// is, since DataFusion plans subqueries in filters.
fn accepts_filter(join: &Join, condition: &Expr) -> bool {
    join.join_type == JoinType::Inner && !is_volatile(condition) && !has_subquery(condition)
}

/// Matches an aggregation of sums, averages and counts over both sides of a join, grouped by keys of both. Returns the
/// join and the conditions above it.
pub fn as_contraction(aggregate: &Aggregate) -> Option<(&Join, Vec<&Expr>)> {
    let (mut below, mut conditions) = (aggregate.input.as_ref(), vec![]);
    while let LogicalPlan::Filter(filter) = below {
        conditions.push(&filter.predicate);
        below = &filter.input;
    }
    let LogicalPlan::Join(join) = below else { return None };
    let is_joined = !join.on.is_empty() || join.filter.is_some() || !conditions.is_empty();
    let reads_both = |exprs: &[Expr]| {
        let read: Vec<_> = exprs.iter().flat_map(columns_followed).collect();
        [&join.left, &join.right].iter().all(|side| read.iter().any(|column| side.schema().has_column(column)))
    };
    let is_known_join = matches!(join.join_type, JoinType::Inner | JoinType::Left | JoinType::Right);
    let known = [sum_udaf(), avg_udaf(), count_udaf()];
    let is_known = |expr: &Expr| match expr {
        Expr::AggregateFunction(call) => known.contains(&call.func) && !call.params.distinct,
        _ => false,
    };
    let calls: Vec<_> = aggregate.aggr_expr.iter().map(|call| call.clone().unalias_nested().data).collect();
    let are_products = calls.iter().all(is_known) && reads_both(&calls) && reads_both(&aggregate.group_expr);
    (is_known_join && is_joined && are_products).then_some((join, conditions))
}

/// Resolves a column through a stack of projections to the column below them.
fn source(expr: &Expr, plan: &LogicalPlan) -> Option<Column> {
    let Expr::Column(column) = expr else { return None };
    let LogicalPlan::Projection(projection) = plan else { return Some(column.clone()) };
    let index = projection.schema.maybe_index_of_column(column)?;
    let below = projection.expr[index].clone().unalias_nested().data;
    source(&below, &projection.input)
}

/// Returns whether a column of a segment is one of a side, or is computed from columns of it alone.
fn is_computed_over(column: &Column, side: &LogicalPlan, segment: &Segment) -> bool {
    if side.schema().has_column(column) {
        return true;
    }
    let mut node = &segment.plan;
    while let LogicalPlan::Projection(projection) = node {
        let computed = projection.expr.iter().find_map(|expr| match expr {
            Expr::Alias(alias) if alias.name == column.name => Some(&alias.expr),
            _ => None,
        });
        if let Some(computed) = computed {
            let read = columns_followed(computed);
            return !read.is_empty() && read.iter().all(|column| is_computed_over(column, side, segment));
        }
        node = &projection.input;
    }
    false
}

/// Returns whether a cotangent is a product, or adds several.
fn is_sum_of_products(cotangent: &Expr) -> bool {
    match cotangent {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus, right }) => {
            is_sum_of_products(left) && is_sum_of_products(right)
        }
        other => is_one_term(other),
    }
}

/// Returns whether a cotangent is not a sum of several.
fn is_one_term(cotangent: &Expr) -> bool {
    match cotangent {
        Expr::Column(_) | Expr::Cast(_) => true,
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right }) => is_one_term(left) && is_one_term(right),
        _ => false,
    }
}

fn below_projections(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Projection(projection) => below_projections(&projection.input),
        other => other,
    }
}

/// Plans the rows of a plan with sums as a plan of their own, and returns a scan of them under new names.
pub fn isolate_contraction(plan: LogicalPlan, names: &mut Names) -> Result<LogicalPlan> {
    let exprs = columns(plan.schema());
    let plan = named(plan, &exprs, names)?;
    Arc::new(SharedRelation::isolated(names.part("sums"), plan)).scan()
}

impl RowCotangents {
    /// Sums the cotangents by row, in a plan of its own.
    pub fn isolate_sums(self, names: &mut Names) -> Result<Self> {
        self.sum_by_row(names)?.isolate(names)
    }

    /// Plans the cotangents as a plan of their own.
    pub fn isolate(self, names: &mut Names) -> Result<Self> {
        let plan = isolate_contraction(self.plan, names)?;
        // The columns of a union have no qualifiers.
        let exprs: Vec<_> = columns(plan.schema());
        let plan = named(plan, &exprs, names)?;
        let mut found = plan.schema().columns();
        let row = self.row.map(|_| found.remove(0));
        let of = self.of.map(|_| found.remove(0));
        Ok(Self { plan, row, of, cotangents: found, reached: self.reached, own: vec![], repeated: false })
    }
}
