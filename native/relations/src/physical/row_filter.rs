//! The union of the filters of all readers of a recursive query's iterations.

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::compute::kernels::boolean::or_kleene;
use datafusion_common::Result;
use datafusion_common::cast::as_boolean_array;
use datafusion_physical_plan::PhysicalExpr;
use std::sync::{Arc, Mutex, MutexGuard};

use super::lock::locked;

/// The filters of the readers. Each reader registers its filter before the rows are computed.
#[derive(Debug, Default)]
pub struct ReaderFilters(Mutex<Conditions>);

#[derive(Debug)]
enum Conditions {
    /// A reader reads all rows.
    All,
    /// Every reader has a filter. A row that passes none of them is not read.
    Any(Vec<Arc<dyn PhysicalExpr>>),
}

impl Default for Conditions {
    fn default() -> Self {
        Self::Any(vec![])
    }
}

impl ReaderFilters {
    fn conditions(&self) -> MutexGuard<'_, Conditions> {
        locked(&self.0)
    }

    /// Registers a reader of the rows that pass a filter, or of all rows.
    pub fn read_by(&self, condition: Option<Arc<dyn PhysicalExpr>>) {
        let mut conditions = self.conditions();
        match (&mut *conditions, condition) {
            (Conditions::All, _) => {}
            (Conditions::Any(known), Some(condition)) => known.push(condition),
            (Conditions::Any(_), None) => *conditions = Conditions::All,
        }
    }

    /// Returns the rows of a batch that pass the filter of a reader.
    pub fn filter(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let known = match &*self.conditions() {
            Conditions::All => return Ok(batch),
            Conditions::Any(known) => known.clone(),
        };
        let mut is_read = BooleanArray::from(vec![false; batch.num_rows()]);
        for condition in known {
            let holds = condition.evaluate(&batch)?.into_array(batch.num_rows())?;
            is_read = or_kleene(&is_read, as_boolean_array(&holds)?)?;
        }
        Ok(filter_record_batch(&batch, &is_read)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::{binary, col, lit};

    #[test]
    fn a_row_is_kept_for_whoever_reads_it() -> Result<()> {
        let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]));
        let values = Int64Array::from(vec![Some(1), Some(2), None, Some(3)]);
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(values)])?;
        let is = |value: i64| binary(col("x", &schema)?, Operator::Eq, lit(value), &schema);
        let wanted = ReaderFilters::default();
        let read = |wanted: &ReaderFilters| -> Result<Vec<_>> {
            Ok(wanted.filter(batch.clone())?.column(0).as_primitive::<Int64Type>().iter().collect())
        };
        assert_eq!(read(&wanted)?, []);
        wanted.read_by(Some(is(3)?));
        assert_eq!(read(&wanted)?, [Some(3)]);
        wanted.read_by(Some(is(1)?));
        assert_eq!(read(&wanted)?, [Some(1), Some(3)]);
        wanted.read_by(None);
        wanted.read_by(Some(is(1)?));
        assert_eq!(read(&wanted)?, [Some(1), Some(2), None, Some(3)]);
        Ok(())
    }
}
