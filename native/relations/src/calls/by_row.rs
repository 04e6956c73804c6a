//! Calls by columns of relations that scalar subqueries in them read.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, JoinType, NullEquality, Result, plan_err};
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::{Expr, LogicalPlan, Operator, Projection, ScalarUDF, binary_expr, lit, when};
use datafusion_functions::core::expr_fn::coalesce;
use std::collections::BTreeMap;
use std::sync::Arc;
use xql_autodiff::vocabulary::functions::stopped;
use xql_autodiff::vocabulary::messages::abbreviated;

use crate::reverse::{Linearizer, Reference, Region, RowCotangents, RowVariable, Stages, gradients, joined};
use crate::tangents::tangent::Tangent;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, with_columns};
use crate::vocabulary::operators::{Recognize, is_call};
use crate::vocabulary::source::{Source, beside, has_node, is_same, reads, sources_of};

/// The variables by row of a node, and the subqueries of it that read their relations.
#[derive(Default)]
pub struct ByRow {
    sweeps: Vec<Variables>,
    values: Vec<Value>,
}

/// Variables that one sweep serves: none of their relations is computed from another.
#[derive(Default)]
struct Variables {
    origins: Vec<LogicalPlan>,
    rows: Vec<RowVariable>,
    columns: Vec<Numbered>,
    /// What lies between them and the subqueries.
    stages: Stages,
}

/// A column of the input that is a variable.
struct Numbered {
    column: Column,
    /// How a row knows its cell. References to one relation, as `a` and `b` of `FROM w a JOIN w b`, have numbers of their own.
    cell: Arc<Reference>,
    /// Which of the relations it is of, and its position among the variables of that.
    relation: usize,
    position: usize,
}

/// A subquery, joined to the input as a column.
struct Value {
    subquery: Arc<LogicalPlan>,
    column: Column,
    /// What it is to the sweeps that serve variables that it varies with.
    by: Vec<Swept>,
}

struct Swept {
    /// The number of the sweep.
    sweep: usize,
    region: Region,
    /// The gradients by relation, once they have been asked for.
    gradients: Option<BTreeMap<usize, RowCotangents>>,
    /// The derivatives by the variables whose rows have such numbers, once joined to the input.
    derivatives: Vec<(Column, Vec<Column>)>,
}

/// A column by which a call differentiates, in the input of a node, and where it originates.
struct Found {
    column: Column,
    source: Source,
    /// Which of the places it is that the column originates in.
    place: usize,
}

impl Variables {
    /// The gradients of a value by relation. Those that several references to a relation read are computed once.
    fn gradients(
        &self,
        value: &Region,
        names: &mut Names,
        tangent: &Arc<ScalarUDF>,
    ) -> Result<BTreeMap<usize, RowCotangents>> {
        let mut found = BTreeMap::new();
        for (relation, gradient) in gradients(value, &self.stages, names, tangent)? {
            let mut cells = self.columns.iter().filter(|column| column.relation == relation).map(|column| &column.cell);
            let first = cells.next().map(|cell| &cell.number);
            let is_shared = cells.any(|cell| Some(&cell.number) != first);
            found.insert(relation, if is_shared { gradient.shared(names)? } else { gradient });
        }
        Ok(found)
    }
}

impl ByRow {
    /// Whether a column is a subquery that is joined to the input.
    pub fn has_value(&self, column: &Column) -> bool {
        self.values.iter().any(|value| value.column == *column)
    }

    /// Whether the node has no variables by row.
    pub fn is_empty(&self) -> bool {
        self.sweeps.is_empty()
    }

