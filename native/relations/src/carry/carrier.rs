//! What carries tangents by one variable, and what it needs at every node.

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchema, Result, plan_err};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, ScalarUDF, TableSource, cast};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviated;
use xql_autodiff::vocabulary::types::{decoded, result_type};

use super::grown::{Cell, Grown};
use crate::rows::Over;
use crate::tangents::linearize::{linearize, reads, written_out};
use crate::tangents::tangent::{Linearized, Tangent, Tangents};
use crate::vocabulary::names::Names;
use crate::vocabulary::relation::Relation;
use crate::vocabulary::source::reads as is_read;

/// The variable as a node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// The column of this number.
    Column(usize),
    /// A column of the query around it.
    Outer,
    /// The carrier's cell, wherever the relation is read that has it.
    Everywhere,
}

/// What moves with the variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// All rows of the variable, together.
    Together,
    /// In each row the cell of the variable that this row has. In a group above, the cells of one value are one.
    OwnCell { by_value: bool },
    /// The row's own cell, while the values of window functions stay as they are.
    WindowsFixed,
}

/// A node whose columns have tangents.
#[derive(Debug)]
pub struct Carried {
    /// The node, with added columns, in an order of its own.
    pub plan: LogicalPlan,
    /// The tangents of its columns, by their positions in the node as it was.
    pub tangents: Tangents,
}

impl Carried {
    pub fn constant(plan: LogicalPlan) -> Self {
        Self { plan, tangents: Tangents::default() }
    }
}

/// Carries tangents by one variable.
pub struct Carrier<'a> {
    pub names: &'a mut Names,
    /// The operator that linearizes an expression.
    pub jvp: Arc<ScalarUDF>,
    /// The variable's own name and type.
    pub variable: String,
    pub variable_type: DataType,
    /// The relations that it comes from.
    pub origins: Vec<LogicalPlan>,
    pub reading: Reading,
    /// What the variable's tangent is where it originates, over the columns there, if it is not 1.
    pub direction: Option<Expr>,
    /// The cell that gradients by row vary with, if the variable is one.
    pub cell: Option<Cell>,
    pub grown: &'a mut Grown,
    /// The recursive queries whose recursive term is being carried through, the innermost last.
    pub recursions: Vec<Recursion>,
}

/// A recursive query on whose recursive term the carrier is.
pub struct Recursion {
    pub name: String,
    pub variable: Variable,
    /// The columns that vary, with the names of their tangents.
    pub varying: BTreeMap<usize, String>,
    /// The working table with those tangents behind its columns.
    pub source: Arc<dyn TableSource>,
    /// How many columns it has without them.
    pub width: usize,
    /// The columns whose tangents the recursive term asked for.
    pub asked: BTreeSet<usize>,
}

impl Carrier<'_> {
    /// Carries below rows that are made one where they have the same value of the variable.
    pub fn by_value<T>(&mut self, carry: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let reading = self.reading;
        if matches!(reading, Reading::OwnCell { .. }) {
            self.reading = Reading::OwnCell { by_value: true };
        }
        let carried = carry(self);
        self.reading = reading;
        carried
    }

    /// Adds the tangent of a column to what a node computes, unless it is there already.
    pub fn add_column(&mut self, tangent: Linearized, name: &str, computed: &mut Vec<Expr>) -> Tangent {
        match tangent {
            Linearized::Known(Tangent::Column(column)) => {
                let passed = Expr::Column(column.clone());
                if !computed.contains(&passed) {
                    computed.push(passed);
                }
                Tangent::Column(column)
            }
            Linearized::Known(constant) => constant,
            Linearized::Derived(expr) => Tangent::Column(self.add_computed(expr, name, computed)),
        }
    }

    /// The column that computes a tangent, added unless there is one already.
    pub fn add_computed(&mut self, expr: Expr, name: &str, computed: &mut Vec<Expr>) -> Column {
        self.names.column(expr, computed, |names| names.tangent(name, &self.variable))
    }

    /// The columns of an input that the values of expressions may vary with, whose tangents they need.
    pub fn needs<'e>(
        &self,
        input: &LogicalPlan,
        variable: Variable,
        exprs: impl IntoIterator<Item = &'e Expr>,
    ) -> Result<BTreeSet<usize>> {
        let mut needs = BTreeSet::new();
        for expr in exprs {
            if variable == Variable::Outer && expr.contains_outer() {
                return plan_err!(
                    "{expr} may vary with {}, a column of the query around it. xql-ffi does not differentiate correlated \
                     subqueries and LATERAL. Write it as a join",
                    self.variable
                );
            }
            for origin in &self.origins {
                if is_read(expr, &Relation::named(origin.clone()))? {
                    return plan_err!(
                        "{}: a subquery in it reads the rows that {} comes from. Write the expression of the column \
                         in the call itself, in place of the column",
                        abbreviated(expr),
                        self.variable
                    );
                }
            }
            needs.extend(reads(expr, input.schema())?);
        }
        Ok(needs)
    }

    /// The tangent of an expression over columns with these tangents.
    pub fn linearize(&self, expr: &Expr, schema: &DFSchema, tangents: &Tangents) -> Result<Linearized> {
        linearize(expr, schema, tangents, &self.jvp)
    }

    /// A tangent as an expression of the type that tangents of such a column have, NULL where the column is.
    pub fn column(&self, tangent: &Linearized, primal: &Expr, schema: &DFSchema, carried: &DFSchema) -> Result<Expr> {
        let data_type = self.tangent_type(&primal.get_type(schema)?);
        written_out(tangent, primal, schema, &data_type)?.cast_to(&data_type, carried)
    }

    /// What a formula computes, which is a DOUBLE, as the type of a tangent.
    pub fn of_type(&self, expr: Expr, data_type: &DataType) -> Expr {
        if data_type == &DataType::Float64 { expr } else { cast(expr, data_type.clone()) }
    }

    /// The rows of an input that aggregates or window functions are over.
    pub fn over_rows<'r>(
        &'r mut self,
        input: &'r LogicalPlan,
        carried: &'r Carried,
        computed: &'r mut Vec<Expr>,
    ) -> Over<'r> {
        Over {
            columns: input.schema(),
            tangents: &carried.tangents,
            carried: carried.plan.schema(),
            jvp: &self.jvp,
            variable: &self.variable,
            names: self.names,
            computed,
        }
    }

    /// The type of the tangent of a column of this type.
    pub fn tangent_type(&self, primal: &DataType) -> DataType {
        result_type(decoded(primal), [&self.variable_type])
    }
}
