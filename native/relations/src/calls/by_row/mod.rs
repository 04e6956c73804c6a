//! Derivatives by row: calls of subqueries that read the relation of the variable.
//!
//! In `SELECT grad((SELECT l FROM loss), val) FROM w`, the loss depends on all rows of `w`, and each row of the result
//! has the derivative by its own `val`. The rows of `w` are numbered, and FROM and the subquery read the numbered rows.
//! Then the loss is swept once (`crate::vjp`), which gives a derivative for each number, and these are joined to FROM
//! by number.

mod items;
mod row_gradient;
mod value_sources;
mod variables;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, JoinType, NullEquality, Result, TableReference, internal_err, plan_err};
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::{Expr, Join, LogicalPlan, Projection, ScalarUDF, SubqueryAlias, lit};
use datafusion_functions::core::expr_fn::coalesce;
use row_gradient::{Joins, Swept, add_part, tangent_columns, totals};
use std::sync::Arc;
use variables::{CallVariable, InCalls, Numbered, Variables, by_relation, found, innermost, is_beyond_arithmetic};
use xql_autodiff::vocabulary::functions::stop_gradient_argument;

use crate::jvp::SweptQuery;
use crate::plan::pull_up_column::pull_up_column;
use crate::shared_relation::isolate_joins;
use crate::tangents::tangent::Tangent;
use crate::vjp::{
    Reference, RowVariable, Sweeping, Values, check_float, correlated, joined, read_recomputed, value, values,
    with_joins, with_joins_of,
};
use crate::vocabulary::decorrelated::{decorrelated, decorrelated_beside};
use crate::vocabulary::identity::is_equal;
use crate::vocabulary::names::{Names, columns, with_columns};
use crate::vocabulary::operators::Recognize;
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::source::{beside, sources_of};

pub use row_gradient::null_with;
pub use variables::{differentiates_items, has_variables};

/// The variables by row of a node, and its subqueries that read the relations of these.
#[derive(Default)]
pub struct ByRow {
    sweeps: Vec<Variables>,
    values: Vec<Value>,
    /// The queries in FROM that calls differentiate.
    items: Vec<TableReference>,
    sweeping: Sweeping,
    /// The queries that gradients go through.
    pub swept: Vec<SweptQuery>,
}

/// A subquery, joined to the input as a column.
struct Value {
    /// The subquery as written. `None` if it has been decorrelated into a join below the node.
    subquery: Option<Arc<LogicalPlan>>,
    /// Whether it is a column of a query in FROM.
    is_of_item: bool,
    column: Column,
    /// Its segments, one for each sweep by variables with which it varies.
    by: Vec<Swept>,
}

/// The variable by which values are read, and the kinds of values.
#[derive(Debug, Clone, Copy)]
pub struct ReadBy<'c> {
    /// The variable, a column of the input.
    pub variable: &'c Column,
    /// Whether columns of queries in FROM are among them.
    pub reads_items: bool,
    /// Whether rows in which the derivative is 0 need not be there.
    pub drops_zeros: bool,
}

/// A subquery that an expression reads as a column.
struct Read<'v> {
    rows: &'v [RowVariable],
    /// The variable where it originates, in several places if it comes from a union.
    numbered: Vec<&'v Numbered>,
    column: &'v Column,
    swept: &'v mut Swept,
}

impl ByRow {
    /// Returns whether a column is a subquery that is joined to the input.
    pub fn has_value(&self, column: &Column) -> bool {
        self.values.iter().any(|value| value.column == *column)
    }

    /// Returns whether the node has no variables by row.
    pub fn is_empty(&self) -> bool {
        self.sweeps.is_empty()
    }

