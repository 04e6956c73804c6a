//! What the plan of one iteration reads, and what it computes once.

use arrow::array::RecordBatch;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{HashMap, Result};
use datafusion_physical_plan::ExecutionPlan;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::given::{Binding, GivenExec, Id};
use super::shared::{Shared, SharedExec};

/// The rows that one iteration is given, and the relations that it computes from them, each once.
///
/// A plan is made once and bound to the frame of each iteration. A relation that depends on what a frame is given is another one in
/// every frame. All others are those of the plan, which all iterations have in common.
pub struct Frame {
    given: HashMap<Id, Arc<[RecordBatch]>>,
    computed: Mutex<HashMap<Id, Arc<Shared>>>,
    /// The frame that the plan of this one reads too. Whoever made that one holds it: what it has computed may hold this one.
    around: Option<Weak<Self>>,
    this: Weak<Self>,
}

/// The frame that a node is bound to, as a state that nodes with frames of their own take.
pub struct Around(pub Weak<Frame>);

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("given", &self.given.keys()).finish_non_exhaustive()
    }
}

impl Frame {
    /// A frame that is given rows under an id, inside of another one.
    pub fn new(id: Id, rows: Vec<RecordBatch>, around: Option<Weak<Self>>) -> Arc<Self> {
        let given = HashMap::from_iter([(id, Arc::from(rows))]);
        Arc::new_cyclic(|this| Self { given, computed: Mutex::default(), around, this: this.clone() })
    }

    fn around(&self) -> Option<Arc<Self>> {
        self.around.as_ref().and_then(Weak::upgrade)
    }

    /// The rows that are given under an id, here or around.
    fn rows(&self, id: Id) -> Option<Arc<[RecordBatch]>> {
        self.given.get(&id).cloned().or_else(|| self.around()?.rows(id))
    }

    /// A relation that depends on what is given here or around, as the innermost frame has it that it depends on.
    fn relation(&self, shared: &Arc<Shared>) -> Option<Arc<Shared>> {
        if !shared.reads().iter().any(|id| self.given.contains_key(id)) {
            return self.around()?.relation(shared);
        }
        let mut computed = self.computed.lock().unwrap_or_else(PoisonError::into_inner);
        let own = || {
            let frame: Weak<dyn Binding> = self.this.clone();
            Arc::new(shared.bound_to(frame))
        };
        Some(Arc::clone(computed.entry(shared.id()).or_insert_with(own)))
    }
}

impl Binding for Frame {
    fn bound(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let bound = plan.transform_up(|node| {
            if let Some(reader) = node.downcast_ref::<GivenExec>() {
                return Ok(match self.rows(reader.id()) {
                    Some(rows) => Transformed::yes(Arc::new(reader.with_rows(rows))),
                    None => Transformed::no(node),
                });
            }
            if let Some(reader) = node.downcast_ref::<SharedExec>() {
                let shared = self.relation(reader.shared()).unwrap_or_else(|| Arc::clone(reader.shared()));
                return Ok(Transformed::yes(Arc::new(reader.of(shared))));
            }
            let node = node.reset_state()?;
            let inside = node.with_new_state(Arc::new(Around(self.this.clone())));
            Ok(Transformed::yes(inside.unwrap_or(node)))
        })?;
        Ok(bound.data)
    }
}
