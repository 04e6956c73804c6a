//! The tape: the computed iterations of a recursive query, which a sweep reads from the last to the first.

use arrow::array::{RecordBatch, UInt64Array};
use datafusion_common::{Result, exec_datafusion_err, internal_datafusion_err};
use datafusion_execution::TaskContext;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use std::num::NonZeroUsize;
use std::sync::Arc;
use xql_autodiff::vocabulary::refusals::Refused;
use xql_contraction::memory_size;

use super::checkpoints::{Checkpoints, between};
use super::ends::Ends;
use super::iteration_context::IterationFrame;
use super::iterations::{State, Steps};

/// Which iterations of a recursive query are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// All of them.
    All,
    /// The rows of no more than a number of them.
    Checkpoints(NonZeroUsize),
    /// The rows of the first one, and the last one with all that it computes.
    Ends,
}

/// The iterations of a recursive query, of which all are kept or some.
#[derive(Debug)]
pub struct Tape {
    name: String,
    steps: Steps,
    marks: Vec<Mark>,
    kept: KeptIterations,
    /// The memory of rows that are held here alone.
    reservation: MemoryReservation,
}

/// The record of an iteration, whether it is kept or not.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// How many rows the iterations before have.
    before: u64,
    /// The fingerprint of its rows, by which they are checked when they are computed again.
    fingerprint: u64,
}

/// The iterations that are kept.
#[derive(Debug)]
enum KeptIterations {
    /// All of them, each with the frame in which it was computed.
    All(Vec<Iteration>),
    /// The rows of some.
    Some(Checkpoints<State>),
    /// The first one and the last one.
    Ends(Box<Ends>),
}

/// An iteration to which cotangents are carried back.
#[derive(Debug, Clone)]
pub struct Iteration {
    /// The numbers that its rows have within the iteration, in order.
    pub numbers: UInt64Array,
    /// The frame in which it was computed. `None` for the first rows.
    pub frame: Option<Arc<IterationFrame>>,
}

impl Tape {
    /// Creates a tape without iterations, and determines which ones it will keep.
    pub fn new(name: &str, steps: Steps, keeps: Keeps, reservation: MemoryReservation) -> Self {
        let kept = match keeps {
            Keeps::All => KeptIterations::All(vec![]),
            Keeps::Checkpoints(most) => KeptIterations::Some(Checkpoints::new(most)),
            Keeps::Ends => KeptIterations::Ends(Box::default()),
        };
        Self { name: name.to_owned(), steps, marks: vec![], kept, reservation }
    }

    /// Returns how many bytes of memory it has reserved.
    pub fn size(&self) -> usize {
        self.reservation.size()
    }

    /// Returns the plan that computes the iterations.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Returns how many iterations there are.
    pub fn count(&self) -> usize {
        self.marks.len()
    }

    /// Returns how many rows the iterations before one have.
    pub fn before(&self, number: usize) -> u64 {
        self.marks.get(number).map_or(0, |mark| mark.before)
    }

    /// Returns the number of the iteration that a row is of, by the number of the row among those of all iterations.
    pub fn iteration_of(&self, row: u64) -> usize {
        self.marks.partition_point(|mark| mark.before <= row).saturating_sub(1)
    }

    /// Returns whether not all iterations are kept.
    pub fn is_thinned(&self) -> bool {
        !matches!(self.kept, KeptIterations::All(_))
    }

    /// Returns the first iteration and the last one, if these alone are kept.
    pub fn ends(&self) -> Option<&Ends> {
        match &self.kept {
            KeptIterations::Ends(ends) => Some(ends),
            KeptIterations::All(_) | KeptIterations::Some(_) => None,
        }
    }

    /// Adds the next iteration. `before` is the number of rows in the iterations before it.
    pub fn add(&mut self, rows: &State, frame: Option<Arc<IterationFrame>>, before: u64) -> Result<()> {
        let number = self.count();
        let fingerprint = if matches!(self.kept, KeptIterations::Some(_)) { rows.fingerprint()? } else { 0 };
        self.marks.push(Mark { before, fingerprint });
        match &mut self.kept {
            KeptIterations::All(iterations) => iterations.push(Iteration { numbers: rows.numbers.clone(), frame }),
            KeptIterations::Some(checkpoints) => {
                let held = size(checkpoints);
                checkpoints.offer(number, || rows.clone());
                let holds = size(checkpoints);
                self.reservation.shrink(held.saturating_sub(holds));
                self.reservation.try_grow(holds.saturating_sub(held))?;
            }
            KeptIterations::Ends(ends) => {
                let held = ends.size();
                ends.push(rows.clone(), frame);
                self.reservation.shrink(held.saturating_sub(ends.size()));
                self.reservation.try_grow(ends.size().saturating_sub(held))?;
            }
        }
        Ok(())
    }

