//! Merging small batches.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_execution::SendableRecordBatchStream;
use futures::{Stream, StreamExt, stream};

/// Merges consecutive batches until they have at least half of `size` rows. A cross join returns a batch for each row of its build side,
/// and every operator takes some time for each batch.
pub fn merge_small_batches(rows: SendableRecordBatchStream, size: usize) -> impl Stream<Item = Result<RecordBatch>> {
    let schema = rows.schema();
    stream::try_unfold(rows.fuse(), move |mut rows| {
        let schema = SchemaRef::clone(&schema);
        async move {
            let (mut batches, mut count) = (vec![], 0);
            while count < size.div_ceil(2)
                && let Some(batch) = rows.next().await.transpose()?
            {
                count += batch.num_rows();
                batches.push(batch);
            }
            let merged = match batches.as_slice() {
                [] => return Ok(None),
                [batch] => batch.clone(),
                _ => concat_batches(&schema, &batches)?,
            };
            Ok(Some((merged, rows)))
        }
    })
}
