//! The tangent of a column, and of an expression.

use datafusion_common::{Column, TableReference};
use datafusion_expr::Expr;
use std::collections::BTreeMap;

/// The derivative of a column by the variable. Where the column is NULL, so is its derivative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tangent {
    /// The column does not vary.
    Zero,
    /// The column is the variable.
    One,
    /// What this column says.
    Column(Column),
}

/// The tangents of the columns of a node by their positions; those not listed are zero.
#[derive(Debug, Clone, Default)]
pub struct Tangents(BTreeMap<usize, Tangent>);

impl Tangents {
    /// The tangent of the column at this position.
    pub fn get(&self, index: usize) -> Tangent {
        self.0.get(&index).cloned().unwrap_or(Tangent::Zero)
    }

    /// Gives the column at this position a tangent.
    pub fn set(&mut self, index: usize, tangent: Tangent) {
        if tangent != Tangent::Zero {
            self.0.insert(index, tangent);
        }
    }

    /// Adds those of other columns.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The tangents of the same columns under an alias of their relation.
    pub fn within(&self, alias: &TableReference) -> Self {
        let renamed = |tangent: &Tangent| match tangent {
            Tangent::Column(column) => Tangent::Column(Column::new(Some(alias.clone()), column.name.clone())),
            constant => constant.clone(),
        };
        Self(self.0.iter().map(|(index, tangent)| (*index, renamed(tangent))).collect())
    }

    /// The columns that vary, each with its tangent as a factor.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Tangent)> {
        self.0.iter().map(|(index, tangent)| (*index, tangent))
    }
}

/// The tangent of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Linearized {
    /// That of a column it passes on, or of a constant.
    Known(Tangent),
    /// What this expression computes.
    Derived(Expr),
}
