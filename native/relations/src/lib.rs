//! Derivatives through relations: what each node of a plan does with tangents, and with cotangents.
//!
//! | node | forward: tangents go up | transpose: cotangents go down | refused |
//! |---|---|---|---|
//! | `Projection` | one more expression, the `jvp` of the expression | times the partial derivatives of the expression | a subquery that varies with a column of the query around it |
//! | `Filter` | as they are | to the rows that are kept | |
//! | `Sort` | as they are | to the rows that are kept | |
//! | `Limit` | as they are | to the rows that are kept | |
//! | `Repartition` | as they are | as they are | |
//! | `Subquery` | as they are | as they are | one that varies and reads the query around it |
//! | `SubqueryAlias` | as they are, under the alias | as they are | |
//! | `Join` | as they are, NULL on rows that an outer join extends | summed over the rows in which a row is repeated | what LATERAL computes from the variable; mark joins in the transpose |
//! | `Union` | of each input its own | to the input that the row is of | |
//! | `Distinct::All` | the one that equal rows agree on, NaN if they differ | in even shares to the equal rows | |
//! | `Distinct::On` | that of the row that is kept | to the row that is kept | |
//! | `Aggregate` | the formula of the function; a key has the one that its group agrees on | times the partial derivative by each row | a function without a formula, DISTINCT values; forward, quantiles over grouping sets |
//! | `Window` | the formula of the function; in `grad` and `vjp` by the row's own cell | sums over frames by sums over the frames that a row is in; all else by groups of rows, joined to the rows | a function without a formula; windows on windows of other keys by the row's own cell; forward, quantiles over frames that are not the partition |
//! | `Unnest` | those of the columns beside the lists | those of the columns beside the lists | lists and structs that vary |
//! | `RecursiveQuery` | through every iteration, as further columns | through every iteration, from the last to the first, or through the last one again and again at a fixed point | UNION; forward, gradients by the rows of an iteration, and limits |
//! | `TableScan` | 1 for the variable, 0 for all else | summed by the rows of the variable | |
//! | `Values` | 1 for the variable, 0 for all else | summed by the rows of the variable | |
//! | `EmptyRelation` | 1 for the variable, 0 for all else | summed by the rows of the variable | |
//! | `Extension` | refused | refused | nodes of other libraries, which may compute anything; iterations that are kept pass tangents by one cell |
//! | `Explain`, `Analyze`, `Statement`, `Dml`, `Ddl`, `Copy`, `DescribeTable` | refused | refused | they stand above queries |
//!
//! A call sees one node of the plan, to which a value computed below (by a CTE, a join, an aggregate, a window, a recursion)
//! is a column like any other. [`DifferentiateRelations`] gives each such column that varies with the variable a *tangent*: one
//! more column, propagated from where the variable originates up to the call, which becomes
//! `jvp(expression, variable, 1, column, tangent, ...)`. The calculus of one node stays with `simplify`.
//!
//! # Modules
//!
//! In order: each imports only from those before it.
//!
//! - `vocabulary`: the names of added columns, where a column comes from, the operators.
//! - `plan`: rewrites of plans that pull further columns up.
//! - `tangents`: the tangent of an expression, and dual numbers.
//! - `aggregate_rules`: the derivatives of aggregates and window functions.
//! - `physical`, `shared_relation`: relations that are computed once, and the nodes that execute them.
//! - `jvp`: forward mode: a file for each kind of node.
//! - `vjp`: reverse mode: from the value of a subquery down to the rows of its relations.
//! - `calls`: rewrites the calls of a node.
//! - `disjoint`: turns full joins of rows that literals keep apart into unions: derivatives by several tables are one node.
//! - `isolate_contractions`: plans sums of products apart that a statement has of itself, if the session says so.
//! - `layering`: turns row-local derivatives into stacks of projections.
//! - `subplan`: plans CTEs and views that have several readers once.
//! - `passes`, `rule`: the list of what is done to a plan, and the analyzer rule that does it.
//! - `register`, `eliminate_stop_gradient`, `observe`: what a session gets; `observe` tells what recursive queries compute.
//! - `workarounds`: keeps faults of DataFusion from doing harm in statements that differentiate.
//!
//! # Glossary
//!
//! Griewank and Walther, *Evaluating Derivatives* (2008), is the source of the first block; JAX's *Autodidax* has a small design that uses
//! the same words. The second block is relational.
//!
//! - *primal*: a column or expression itself, beside its derivative.
//! - *tangent*: the derivative of a column by the variable, in the direction in which the variable moves.
//! - *cotangent*: the derivative of a value by a column.
//! - *seed*: the tangent of the variable where it originates.
//! - *direction*: a variable along which tangents are propagated, with its seed.
//! - *propagate*: to give the columns of a node tangents, from the tangents of its inputs.
//! - *linearize*: to give the tangent of an expression for tangents of the columns that it reads.
//! - *transpose*, *pullback*: what carries the cotangents of a relation on to what it is computed from.
//! - *residual*: a relation that is computed once and read by the sweep. In reverse mode a plan is segments with residuals in between.
//! - *tape*: the iterations of a recursive query, each with its residuals.
//! - *adjoint*: what carries cotangents back through the iterations, from the last to the first.
//!
//! - *segment*: a plan in which every row comes from at most one row of each *leaf*, which is a residual that it reads.
//! - *own row*: the row of the variable from which a row of a query comes. `grad` and `vjp` are by it, `jvp` by all rows together.
//! - *pull up*: to pass a column of a node on to a node above it.
//! - *work table*: the rows that the last iteration of a recursive query gave.
//! - *common subplan*: a CTE or view that several places read, planned once.
//! - *materialize*, *inline*: to compute a relation once for all its readers, or once for each.
//!
//! ```
//! # use datafusion::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> datafusion::error::Result<()> {
//! let ctx = SessionContext::new();
//! xql_relations::register(&ctx);
//! let slope = ctx
//!     .sql("WITH m AS (SELECT w, w * x AS y FROM (VALUES (0.5, 3.0)) AS t(w, x)) SELECT grad(y * y, w) AS d FROM m")
//!     .await?;
//! datafusion::assert_batches_eq!(["+-----+", "| d   |", "+-----+", "| 9.0 |", "+-----+"], &slope.collect().await?);
//! # Ok(())
//! # }
//! ```

