//! What a sum of products is over.

use datafusion_physical_expr::PhysicalExpr;
use std::fmt;
use std::sync::Arc;

/// A sum of products over a join of two or three inputs, grouped.
#[derive(Debug)]
pub struct Contraction {
    /// What each input contributes.
    pub sides: Vec<Side>,
    /// By what they are joined.
    pub equalities: Vec<Equality>,
    /// What the groups are.
    pub kind: Kind,
    /// Whether products are rounded to single precision before they are added.
    pub single: bool,
}

/// What an input contributes.
#[derive(Debug, Default)]
pub struct Side {
    /// The keys of groups that are of this input, each with its position among the columns of the result.
    pub groups: Vec<(Arc<dyn PhysicalExpr>, usize)>,
    /// Its factor of the product, 1 if there is none.
    pub factor: Option<Arc<dyn PhysicalExpr>>,
}

/// Keys of two inputs that are equal.
#[derive(Debug)]
pub struct Equality {
    /// The inputs.
    pub sides: [usize; 2],
    /// The keys.
    pub keys: [Arc<dyn PhysicalExpr>; 2],
    /// Whether keys that are NULL are equal.
    pub nulls: bool,
}

/// What the groups are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All pairs of groups of two inputs that have rows in common.
    Pairs,
    /// Groups of the rows of one of three inputs.
    Chosen {
        /// This input.
        by: usize,
        /// The input that a row of the others need not have a row of.
        outer: Option<usize>,
    },
}

impl Contraction {
    /// The two inputs that are multiplied.
    pub fn multiplied(&self) -> [usize; 2] {
        match self.kind {
            Kind::Pairs | Kind::Chosen { by: 2, .. } => [0, 1],
            Kind::Chosen { by: 1, .. } => [0, 2],
            Kind::Chosen { .. } => [1, 2],
        }
    }
}

impl Equality {
    /// The key of an input, if it is one of the two.
    pub fn key_of(&self, side: usize) -> Option<&Arc<dyn PhysicalExpr>> {
        self.sides.iter().position(|known| *known == side).map(|position| &self.keys[position])
    }

    /// Whether it is of these two inputs.
    pub fn is_of(&self, a: usize, b: usize) -> bool {
        self.sides == [a, b] || self.sides == [b, a]
    }
}

impl fmt::Display for Contraction {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut groups: Vec<_> = self
            .sides
            .iter()
            .enumerate()
            .flat_map(|(side, of)| of.groups.iter().map(move |(key, position)| (position, format!("{key} of {side}"))))
            .collect();
        groups.sort();
        let groups: Vec<_> = groups.into_iter().map(|(_, key)| key).collect();
        let on = |equality: &Equality| {
            let ([a, b], [left, right]) = (equality.sides, &equality.keys);
            format!("{left} of {a} = {right} of {b}")
        };
        let on: Vec<_> = self.equalities.iter().map(on).collect();
        let factors = self.sides.iter().enumerate();
        let factors = factors.filter_map(|(side, of)| Some(format!("{} of {side}", of.factor.as_ref()?)));
        let factors: Vec<_> = factors.collect();
        write!(f, "by=[{}], on=[{}], sum=[{}]", groups.join(", "), on.join(", "), factors.join(" * "))?;
        match self.kind {
            Kind::Pairs => Ok(()),
            Kind::Chosen { by, outer } => {
                write!(f, ", chosen by {by}")?;
                outer.map_or(Ok(()), |outer| write!(f, ", rows of {outer} or none"))
            }
        }
    }
}
