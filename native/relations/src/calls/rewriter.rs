//! The traversal that rewrites the calls of a plan, node by node.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchemaRef, Result};
use datafusion_expr::{Expr, Join, LogicalPlan, RecursiveQuery, TableScan, Union};
use std::sync::Arc;
use xql_guard::check_interrupted;

use super::branches::in_one_node;
use super::by_row::ByRow;
use super::common::calls_in_common;
use super::conditions::conditions_apart;
use super::context::{Context, Zeros};
use super::derivative::DirectionalDerivative;
use super::diagnose::{check_rounded, is_rounded_in};
use super::nested::has_calls_of_calls;
use super::pull_up_subqueries::subqueries_beside;
use super::query_copies::QueryCopies;
use super::rewrite_call::replace;
use super::shadowed::shadowed_bound;
use super::split_aggregate_calls::calls_above;
use super::tangent_cache::Inputs;
use crate::fixed_points::FixedPoints;
use crate::jvp::SharedTangents;
use crate::shared_relation::{SharedRelation, common_inlined, restore_joins};
use crate::version::recursive_query;
use crate::vjp::Sweeping;
use crate::vocabulary::names::{Names, restore};
use crate::vocabulary::nodes::{
    any_node, has_subquery, non_query_nodes, with_expressions, with_inputs, without_inputs,
};
use crate::vocabulary::operators::{Recognize, has_call, is_call};

/// Rewrites the calls in a plan, those of inner queries first.
#[derive(Debug)]
pub struct Differentiation {
    context: Context,
}

impl Differentiation {
    /// Creates the rewriter of a plan, whose names no added column may have. With `contracts`, sums of products are
    /// planned apart from their readers, and with `shares`, relations are computed once.
    pub fn new(recognize: Recognize, (contracts, shares): (bool, bool), plan: &LogicalPlan) -> Result<Self> {
        let (names, subplan_tangents) = (Names::from_plan(plan)?, SharedTangents::default());
        let (common, outer, iterated) = (vec![], vec![], vec![]);
        let (joins_branches, rounds) = (shares, is_rounded_in(plan)?);
        let sweeping = Sweeping { contracts, keeps_zeros: has_calls_of_calls(plan, recognize)? };
        let zeros = Zeros::default();
        let context = Context {
            recognize,
            sweeping,
            joins_branches,
            rounds,
            zeros,
            names,
            subplan_tangents,
            swept: vec![],
            common,
            copies: QueryCopies::default(),
            outer,
            iterated,
        };
        Ok(Self { context })
    }

    /// Sets the recursive queries that have the derivative of their limit.
    pub fn with_fixed_points(mut self, fixed_points: FixedPoints) -> Self {
        self.context.subplan_tangents = SharedTangents::beside(fixed_points);
        self
    }

    /// Rewrites all calls of a plan, except for those that `simplify` can expand by their node alone.
    pub fn rewrite_plan(mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        self.rewrite(plan)?.transform_data(|plan| self.context.subplan_tangents.scanned_in(plan))
    }

