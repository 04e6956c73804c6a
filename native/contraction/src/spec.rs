//! The description of a sum of products over a join.

use arrow::array::RecordBatch;
use datafusion_physical_expr::PhysicalExpr;
use std::fmt;
use std::sync::Arc;

use crate::outputs::Output;

/// Grouped sums of products over a join of two or three inputs.
#[derive(Debug)]
pub struct ContractionSpec {
    /// The inputs.
    pub sides: Vec<InputSpec>,
    /// The equalities of the join.
    pub equalities: Vec<KeyEquality>,
    /// The outer join among the inputs, if there is one.
    pub extension: Option<NullExtension>,
    /// The groups.
    pub kind: GroupKind,
    /// The products that are summed.
    pub terms: Vec<Term>,
    /// The aggregates of each group.
    pub outputs: Vec<Output>,
}

/// A product that is summed.
#[derive(Debug, Clone)]
pub struct Term {
    /// The factor of each input, `None` for 1.
    pub factors: Vec<Option<Arc<dyn PhysicalExpr>>>,
    /// Whether products are rounded to single precision before they are added.
    pub single_precision: bool,
    /// Whether the term counts: 1 where the product is not NULL.
    pub counts: bool,
}

/// One input of the join.
#[derive(Debug, Default)]
pub struct InputSpec {
    /// The grouping keys that read this input, each with its position among the columns of the result.
    pub groups: Vec<(Arc<dyn PhysicalExpr>, usize)>,
}

/// An equality of the join.
#[derive(Debug)]
pub struct KeyEquality {
    /// The two inputs.
    pub sides: [usize; 2],
    /// A key of each.
    pub keys: [Arc<dyn PhysicalExpr>; 2],
    /// Whether NULL equals NULL.
    pub nulls: bool,
}

/// The outer join of two inputs: a row of NULLs is the partner of rows that have no other.
#[derive(Debug, Clone)]
pub struct NullExtension {
    /// The input that keeps all of its rows.
    pub of: usize,
    /// The input that supplies the row of NULLs.
    pub by: usize,
    /// That row.
    pub nulls: RecordBatch,
}

/// The shape of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// All pairs of a group of the left input and a group of the right one that have a common key.
    Pairs,
    /// Groups of the rows of one of three inputs, each of which samples an element of the product of the other two.
    Sampled {
        /// The input that samples.
        by: usize,
        /// The input that is outer joined, if there is one.
        outer: Option<usize>,
    },
}

impl GroupKind {
    /// Returns the two inputs that are multiplied.
    pub fn factor_sides(self) -> [usize; 2] {
        match self {
            Self::Pairs | Self::Sampled { by: 2, .. } => [0, 1],
            Self::Sampled { by: 1, .. } => [0, 2],
            Self::Sampled { .. } => [1, 2],
        }
    }
}

impl KeyEquality {
    /// Returns the key of an input, if the equality has one.
    pub fn key_of(&self, side: usize) -> Option<&Arc<dyn PhysicalExpr>> {
        self.sides.iter().position(|other| *other == side).map(|position| &self.keys[position])
    }

    /// Returns whether the equality joins these two inputs.
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
