//! Tables whose rows change between executions of a plan.

use arrow::array::{Array, ArrayRef, Float64Array, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use std::sync::{Arc, Mutex};

use super::draw::Draw;

/// A partition of a table and its current rows.
#[derive(Debug, Clone)]
pub struct MutableTable {
    schema: SchemaRef,
    batches: Arc<Mutex<Vec<RecordBatch>>>,
}

impl MutableTable {
    /// Registers a table and returns its partitions.
    pub fn register(
        ctx: &SessionContext,
        name: &str,
        schema: &SchemaRef,
        rows: Vec<Vec<RecordBatch>>,
    ) -> Result<Vec<Self>> {
        let partition = |batches| Self { schema: Arc::clone(schema), batches: Arc::new(Mutex::new(batches)) };
        let partitions: Vec<_> = rows.into_iter().map(partition).collect();
        let streams = partitions.iter().map(|partition| Arc::new(partition.clone()) as _).collect();
        ctx.register_table(name, Arc::new(StreamingTable::try_new(Arc::clone(schema), streams)?))?;
        Ok(partitions)
    }

    /// Changes columns of some batches: to values of other rows, to NULL, to infinity. May also remove a batch.
    pub fn change(&self, draw: &mut Draw) -> Result<()> {
        let mut batches = self.batches.lock().expect("no panic");
        for batch in batches.iter_mut() {
            let mut columns = batch.columns().to_vec();
            for (column, field) in columns.iter_mut().zip(self.schema.fields()) {
                let is_value = ["u", "v", "r"].contains(&field.name().as_str());
                if draw.percent(if is_value { 25 } else { 3 }) {
                    *column = other_rows(column, draw)?;
                } else if is_value && draw.percent(5) {
                    *column = new_null_array(column.data_type(), column.len());
                } else if column.data_type() == &DataType::Float64 && is_value && draw.percent(5) {
                    *column = Arc::new(Float64Array::from(vec![f64::INFINITY; column.len()]));
                }
            }
            *batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        }
        if draw.percent(5) && batches.len() > 1 {
            batches.pop();
        }
        Ok(())
    }
}

fn other_rows(column: &ArrayRef, draw: &mut Draw) -> Result<ArrayRef> {
    let rows = (0..column.len()).map(|_| draw.below(column.len()) as u32).collect::<UInt32Array>();
    Ok(take(column, &rows, None)?)
}

impl PartitionStream for MutableTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self.batches.lock().expect("no panic").clone();
        Box::pin(MemoryStream::try_new(batches, Arc::clone(&self.schema), None).expect("batches of the schema"))
    }
}
