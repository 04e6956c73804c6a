//! Buffering the inputs of a sum, as far as memory allows.

use arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_common_runtime::JoinSet;
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fallback::Streams;

/// The buffered rows of one partition.
struct BufferedPartition {
    batches: Vec<RecordBatch>,
    /// The rows that have not been read, if memory has run out.
    rest: Option<SendableRecordBatchStream>,
    _reservation: MemoryReservation,
}

/// The buffered rows of all inputs, by input and partition.
pub struct BufferedInputs {
    partitions: Vec<Vec<BufferedPartition>>,
}

impl BufferedInputs {
    /// Reads all partitions of all inputs concurrently, until memory runs out.
    pub async fn read(
        plans: &[Arc<dyn ExecutionPlan>],
        context: &Arc<TaskContext>,
        reservation: &MemoryReservation,
    ) -> Result<Self> {
        let is_full = Arc::new(AtomicBool::new(false));
        let mut running = JoinSet::new();
        for (input, plan) in plans.iter().enumerate() {
            for partition in 0..plan.output_partitioning().partition_count() {
                let stream = plan.execute(partition, Arc::clone(context))?;
                let reading = BufferedPartition::read(stream, reservation.new_empty(), Arc::clone(&is_full));
                running.spawn(async move { Ok::<_, DataFusionError>((input, partition, reading.await?)) });
            }
        }
        let mut found: Vec<Vec<_>> = plans.iter().map(|_| vec![]).collect();
        while let Some(read) = running.join_next().await {
            match read {
                Ok(read) => {
                    let (input, partition, rows) = read?;
                    found[input].push((partition, rows));
                }
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => return internal_err!("reading the inputs of a sum was cancelled"),
            }
        }
        let in_order = |mut partitions: Vec<(usize, BufferedPartition)>| {
            partitions.sort_by_key(|(partition, _)| *partition);
            partitions.into_iter().map(|(_, rows)| rows).collect()
        };
        Ok(Self { partitions: found.into_iter().map(in_order).collect() })
    }

    /// Returns whether all rows have been read.
    pub fn is_complete(&self) -> bool {
        self.partitions.iter().flatten().all(|partition| partition.rest.is_none())
    }

    /// Returns the batches of each input.
    pub fn batches(&self) -> Vec<Vec<RecordBatch>> {
        let batches =
            |partitions: &Vec<BufferedPartition>| partitions.iter().flat_map(|rows| rows.batches.clone()).collect();
        self.partitions.iter().map(batches).collect()
    }

    /// Returns the rows of each input as streams, buffered rows first. Their memory is no longer reserved.
    pub fn streams(self, plans: &[Arc<dyn ExecutionPlan>]) -> Vec<Streams> {
        let inputs = self.partitions.into_iter().zip(plans);
        let streams = inputs.map(|(partitions, plan)| {
            let partitions = partitions.into_iter();
            partitions
                .map(|rows| -> SendableRecordBatchStream {
                    let read = stream::iter(rows.batches.into_iter().map(Ok));
                    let rest = rows.rest.map_or_else(|| stream::empty().boxed(), StreamExt::boxed);
                    Box::pin(RecordBatchStreamAdapter::new(plan.schema(), read.chain(rest)))
                })
                .collect()
        });
        streams.collect()
    }
}

impl BufferedPartition {
    async fn read(
        mut stream: SendableRecordBatchStream,
        reservation: MemoryReservation,
        is_full: Arc<AtomicBool>,
    ) -> Result<Self> {
        let mut batches = vec![];
        while !is_full.load(Ordering::Relaxed) {
            let Some(batch) = stream.next().await.transpose()? else {
                return Ok(Self { batches, rest: None, _reservation: reservation });
            };
            if batch.num_rows() == 0 {
                continue;
            }
            if reservation.try_grow(memory_size(batch.columns())).is_err() {
                is_full.store(true, Ordering::Relaxed);
            }
            batches.push(batch);
        }
        Ok(Self { batches, rest: Some(stream), _reservation: reservation })
    }
}

/// Returns the memory of the rows of columns in bytes. Slices count for the rows that they have, not for the whole buffer.
pub fn memory_size(columns: &[ArrayRef]) -> usize {
    let columns = columns.iter();
    columns
        .map(|column| column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()))
        .sum()
}