    /// Lets a node and its subqueries read the same numbered rows of the relations in which variables of calls originate, if
    /// subqueries in these calls read them.
    pub fn of(
        plan: LogicalPlan,
        names: &mut Names,
        recognize: Recognize,
        rewrite: &mut dyn FnMut(&mut Names, LogicalPlan) -> Result<LogicalPlan>,
    ) -> Result<(LogicalPlan, Self)> {
        let mut by_row = Self::default();
        let mut plan = plan;
        let mut relations: Vec<(LogicalPlan, Vec<Found>)> = vec![];
        for found in found(&plan, recognize)? {
            match relations.iter_mut().find(|(origin, _)| is_same(origin, &found.source.origin)) {
                Some((_, columns)) => columns.push(found),
                None => relations.push((found.source.origin.clone(), vec![found])),
            }
        }
        while !relations.is_empty() {
            // What another relation is computed from comes first, so that it is numbered there too.
            let (origin, columns) = relations.swap_remove(innermost(&relations)?);
            let positions: Vec<_> = columns.iter().map(|found| found.source.position).collect();
            let place_of = |plan: &LogicalPlan, column: &Column, place: usize| -> Result<Option<LogicalPlan>> {
                let input = plan.inputs()[0];
                let mut sources = sources_of(input, input.schema().index_of_column(column)?)?;
                Ok((place < sources.len()).then(|| sources.swap_remove(place).origin))
            };
            let shown = match columns.first() {
                Some(Found { column, place, .. }) => place_of(&plan, column, *place)?,
                None => None,
            };
            let shown = shown.unwrap_or_else(|| origin.clone());
            let computed = rewrite(names, shown.clone())?;
            let rows = RowVariable::of(origin.clone(), &shown, computed, &positions, names)?;
            let sweep = by_row.sweep_for(&origin)?;
            let relation = sweep.rows.len();
            let mut references: Vec<(Vec<usize>, Arc<Reference>)> = vec![];
            for (position, Found { column, source, place }) in columns.into_iter().enumerate() {
                let known = references.iter().find(|(path, _)| *path == source.path);
                let cell = if let Some((_, cell)) = known {
                    Arc::clone(cell)
                } else {
                    let input = plan.inputs()[0].clone();
                    let index = input.schema().index_of_column(&column)?;
                    let (input, cell) = rows.lifted(input, index, place, names)?;
                    plan = plan.map_children(|_| Ok(Transformed::yes(input.clone())))?.data;
                    let cell = Arc::new(cell);
                    references.push((source.path, Arc::clone(&cell)));
                    cell
                };
                sweep.columns.push(Numbered { column, cell, relation, position });
            }
            plan = rows.substituted(plan)?;
            for (other, _) in &mut relations {
                *other = rows.substituted(std::mem::take(other))?;
            }
            sweep.origins.push(origin);
            sweep.rows.push(rows);
        }
        Ok((plan, by_row))
    }

    /// The sweep that can serve variables of a relation beside others.
    fn sweep_for(&mut self, origin: &LogicalPlan) -> Result<&mut Variables> {
        let mut fits = None;
        for (number, sweep) in self.sweeps.iter().enumerate() {
            let mut is_apart = true;
            for rows in &sweep.rows {
                is_apart &= !rows.is_read_by(origin)?;
            }
            if is_apart {
                fits = Some(number);
                break;
            }
        }
        let number = fits.unwrap_or_else(|| {
            self.sweeps.push(Variables::default());
            self.sweeps.len() - 1
        });
        Ok(&mut self.sweeps[number])
    }

    /// The column that a scalar subquery is once it is joined to the input, if it reads the relation of a variable.
    pub fn value(&mut self, subquery: &Subquery, input: &mut LogicalPlan, names: &mut Names) -> Result<Option<Column>> {
        if let Some(known) = self.values.iter().find(|value| value.subquery == subquery.subquery) {
            return Ok(Some(known.column.clone()));
        }
        // One that reads columns of the input is no value of all rows. It stays, unless a call reads it.
        if !subquery.outer_ref_columns.is_empty() {
            return Ok(None);
        }
        let mut by = vec![];
        for (sweep, Variables { rows, stages, .. }) in self.sweeps.iter_mut().enumerate() {
            let mut linearizer = Linearizer { names: &mut *names, variables: rows, stages, readers: 1 };
            let Some(region) = linearizer.value(subquery)? else { continue };
            by.push(Swept { sweep, region, gradients: None, derivatives: vec![] });
        }
        let Some(Swept { region, .. }) = by.first() else { return Ok(None) };
        let Some(column) = region.columns.first().cloned() else { return Ok(None) };
        let one = Projection::try_new(vec![Expr::Column(column.clone())], Arc::new(region.plan.clone()))?;
        let (left, right) = (std::mem::take(input), LogicalPlan::Projection(one));
        *input = joined(left, right, vec![], None, JoinType::Inner, NullEquality::NullEqualsNothing)?;
        self.values.push(Value { subquery: Arc::clone(&subquery.subquery), column: column.clone(), by });
        Ok(Some(column))
    }

    /// The subqueries that an expression reads as columns, each with its derivative by the row's own cell of a variable, if that
    /// varies. None if the expression reads no such subquery.
    pub fn tangents(
        &mut self,
        expression: &Expr,
        variable: &Column,
        input: &mut LogicalPlan,
        names: &mut Names,
        tangent: &Arc<ScalarUDF>,
    ) -> Result<Option<Vec<(Column, Tangent)>>> {
        let read = self.read(expression, variable, names, tangent)?;
        if read.is_empty() {
            return Ok(None);
        }
        let mut parts: Vec<(Column, Vec<Column>)> = vec![];
        for Read { numbered, column, swept, .. } in read {
            for numbered in numbered {
                let derivative = swept.by_cell(numbered, column, input, names)?;
                add_part(&mut parts, column, derivative);
            }
        }
        totals(parts, variable, input, names).map(Some)
    }

