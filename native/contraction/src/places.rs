//! The positions of the rows of a sum, which their keys alone say.

use datafusion_common::Result;
use std::sync::{Arc, OnceLock};

use crate::chosen::{Choice, Meet};
use crate::compute::{Rows, in_common, joined};
use crate::dense::Layout;
use crate::entries::Entries;
use crate::kernel::Work;
use crate::keys::{NONE, Positions};
use crate::spec::{Contraction, Kind};

/// The positions of the rows of all inputs, and what the sum takes.
#[derive(Debug)]
pub struct Places {
    /// Those of the two inputs that are multiplied, which they do not have in common.
    pub outer: [Positions; 2],
    /// Those that they have in common.
    pub inner: [Positions; 2],
    /// Which of the sums are wanted, if not all are.
    pub choice: Option<Choice>,
    /// Whether the wanted sums take fewer steps by the runs of both inputs than by the products of whole runs.
    pub has_few_steps: bool,
    /// What the sum takes.
    pub work: Work,
    layouts: OnceLock<[Arc<Layout>; 2]>,
}

impl Places {
    /// The positions of these rows. None if a key of them has none.
    ///
    /// # Errors
    /// If keys cannot be compared.
    pub fn of(spec: &Contraction, sides: &[Rows]) -> Result<Option<Self>> {
        match spec.kind {
            Kind::Pairs => Self::of_pairs(spec, sides),
            Kind::Chosen { by, outer } => Self::of_chosen(spec, sides, by, outer),
        }
    }

    fn of_pairs(spec: &Contraction, sides: &[Rows]) -> Result<Option<Self>> {
        let (Some(inner), Some(left), Some(right)) =
            (joined(spec, [0, 1], sides)?, sides[0].positions()?, sides[1].positions()?)
        else {
            return Ok(None);
        };
        Ok(Some(Self::new([left, right], in_common(inner), None)))
    }

    fn of_chosen(spec: &Contraction, sides: &[Rows], by: usize, outer: Option<usize>) -> Result<Option<Self>> {
        let [a, b] = spec.kind.multiplied();
        let (Some(inner), Some([mut p, mut of_a]), Some([mut q, mut of_b]), Some(groups)) = (
            joined(spec, [a, b], sides)?,
            joined(spec, [by, a], sides)?,
            joined(spec, [by, b], sides)?,
            sides[by].positions()?,
        ) else {
            return Ok(None);
        };
        let meet = match outer {
            None => Meet::Common,
            Some(outer) if outer == b => Meet::Either(0, of_a.has_rows()),
            Some(_) => Meet::Either(1, of_b.has_rows()),
        };
        // A row whose partner may be missing stays, though its key be NULL and have no position.
        if outer == Some(a) {
            p = with_a_place(p);
            of_a.count = p.count;
        }
        if outer == Some(b) {
            q = with_a_place(q);
            of_b.count = q.count;
        }
        Ok(Some(Self::new([of_a, of_b], in_common(inner), Some(Choice { pairs: [p, q], groups, meet }))))
    }

    fn new(outer: [Positions; 2], inner: [Positions; 2], choice: Option<Choice>) -> Self {
        let sizes = [outer[0].count, inner[0].count, outer[1].count];
        let work = Work { sizes, pairs: 0.0, filling: 0.0 };
        let mut places = Self { outer, inner, choice, has_few_steps: false, work, layouts: OnceLock::new() };
        let (left, right) = (places.left().counts(), places.right().counts());
        // How many pairs of rows both sides have in common.
        let products: f64 = left.minor.iter().zip(&right.major).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let steps = places.choice.as_ref().map(|choice| choice.steps(&left.major, &right.minor) as f64);
        let all = sizes.iter().map(|size| *size as f64).product::<f64>();
        let filling = steps.map_or_else(|| products / all, |_| left.filling() * right.filling());
        places.has_few_steps = steps.is_some_and(|steps| steps <= products);
        places.work = Work { sizes, pairs: steps.map_or(products, |steps| steps.min(products)), filling };
        places
    }

    /// The rows of the left input, by the outer position.
    pub fn left(&self) -> Entries<'_> {
        Entries { major: &self.outer[0], minor: &self.inner[0] }
    }

    /// The rows of the right input, by the inner position.
    pub fn right(&self) -> Entries<'_> {
        Entries { major: &self.inner[1], minor: &self.outer[1] }
    }

    /// Where the rows of both inputs stand in arrays.
    pub fn layouts(&self) -> &[Arc<Layout>; 2] {
        self.layouts.get_or_init(|| [self.left(), self.right()].map(|rows| Arc::new(Layout::of(rows))))
    }

    /// The memory that the positions take, in bytes.
    pub fn memory(&self) -> usize {
        let chosen = self.choice.iter().flat_map(|choice| choice.pairs.iter().chain([&choice.groups]));
        let positions = self.outer.iter().chain(&self.inner).chain(chosen);
        positions.map(|positions| positions.of_rows.len() * size_of::<u32>()).sum()
    }
}

/// The same with a position of their own for rows that have none.
fn with_a_place(mut positions: Positions) -> Positions {
    if !positions.of_rows.contains(&NONE) {
        return positions;
    }
    let place = positions.count as u32;
    positions.of_rows.iter_mut().filter(|position| **position == NONE).for_each(|position| *position = place);
    positions.count += 1;
    positions
}