    /// Numbers the rows of the relations in which variables of calls originate, if subqueries in these calls read them.
    /// Rewrites the node and its subqueries to read the same numbered rows.
    pub fn number_rows(
        plan: LogicalPlan,
        names: &mut Names,
        recognize: Recognize,
        sweeping: Sweeping,
        rewrite: &mut dyn FnMut(&mut Names, LogicalPlan) -> Result<LogicalPlan>,
    ) -> Result<(LogicalPlan, Self)> {
        let mut plan = plan;
        let InCalls { columns, items } = found(&plan, recognize)?;
        let mut relations = by_relation(columns);
        let mut by_row = Self { items, sweeping, ..Self::default() };
        if !relations.is_empty() && !sweeping.keeps_zeros {
            by_row.sweeping.keeps_zeros = is_beyond_arithmetic(&plan, recognize, &by_row.items)?;
        }
        while !relations.is_empty() {
            // A relation from which another one is computed comes first, so the other one reads its numbered rows.
            let (relation_of, columns) = relations.swap_remove(innermost(&relations)?);
            let positions: Vec<_> = columns.iter().map(|found| found.source.position).collect();
            let place_of = |plan: &LogicalPlan, column: &Column, place: usize| -> Result<Option<LogicalPlan>> {
                let input = plan.inputs()[0];
                let mut sources = sources_of(input, input.schema().index_of_column(column)?)?;
                Ok((place < sources.len()).then(|| sources.swap_remove(place).origin))
            };
            let shown = match columns.first() {
                Some(CallVariable { column, place, .. }) => place_of(&plan, column, *place)?,
                None => None,
            };
            let shown = shown.unwrap_or_else(|| relation_of.node.clone());
            let computed = rewrite(names, shown.clone())?;
            let sweep = by_row.sweep_for(&relation_of.node)?;
            let rows = RowVariable::try_new(relation_of, &shown, computed, &positions, names)?;
            let relation = sweep.rows.len();
            let mut references: Vec<(Vec<usize>, Arc<Reference>)> = vec![];
            for (position, CallVariable { column, source, place, .. }) in columns.into_iter().enumerate() {
                let known = references.iter().find(|(path, _)| *path == source.path);
                let cell = if let Some((_, cell)) = known {
                    Arc::clone(cell)
                } else {
                    let input = plan.inputs()[0].clone();
                    let index = input.schema().index_of_column(&column)?;
                    let (input, cell) = rows.pull_up_number(input, index, place, names)?;
                    plan = plan.map_children(|_| Ok(Transformed::yes(input.clone())))?.data;
                    let cell = Arc::new(cell);
                    references.push((source.path, Arc::clone(&cell)));
                    cell
                };
                sweep.columns.push(Numbered { column, cell, relation, position });
            }
            plan = rows.rewrite_readers(plan)?;
            for (other, _) in &mut relations {
                rows.rewrite_relation(other)?;
            }
            sweep.rows.push(rows);
        }
        Ok((plan, by_row))
    }

    /// Returns the sweep that can serve variables of a relation beside others.
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

    /// Joins a scalar subquery to the input, if it reads the relation of a variable, and returns its column.
    pub fn value(&mut self, subquery: &Subquery, input: &mut LogicalPlan, names: &mut Names) -> Result<Option<Column>> {
        if self.is_empty() {
            return Ok(None);
        }
        let written = Arc::clone(&subquery.subquery);
        let is_it = |known: &Value| known.subquery.as_ref().is_some_and(|known| is_equal(known, &written));
        if let Some(known) = self.values.iter().find(|known| is_it(known)) {
            return Ok(Some(known.column.clone()));
        }
        let subquery = &with_joins(subquery)?;
        // A correlated subquery does not have one value for all rows. It stays, unless a call reads it.
        if !subquery.outer_ref_columns.is_empty() {
            return Ok(None);
        }
        let mut by = vec![];
        for (sweep, Variables { rows, residuals, .. }) in self.sweeps.iter_mut().enumerate() {
            let Some(segment) = value(subquery, rows, residuals, names, self.sweeping)? else { continue };
            by.push(Swept::new(sweep, segment, None, self.sweeping));
            self.swept.extend(swept_queries(rows, &subquery.subquery));
        }
        let Some(Swept { segment, .. }) = by.first() else { return Ok(None) };
        let Some(column) = segment.columns.first().cloned() else { return Ok(None) };
        let one = Projection::try_new(vec![Expr::Column(column.clone())], Arc::new(segment.plan.clone()))?;
        let (left, right) = (std::mem::take(input), LogicalPlan::Projection(one));
        *input = joined(left, right, vec![], None, JoinType::Inner, NullEquality::NullEqualsNothing)?;
        self.values.push(Value { subquery: Some(written), is_of_item: false, column: column.clone(), by });
        Ok(Some(column))
    }

