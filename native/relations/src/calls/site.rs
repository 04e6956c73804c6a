//! The inputs of a node, with the tangents that its expressions need.

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchema, ExprSchema, Result};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{Expr, LogicalPlan, ScalarUDF};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::by_row::ByRow;
use super::derivative::DirectionalDerivative;
use crate::forward::{Asked, Cell, Direction, Reading, SharedTangents, Variable, carried, is_one_cell, is_plain};
use crate::tangents::linearize::depends_on;
use crate::tangents::tangent::Tangent;
use crate::vocabulary::names::Names;
use crate::vocabulary::source::origins_of;
use xql_autodiff::vocabulary::types::can_vary;

/// The input that has a column, and the column as it is called there.
pub fn find<'p>(inputs: impl IntoIterator<Item = &'p LogicalPlan>, column: &Column) -> Option<(usize, Column)> {
    inputs.into_iter().enumerate().find_map(|(number, input)| {
        let index = input.schema().maybe_index_of_column(column)?;
        Some((number, Column::from(input.schema().qualified_field(index))))
    })
}

/// A node whose expressions are being replaced.
pub struct Site {
    /// What it reads, with the tangents that calls have asked for.
    pub inputs: Vec<LogicalPlan>,
    /// What it read before.
    pub before: Vec<LogicalPlan>,
    /// The variables by row that its calls have.
    pub by_row: ByRow,
    known: Vec<Known>,
}

/// A tangent that is there already.
#[derive(Debug)]
struct Known {
    jvp: Arc<ScalarUDF>,
    reading: Reading,
    variable: Column,
    column: Column,
    tangent: Tangent,
}

impl Site {
    pub fn of(inputs: Vec<LogicalPlan>) -> Self {
        Self { before: inputs.clone(), inputs, by_row: ByRow::default(), known: vec![] }
    }

    /// The input that has a column, and the column as it is called there.
    pub fn find(&self, column: &Column) -> Option<(usize, Column)> {
        find(&self.inputs, column)
    }

    pub fn schema(&self) -> DFSchema {
        merge_schema(&self.inputs.iter().collect::<Vec<_>>())
    }

    fn known(&self, jvp: &ScalarUDF, reading: Reading, variable: &Column, column: &Column) -> Option<Tangent> {
        let known = self.known.iter().find(|known| {
            known.jvp.as_ref() == jvp
                && known.reading == reading
                && &known.variable == variable
                && &known.column == column
        });
        known.map(|known| known.tangent.clone())
    }

    /// The columns of an input other than the variable among those that are read, which may vary.
    fn may_vary(&self, read: &HashSet<Column>, input: usize, variable: &Column) -> BTreeMap<usize, Column> {
        let schema = self.inputs[input].schema();
        let indices = read.iter().filter_map(|column| schema.maybe_index_of_column(column));
        let columns = indices.map(|index| (index, Column::from(schema.qualified_field(index))));
        let varying = columns.filter(|(index, column)| {
            column != variable && !self.by_row.has_value(column) && can_vary(schema.field(*index).data_type())
        });
        varying.collect()
    }