    /// Rewrites the calls in a plan and below it. All copies of a query are rewritten alike.
    fn rewrite(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::SubqueryAlias(_)) {
            return self.rewrite_node(plan);
        }
        if let Some(known) = self.context.copies.without_calls(&plan) {
            return Ok(Transformed::yes(known.clone()));
        }
        let rewritten = self.rewrite_node(plan.clone())?;
        if rewritten.transformed {
            self.context.copies.add(plan, rewritten.data.clone())?;
        }
        Ok(rewritten)
    }

    /// Rewrites the calls in a plan and below it.
    #[recursive::recursive]
    fn rewrite_node(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Union(union) = &plan
            && let Some(done) = self.branches(union)?
        {
            return Ok(Transformed::yes(done));
        }
        if self.context.rounds && has_call(&plan, self.context.recognize)? {
            check_rounded(&plan)?;
        }
        let written = calls_above(plan, self.context.recognize)?
            .transform_data(|plan| conditions_apart(plan, self.context.recognize, &mut self.context.names))?
            .transform_data(|plan| {
                let Context { recognize, names, zeros, .. } = &mut self.context;
                calls_in_common(plan, *recognize, names, &mut zeros.left_out_of)
            })?
            .transform_data(|plan| self.inputs_inlined(plan))?
            .transform_data(|plan| shadowed_bound(plan, self.context.recognize))?
            .transform_data(|plan| subqueries_beside(plan, self.context.recognize))?
            .transform_data(|plan| self.inputs_inlined(plan))?;
        // The columns of the node, before it gets row numbers.
        let schema = Arc::clone(written.data.schema());
        let mut by_row = ByRow::default();
        written
            .transform_data(|plan| {
                let (plan, found) = self.number_rows(plan)?;
                let transformed = !found.is_empty();
                by_row = found;
                Ok(Transformed::new_transformed(plan, transformed))
            })?
            .transform_data(|plan| self.children(plan))?
            .transform_data(|plan| self.subqueries(plan))?
            .transform_data(|plan| self.node(plan, &schema, by_row))
    }

    /// Rewrites the branches of a union as one node with one sweep for all of their derivatives. Returns `None` if that
    /// fails.
    fn branches(&mut self, union: &Union) -> Result<Option<LogicalPlan>> {
        if !self.context.joins_branches {
            return Ok(None);
        }
        let before = self.context.clone();
        let Some(node) = in_one_node(union, self.context.recognize, &mut self.context.names)? else { return Ok(None) };
        match self.rewrite(node) {
            Ok(done) => Ok(Some(done.data)),
            // The branches may have their derivatives one by one, or report a better error. The nested unions are not
            // tried again, since a union of many branches consists of as many nested unions.
            Err(_) => {
                self.context = Context { joins_branches: false, ..before };
                Ok(None)
            }
        }
    }

    /// Numbers the rows of the variables of calls by row, and rewrites the node to read them.
    fn number_rows(&mut self, plan: LogicalPlan) -> Result<(LogicalPlan, ByRow)> {
        let mut names = std::mem::take(&mut self.context.names);
        let (recognize, sweeping) = (self.context.recognize, self.context.sweeping);
        let numbered = ByRow::number_rows(plan, &mut names, recognize, sweeping, &mut |names, plan| {
            std::mem::swap(names, &mut self.context.names);
            let rewritten = self.rewrite(plan);
            std::mem::swap(names, &mut self.context.names);
            Ok(rewritten?.data)
        });
        self.context.names = names;
        numbered
    }

    fn children(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::RecursiveQuery(query) => self.recursive_query(query),
            LogicalPlan::TableScan(scan) => self.table_scan(scan),
            other @ (LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_)
            | LogicalPlan::Extension(_)
            | non_query_nodes!()) => other.map_children(|child| self.rewrite(child)),
        }
    }

    /// Inlines the CTEs and views that a node with calls reads, or a query in it, since tangents propagate up through
    /// them. Scalar subqueries are not inlined, since cotangents propagate down through them.
    fn inputs_inlined(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let recognize = self.context.recognize;
        let mut has_calls = has_call(&plan, recognize)?;
        let mut look_into = |query: &LogicalPlan| {
            has_calls = has_calls || any_node(query, |node| has_call(node, recognize))?;
            Ok(if has_calls { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        };
        plan.apply_subqueries(&mut look_into)?;
        if let LogicalPlan::Join(join) = &plan
            && matches!(join.right.as_ref(), LogicalPlan::Subquery(_))
        {
            look_into(&join.right)?;
        }
        if has_calls { plan.map_children(common_inlined) } else { Ok(Transformed::no(plan)) }
    }

    /// Rewrites the calls in a CTE or view that several places read, once for all of them.
    fn table_scan(&mut self, scan: TableScan) -> Result<Transformed<LogicalPlan>> {
        let Some(relation) = SharedRelation::scanned(&scan).filter(|relation| relation.is_common()) else {
            return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
        };
        let known = self.context.common.iter().find(|(known, _)| Arc::ptr_eq(known, &relation));
        let other = match known {
            Some((_, other)) => Arc::clone(other),
            None => {
                let rewritten = self.rewrite(relation.plan().clone())?;
                let is_other = rewritten.transformed;
                let other = if is_other { Arc::new(relation.with_plan(rewritten.data)) } else { Arc::clone(&relation) };
                self.context.common.push((Arc::clone(&relation), Arc::clone(&other)));
                other
            }
        };
        match Arc::ptr_eq(&other, &relation) {
            true => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            false => other.scan().map(Transformed::yes),
        }
    }

    /// Rewrites both sides of a join: the right side may name columns of the left: `... FROM d, LATERAL (SELECT d.x * w
    /// AS q FROM p) AS m`.
    fn join(&mut self, join: Join) -> Result<Transformed<LogicalPlan>> {
        let left = self.rewrite(Arc::unwrap_or_clone(join.left))?;
        let left = left.update_data(Arc::new);
        self.context.outer.push(vec![Arc::clone(&left.data)]);
        let right = self.rewrite(Arc::unwrap_or_clone(join.right));
        self.context.outer.pop();
        let right = right?;
        let transformed = left.transformed || right.transformed;
        let join = Join { left: left.data, right: Arc::new(right.data), ..join };
        Ok(Transformed::new_transformed(LogicalPlan::Join(join), transformed))
    }

    fn recursive_query(&mut self, query: RecursiveQuery) -> Result<Transformed<LogicalPlan>> {
        let copies = self.context.copies.count();
        self.context.iterated.push(LogicalPlan::RecursiveQuery(query.clone()));
        let recursive_term = self.rewrite(Arc::unwrap_or_clone(query.recursive_term));
        self.context.iterated.pop();
        self.context.copies.keep(copies);
        let recursive_term = recursive_term?;
        let static_term = self.rewrite(Arc::unwrap_or_clone(query.static_term))?;
        let transformed = static_term.transformed || recursive_term.transformed;
        let (static_term, recursive_term) = (Arc::new(static_term.data), Arc::new(recursive_term.data));
        let query = recursive_query(query.name, static_term, recursive_term, query.is_distinct)?;
        Ok(Transformed::new_transformed(LogicalPlan::RecursiveQuery(query), transformed))
    }

    /// Rewrites the subqueries of a node, which may name columns of its inputs: `... FROM d WHERE EXISTS (SELECT 1 FROM
    /// m WHERE m.x > d.y)`.
    fn subqueries(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if matches!(plan, LogicalPlan::Extension(_)) {
            return Ok(Transformed::no(plan));
        }
        if !has_subquery(&plan)? {
            return Ok(Transformed::no(plan));
        }
        self.context.outer.push(plan.inputs().into_iter().cloned().map(Arc::new).collect());
        let rewritten = plan.map_subqueries(|subquery| self.rewrite(subquery));
        self.context.outer.pop();
        rewritten
    }

    /// Rewrites the calls in the expressions of a node. The inputs get the tangents that the calls need.
    ///
    /// ```text
    /// Filter: grad(m.q * m.q, m.w) > 1
    ///   SubqueryAlias: m
    ///     Projection: p.w, p.w * d.x AS q
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Projection: m.w, m.q
    ///   Filter: jvp(m.q * m.q, m.w, 1, m.q, m.∂q/∂w) > 1
    ///     SubqueryAlias: m
    ///       Projection: p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w
    /// ```
    fn node(&mut self, plan: LogicalPlan, schema: &DFSchemaRef, by_row: ByRow) -> Result<Transformed<LogicalPlan>> {
        let foreign = matches!(plan, LogicalPlan::Extension(_));
        if foreign || plan.inputs().is_empty() || !has_call(&plan, self.context.recognize)? {
            return Ok(Transformed::no(plan));
        }
        // Calls look into the joins that the nodes below have isolated.
        let (plan, inputs) = without_inputs(restore_joins(plan)?)?;
        let mut inputs = Inputs::new(inputs);
        inputs.by_row = by_row;
        if let [input] = inputs.plans.as_mut_slice() {
            *input = inputs.by_row.with_decorrelated(std::mem::take(input), &mut self.context.names)?;
        }
        self.propagate_ahead(&plan, &mut inputs)?;
        let rewritten = with_expressions(plan, |expr| self.expression(expr, &mut inputs))?;
        if !rewritten.transformed {
            return Ok(Transformed::no(with_inputs(rewritten.data, inputs.before)?));
        }
        let Inputs { plans, by_row, .. } = inputs;
        let plans = plans.into_iter().map(|input| by_row.finished(input, &mut self.context.names));
        let plan = with_inputs(rewritten.data, plans.collect::<Result<_>>()?)?.recompute_schema()?;
        self.context.swept.extend(by_row.swept);
        Ok(Transformed::yes(restore(plan, schema)?))
    }

    /// Propagates the tangents that the calls of a node need to its input, in all directions at once.
    fn propagate_ahead(&mut self, node: &LogicalPlan, inputs: &mut Inputs) -> Result<()> {
        let recognize = self.context.recognize;
        let exprs = node.expressions();
        let mut calls = vec![];
        for expr in &exprs {
            expr.apply(|part| {
                let Expr::ScalarFunction(call) = part else { return Ok(TreeNodeRecursion::Continue) };
                let Some(operator) = recognize(&call.func) else { return Ok(TreeNodeRecursion::Continue) };
                calls.extend(DirectionalDerivative::parse(part).map(|call| (call, operator.tangent)));
                Ok(TreeNodeRecursion::Jump)
            })?;
        }
        // The expansion of a nested call is not known yet.
        for (call, _) in &calls {
            if call.function.exists(|part| Ok(is_call(part, recognize)))? {
                return Ok(());
            }
        }
        inputs.propagate_ahead(&calls, &mut self.context)
    }

    /// Returns whether an expression has one call, and the rows in which it is 0 are filtered out above. With several
    /// calls, one may be 0 where the expression is not.
    fn drops_zeros(&self, expr: &Expr) -> Result<bool> {
        let Expr::Alias(alias) = expr else { return Ok(false) };
        let mut calls = 0;
        alias.expr.apply(|part| {
            calls += usize::from(is_call(part, self.context.recognize));
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(calls == 1 && self.context.zeros.left_out_of.contains(&alias.name))
    }

    /// Rewrites the calls in an expression.
    fn expression(&mut self, expr: Expr, inputs: &mut Inputs) -> Result<Transformed<Expr>> {
        let recognize = self.context.recognize;
        self.context.zeros.are_left_out = self.drops_zeros(&expr)?;
        expr.transform_up(|part| {
            if let (Expr::ScalarSubquery(subquery), [input]) = (&part, inputs.plans.as_mut_slice()) {
                let value = inputs.by_row.value(subquery, input, &mut self.context.names)?;
                return Ok(value.map_or_else(|| Transformed::no(part), |column| Transformed::yes(Expr::Column(column))));
            }
            let operator = match &part {
                Expr::ScalarFunction(call) => recognize(&call.func),
                _ => None,
            };
            let replaced = match operator {
                Some(operator) => {
                    check_interrupted()?;
                    replace(&part, &operator.tangent, inputs, &mut self.context)?
                }
                None => None,
            };
            Ok(replaced.map_or_else(|| Transformed::no(part), Transformed::yes))
        })
    }
}