    /// Accounts for the rows that readers get. If all iterations are kept, their frames hold all columns but the last.
    pub fn hold(&self, batches: &[RecordBatch]) -> Result<()> {
        let first = |batch: &RecordBatch| if self.is_thinned() { 0 } else { batch.num_columns() - 1 };
        self.reservation.try_grow(batches.iter().map(|batch| memory_size(&batch.columns()[first(batch)..])).sum())
    }

    /// Returns a reader of the iterations, from the last to the first.
    pub fn past(&self, context: &Arc<TaskContext>) -> TapeReader<'_> {
        let consumer = MemoryConsumer::new(format!("iterations of {}", self.name));
        let reservation = consumer.register(context.memory_pool());
        let states = match &self.kept {
            KeptIterations::All(_) | KeptIterations::Ends(_) => vec![],
            KeptIterations::Some(checkpoints) => checkpoints.states().to_vec(),
        };
        let own = states.len();
        TapeReader { tape: self, states, own, computed: 0, reservation, context: Arc::clone(context) }
    }

    /// Computes the iteration after number `before` again, from the rows of that one. Fails if it has other rows than
    /// the first time.
    async fn again(
        &self,
        before: usize,
        rows: &State,
        context: &Arc<TaskContext>,
    ) -> Result<(Arc<IterationFrame>, State)> {
        let (frame, rows) = self.steps.after(rows, context).await?;
        let known = self.marks.get(before + 1).map(|mark| mark.fingerprint);
        if known == Some(rows.fingerprint()?) {
            return Ok((frame, rows));
        }
        Err(Refused::UnsupportedRelation.mark(exec_datafusion_err!(
            "iteration {} of the recursive query {} has other rows the second time, and a gradient by row cannot go back through it: \
             what it reads or calls changes meanwhile. SET xql.checkpoints = 0, which keeps all iterations",
            before + 1,
            self.name
        )))
    }
}

fn size(checkpoints: &Checkpoints<State>) -> usize {
    checkpoints.states().iter().map(|(_, rows)| rows.size).sum()
}

/// A reader of the iterations of a tape, from the last to the first.
#[derive(Debug)]
pub struct TapeReader<'t> {
    tape: &'t Tape,
    /// The rows of iterations before the current one, in order: the checkpoints of the tape, and after them checkpoints
    /// that have been computed again.
    states: Vec<(usize, State)>,
    /// The number of checkpoints of the tape among them.
    own: usize,
    /// How many iterations have been computed again.
    computed: usize,
    reservation: MemoryReservation,
    context: Arc<TaskContext>,
}

impl TapeReader<'_> {
    /// Returns how many iterations have been computed again.
    pub fn computed(&self) -> usize {
        self.computed
    }

    /// Returns the iteration of this number. Later calls must be for earlier iterations.
    pub async fn iteration(&mut self, number: usize) -> Result<Iteration> {
        let lost = || internal_datafusion_err!("iteration {number} of {} is not kept", self.tape.name);
        if let KeptIterations::All(iterations) = &self.tape.kept {
            return iterations.get(number).cloned().ok_or_else(lost);
        }
        while self.states.last().is_some_and(|(kept, _)| *kept > number.saturating_sub(1)) {
            self.states.pop();
        }
        self.own = self.own.min(self.states.len());
        let (at, rows) = self.states.last().cloned().ok_or_else(lost)?;
        if number == 0 {
            return Ok(Iteration { numbers: rows.numbers, frame: None });
        }
        let rows = self.rows_before(number, at, rows).await?;
        let (frame, rows) = self.tape.again(number - 1, &rows, &self.context).await?;
        self.computed += 1;
        Ok(Iteration { numbers: rows.numbers, frame: Some(frame) })
    }

    /// Computes the rows of the iteration before this number again, from those of iteration `at`. Keeps checkpoints on
    /// the way.
    async fn rows_before(&mut self, number: usize, mut at: usize, mut rows: State) -> Result<State> {
        let KeptIterations::Some(checkpoints) = &self.tape.kept else { return Ok(rows) };
        let mut kept = between(at, number - 1, checkpoints.most()).peekable();
        while at + 1 < number {
            rows = self.tape.again(at, &rows, &self.context).await?.1;
            self.computed += 1;
            at += 1;
            if kept.next_if_eq(&at).is_some() {
                self.states.push((at, rows.clone()));
            }
            self.account()?;
        }
        Ok(rows)
    }

    /// Accounts for what has been computed again.
    fn account(&self) -> Result<()> {
        let held = self.states.iter().skip(self.own).map(|(_, rows)| rows.size).sum();
        self.reservation.try_resize(held)
    }
}