    /// The columns other than the variable that an expression reads and that vary, with their tangents.
    ///
    /// The variable is a column of input number `owner`; if there is none, of an outer query. It moves `along` an expression over the
    /// columns of the relation that it comes from, or else by 1.
    pub fn tangents(
        &mut self,
        (names, grown): (&mut Names, &mut SharedTangents),
        expression: &Expr,
        (reading, along): (Reading, Option<&Expr>),
        owner: Option<usize>,
        variable: &Column,
        jvp: &Arc<ScalarUDF>,
    ) -> Result<Vec<(Column, Tangent)>> {
        let merged = self.schema();
        let read = depends_on(expression, &merged)?;
        // With a column of an outer query nothing varies here but correlated subqueries, which are refused.
        let variable_type = merged.data_type(variable).cloned().unwrap_or(DataType::Float64);
        let index = owner.and_then(|owner| Some((owner, self.inputs[owner].schema().maybe_index_of_column(variable)?)));
        let origins =
            index.map(|(owner, index)| origins_of(&self.inputs[owner], index)).transpose()?.unwrap_or_default();
        let mut tangents = vec![];
        for input in 0..self.inputs.len() {
            let mut wanted = BTreeSet::new();
            let mut columns = vec![];
            for (index, column) in self.may_vary(&read, input, variable) {
                match self.known(jvp, reading, variable, &column).filter(|_| along.is_none()) {
                    Some(tangent) => tangents.push((column, tangent)),
                    None => {
                        wanted.insert(index);
                        columns.push((index, column));
                    }
                }
            }
            if wanted.is_empty() {
                continue;
            }
            let seen = match self.inputs[input].schema().maybe_index_of_column(variable) {
                Some(index) if owner == Some(input) => Variable::Column(index),
                _ => Variable::Outer,
            };
            // What a gradient by row has added reads shared relations, and the columns that were there before do not read it.
            let width = self.before[input].schema().fields().len();
            let is_added = wanted.iter().any(|column| *column >= width);
            let read_from = if is_added { &self.inputs[input] } else { &self.before[input] };
            let cell = match seen {
                Variable::Column(index) => Cell::of(read_from, index)?,
                _ => None,
            };
            let direction = Direction {
                jvp: Arc::clone(jvp),
                variable: variable.name.clone(),
                variable_type: variable_type.clone(),
                origins: origins.clone(),
                seed: along.cloned(),
                cell: cell.clone(),
            };
            // With one cell in all rows, all rows move.
            let moving = match seen {
                Variable::Column(index) if cell.is_none() && !is_one_cell(&self.inputs[input], index)? => reading,
                _ => Reading::Together,
            };
            let asked = vec![Asked { variable: seen, reading: moving, wanted }];
            let carried = carried(std::mem::take(&mut self.inputs[input]), asked, vec![direction], names, grown)?;
            let mut plan = carried.plan;
            for (index, column) in columns {
                let mut tangent = carried.tangents[0].get(index);
                if let (Some(cell), Tangent::Column(varies)) = (&cell, &tangent) {
                    let checked = cell.checked(plan, varies, &variable.name, names)?;
                    (plan, tangent) = (checked.0, Tangent::Column(checked.1));
                }
                tangents.push((column.clone(), tangent.clone()));
                if along.is_none() {
                    let (jvp, variable) = (Arc::clone(jvp), variable.clone());
                    self.known.push(Known { jvp, reading, variable, column, tangent });
                }
            }
            self.inputs[input] = plan;
        }
        tangents.retain(|(_, tangent)| *tangent != Tangent::Zero);
        Ok(tangents)
    }

    /// Carries the tangents that several calls will ask for up to the only input, by all variables at once. What cannot be done
    /// so, [`tangents`](Self::tangents) does, or says why not.
    pub fn carry_ahead(
        &mut self,
        (names, grown): (&mut Names, &mut SharedTangents),
        calls: &[(DirectionalDerivative, Arc<ScalarUDF>)],
    ) -> Result<()> {
        let [input] = self.inputs.as_slice() else { return Ok(()) };
        if !is_plain(input)? {
            return Ok(());
        }
        let mut asked: Vec<(&Arc<ScalarUDF>, Column, BTreeMap<usize, Column>)> = vec![];
        for (call, jvp) in calls {
            let read = depends_on(call.function, input.schema())?;
            for direction in &call.directions {
                let Expr::Column(named) = direction.variable else { continue };
                let Some((_, variable)) = self.find(named) else { continue };
                let columns = self.may_vary(&read, 0, &variable);
                match asked.iter_mut().find(|(known, by, _)| known == &jvp && by == &variable) {
                    Some((_, _, known)) => known.extend(columns),
                    None => asked.push((jvp, variable, columns)),
                }
            }
        }
        asked.retain(|(_, _, columns)| !columns.is_empty());
        if asked.len() < 2 {
            return Ok(());
        }
        let given = names.clone();
        let mut directions = vec![];
        let mut wanted = vec![];
        for (jvp, variable, columns) in &asked {
            let index = input.schema().index_of_column(variable)?;
            let data_type = input.schema().field(index).data_type().clone();
            let origins = origins_of(input, index)?;
            let (jvp, variable) = (Arc::clone(jvp), variable.name.clone());
            directions.push(Direction { jvp, variable, variable_type: data_type, origins, seed: None, cell: None });
            let (variable, reading) = (Variable::Column(index), Reading::Together);
            wanted.push(Asked { variable, reading, wanted: columns.keys().copied().collect() });
        }
        let Ok(carried) = carried(input.clone(), wanted, directions, names, grown) else {
            *names = given;
            return Ok(());
        };
        for ((jvp, variable, columns), tangents) in asked.into_iter().zip(carried.tangents) {
            for (index, column) in columns {
                let tangent = tangents.get(index);
                // Where no rows mix, both are the same.
                for reading in [Reading::Together, Reading::OwnCell { by_value: false }] {
                    let (jvp, variable, column) = (Arc::clone(jvp), variable.clone(), column.clone());
                    self.known.push(Known { jvp, reading, variable, column, tangent: tangent.clone() });
                }
            }
        }
        self.inputs = vec![carried.plan];
        Ok(())
    }
}
