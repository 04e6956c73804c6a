//! The iterations of a recursive query that determine its fixed point.

use std::sync::Arc;

use super::iteration_context::IterationFrame;
use super::iterations::State;

/// The first iteration, and the last one with that before it.
#[derive(Debug, Default)]
pub struct Ends {
    first: Option<State>,
    before: Option<State>,
    last: Option<State>,
    /// The frame in which the last one was computed. `None` if it is the first.
    frame: Option<Arc<IterationFrame>>,
}

/// The last step of a recursive query.
#[derive(Debug)]
pub struct LastStep<'e> {
    /// The first rows of the query.
    pub first: &'e State,
    /// The rows before the last ones.
    pub before: &'e State,
    /// The last rows.
    pub last: &'e State,
    /// The frame in which these were computed.
    pub frame: &'e Arc<IterationFrame>,
}

impl Ends {
    /// Adds the next iteration.
    pub fn push(&mut self, rows: State, frame: Option<Arc<IterationFrame>>) {
        self.first.get_or_insert_with(|| rows.clone());
        self.before = self.last.replace(rows);
        self.frame = frame;
    }

    /// Returns the bytes that their rows take.
    pub fn size(&self) -> usize {
        [&self.first, &self.before, &self.last].into_iter().flatten().map(|rows| rows.size).sum()
    }

    /// Returns the last step, if there has been one.
    pub fn last_step(&self) -> Option<LastStep<'_>> {
        let Self { first: Some(first), before: Some(before), last: Some(last), frame: Some(frame) } = self else {
            return None;
        };
        Some(LastStep { first, before, last, frame })
    }
}
