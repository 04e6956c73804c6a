//! The passes over a plan, up to the point where derivatives are expressions.

use arrow::datatypes::DataType;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, Result};
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{Distinct, Expr, ExprSchemable, LogicalPlan, Projection};
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerContext};
use std::sync::Arc;
use xql_autodiff::vocabulary::functions::{remove_stop_gradient, stop_gradient_argument};
use xql_autodiff::vocabulary::opaque_expr::unwrap_opaque;
use xql_relations::{DifferentiateRelations, any_part, unchecked, with_expressions};

use super::functions::recognize;
use crate::names::DERIVATIVES;

/// Coerces the types of a plan's expressions.
pub fn coerce_types(plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
    let mut plan = plan;
    for rule in Analyzer::new().rules {
        plan = rule.analyze(plan, options)?;
    }
    let folded =
        plan.transform_up_with_subqueries(|node| with_expressions(node, |expr| expr.transform_up(fold_cast)))?;
    Ok(folded.data)
}

/// Folds the cast of a number to a float: `CAST(2 AS DOUBLE)` becomes `2.0`.
fn fold_cast(expr: Expr) -> Result<Transformed<Expr>> {
    if let Expr::Cast(cast) = &expr
        && let Expr::Literal(value, metadata) = cast.expr.as_ref()
        && value.data_type().is_numeric()
        && matches!(cast.field.data_type(), DataType::Float64 | DataType::Float32)
    {
        let value = value.cast_to(cast.field.data_type())?;
        return Ok(Transformed::yes(Expr::Literal(value, metadata.clone())));
    }
    Ok(Transformed::no(expr))
}

/// Rewrites the calls of a plan that see through relations, and leaves row-local calls.
pub fn differentiate_plan(plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
    let plan = DifferentiateRelations::recognizing(recognize).leaving_joins().analyze(plan, options)?;
    // No other engine has a node that checks a gradient while it runs.
    Ok(unchecked(plan)?.data)
}

/// Replaces the calls of a plan by derivatives, and removes `stop_gradient`.
pub fn expand_calls(plan: LogicalPlan, options: &Arc<ConfigOptions>) -> Result<LogicalPlan> {
    let expanded = plan.transform_up_with_subqueries(|node| {
        if !any_part(&node, |part| is_call(part) || stop_gradient_argument(part).is_some())? {
            return Ok(Transformed::no(node));
        }
        let context = simplify_context(&node, options)?;
        with_expressions(node, |expr| expand_expr(expr, &context))
    })?;
    Ok(expanded.data)
}

/// Removes columns that are not read, and casts to the type that an expression has already.
pub fn prune_columns(plan: LogicalPlan, options: &Arc<ConfigOptions>) -> Result<LogicalPlan> {
    let uncast = plan.transform_up_with_subqueries(|node| {
        let context = simplify_context(&node, options)?;
        let schema = Arc::clone(context.schema());
        with_expressions(node, |expr| {
            expr.transform_up(|part| match &part {
                Expr::Cast(cast) if cast.expr.get_type(&schema).is_ok_and(|known| known == *cast.field.data_type()) => {
                    Ok(Transformed::yes(cast.expr.as_ref().clone()))
                }
                _ => Ok(Transformed::no(part)),
            })
        })
    })?;
    // DataFusion 54 prunes columns of recursive queries that these read themselves, and expects earlier rules to have replaced DISTINCT ON
    // and LATERAL.
    let mut keeps_all = false;
    uncast.data.apply_with_subqueries(|node| {
        keeps_all |= matches!(node, LogicalPlan::RecursiveQuery(_) | LogicalPlan::Distinct(Distinct::On(_)))
            || matches!(node, LogicalPlan::Join(join) if is_lateral(&join.right));
        Ok(TreeNodeRecursion::Continue)
    })?;
    if keeps_all {
        return Ok(uncast.data);
    }
    let optimizer = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
    optimizer.optimize(uncast.data, &OptimizerContext::new(), |_, _| {})
}

/// Returns whether the right side of a join reads columns of the left side.
pub fn is_lateral(plan: &LogicalPlan) -> bool {
    let reads_outer =
        |node: &LogicalPlan| matches!(node, LogicalPlan::Subquery(node) if !node.outer_ref_columns.is_empty());
    let renames = matches!(plan, LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_));
    reads_outer(plan) || renames && plan.inputs().into_iter().any(is_lateral)
}

/// Returns whether DataFusion 54 would prune columns of a recursive query that only the query itself reads, and then fail.
pub fn loses_columns(plan: &LogicalPlan) -> bool {
    let widths = |plan: &LogicalPlan| {
        let mut widths = vec![];
        let _ = plan.apply_with_subqueries(|node| {
            if let LogicalPlan::RecursiveQuery(query) = node {
                widths.push(query.static_term.schema().fields().len());
            }
            Ok(TreeNodeRecursion::Continue)
        });
        widths
    };
    let Ok(plan) = plan.clone().transform_down_with_subqueries(|node| match node {
        // The node that protects the columns in a plan is not written as text.
        LogicalPlan::Repartition(node) => Ok(Transformed::yes(node.input.as_ref().clone())),
        // If a query of another name is nested in a term, DataFusion keeps all columns. The text may have merged the two.
        LogicalPlan::SubqueryAlias(alias) if !matches!(alias.input.as_ref(), LogicalPlan::TableScan(_)) => {
            let named = alias.input.schema().columns().into_iter().zip(alias.schema.iter());
            let named = named
                .map(|(column, (table, field))| Expr::Column(column).alias_qualified(table.cloned(), field.name()))
                .collect();
            Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(named, alias.input)?)))
        }
        other => Ok(Transformed::no(other)),
    }) else {
        return true;
    };
    let plan = plan.data;
    let before = widths(&plan);
    let optimizer = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
    !before.is_empty()
        && optimizer.optimize(plan, &OptimizerContext::new(), |_, _| {}).map_or(true, |plan| widths(&plan) != before)
}

/// Returns the schema that the expressions of a node read.
pub fn input_schema(node: &LogicalPlan) -> Result<DFSchema> {
    match node {
        LogicalPlan::TableScan(scan) => {
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())
        }
        node => Ok(merge_schema(&node.inputs())),
    }
}

/// Returns the context in which the expressions of a node are simplified.
pub fn simplify_context(node: &LogicalPlan, options: &Arc<ConfigOptions>) -> Result<SimplifyContext> {
    let schema = input_schema(node)?;
    let builder = SimplifyContext::builder().with_schema(Arc::new(schema)).with_config_options(Arc::clone(options));
    Ok(builder.with_current_time().build())
}

/// Replaces the calls of an expression by derivatives.
pub fn expand_expr(expr: Expr, context: &SimplifyContext) -> Result<Transformed<Expr>> {
    let simplifier = ExprSimplifier::new(context.clone());
    let derived = expr.transform_down(|part| {
        if !is_call(&part) {
            return Ok(Transformed::no(part));
        }
        // The argument is simplified first, as in a session.
        let derivative = simplifier.simplify(unwrap_opaque(part)?.data)?;
        Ok(Transformed::new(derivative, true, TreeNodeRecursion::Jump))
    })?;
    derived.transform_data(remove_stop_gradient)
}

/// Returns whether an expression is a call of an operator.
pub fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if DERIVATIVES.contains(&call.func.name()))
}
