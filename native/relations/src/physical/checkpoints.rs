//! Checkpoints: the iterations of a recursive query that are kept if not all are.
//!
//! Reverse mode needs the iterations from the last to the first. With a limited number of checkpoints, the others are
//! computed again from the checkpoint before them (A. Griewank and A. Walther, "Evaluating Derivatives", 2nd edition,
//! SIAM 2008, chapter 12). The optimal schedule there, revolve, needs the number of iterations, which a recursive query
//! does not know in advance. So checkpoints are evenly spaced, and the spacing doubles whenever there are too many. On
//! the way back, each gap gets evenly spaced checkpoints of its own ([`between`]).

use std::num::NonZeroUsize;

/// The states of some iterations, evenly spaced, up to a maximum number.
///
/// Invariant: the states are those of the iterations `0, spacing, 2 * spacing, ...` so far. If there are too many, the
/// spacing doubles and every other state is dropped. With at most 3 states:
///
/// ```text
/// 0 1 2  ->  0 2 4  ->  0 4 8
/// ```
#[derive(Debug)]
pub struct Checkpoints<T> {
    most: NonZeroUsize,
    spacing: usize,
    states: Vec<(usize, T)>,
}

impl<T> Checkpoints<T> {
    /// Creates an empty list for at most so many states.
    pub fn new(most: NonZeroUsize) -> Self {
        Self { most, spacing: 1, states: vec![] }
    }

    /// Keeps the state of an iteration if its number is a multiple of the spacing. Iterations are offered in order,
    /// from number 0 on.
    pub fn offer(&mut self, number: usize, state: impl FnOnce() -> T) {
        while number.is_multiple_of(self.spacing) && self.states.len() >= self.most.get() {
            self.spacing *= 2;
            let spacing = self.spacing;
            self.states.retain(|(kept, _)| kept.is_multiple_of(spacing));
        }
        if number.is_multiple_of(self.spacing) {
            self.states.push((number, state()));
        }
    }

    /// Returns how many may be kept.
    pub fn most(&self) -> NonZeroUsize {
        self.most
    }

    /// Returns the states that are kept, with the numbers of their iterations.
    pub fn states(&self) -> &[(usize, T)] {
        &self.states
    }
}

/// Returns the numbers of the iterations between `from` and `to` that are kept while these are computed again: evenly
/// spaced, and at most `most`.
pub fn between(from: usize, to: usize, most: NonZeroUsize) -> impl Iterator<Item = usize> {
    let spacing = (to - from).div_ceil(most.get() + 1).max(1);
    (from..to).step_by(spacing).skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).expect("it is not 0")
    }

    fn kept(count: usize, iterations: usize) -> Vec<usize> {
        let mut checkpoints = Checkpoints::new(most(count));
        for number in 0..iterations {
            checkpoints.offer(number, || number);
        }
        assert!(checkpoints.states().iter().all(|(number, state)| number == state));
        checkpoints.states().iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn those_that_are_kept_are_evenly_spaced() {
        assert_eq!(kept(3, 3), [0, 1, 2]);
        assert_eq!(kept(3, 4), [0, 2]);
        assert_eq!(kept(3, 6), [0, 2, 4]);
        assert_eq!(kept(3, 7), [0, 4]);
        assert_eq!(kept(2, 9), [0, 8]);
        assert_eq!(kept(1, 10), [0]);
        assert_eq!(kept(7, 0), Vec::<usize>::new());
    }

    #[test]
    fn never_too_many_and_never_too_few() {
        for count in 1..20 {
            for iterations in 1..200 {
                let kept = kept(count, iterations);
                assert!(
                    kept.len() <= count && kept.len() > count.min(iterations) / 2,
                    "{count} of {iterations}: {kept:?}"
                );
            }
        }
    }

    #[test]
    fn between_two_there_are_as_many_again() {
        let found = |from, to, count| between(from, to, most(count)).collect::<Vec<_>>();
        assert_eq!(found(0, 10, 3), [3, 6, 9]);
        assert_eq!(found(4, 8, 3), [5, 6, 7]);
        assert_eq!(found(4, 8, 7), [5, 6, 7]);
        assert_eq!(found(0, 9, 1), [5]);
        assert_eq!(found(3, 4, 5), Vec::<usize>::new());
        assert_eq!(found(3, 3, 5), Vec::<usize>::new());
        for (to, count) in (1..200).flat_map(|to| (1..20).map(move |count| (to, count))) {
            assert!(found(0, to, count).len() <= count);
        }
    }
}