    /// Numbers the rows of decorrelated subqueries in the input that read the relation of a variable. Each of these
    /// rows has a value, like a scalar subquery. The numbers are the last columns of the result.
    pub fn with_decorrelated(&mut self, input: LogicalPlan, names: &mut Names) -> Result<LogicalPlan> {
        if self.is_empty() {
            return Ok(input);
        }
        if decorrelated_beside(&input).is_empty() && self.items.is_empty() {
            return Ok(input);
        }
        let mut exprs = columns(input.schema());
        let mut numbered = self.with_numbers(input, names)?;
        for item in self.items.clone() {
            numbered = self.with_item_numbered(numbered, &item, names)?;
        }
        numbered = self.with_recomputed(numbered, names)?;
        let added: Vec<_> = columns(numbered.schema()).into_iter().filter(|column| !exprs.contains(column)).collect();
        exprs.extend(added);
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(numbered))?))
    }

    /// Rewrites the derivatives in an input to read the recomputed rows, since values are identified by the numbers of
    /// these.
    fn with_recomputed(&self, input: LogicalPlan, names: &mut Names) -> Result<LogicalPlan> {
        let mut input = input;
        for (number, sweep) in self.sweeps.iter().enumerate() {
            let is_by_number = |swept: &Swept| swept.sweep == number && swept.of.is_some();
            if self.values.iter().flat_map(|value| &value.by).any(is_by_number) {
                input = read_recomputed(input, &sweep.residuals, names)?;
            }
        }
        Ok(input)
    }

    fn with_numbers(&mut self, input: LogicalPlan, names: &mut Names) -> Result<LogicalPlan> {
        let join = match input {
            LogicalPlan::Join(join) if decorrelated(&join).is_some() => join,
            input => return Ok(input),
        };
        let left = Arc::new(self.with_numbers(join.left.as_ref().clone(), names)?);
        let right = match decorrelated(&join) {
            Some(alias) => self.number_subquery(alias, names)?.map(|(plan, _)| Arc::new(plan)),
            None => None,
        };
        let right = right.unwrap_or_else(|| Arc::clone(&join.right));
        let Join { on, filter, join_type, join_constraint, null_equality, null_aware, .. } = join;
        let join = Join::try_new(left, right, on, filter, join_type, join_constraint, null_equality, null_aware)?;
        Ok(LogicalPlan::Join(join))
    }

    /// Numbers the rows of a query in FROM.
    fn with_item_numbered(
        &mut self,
        plan: LogicalPlan,
        item: &TableReference,
        names: &mut Names,
    ) -> Result<LogicalPlan> {
        let columns = columns_of(&plan, item)?;
        let Some((index, _)) = columns.first().cloned() else { return internal_err!("{item} is no query in FROM") };
        let before = self.values.len();
        let (plan, of) = pull_up_column(plan, index, names, &mut |node, _, names| match node {
            LogicalPlan::SubqueryAlias(alias) if alias.alias == *item => self.number_subquery(alias, names),
            _ => Ok(None),
        })?;
        // A projection above, as a select list below ORDER BY, has the number and the columns under names of its own.
        let columns = columns_of(&plan, item)?;
        for Value { column, by, .. } in self.values.split_off(before) {
            for (index, _) in columns.iter().filter(|(_, known)| *known == column) {
                let renamed =
                    |known: &Swept| Swept::new(known.sweep, known.segment.clone(), Some(of.clone()), known.sweeping);
                let by = by.iter().map(renamed).collect();
                let column = Column::from(plan.schema().qualified_field(*index));
                self.values.push(Value { subquery: None, is_of_item: true, column, by });
            }
        }
        Ok(plan)
    }

    /// Returns the numbered rows of a subquery that has been taken apart, or of a query in FROM, and the column with their numbers; none if
    /// it does not read the relation of a variable.
    fn number_subquery(&mut self, alias: &SubqueryAlias, names: &mut Names) -> Result<Option<(LogicalPlan, Column)>> {
        let is_of_item = self.items.contains(&alias.alias);
        let query = if is_of_item { with_joins_of(&alias.input)? } else { Arc::clone(&alias.input) };
        let mut numbered = None;
        for (sweep, Variables { rows, residuals, .. }) in self.sweeps.iter_mut().enumerate() {
            let Some(Values { plan, varying }) = values(&query, rows, residuals, names, self.sweeping)? else {
                continue;
            };
            if numbered.is_some() {
                return plan_err!(
                    "{} reads the relations of two variables of which one is computed from the other. Take the derivatives by them in \
                     two queries",
                    if is_of_item { alias.alias.table() } else { "a correlated subquery" }
                );
            }
            self.swept.extend(swept_queries(rows, &query));
            let number = Column::new(is_of_item.then(|| alias.alias.clone()), names.part("of"));
            let mut exprs = columns(plan.schema());
            let last = exprs.pop().map(|last| last.alias(number.name.clone()));
            let named = exprs.into_iter().zip(alias.schema.iter());
            let named = named.map(|(column, (table, field))| column.alias_qualified(table.cloned(), field.name()));
            let exprs = named.chain(last).collect();
            let mut plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
            if is_of_item {
                // It is still the query in FROM of the nodes above.
                plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(plan), alias.alias.clone())?);
            }
            numbered = Some((plan, number.clone()));
            for (position, segment) in varying {
                let column = Column::from(alias.schema.qualified_field(position));
                let by = vec![Swept::new(sweep, segment, Some(number.clone()), self.sweeping)];
                self.values.push(Value { subquery: None, is_of_item, column, by });
            }
        }
        Ok(numbered)
    }

    /// Returns the subqueries that an expression reads as columns, each with its derivative by the row's own value of a
    /// variable, if it varies. Returns `None` if the expression reads no such subquery.
    pub fn tangents(
        &mut self,
        expression: &Expr,
        by: ReadBy,
        input: &mut LogicalPlan,
        names: &mut Names,
        tangent: &Arc<ScalarUDF>,
    ) -> Result<Option<Vec<(Column, Tangent)>>> {
        let has_others = self.sweeps.iter().map(|sweep| sweep.rows.len()).sum::<usize>() > 1;
        let read = self.read(expression, by, names, tangent)?;
        if read.is_empty() {
            return Ok(None);
        }
        // Where one of several derivatives is 0, the others may not be.
        let drops_zeros = by.drops_zeros && matches!(read.as_slice(), [Read { numbered, .. }] if numbered.len() == 1);
        let joins = Joins { has_others, drops_zeros };
        let mut parts = vec![];
        for Read { numbered, column, swept, .. } in read {
            for numbered in numbered {
                let derivative = swept.by_cell(numbered, column, (input, &joins), names)?;
                add_part(&mut parts, column, derivative);
            }
        }
        totals(parts, by.variable, input, names).map(Some)
    }

    /// Returns the subqueries that an expression reads as columns, each with its derivative along a direction in which
    /// all rows of a variable move. Returns `None` if the expression reads no such subquery.
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
        (by, direction): (ReadBy, &Expr),
        input: &mut LogicalPlan,
        names: &mut Names,
        tangent: &Arc<ScalarUDF>,
    ) -> Result<Option<Vec<(Column, Tangent)>>> {
        let variable = by.variable;
        let read = self.read(expression, by, names, tangent)?;
        if read.is_empty() {
            return Ok(None);
        }
        let mut parts = vec![];
        for Read { rows, mut numbered, column, swept } in read {
            // Branches of a union that read the same column move it once.
            numbered.sort_by_key(|numbered| numbered.relation);
            numbered.dedup_by_key(|numbered| (numbered.relation, rows[numbered.relation].columns[numbered.position]));
            for numbered in numbered {
                let Some(gradient) = swept.gradient_by(numbered) else { continue };
                let direction = beside(direction, variable, input)?;
                let gradient = gradient.renamed(names)?;
                let along = gradient.along(
                    &rows[numbered.relation],
                    numbered.position,
                    &direction,
                    swept.sweeping.keeps_zeros,
                    names,
                )?;
                *input = swept.put_beside(std::mem::take(input), along.plan, along.of.clone())?;
                let name = names.tangent("value", &variable.name);
                let sum = Swept::or_zero(Expr::Column(along.sum), along.of)?;
                let sum = null_with(&Expr::Column(column.clone()), sum)?;
                let nothing = along.moved.map(|moved| coalesce(vec![Expr::Column(moved), lit(0_i64)]).eq(lit(0_i64)));
                let (exprs, derivative) = tangent_columns(sum, name, nothing, names)?;
                *input = with_columns(std::mem::take(input), exprs)?;
                add_part(&mut parts, column, Some(derivative));
            }
        }
        totals(parts, variable, input, names).map(Some)
    }

    /// Finishes the input of the node once all calls are rewritten. If sums of products are planned apart, so are joins
    /// by row number. They cannot be isolated earlier, because calls search the input for the origins of their
    /// variables.
    pub fn finished(&self, input: LogicalPlan, names: &mut Names) -> Result<LogicalPlan> {
        let is_looked_up = self.values.iter().flat_map(|value| &value.by).any(|swept| swept.is_looked_up);
        if !self.sweeping.contracts || !is_looked_up {
            return Ok(input);
        }
        let whole = isolate_joins(input, names)?;
        if whole.transformed {
            return Ok(whole.data);
        }
        // The input reads other tables too. Isolates the joins below that do not.
        let below = whole.data.transform_down(|node| match &node {
            LogicalPlan::Join(join) if join.join_type == JoinType::Left => {
                let isolated = isolate_joins(node, names)?;
                let on = if isolated.transformed { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue };
                Ok(Transformed { tnr: on, ..isolated })
            }
            _ => Ok(Transformed::no(node)),
        });
        Ok(below?.data)
    }

    /// Refuses a correlated subquery in an expression that reads the relation of a variable.
    fn refuse_correlated(&self, expression: &Expr) -> Result<()> {
        let rows = || self.sweeps.iter().flat_map(|sweep| &sweep.rows);
        expression.apply(|part| {
            if stop_gradient_argument(part).is_some() {
                return Ok(TreeNodeRecursion::Jump);
            }
            let Expr::ScalarSubquery(subquery) = part else { return Ok(TreeNodeRecursion::Continue) };
            for rows in rows() {
                if rows.is_read_by(&subquery.subquery)? {
                    return correlated(&with_joins(subquery)?);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// Returns the subqueries that an expression reads as columns and that read the relation of a variable, swept.
    fn read(
        &mut self,
        expression: &Expr,
        ReadBy { variable, reads_items, .. }: ReadBy,
        names: &mut Names,
        tangent: &Arc<ScalarUDF>,
    ) -> Result<Vec<Read<'_>>> {
        self.refuse_correlated(expression)?;
        let columns_read = expression.column_refs();
        let mut reads_items = reads_items;
        for Value { column, is_of_item, .. } in &self.values {
            reads_items &= *is_of_item || !columns_read.contains(column);
        }
        let mut found = vec![];
        for Value { column, by, is_of_item, .. } in &mut self.values {
            if *is_of_item && !reads_items {
                continue;
            }
            if !columns_read.contains(column) {
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
                    let gradients = variables.gradients(swept.values(), names, tangent, self.sweeping)?;
                    if !gradients.is_empty()
                        && let Some(value) = swept.segment.columns.first()
                    {
                        check_float(value, swept.segment.plan.schema())?;
                    }
                    swept.gradients = Some(gradients);
                }
                found.push(Read { rows: &variables.rows, numbered, column, swept });
            }
        }
        Ok(found)
    }
}

/// Returns a query for each of these variables, through which its gradients have gone.
fn swept_queries<'q>(rows: &'q [RowVariable], query: &'q Arc<LogicalPlan>) -> impl Iterator<Item = SweptQuery> + 'q {
    rows.iter().map(|rows| SweptQuery { rows: Arc::clone(rows.relation()), query: Arc::clone(query) })
}

/// Returns the positions of the columns of a plan that are columns of a query in FROM, each with that column. A select list may give them
/// other names.
fn columns_of(plan: &LogicalPlan, item: &TableReference) -> Result<Vec<(usize, Column)>> {
    let mut found = vec![];
    for index in 0..plan.schema().fields().len() {
        found.extend(column_of(plan, index, item)?.map(|column| (index, column)));
    }
    Ok(found)
}

/// Returns the column of a query in FROM that a column of a plan is.
fn column_of(plan: &LogicalPlan, index: usize, item: &TableReference) -> Result<Option<Column>> {
    // Another name of a view has the name of the view below it.
    if let LogicalPlan::SubqueryAlias(alias) = plan {
        let is_it = alias.alias == *item;
        return Ok(is_it.then(|| Column::from(plan.schema().qualified_field(index))));
    }
    let Origin::Below(sources) = origin(plan, index)? else { return Ok(None) };
    let inputs = plan.inputs();
    for (number, below) in sources {
        if let Some(input) = inputs.get(number)
            && let Some(found) = column_of(input, below, item)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
