//! Directions: a variable with its seed, and the tangents of expressions in that direction.

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchema, Result, plan_err};
use datafusion_expr::{Expr, ExprSchemable, ScalarUDF};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviate;
use xql_autodiff::vocabulary::types::{result_type, value_type};

use super::shared_tangents::VariableOrigin;
use crate::aggregate_rules::Guarded;
use crate::tangents::linearize::{linearize, reads, tangent_to_expr};
use crate::tangents::tangent::{Inactive, Linearized, Tangent, TangentColumn, Tangents};
use crate::vocabulary::decorrelated::subqueries_read;
use crate::vocabulary::identity::{PlanPath, Relation};
use crate::vocabulary::names::Names;
use crate::vocabulary::source::{reads as is_read, takes_values};

/// The variable as a node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// The column of this number.
    Column(usize),
    /// A column of the query around it.
    Outer,
    /// The direction's cell, wherever the relation is read that has it.
    Everywhere,
}

/// A variable and how it moves.
#[derive(Debug, Clone)]
pub struct Direction {
    /// The operator that linearizes an expression.
    pub jvp: Arc<ScalarUDF>,
    /// The variable's own name.
    pub variable: String,
    /// The variable's type.
    pub variable_type: DataType,
    /// The columns in which the variable originates.
    pub origins: Vec<VariableOrigin>,
    /// The seed: the tangent of the variable where it originates, over the columns there. `None` is 1.
    pub seed: Option<Expr>,
    /// The cell that gradients by row vary with, if the variable is one.
    pub cell: Option<VariableOrigin>,
}

impl Direction {
    /// Refuses an expression that may vary through a subquery or an outer query, which the columns of its node do not
    /// show.
    pub fn check(&self, expr: &Expr, variable: Variable) -> Result<()> {
        if variable == Variable::Outer && expr.contains_outer() {
            return plan_err!(
                "{expr} may vary with {}, a column of the query around it. xql-ffi does not differentiate correlated \
                 subqueries and LATERAL. Write it as a join",
                self.variable
            );
        }
        let queries = subqueries_read(expr)?;
        for VariableOrigin { origin, position } in &self.origins {
            let is_read = is_read(&queries, &Relation::named(origin.clone(), PlanPath::default()))?;
            if is_read && takes_values(&queries, origin, *position)? {
                return plan_err!(
                    "{}: a subquery in it reads the rows that {} comes from. Write the expression of the column \
                     in the call itself, in place of the column",
                    abbreviate(expr),
                    self.variable
                );
            }
        }
        let Some(cell) = &self.cell else { return Ok(()) };
        // Behind the numbered rows of gradients by row as well.
        for query in queries {
            if cell.is_read_by(query)? {
                return plan_err!(
                    "{}: a subquery in what a gradient by row goes through reads {} too, and counts as constant there. Join the \
                     relation of {} in its place",
                    abbreviate(expr),
                    self.variable,
                    self.variable
                );
            }
        }
        Ok(())
    }

    /// Returns the columns of an input that the values of expressions may vary with, whose tangents they need.
    pub fn needs<'e>(
        &self,
        input: &DFSchema,
        variable: Variable,
        exprs: impl IntoIterator<Item = &'e Expr>,
    ) -> Result<BTreeSet<usize>> {
        let mut needs = BTreeSet::new();
        for expr in exprs {
            self.check(expr, variable)?;
            needs.extend(reads(expr, input)?);
        }
        Ok(needs)
    }

    /// Returns the tangent of an expression over columns with these tangents.
    pub fn linearize(&self, expr: &Expr, schema: &DFSchema, tangents: &Tangents) -> Result<Linearized> {
        linearize(expr, schema, tangents, &self.jvp)
    }

    /// Returns a tangent as an expression of the type that tangents of such a column have, NULL where the column is.
    pub fn column(
        &self,
        tangent: &Linearized,
        primal: &Expr,
        schema: &DFSchema,
        with_tangents: &DFSchema,
    ) -> Result<Expr> {
        let data_type = self.tangent_type(&primal.get_type(schema)?);
        tangent_to_expr(tangent, primal, schema, &data_type)?.cast_to(&data_type, with_tangents)
    }

    /// Returns the column that computes a tangent, added unless there is one already.
    pub fn add_computed(&self, expr: Expr, name: &str, computed: &mut Vec<Expr>, names: &mut Names) -> Column {
        names.column(expr, computed, |names| names.tangent(name, &self.variable))
    }

    /// Adds a tangent of this type as a column, and another column that tells where it is inactive. Columns that exist
    /// already are reused.
    pub fn add_guarded(
        &self,
        Guarded { tangent, inactive }: Guarded,
        (name, data_type): (&str, DataType),
        computed: &mut Vec<Expr>,
        names: &mut Names,
    ) -> Result<Tangent> {
        let column = self.add_computed(tangent, name, computed, names);
        let mut inactive_column = None;
        if let Some(condition) = inactive {
            let number = Inactive::number(condition)?;
            let column = names.column(number, computed, |names| names.part("inactive"));
            inactive_column = Some(Inactive { column, data_type });
        }
        Ok(Tangent::Column(TangentColumn { column, inactive: inactive_column }))
    }

    /// Returns the type of the tangent of a column of this type.
    pub fn tangent_type(&self, primal: &DataType) -> DataType {
        result_type(value_type(primal), [&self.variable_type])
    }
}
