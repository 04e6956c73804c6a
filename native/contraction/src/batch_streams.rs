//! Streams of batches.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_execution::SendableRecordBatchStream;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, TryStreamExt, stream};

/// Returns the batches of a stream that is still to be made: a node does so once it has read what it needs of its inputs.
pub fn flatten_stream<S>(
    schema: SchemaRef,
    rows: impl Future<Output = Result<S>> + Send + 'static,
) -> SendableRecordBatchStream
where
    S: Stream<Item = Result<RecordBatch>> + Send + 'static,
{
    Box::pin(RecordBatchStreamAdapter::new(schema, stream::once(rows).try_flatten()))
}

/// Merges consecutive batches until they have at least half of `size` rows. A cross join returns a batch for each row of its build side,
/// and every operator takes some time for each batch. A batch that comes alone is handed on as it is: arrow's `BatchCoalescer` would give the one
/// of a small iteration the memory of `size` rows, and iterations are kept.
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
