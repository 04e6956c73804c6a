//! Batches that may have no columns.

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use std::sync::Arc;

/// Returns a batch of so many rows with these columns, of which there may be none.
pub fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Returns these columns of a batch, under the names that they have in a schema.
pub fn projected(batch: &RecordBatch, projection: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = projection.iter().map(|column| Arc::clone(batch.column(*column))).collect();
    batch_of(schema, columns, batch.num_rows())
}
