//! What the names in a formula stand for.

use datafusion_common::Result;
use datafusion_expr::ScalarUDF;
use sqlparser::ast::Expr as Sql;
use std::sync::Arc;

use crate::algebra::Algebra;
use crate::graph::NodeId;

/// The name that a function's own output has in its partial derivatives.
pub const OUTPUT: &str = "Ω";

/// What the names and calls of a formula mean.
pub trait Scope {
    /// Returns the node that a name refers to.
    fn name(&mut self, name: &str) -> Result<NodeId>;

    /// Returns the node of a call that has a meaning in this scope, `None` for an ordinary function.
    fn call(&mut self, algebra: &mut Algebra, call: &Call) -> Result<Option<NodeId>>;

    /// Returns the function that a call refers to, if it is not DataFusion's own of that name.
    fn function(&self, name: &str) -> Option<&Arc<ScalarUDF>>;

    /// Lists what a formula may call, for messages.
    fn callable(&self) -> String;
}

/// A call in a formula.
pub struct Call<'a> {
    /// The call itself.
    pub sql: &'a Sql,
    /// The name of what is called.
    pub name: &'a str,
    /// What it is called with.
    pub arguments: &'a [&'a Sql],
}
