//! Calls by columns of relations that scalar subqueries in them read.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, JoinType, NullEquality, Result, plan_err};
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::{Expr, LogicalPlan, Projection, ScalarUDF, lit, when};
use datafusion_functions::core::expr_fn::coalesce;
use std::sync::Arc;

use xql_autodiff::vocabulary::messages::abbreviated;

use crate::reverse::{Linearizer, Region, RowVariable, Source, Stages, gradient, has_node, is_same, joined, source_of};
use crate::tangents::tangent::Tangent;
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::operators::{Recognize, is_call};

/// The variables by row of a node, and the subqueries of it that read their relations.
#[derive(Default)]
pub struct ByRow {
    variables: Vec<Numbered>,
    values: Vec<Value>,
}

/// Variables of one relation.
struct Numbered {
    rows: RowVariable,
    /// The columns of the input that the variables are, each with the number of its row. References to one relation, as `a` and
    /// `b` of `FROM w a JOIN w b`, have numbers of their own.
    columns: Vec<(Column, Column)>,
    /// What lies between them and the subqueries.
    stages: Stages,
}

/// A subquery, joined to the input as a column.
struct Value {
    subquery: Arc<LogicalPlan>,
    column: Column,
    /// The number of the variables that it varies with, and what it is to a sweep by them.
    by: Vec<(usize, Region)>,
    /// The derivatives by the variables that have such a number of their row, once joined to the input.
    derivatives: Vec<(Column, Vec<Column>)>,
}

/// A column by which a call differentiates, in the input of a node, and where it originates.
struct Found {
    column: Column,
    index: usize,
    source: Source,
}

impl ByRow {
    /// Whether a column is a subquery that is joined to the input.
    pub fn has_value(&self, column: &Column) -> bool {
        self.values.iter().any(|value| value.column == *column)
    }

