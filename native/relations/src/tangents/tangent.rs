//! The tangent of a column, and of an expression.

use arrow::datatypes::DataType;
use datafusion_common::{Column, Result, ScalarValue, TableReference};
use datafusion_expr::{Expr, lit, when};
use std::collections::BTreeMap;

use crate::vocabulary::expressions::one_zero;

/// The derivative of a column by the variable. Where the column is NULL, so is its derivative.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there are few at a time, and nearly all have a column")]
pub enum Tangent {
    /// The column does not vary.
    Zero,
    /// The column is the variable.
    One,
    /// What this column says.
    Column(TangentColumn),
}

/// The column that has a tangent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TangentColumn {
    /// The column.
    pub column: Column,
    /// Where it is 0 because branches are taken that do not vary, if there may be such rows. In these it contributes nothing, whatever
    /// it is multiplied by.
    pub inactive: Option<Inactive>,
}

/// A column that is 1 where no branch that varies is taken, and else 0.
///
/// It is a number, since what DataFusion makes of a truth value may be NULL by its type though the value is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inactive {
    /// The column.
    pub column: Column,
    /// The type of the tangent.
    pub data_type: DataType,
}

impl Inactive {
    /// Returns what such a column has where a condition holds for its rows.
    pub fn number(condition: Expr) -> Result<Expr> {
        when(condition, lit(1_i64)).otherwise(lit(0_i64))
    }
}

impl Tangent {
    /// Returns whether a column tells where it is inactive.
    pub fn has_inactive(&self) -> bool {
        matches!(self, Self::Column(carried) if carried.inactive.is_some())
    }

    /// Returns where it is inactive, as an expression that is never NULL.
    pub fn inactive(&self) -> Result<Expr> {
        match self {
            Self::Zero => Ok(lit(1_i64)),
            Self::One => Ok(lit(0_i64)),
            Self::Column(carried) => carried.condition().map_or_else(|| Ok(lit(0_i64)), Inactive::number),
        }
    }
}

impl From<Column> for Tangent {
    fn from(column: Column) -> Self {
        Self::Column(TangentColumn { column, inactive: None })
    }
}

impl TangentColumn {
    /// Returns the condition under which it is 0 by the branches that are taken.
    ///
    /// A rule of the user's may have it that another branch varies.
    pub fn condition(&self) -> Option<Expr> {
        let Inactive { column, data_type } = self.inactive.as_ref()?;
        let zero = ScalarValue::new_zero(data_type).ok()?;
        let tangent = one_zero(Expr::Column(self.column.clone()), data_type).ok()?;
        let is_zero = tangent.eq(Expr::Literal(zero, None));
        Some(Expr::Column(column.clone()).eq(lit(1_i64)).and(is_zero))
    }

    /// Returns the tangent as a factor, which says where it contributes nothing.
    pub fn factor(&self) -> Result<Expr> {
        let tangent = Expr::Column(self.column.clone());
        match (self.condition(), &self.inactive) {
            (Some(condition), Some(Inactive { data_type, .. })) => {
                let zero = Expr::Literal(ScalarValue::new_zero(data_type)?, None);
                when(condition, zero).otherwise(tangent)
            }
            _ => Ok(tangent),
        }
    }

    /// Returns the columns of it under an alias of their relation.
    fn within(&self, alias: &TableReference) -> Self {
        let renamed = |column: &Column| Column::new(Some(alias.clone()), column.name.clone());
        let inactive = self.inactive.as_ref();
        let inactive = inactive.map(|inactive| Inactive { column: renamed(&inactive.column), ..inactive.clone() });
        Self { column: renamed(&self.column), inactive }
    }
}

/// The tangents of the columns of a node by their positions; those not listed are zero.
#[derive(Debug, Clone, Default)]
pub struct Tangents(BTreeMap<usize, Tangent>);

impl Tangents {
    /// Returns the tangent of the column at this position.
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

    /// Returns the tangents of the same columns under an alias of their relation.
    pub fn within(&self, alias: &TableReference) -> Self {
        let renamed = |tangent: &Tangent| match tangent {
            Tangent::Column(carried) => Tangent::Column(carried.within(alias)),
            constant => constant.clone(),
        };
        Self(self.0.iter().map(|(index, tangent)| (*index, renamed(tangent))).collect())
    }

    /// Returns the columns that vary, each with its tangent as a factor.
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
