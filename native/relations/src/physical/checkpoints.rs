//! Which iterations of a recursive query are kept, when not all are.

use std::num::NonZeroUsize;

/// A state for each of some iterations, no more than a number of them, as evenly spaced as can be while it is not known how many
/// iterations there are.
///
/// Once there are too many, every other one is dropped, and from then on those between are not kept. So the first is always kept, and
/// when the last iteration is reached, the states have all about the same distance.
#[derive(Debug)]
pub struct Checkpoints<T> {
    most: NonZeroUsize,
    spacing: usize,
    states: Vec<(usize, T)>,
}

impl<T> Checkpoints<T> {
    /// No states, and at most so many later on.
    pub fn new(most: NonZeroUsize) -> Self {
        Self { most, spacing: 1, states: vec![] }
    }

    /// Keeps the state of an iteration if it is one of those that are kept. They come in their order, from number 0 on.
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

/// Returns the numbers of iterations between two, evenly spaced and no more than a number of them, that are kept while those between are
/// computed again.
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
