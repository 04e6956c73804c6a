//! Frames: the inputs of one iteration, and the relations that it computes once.

use arrow::array::RecordBatch;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{HashMap, Result};
use datafusion_physical_plan::ExecutionPlan;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use super::batch_scan::{BatchScanExec, BindInputs, Id};
use super::lock::locked;
use super::shared_scan::{Shared, SharedScanExec};

/// The input rows of one iteration, and the relations that it computes from them, each once.
///
/// The plan of an iteration is created once and bound to the frame of each iteration. A relation that depends on the
/// input rows is computed for each frame. All other relations belong to the plan, and all iterations share them.
pub struct IterationFrame {
    given: HashMap<Id, Arc<[RecordBatch]>>,
    computed: Mutex<HashMap<Id, Arc<Shared>>>,
    /// The outer frame, which the plan reads as well. It is weak because the outer frame may hold this one.
    around: Option<Weak<Self>>,
    this: Weak<Self>,
}

/// The frame to which a node is bound, as a state for nodes that create frames of their own.
pub struct OuterContext(pub Weak<IterationFrame>);

impl fmt::Debug for IterationFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterationFrame").field("given", &self.given.keys()).finish_non_exhaustive()
    }
}

impl IterationFrame {
    /// Creates a frame with input rows under an identifier, inside of an outer frame.
    pub fn new(id: Id, rows: impl Into<Arc<[RecordBatch]>>, around: Option<Weak<Self>>) -> Arc<Self> {
        let given = HashMap::from_iter([(id, rows.into())]);
        Arc::new_cyclic(|this| Self { given, computed: Mutex::default(), around, this: this.clone() })
    }

    fn around(&self) -> Option<Arc<Self>> {
        self.around.as_ref().and_then(Weak::upgrade)
    }

    /// Returns the input rows with an identifier, from this frame or an outer one.
    fn rows(&self, id: Id) -> Option<Arc<[RecordBatch]>> {
        self.given.get(&id).cloned().or_else(|| self.around()?.rows(id))
    }

    /// Returns the copy of a relation that belongs to the innermost frame on whose input rows it depends. Returns
    /// `None` if it depends on none.
    fn relation(&self, shared: &Arc<Shared>) -> Option<Arc<Shared>> {
        if !shared.reads().iter().any(|id| self.given.contains_key(id)) {
            return self.around()?.relation(shared);
        }
        let mut computed = locked(&self.computed);
        let own = || {
            let frame: Weak<dyn BindInputs> = self.this.clone();
            Arc::new(shared.bound_to(frame))
        };
        Some(Arc::clone(computed.entry(shared.id()).or_insert_with(own)))
    }
}

impl BindInputs for IterationFrame {
    fn bound(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let bound = plan.transform_up(|node| {
            if let Some(reader) = node.downcast_ref::<BatchScanExec>() {
                return Ok(match self.rows(reader.id()) {
                    Some(rows) => Transformed::yes(Arc::new(reader.with_rows(rows))),
                    None => Transformed::no(node),
                });
            }
            if let Some(reader) = node.downcast_ref::<SharedScanExec>() {
                let shared = self.relation(reader.shared()).unwrap_or_else(|| Arc::clone(reader.shared()));
                return Ok(Transformed::yes(Arc::new(reader.with_shared(shared))));
            }
            let node = node.reset_state()?;
            let inside = node.with_new_state(Arc::new(OuterContext(self.this.clone())));
            Ok(Transformed::yes(inside.unwrap_or(node)))
        })?;
        Ok(bound.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
    use datafusion_common::assert_contains;
    use datafusion_physical_plan::collect;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, false)]))
    }

    fn rows(values: Vec<i64>) -> Result<Vec<RecordBatch>> {
        Ok(vec![RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(values))])?])
    }

    fn given(id: Id) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(BatchScanExec::new("rows", id, &schema(), None)?))
    }

    /// Returns a reader of a relation that a plan computes.
    fn shared(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let shared = Arc::new(Shared::new("r".to_owned(), schema(), false, plan));
        Ok(Arc::new(SharedScanExec::new(shared, &schema(), None, true)?))
    }

    async fn values(plan: Arc<dyn ExecutionPlan>) -> Result<Vec<i64>> {
        let batches = collect(plan, Arc::default()).await?;
        Ok(batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect())
    }

    fn relation(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<Shared>> {
        plan.downcast_ref::<SharedScanExec>().map(|reader| Arc::clone(reader.shared()))
    }

    #[tokio::test]
    async fn every_frame_has_a_relation_of_its_own() -> Result<()> {
        let id = Id::next();
        let plan = shared(shared(given(id)?)?)?;
        let frames = [IterationFrame::new(id, rows(vec![1, 2])?, None), IterationFrame::new(id, rows(vec![3])?, None)];
        for (frame, expected) in frames.iter().zip([vec![1, 2], vec![3]]) {
            let [first, second] = [frame.bound(Arc::clone(&plan))?, frame.bound(Arc::clone(&plan))?];
            let [a, b] = [relation(&first), relation(&second)];
            assert!(a.zip(b).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b)));
            assert_eq!(values(first).await?, expected);
        }
        // What depends on no rows that are given is the same in all of them.
        let other = shared(given(Id::next())?)?;
        let bound = relation(&frames[0].bound(Arc::clone(&other))?);
        assert!(bound.zip(relation(&other)).is_some_and(|(bound, own)| Arc::ptr_eq(&bound, &own)));
        Ok(())
    }

    #[tokio::test]
    async fn a_frame_inside_of_another_takes_from_it_what_it_does_not_compute_itself() -> Result<()> {
        let ids = [Id::next(), Id::next()];
        let around = IterationFrame::new(ids[0], rows(vec![1])?, None);
        let inside = IterationFrame::new(ids[1], rows(vec![2])?, Some(Arc::downgrade(&around)));
        let [of_around, of_inside] = [shared(given(ids[0])?)?, shared(given(ids[1])?)?];
        let bound = inside.bound(Arc::clone(&of_around))?;
        let known = relation(&around.bound(Arc::clone(&of_around))?);
        assert!(relation(&bound).zip(known).is_some_and(|(bound, known)| Arc::ptr_eq(&bound, &known)));
        assert_eq!(values(bound).await?, [1]);
        assert_eq!(values(inside.bound(of_inside)?).await?, [2]);
        Ok(())
    }

    #[tokio::test]
    async fn nothing_is_read_without_its_frame() -> Result<()> {
        let id = Id::next();
        let error = values(given(id)?).await.expect_err("no rows are given").to_string();
        assert_contains!(error, "rows has been given no rows");
        let frame = IterationFrame::new(id, rows(vec![1])?, None);
        let bound = frame.bound(shared(given(id)?)?)?;
        drop(frame);
        let error = values(bound).await.expect_err("the frame is gone").to_string();
        assert_contains!(error, "r is read after its iteration");
        Ok(())
    }
}
