//! Sessions with the operators.

use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// A session with these functions, in which a statement has been carried out.
pub async fn session(functions: impl IntoIterator<Item = ScalarUDF>, setup: &str) -> Result<SessionContext> {
    let ctx = SessionContext::new();
    for function in functions {
        ctx.register_udf(function);
    }
    ctx.sql(setup).await?.collect().await?;
    Ok(ctx)
}

/// The functions, of which the operators are told that all columns are those of a table.
pub fn analyzed(functions: impl IntoIterator<Item = ScalarUDF>) -> impl Iterator<Item = ScalarUDF> {
    functions.into_iter().map(|function| match xql_autodiff::recognize(&function) {
        Some(operator) => Arc::unwrap_or_clone(operator.analyzed),
        None => function,
    })
}