mod aggregate_rules;
mod calls;
mod disjoint;
mod eliminate_stop_gradient;
mod fixed_points;
mod isolate_contractions;
mod jvp;
mod layering;
mod observe;
mod options;
mod passes;
mod physical;
mod plan;
mod register;
mod rule;
mod shared_relation;
mod subplan;
mod tangents;
mod version;
mod vjp;
mod vocabulary;
mod workarounds;

pub use fixed_points::FixedPoints;
pub use options::DerivativeOptions;
pub use physical::{Observer, SharedScanExec, UniqueRowsExec, shutdown_observers};
pub use register::{add_rules, register, register_with, relation_planners};
pub use rule::DifferentiateRelations;
pub use shared_relation::{SharedRelation, determinism, each_rewritten, is_computed_here, unchecked};

pub use subplan::{
    Materialization, has_calls, has_materialization, has_shared_subplans, replace_parameters, value_as,
    written_out_size,
};
pub use version::preserves_nulls;
pub use vocabulary::expressions::unaliased;
pub use vocabulary::identity::{NameKind, noted_name};
pub use vocabulary::names::unnumbered;
pub use vocabulary::nodes::{any_node, any_part, with_expressions};
pub use vocabulary::observed::observe;
pub use vocabulary::operators::Recognize;
pub use vocabulary::work_table::is_work_table;
pub use xql_guard::Interruption;

// The program in the README runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
