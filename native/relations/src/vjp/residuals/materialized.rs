//! Stored rows and propagated cotangents, which all residuals have.

use datafusion_common::{Column, Result};
use datafusion_expr::LogicalPlan;
use std::sync::Arc;

use crate::shared_relation::SharedRelation;
use crate::vjp::cotangents::Cotangents;
use crate::vjp::segment::Segment;
use crate::vocabulary::names::Names;

/// The rows of a residual.
#[derive(Clone)]
pub struct Stored {
    /// The relation. If the rows vary and there may be several, the last column numbers them.
    pub relation: Arc<SharedRelation>,
    /// Whether it has exactly one row.
    pub single: bool,
    /// The positions of its columns that vary.
    pub varying: Vec<usize>,
}

impl Stored {
    /// Returns a scan of all columns.
    pub fn scan(&self, names: &mut Names) -> Result<Segment> {
        Segment::reading(&self.relation, names)
    }
}

/// The cotangents of a residual, propagated to the segment from which it is computed.
pub struct PulledBack<'s> {
    /// The segment.
    pub below: &'s Segment,
    /// Its rows, with columns that the cotangents read.
    pub rows: LogicalPlan,
    /// The column of the rows with the numbers of the values that the cotangents are by, if there are several.
    pub of: Option<Column>,
    /// The cotangents of its columns.
    pub cotangents: Cotangents,
}
