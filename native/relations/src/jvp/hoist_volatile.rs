//! Hoists volatile expressions below the functions that read them.
//!
//! The tangent of an aggregate or window function is computed over the same rows in the same order, so it has the same
//! conditions, orders and other arguments. The volatile ones among them must not be evaluated a second time:
//!
//! ```text
//! Aggregate: aggr=[[sum(w * x) FILTER (WHERE random() < 0.5)]]
//!   TableScan: t
//! ```
//!
//! becomes
//!
//! ```text
//! Aggregate: aggr=[[sum(w * x) FILTER (WHERE ∂drawn) AS sum(w * x) FILTER (WHERE random() < 0.5)]]
//!   Projection: w, x, random() < 0.5 AS ∂drawn
//!     TableScan: t
//! ```

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::expr::{AggregateFunction, Sort, WindowFunction};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{is_volatile, subquery_of};

use crate::vocabulary::names::{Names, columns};

/// The volatile parts of the functions of a node, which are computed below it.
pub struct VolatileColumns<'n> {
    names: &'n mut Names,
    drawn: Vec<Expr>,
    /// The expressions that order and partition the rows, each with its column. All functions of the node read the same
    /// one.
    ordering: Vec<(Expr, Expr)>,
}

impl<'n> VolatileColumns<'n> {
    /// Creates an empty list.
    pub fn new(names: &'n mut Names) -> Self {
        Self { names, drawn: vec![], ordering: vec![] }
    }

    /// Rewrites an aggregate or window function of the node, and keeps its name.
    pub fn function(&mut self, function: Expr) -> Result<Expr> {
        if !is_volatile(&function) {
            return Ok(function);
        }
        let name = function.qualified_name().1;
        let once = match function.unalias_nested().data {
            Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
                params.args = self.arguments(params.args)?;
                params.filter = params.filter.map(|filter| Box::new(self.condition(*filter)));
                params.order_by = self.order(params.order_by);
                Expr::AggregateFunction(AggregateFunction { func, params })
            }
            Expr::WindowFunction(call) => {
                let WindowFunction { fun, mut params } = *call;
                params.args = self.arguments(params.args)?;
                params.filter = params.filter.map(|filter| Box::new(self.condition(*filter)));
                params.partition_by = params.partition_by.into_iter().map(|by| self.ordering(by)).collect();
                params.order_by = self.order(params.order_by);
                Expr::WindowFunction(Box::new(WindowFunction { fun, params }))
            }
            other => return Ok(other.alias(name)),
        };
        Ok(once.alias(name))
    }

    /// Rewrites the order of the rows.
    pub fn order(&mut self, order: Vec<Sort>) -> Vec<Sort> {
        order.into_iter().map(|sort| Sort { expr: self.ordering(sort.expr), ..sort }).collect()
    }

    /// Rewrites an expression that orders or partitions the rows. DataFusion sorts once for all functions with equal
    /// orders.
    pub fn ordering(&mut self, expr: Expr) -> Expr {
        if !is_volatile(&expr) {
            return expr;
        }
        if let Some((_, column)) = self.ordering.iter().find(|(known, _)| *known == expr) {
            return column.clone();
        }
        let column = self.draw(expr.clone());
        self.ordering.push((expr, column.clone()));
        column
    }

    fn condition(&mut self, condition: Expr) -> Expr {
        if is_volatile(&condition) { self.draw(condition) } else { condition }
    }

    /// Rewrites arguments. They may vary, so only their volatile parts are computed below.
    fn arguments(&mut self, arguments: Vec<Expr>) -> Result<Vec<Expr>> {
        let drawn = arguments.into_iter().map(|argument| {
            let drawn = argument.transform_down(|part| {
                let draws = part.is_volatile_node()
                    || (subquery_of(&part).is_some() || matches!(part, Expr::HigherOrderFunction(_)))
                        && is_volatile(&part);
                Ok(match draws {
                    true => Transformed::new(self.draw(part), true, TreeNodeRecursion::Jump),
                    false => Transformed::no(part),
                })
            })?;
            Ok(drawn.data)
        });
        drawn.collect()
    }

    fn draw(&mut self, expr: Expr) -> Expr {
        let name = self.names.part("drawn");
        self.drawn.push(expr.alias(name.clone()));
        Expr::Column(datafusion_common::Column::new_unqualified(name))
    }

    /// Adds the volatile parts to the input of the node, after its columns.
    pub fn below(self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        if self.drawn.is_empty() {
            return Ok(input);
        }
        let exprs = columns(input.schema()).into_iter().chain(self.drawn).collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, input)?)))
    }
}
