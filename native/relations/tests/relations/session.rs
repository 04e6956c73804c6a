//! Sessions with derivatives, and what their queries give.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::error::Result;
use datafusion::prelude::{SessionConfig, SessionContext};

/// A session in which these statements have been carried out.
pub async fn session<S: AsRef<str>>(setup: impl IntoIterator<Item = S>) -> Result<SessionContext> {
    session_of(SessionConfig::new().with_target_partitions(2), setup).await
}

/// A session of this configuration in which these statements have been carried out.
pub async fn session_of<S: AsRef<str>>(
    config: SessionConfig,
    setup: impl IntoIterator<Item = S>,
) -> Result<SessionContext> {
    registered(SessionContext::new_with_config(config), setup).await
}

/// A session that has got the rules and the operators, and in which these statements have been carried out.
pub async fn registered<S: AsRef<str>>(
    ctx: SessionContext,
    setup: impl IntoIterator<Item = S>,
) -> Result<SessionContext> {
    xql_relations::register(&ctx);
    for sql in setup {
        ctx.sql(sql.as_ref()).await?.collect().await?;
    }
    Ok(ctx)
}

/// The last column of a query, as floats.
pub async fn last(ctx: &SessionContext, sql: &str) -> Result<Vec<Option<f64>>> {
    last_of(&ctx.sql(sql).await?.collect().await?)
}

/// The last column of batches, as floats.
pub fn last_of(batches: &[RecordBatch]) -> Result<Vec<Option<f64>>> {
    column(batches, |batch| batch.columns().last().map(ArrayRef::clone))
}

/// The column of this name that a query gives, as floats.
pub async fn named(ctx: &SessionContext, name: &str, sql: &str) -> Result<Vec<Option<f64>>> {
    let batches = ctx.sql(sql).await?.collect().await?;
    column(&batches, |batch| batch.column_by_name(name).map(ArrayRef::clone))
}

fn column(batches: &[RecordBatch], of: impl Fn(&RecordBatch) -> Option<ArrayRef>) -> Result<Vec<Option<f64>>> {
    let mut values = vec![];
    for batch in batches {
        values.extend(floats(&of(batch).expect("a column of the query"))?);
    }
    Ok(values)
}

/// An array as floats.
pub fn floats(array: &dyn Array) -> Result<Vec<Option<f64>>> {
    Ok(cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().iter().collect())
}