    /// The subqueries that an expression reads as columns, each with its derivative along a direction, in which all cells of a
    /// variable move. None if the expression reads no such subquery.
    ///
    /// ```text
    /// Cross Join:
    ///   the input
    ///   Aggregate: sum(the gradient * the direction)
    ///     Inner Join: the rows of the variable, by their numbers
    /// ```
    pub fn tangents_along(
        &mut self,
        expression: &Expr,
        (variable, direction): (&Column, &Expr),
        input: &mut LogicalPlan,
        names: &mut Names,
        tangent: &Arc<ScalarUDF>,
    ) -> Result<Option<Vec<(Column, Tangent)>>> {
        let read = self.read(expression, variable, names, tangent)?;
        if read.is_empty() {
            return Ok(None);
        }
        let mut parts = vec![];
        for Read { rows, mut numbered, column, swept } in read {
            // All branches of a union that read the same cells move them once.
            numbered.sort_by_key(|numbered| numbered.relation);
            numbered.dedup_by_key(|numbered| (numbered.relation, rows[numbered.relation].columns[numbered.position]));
            for numbered in numbered {
                let Some(gradient) = swept.gradient_by(numbered) else { continue };
                let direction = beside(direction, variable, input)?;
                let gradient = gradient.renamed(names)?;
                let along = gradient.along(&rows[numbered.relation], numbered.position, &direction, names)?;
                let left = std::mem::take(input);
                *input = joined(left, along.plan, vec![], None, JoinType::Inner, NullEquality::NullEqualsNothing)?;
                let mut exprs = vec![];
                let name = names.tangent("value", &variable.name);
                for sum in along.cotangents {
                    exprs.push(null_with(&Expr::Column(column.clone()), Expr::Column(sum))?.alias(name.clone()));
                }
                *input = with_columns(std::mem::take(input), exprs)?;
                add_part(&mut parts, column, Some(Column::new_unqualified(name)));
            }
        }
        totals(parts, variable, input, names).map(Some)
    }

