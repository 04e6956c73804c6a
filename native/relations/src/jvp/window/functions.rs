//! Window functions and what they read.

use datafusion_common::{DFSchemaRef, Result};
use datafusion_expr::{Expr, LogicalPlan, Window};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::aggregate_rules::frames::with_windows;
use crate::aggregate_rules::stays;
use crate::jvp::hoist_volatile::VolatileColumns;
use crate::vocabulary::names::{Names, with_columns};

/// The window functions of a node over its input, which computes what they draw behind its columns.
pub struct Windows {
    /// The input of the node.
    pub input: LogicalPlan,
    /// The window functions of the node.
    pub functions: Vec<Expr>,
    /// The columns of the node.
    pub shown: DFSchemaRef,
}

impl Windows {
    /// Creates those of a node.
    pub fn try_new(window: Window, names: &mut Names) -> Result<Self> {
        let mut draws = VolatileColumns::new(names);
        let functions = window.window_expr.into_iter().map(|function| draws.function(function));
        let functions = functions.collect::<Result<Vec<_>>>()?;
        let input = Arc::unwrap_or_clone(draws.below(window.input)?);
        Ok(Self { input, functions, shown: window.schema })
    }

    /// Returns how many columns the node passes on.
    fn width(&self) -> usize {
        self.shown.fields().len() - self.functions.len()
    }

    /// Returns the columns among those wanted that the node passes on.
    pub fn passed_on(&self, wanted: &BTreeSet<usize>) -> BTreeSet<usize> {
        wanted.range(..self.width()).copied().collect()
    }

    /// Returns the functions whose tangents are wanted, with the numbers of their columns.
    pub fn wanted(&self, wanted: &BTreeSet<usize>) -> impl Iterator<Item = (usize, &Expr)> {
        let width = self.width();
        wanted.range(width..).filter_map(move |index| Some((*index, self.functions.get(index - width)?)))
    }
}

/// Lets a window function read columns of its own only, which are added to those that are computed below.
///
/// Where two window functions over one window are equal, or become so when their arguments are simplified, DataFusion 54
/// moves them to a projection, which it then cannot execute.
pub fn over_columns(function: &mut Expr, below: &mut Vec<Expr>, names: &mut Names) {
    let call = match function {
        Expr::Alias(alias) => alias.expr.as_mut(),
        other => other,
    };
    let Expr::WindowFunction(call) = call else { return };
    let name = format!("argument of {}", call.fun.name());
    for argument in &mut call.params.args {
        if !stays(argument, &call.fun) {
            *argument = Expr::Column(names.column(argument.clone(), below, |names| names.part(&name)));
        }
    }
}

/// Returns the plan with window functions over columns of its own.
pub fn with_windows_over_columns(
    plan: LogicalPlan,
    mut functions: Vec<Expr>,
    names: &mut Names,
) -> Result<LogicalPlan> {
    let mut read = vec![];
    for function in &mut functions {
        over_columns(function, &mut read, names);
    }
    with_windows(with_columns(plan, read)?, functions)
}
