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
//! | `Aggregate` | the formula of the function; a key has the one that its group agrees on | times the partial derivative by each row | a function without a formula, DISTINCT values |
//! | `Window` | the formula of the function; in `grad` and `vjp` by the row's own cell | sums over frames by sums over the frames that a row is in; all else by groups of rows, joined to the rows | a function without a formula; windows on windows of other keys by the row's own cell |
//! | `Unnest` | those of the columns beside the lists | those of the columns beside the lists | lists and structs that vary |
//! | `RecursiveQuery` | through every iteration, as further columns | through every iteration, from the last to the first | UNION; forward, gradients by the rows of an iteration |
//! | `TableScan` | 1 for the variable, 0 for all else | summed by the rows of the variable | |
//! | `Values` | 1 for the variable, 0 for all else | summed by the rows of the variable | |
//! | `EmptyRelation` | 1 for the variable, 0 for all else | summed by the rows of the variable | |
//! | `Extension` | refused | refused | nodes of other libraries, which may compute anything; iterations that are kept pass tangents by one cell |
//! | `Explain`, `Analyze`, `Statement`, `Dml`, `Ddl`, `Copy`, `DescribeTable` | refused | refused | they stand above queries |
//!
//! A call sees one node of the plan, to which a value computed below (by a CTE, a join, an aggregate, a window, a recursion)
//! is a column like any other. [`DifferentiateRelations`] gives each such column that varies with the variable a *tangent*: one
//! more column, carried from where the variable originates up to the call, which becomes
//! `jvp(expression, variable, 1, column, tangent, ...)`. The calculus of one node stays with `simplify`.
//!
//! In the order of the modules, each of which imports only from those before it: `vocabulary` has the names of added columns,
//! says where a column comes from and tells the operators; `plan` rewrites plans so that they have further columns; `tangents`
//! has what columns carry and the tangent of an expression; `rows` has the derivatives of aggregates and window functions;
//! `shared` has relations that are computed once, by the nodes of `physical`; `forward` gives the columns of a plan their
//! tangents, with a file for each kind of node; `reverse` carries cotangents down from the value of a subquery to the rows of its
//! relations; `calls` replaces the calls of a node; `disjoint` makes unions of full joins of rows that literals keep apart, as which
//! derivatives by several tables stand in one node; `plain_sums` plans sums of products that a
//! statement has of itself apart, if the session says so;
//! `stack` writes those that say all by themselves as stacks of projections; `subplan` has CTEs and views that several places read planned
//! once; `passes` is the list of what is done to a plan, and `rule` the analyzer rule that does it, which `register` adds to a session
//! with `stops` and `observe`, by which recursive queries tell what they compute. `workarounds` keeps what DataFusion gets
//! wrong about recursive queries, or takes long for, from doing harm where they differentiate.
//!
//! # Words
//!
//! - *tangent*: the derivative of a column by the variable, in the direction in which the variable moves.
//! - *cotangent*: the derivative of a value by a column.
//! - *primal*: the column or expression itself.
//! - *seed*: the tangent of the variable where it originates.
//! - *linearize*: to give the tangent of an expression for tangents of the columns that it reads.
//! - *direction*: a variable by which tangents are carried, with its seed.
//! - *to carry*: to give the columns of a node tangents, from the tangents of its inputs.
//! - *to lift*: to pass a column of a node on to a node above it.
//! - *cell*: the value that one row of a relation has in the column that is the variable. A join repeats it.
//! - *own cell*: the cell that a row of a query has. `grad` and `vjp` are by it, `jvp` by all of them together.
//! - *region*: a plan in which every row comes from at most one row of each *leaf*, which is a stage that it reads.
//! - *stage*: a relation that is computed once, between regions.
//! - *pullback*: what carries the cotangents of a stage on to the region that it is computed from.
//! - *work table*: the rows that the last iteration of a recursive query gave.
//! - *tape*: the iterations of a recursive query, each with its stages.
//! - *adjoint*: what carries cotangents back through the iterations, from the last to the first.
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

mod calls;
mod disjoint;
mod forward;
mod observe;
mod options;
mod passes;
mod physical;
mod plain_sums;
mod plan;
mod register;
mod reverse;
mod rows;
mod rule;
mod shared;
mod stack;
mod stops;
mod subplan;
mod tangents;
mod version;
mod vocabulary;
mod workarounds;

pub use options::DerivativeOptions;
pub use physical::{Observer, SharedExec, UniqueRowsExec, stop_telling};
pub use register::{add_rules, register, register_with, relation_planners};
pub use rule::DifferentiateRelations;
pub use shared::{SharedRelation, anew, each_rewritten, is_computed_here, unchecked};

pub use subplan::{Materialization, has_calls, has_materialization, has_shared_subplans, value_as, written_out_size};
pub use version::preserves_nulls;
pub use vocabulary::expressions::unaliased;
pub use vocabulary::identity::{Kind as NameKind, noted_name};
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