    /// The error for a correlated subquery in an expression that reads the relation of a variable.
    fn refuse_correlated(&self, expression: &Expr) -> Result<()> {
        let rows = || self.sweeps.iter().flat_map(|sweep| &sweep.rows);
        expression.apply(|part| {
            if stopped(part).is_some() {
                return Ok(TreeNodeRecursion::Jump);
            }
            let Expr::ScalarSubquery(subquery) = part else { return Ok(TreeNodeRecursion::Continue) };
            for rows in rows() {
                if rows.is_read_by(&subquery.subquery)? {
                    return plan_err!(
                        "the correlated subquery {} reads the relation of the variable. Write it as a join",
                        abbreviated(part)
                    );
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// The subqueries that an expression reads as columns and that read the relation of a variable, swept.
    fn read(
        &mut self,
        expression: &Expr,
        variable: &Column,
        names: &mut Names,
        tangent: &Arc<ScalarUDF>,
    ) -> Result<Vec<Read<'_>>> {
        self.refuse_correlated(expression)?;
        let mut found = vec![];
        for Value { column, by, .. } in &mut self.values {
            if !expression.exists(|part| Ok(matches!(part, Expr::Column(part) if part == column)))? {
                continue;
            }
            for swept in by {
                let variables = &self.sweeps[swept.sweep];
                let numbered = variables.columns.iter().filter(|numbered| numbered.column == *variable);
                let numbered: Vec<_> = numbered.collect();
                if numbered.is_empty() {
                    continue;
                }
                if swept.gradients.is_none() {
                    swept.gradients = Some(variables.gradients(&swept.region, names, tangent)?);
                }
                found.push(Read { rows: &variables.rows, numbered, column, swept });
            }
        }
        Ok(found)
    }
}

/// A subquery that an expression reads as a column.
struct Read<'v> {
    rows: &'v [RowVariable],
    /// The variable where it originates, in several places if it comes from a union.
    numbered: Vec<&'v Numbered>,
    column: &'v Column,
    swept: &'v mut Swept,
}

impl Swept {
    /// The gradient by the relation of a variable, if the value varies with it.
    fn gradient_by(&self, variable: &Numbered) -> Option<&RowCotangents> {
        self.gradients.as_ref()?.get(&variable.relation)
    }

    /// The derivative of the value, which is a column, by the row's own cell of a variable, joined to the input. None if it does not
    /// vary.
    fn by_cell(
        &mut self,
        variable: &Numbered,
        value: &Column,
        input: &mut LogicalPlan,
        names: &mut Names,
    ) -> Result<Option<Column>> {
        let Some(gradient) = self.gradient_by(variable) else { return Ok(None) };
        let Reference { number, groups } = variable.cell.as_ref();
        if !self.derivatives.iter().any(|(cell, _)| cell == number) {
            let mut gradient = gradient.renamed(names)?;
            if let Some(groups) = groups {
                gradient = gradient.by_group(groups, names)?;
            }
            let on = gradient.row.map(|of| (Expr::Column(number.clone()), Expr::Column(of)));
            let (left, on) = (std::mem::take(input), on.into_iter().collect());
            *input = joined(left, gradient.plan, on, None, JoinType::Left, NullEquality::NullEqualsNothing)?;
            let mut exprs = vec![];
            let mut derivatives = vec![];
            for cotangent in gradient.cotangents {
                // A row that the value does not depend on has none. A tangent is NULL where its column is.
                let name = names.tangent("value", &variable.column.name);
                let derivative = coalesce(vec![Expr::Column(cotangent), lit(0.0)]);
                exprs.push(null_with(&Expr::Column(value.clone()), derivative)?.alias(name.clone()));
                derivatives.push(Column::new_unqualified(name));
            }
            *input = with_columns(std::mem::take(input), exprs)?;
            self.derivatives.push((number.clone(), derivatives));
        }
        let known = self.derivatives.iter().find(|(cell, _)| cell == number);
        Ok(known.and_then(|(_, derivatives)| derivatives.get(variable.position)).cloned())
    }
}

/// Notes a derivative of a value among those by the places that the variable originates in.
fn add_part(parts: &mut Vec<(Column, Vec<Column>)>, value: &Column, derivative: Option<Column>) {
    match parts.iter_mut().find(|(known, _)| known == value) {
        Some((_, known)) => known.extend(derivative),
        None => parts.push((value.clone(), derivative.into_iter().collect())),
    }
}

/// The derivatives of values, each the sum of those by the places that the variable originates in.
fn totals(
    parts: Vec<(Column, Vec<Column>)>,
    variable: &Column,
    input: &mut LogicalPlan,
    names: &mut Names,
) -> Result<Vec<(Column, Tangent)>> {
    let mut tangents = vec![];
    for (value, parts) in parts {
        if let [part] = parts.as_slice() {
            tangents.push((value, Tangent::Column(part.clone())));
            continue;
        }
        let parts = parts.into_iter().map(Expr::Column);
        let Some(total) = parts.reduce(|sum, part| binary_expr(sum, Operator::Plus, part)) else { continue };
        let name = names.tangent("value", &variable.name);
        *input = with_columns(std::mem::take(input), vec![total.alias(name.clone())])?;
        tangents.push((value, Tangent::Column(Column::new_unqualified(name))));
    }
    Ok(tangents)
}

/// The columns by which calls of a node differentiate, if they originate in what a subquery of the call reads.
fn found(plan: &LogicalPlan, recognize: Recognize) -> Result<Vec<Found>> {
    let inputs = plan.inputs();
    let [input] = inputs.as_slice() else { return Ok(vec![]) };
    let mut found: Vec<Found> = vec![];
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            let Expr::ScalarFunction(call) = part else { return Ok(TreeNodeRecursion::Continue) };
            let [expression, variables @ ..] = call.args.as_slice() else { return Ok(TreeNodeRecursion::Continue) };
            if !is_call(part, recognize) {
                return Ok(TreeNodeRecursion::Continue);
            }
            for variable in variables.iter().step_by(2) {
                let Expr::Column(named) = unaliased(variable) else { continue };
                let Some(index) = input.schema().maybe_index_of_column(named) else { continue };
                let column = Column::from(input.schema().qualified_field(index));
                for (place, source) in sources_of(input, index)?.into_iter().enumerate() {
                    let is_known = found.iter().any(|known| known.column == column && known.place == place);
                    if !is_known && reads(expression, &source.origin)? {
                        found.push(Found { column: column.clone(), source, place });
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// The position of a relation that none of the others is a part of.
fn innermost(relations: &[(LogicalPlan, Vec<Found>)]) -> Result<usize> {
    for (number, (origin, _)) in relations.iter().enumerate() {
        let mut has_other = false;
        for (other, (part, _)) in relations.iter().enumerate() {
            has_other |= other != number && has_node(origin, part)?;
        }
        if !has_other {
            return Ok(number);
        }
    }
    Ok(0)
}

/// A derivative by row, NULL where the row's own value is NULL.
pub fn null_with(variable: &Expr, derivative: Expr) -> Result<Expr> {
    when(variable.clone().is_not_null(), derivative).end()
}
