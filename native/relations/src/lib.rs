//! Derivatives through relations: forward mode over the plan, in which the calculus of one node stays with `simplify`.
//!
//! A call sees one node of the plan, to which a value computed below (by a CTE, a join, an aggregate, a window, a recursion)
//! is a column like any other. [`DifferentiateRelations`] gives each such column that varies with the variable a *tangent*: one
//! more column, carried from where the variable originates up to the call, which becomes
//! `jvp(expression, variable, 1, column, tangent, ...)`.
//!
//! In the order of the modules: `calls` replaces the calls of a node, `carry` gives the columns below it their tangents, node by
//! node, and `over` has the derivatives of aggregates and window functions. `tangent` and `names` are what they speak of,
//! `origin` says where a column comes from. `workarounds` keeps what DataFusion 54 gets wrong about recursive and prepared
//! statements from doing harm.

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
mod carry;
mod names;
mod origin;
mod over;
mod register;
mod reverse;
mod shared;
mod tangent;
mod workarounds;

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, LogicalPlan, ScalarUDF};
use datafusion_optimizer::AnalyzerRule;

use xql_autodiff::{Differential, recognize};
use calls::Calls;
pub use shared::{ShareRelations, SharedExec, SharedRelation};
pub use register::{add_rules, register, register_with};
use workarounds::nullability::{Static, never_null_as_now, nullable_by_either_term};
pub use workarounds::prepared::WhenPrepared;
pub use workarounds::pruning::KeepRecursiveColumns;

/// Tells the operators among the functions of a session.
pub type Recognize = fn(&ScalarUDF) -> Option<Differential>;

/// The analyzer rule that lets derivatives see through CTEs, subqueries, joins, aggregates, windows and recursion.
///
/// It emits calls of `jvp` and plain relational operators only, and leaves a plan without calls as it is. It stands after type
/// coercion, where `SessionContext::add_analyzer_rule` puts it.
#[derive(Debug)]
pub struct DifferentiateRelations {
    recognize: Recognize,
}

impl DifferentiateRelations {
    /// The rule for the functions of this crate.
    pub fn new() -> Self {
        Self { recognize }
    }

    /// The rule for functions that are recognized otherwise, such as those imported from another library.
    pub fn recognizing(recognize: Recognize) -> Self {
        Self { recognize }
    }
}

impl Default for DifferentiateRelations {
    fn default() -> Self {
        Self::new()
    }
}

impl AnalyzerRule for DifferentiateRelations {
    fn name(&self) -> &str {
        "differentiate_relations"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_call(&plan, self.recognize)? {
            return Ok(plan);
        }
        let plan = nullable_by_either_term(plan, Static::Settled)?;
        let differentiated = Calls::new(self.recognize, &plan)?.replace(plan)?;
        let differentiated = never_null_as_now(nullable_by_either_term(differentiated, Static::Derived)?)?;
        workarounds::pruning::keep_recursive_columns(differentiated)
    }
}

/// Whether a plan or a subquery in it has a call.
fn has_call(plan: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found = found || expr.exists(|part| Ok(call_in(part, recognize)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

fn call_in(expr: &Expr, recognize: Recognize) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if recognize(&call.func).is_some())
}
