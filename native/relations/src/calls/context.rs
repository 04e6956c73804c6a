//! The state of the rewriter.

use datafusion_expr::LogicalPlan;
use std::sync::Arc;

use super::query_copies::QueryCopies;
use crate::jvp::{SharedTangents, SweptQuery};
use crate::shared_relation::SharedRelation;
use crate::vjp::Sweeping;
use crate::vocabulary::names::Names;
use crate::vocabulary::operators::Recognize;

/// The state that the nodes of a plan share, and the queries around the current node. It has many fields because one
/// pass rewrites all calls.
#[derive(Debug, Clone)]
pub struct Context {
    /// Recognizes the operators among the functions of the session.
    pub recognize: Recognize,
    /// The options of sweeps.
    pub sweeping: Sweeping,
    /// Whether branches of a union with derivatives are one node. It is apart again where relations are shared alone.
    pub joins_branches: bool,
    /// Whether the plan has a recursive query that rounds what it computes.
    pub rounds: bool,
    /// The derivatives of which rows with 0 are left out.
    pub zeros: Zeros,
    /// Names that no column of the plan has.
    pub names: Names,
    /// The shared relations with tangents.
    pub subplan_tangents: SharedTangents,
    /// The queries that gradients by row have gone through.
    pub swept: Vec<SweptQuery>,
    /// The CTEs and views that several places read, each with its rewritten relation.
    pub common: Vec<(Arc<SharedRelation>, Arc<SharedRelation>)>,
    /// The queries that have been rewritten.
    pub copies: QueryCopies,
    /// The inputs of the nodes whose subqueries are being rewritten, the innermost last.
    pub outer: Vec<Vec<Arc<LogicalPlan>>>,
    /// The recursive queries whose recursive terms are being rewritten, the innermost last.
    pub iterated: Vec<LogicalPlan>,
}

/// Derivatives of which rows with 0 are left out.
#[derive(Debug, Clone, Default)]
pub struct Zeros {
    /// The names of the columns that have them.
    pub left_out_of: Vec<String>,
    /// Whether the expression that is looked at is one of these.
    pub are_left_out: bool,
}
