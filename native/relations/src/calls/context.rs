//! What a call is looked at with.

use datafusion_expr::LogicalPlan;
use std::sync::Arc;

use super::query_copies::QueryCopies;
use crate::jvp::{SharedTangents, SweptQuery};
use crate::shared_relation::SharedRelation;
use crate::vjp::Sweeping;
use crate::vocabulary::names::Names;
use crate::vocabulary::operators::Recognize;

/// What the nodes of a plan have in common, and what is around the one that is being looked at. Its fields are many because one pass
/// replaces all calls.
#[derive(Debug, Clone)]
pub struct Context {
    /// Tells the operators among the functions of the session.
    pub recognize: Recognize,
    /// How gradients by row are swept.
    pub sweeping: Sweeping,
    /// Whether branches of a union with derivatives are one node. It is apart again where relations are shared alone.
    pub joins_branches: bool,
    /// Whether the plan has a recursive query that rounds what it computes.
    pub rounds: bool,
    /// The derivatives of which rows with 0 are left out.
    pub zeros: Zeros,
    /// Names that no column of the plan has.
    pub names: Names,
    /// The shared relations that have got tangents.
    pub subplan_tangents: SharedTangents,
    /// The queries that gradients by row have gone through.
    pub swept: Vec<SweptQuery>,
    /// The CTEs and views that several places read, each with what is without calls.
    pub common: Vec<(Arc<SharedRelation>, Arc<SharedRelation>)>,
    /// The queries that have been read, without calls.
    pub copies: QueryCopies,
    /// The inputs of the nodes whose subqueries are being looked into, the innermost last.
    pub outer: Vec<Vec<Arc<LogicalPlan>>>,
    /// The recursive queries whose recursive terms are being looked into, the innermost last.
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