    /// Whether the node has no variables by row.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
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
        let found = found(&plan, recognize)?;
        let mut origins: Vec<(LogicalPlan, Vec<Found>)> = vec![];
        for column in found {
            match origins.iter_mut().find(|(origin, _)| is_same(origin, &column.source.origin)) {
                Some((_, columns)) => columns.push(column),
                None => origins.push((column.source.origin.clone(), vec![column])),
            }
        }
        for (origin, columns) in origins {
            let positions = columns.iter().map(|found| found.source.position).collect();
            let computed = rewrite(names, origin.clone())?;
            let rows = RowVariable::of(origin, computed, positions, names)?;
            let mut references: Vec<(Vec<usize>, Column)> = vec![];
            let mut numbered = vec![];
            for Found { column, source, .. } in columns {
                let known = references.iter().find(|(path, _)| *path == source.path);
                let row = if let Some((_, row)) = known {
                    row.clone()
                } else {
                    let input = plan.inputs()[0].clone();
                    // Numbers of other rows have moved the columns.
                    let index = input.schema().index_of_column(&column)?;
                    let (input, row) = rows.lifted(input, index, names)?;
                    plan = plan.with_new_exprs(plan.expressions(), vec![input])?;
                    references.push((source.path, row.clone()));
                    row
                };
                numbered.push((column, row));
            }
            plan = rows.substituted(plan)?;
            by_row.variables.push(Numbered { rows, columns: numbered, stages: Stages::default() });
        }
        Ok((plan, by_row))
    }

    /// The column that a scalar subquery is once it is joined to the input, if it reads the relation of a variable.
    pub fn value(&mut self, subquery: &Subquery, input: &mut LogicalPlan, names: &mut Names) -> Result<Option<Column>> {
        if let Some(known) = self.values.iter().find(|value| value.subquery == subquery.subquery) {
            return Ok(Some(known.column.clone()));
        }
        let mut by = vec![];
        for (number, variable) in self.variables.iter_mut().enumerate() {
            if variable.rows.is_read_by(&subquery.subquery)? {
                if !subquery.outer_ref_columns.is_empty() {
                    return plan_err!(
                        "the correlated subquery {} reads the relation of the variable. Write it as a join",
                        abbreviated(&Expr::ScalarSubquery(subquery.clone()))
                    );
                }
                let Numbered { rows, stages, .. } = variable;
                let mut linearizer = Linearizer { names: &mut *names, variable: rows, stages };
                by.push((number, linearizer.only_row(&subquery.subquery)?));
            }
        }
        let Some((_, region)) = by.first() else { return Ok(None) };
        let Some(column) = region.columns.first().cloned() else { return Ok(None) };
        let one = Projection::try_new(vec![Expr::Column(column.clone())], Arc::new(region.plan.clone()))?;
        let (left, right) = (std::mem::take(input), LogicalPlan::Projection(one));
        *input = joined(left, right, vec![], None, JoinType::Inner, NullEquality::NullEqualsNothing)?;
        self.values.push(Value {
            subquery: Arc::clone(&subquery.subquery),
            column: column.clone(),
            by,
            derivatives: vec![],
        });
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
        let position = |(number, numbered): (usize, &Numbered)| {
            let position = numbered.columns.iter().position(|(column, _)| column == variable)?;
            Some((number, position))
        };
        let Some((number, position)) = self.variables.iter().enumerate().find_map(position) else { return Ok(None) };
        let Numbered { rows, columns: numbered, stages } = &self.variables[number];
        let (_, row) = &numbered[position];
        let variable_name = variable.name.clone();
        let Some((stage, _)) = stages.of(&rows.scan()?) else { return Ok(None) };
        let mut tangents = vec![];
        let mut reads = false;
        for value in &mut self.values {
            let read = expression.exists(|part| Ok(matches!(part, Expr::Column(column) if column == &value.column)))?;
            let Some((_, region)) = value.by.iter().find(|(by, _)| read && *by == number) else { continue };
            reads = true;
            if !value.derivatives.iter().any(|(by, _)| by == row) {
                let Some(by_row) = gradient(region, stages, stage, names, tangent)? else { continue };
                let of = by_row.row.into_iter().map(Expr::Column);
                let on = of.map(|of| (Expr::Column(row.clone()), of)).collect();
                let left = std::mem::take(input);
                *input = joined(left, by_row.plan, on, None, JoinType::Left, NullEquality::NullEqualsNothing)?;
                let mut exprs = columns(input.schema());
                let mut derivatives = vec![];
                for cotangent in by_row.cotangents {
                    // A row that the value does not depend on has none. A tangent is NULL where its column is.
                    let name = names.tangent("value", &variable_name);
                    let derivative = coalesce(vec![Expr::Column(cotangent), lit(0.0)]);
                    exprs.push(null_with(&Expr::Column(value.column.clone()), derivative)?.alias(name.clone()));
                    derivatives.push(Column::new_unqualified(name));
                }
                let below = std::mem::take(input);
                *input = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(below))?);
                value.derivatives.push((row.clone(), derivatives));
            }
            let known = value.derivatives.iter().find(|(by, _)| by == row);
            if let Some(derivative) = known.and_then(|(_, derivatives)| derivatives.get(position)) {
                tangents.push((value.column.clone(), Tangent::Column(derivative.clone())));
            }
        }
        Ok(reads.then_some(tangents))
    }
}

/// The columns by which calls of a node differentiate, if they originate in what a subquery of the call reads.
fn found(plan: &LogicalPlan, recognize: Recognize) -> Result<Vec<Found>> {
    let inputs = plan.inputs();
    let [input] = inputs.as_slice() else { return Ok(vec![]) };
    let mut found: Vec<Found> = vec![];
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            let Expr::ScalarFunction(call) = part else { return Ok(TreeNodeRecursion::Continue) };
            let [expression, Expr::Column(column), ..] = call.args.as_slice() else {
                return Ok(TreeNodeRecursion::Continue);
            };
            if !is_call(part, recognize) {
                return Ok(TreeNodeRecursion::Continue);
            }
            let Some(index) = input.schema().maybe_index_of_column(column) else {
                return Ok(TreeNodeRecursion::Continue);
            };
            let Some(source) = source_of(input, index)? else { return Ok(TreeNodeRecursion::Continue) };
            let mut reads = false;
            expression.apply(|part| {
                if let Expr::ScalarSubquery(subquery) = part {
                    reads = reads || has_node(&subquery.subquery, &source.origin)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            if reads && !found.iter().any(|known| known.index == index) {
                let column = Column::from(input.schema().qualified_field(index));
                found.push(Found { column, index, source });
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// A derivative by row, NULL where the row's own value is NULL.
pub fn null_with(variable: &Expr, derivative: Expr) -> Result<Expr> {
    when(variable.clone().is_not_null(), derivative).end()
}
