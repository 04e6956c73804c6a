//! Construction of conditions.

use datafusion_common::Result;
use datafusion_expr::{Expr, lit};

use super::{Dag, NodeId, operand};

impl Dag<'_> {
    /// TRUE or FALSE.
    pub fn truth(&mut self, value: bool) -> Result<NodeId> {
        self.intern(lit(value), vec![])
    }

    pub fn not(&mut self, a: NodeId) -> Result<NodeId> {
        self.intern(Expr::Not(Box::new(operand(0))), vec![a])
    }

    pub fn is_null(&mut self, a: NodeId) -> Result<NodeId> {
        self.intern(Expr::IsNull(Box::new(operand(0))), vec![a])
    }
}
