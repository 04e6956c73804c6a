//! What a sum of products is over.

use arrow::array::RecordBatch;
use datafusion_physical_expr::PhysicalExpr;
use std::fmt;
use std::sync::Arc;

use crate::outputs::Output;

/// Sums of products over a join of two or three inputs, grouped.
#[derive(Debug)]
pub struct ContractionSpec {
    /// What each input contributes.
    pub sides: Vec<InputSpec>,
    /// By what they are joined.
    pub equalities: Vec<KeyEquality>,
    /// What rows without a partner meet, if they meet anything.
    pub extension: Option<NullExtension>,
    /// What the groups are.
    pub kind: GroupKind,
    /// What is summed.
    pub terms: Vec<Term>,
    /// The aggregates of groups.
    pub outputs: Vec<Output>,
}

/// A product that is summed.
#[derive(Debug, Clone)]
pub struct Term {
    /// The factor of each input, 1 if there is none.
    pub factors: Vec<Option<Arc<dyn PhysicalExpr>>>,
    /// Whether products are rounded to single precision before they are added.
    pub single_precision: bool,
    /// Whether it is 1 wherever the product is not NULL.
    pub counts: bool,
}

/// What an input contributes.
#[derive(Debug, Default)]
pub struct InputSpec {
    /// The keys of groups that are of this input, each with its position among the columns of the result.
    pub groups: Vec<(Arc<dyn PhysicalExpr>, usize)>,
}

/// Keys of two inputs that are equal.
#[derive(Debug)]
pub struct KeyEquality {
    /// The inputs.
    pub sides: [usize; 2],
    /// The keys.
    pub keys: [Arc<dyn PhysicalExpr>; 2],
    /// Whether keys that are NULL are equal.
    pub nulls: bool,
}

/// A row of NULLs that rows without a partner meet, as `LEFT JOIN` has it.
#[derive(Debug, Clone)]
pub struct NullExtension {
    /// The input whose rows stay.
    pub of: usize,
    /// The input among which they have no partner.
    pub by: usize,
    /// A row of this input that has NULLs alone.
    pub nulls: RecordBatch,
}

/// What the groups are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// All pairs of groups of two inputs that have rows in common.
    Pairs,
    /// Groups of the rows of one of three inputs.
    Sampled {
        /// This input.
        by: usize,
        /// The input that a row of the others need not have a row of.
        outer: Option<usize>,
    },
}

impl GroupKind {
    /// The two inputs that are multiplied.
    pub fn factor_sides(self) -> [usize; 2] {
        match self {
            Self::Pairs | Self::Sampled { by: 2, .. } => [0, 1],
            Self::Sampled { by: 1, .. } => [0, 2],
            Self::Sampled { .. } => [1, 2],
        }
    }
}

impl KeyEquality {
    /// The key of an input, if it is one of the two.
    pub fn key_of(&self, side: usize) -> Option<&Arc<dyn PhysicalExpr>> {
        self.sides.iter().position(|other| *other == side).map(|position| &self.keys[position])
    }

    /// Whether it is of these two inputs.
    pub fn connects(&self, a: usize, b: usize) -> bool {
        self.sides == [a, b] || self.sides == [b, a]
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let factors = self.factors.iter().enumerate();
        let factors = factors.filter_map(|(side, factor)| Some(format!("{} of {side}", factor.as_ref()?)));
        write!(f, "{}", factors.collect::<Vec<_>>().join(" * "))
    }
}

impl fmt::Display for ContractionSpec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut groups: Vec<_> = self
            .sides
            .iter()
            .enumerate()
            .flat_map(|(side, input)| {
                input.groups.iter().map(move |(key, position)| (position, format!("{key} of {side}")))
            })
            .collect();
        groups.sort();
        let groups: Vec<_> = groups.into_iter().map(|(_, key)| key).collect();
        let on = |equality: &KeyEquality| {
            let ([a, b], [left, right]) = (equality.sides, &equality.keys);
            format!("{left} of {a} = {right} of {b}")
        };
        let on: Vec<_> = self.equalities.iter().map(on).collect();
        write!(f, "by=[{}], on=[{}]", groups.join(", "), on.join(", "))?;
        for output in &self.outputs {
            let (name, terms) = match output {
                Output::Sum(terms) => ("sum", terms.as_slice()),
                Output::Count(term) => ("count", std::slice::from_ref(term)),
                Output::Average(terms, _) => ("avg", terms.as_slice()),
            };
            let terms: Vec<_> = terms.iter().map(|term| self.terms[*term].to_string()).collect();
            write!(f, ", {name}=[{}]", terms.join(" + "))?;
        }
        if let Some(NullExtension { of, by, .. }) = &self.extension {
            write!(f, ", rows of {of} without one of {by} meet NULLs")?;
        }
        match self.kind {
            GroupKind::Pairs => Ok(()),
            GroupKind::Sampled { by, outer } => {
                write!(f, ", sampled by {by}")?;
                outer.map_or(Ok(()), |outer| write!(f, ", rows of {outer} or none"))
            }
        }
    }
}
