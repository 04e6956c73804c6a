//! The variables by row of a node.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, TableReference, plan_err};
use datafusion_expr::{BinaryExpr, Expr, LogicalPlan, Operator, ScalarUDF};
use std::collections::BTreeMap;
use std::sync::Arc;
use xql_autodiff::vocabulary::types::is_float;

use super::items::computed_beside;
use super::value_sources::computes_value_from;
use crate::shared_relation::SharedRelation;
use crate::vjp::{Reference, Residuals, RowCotangents, RowVariable, Segment, Sweeping, gradients};
use crate::vocabulary::decorrelated::{decorrelated_beside, queries_read};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::identity::Relation;
use crate::vocabulary::names::Names;
use crate::vocabulary::nodes::any_node;
use crate::vocabulary::operators::{Recognize, is_call};
use crate::vocabulary::source::{Source, check_is_clear, check_is_named, computes_from, reads, sources_of};

/// Variables that one sweep serves: none of their relations is computed from another.
#[derive(Default)]
pub struct Variables {
    /// The relations, each with its numbered rows.
    pub rows: Vec<RowVariable>,
    /// The columns of the input that are variables.
    pub columns: Vec<Numbered>,
    /// The residuals between the variables and the subqueries.
    pub residuals: Residuals,
}

/// A column of the input that is a variable.
pub struct Numbered {
    /// The column.
    pub column: Column,
    /// The reference from a row to its value. References to one relation, as `a` and `b` of `FROM w a JOIN w b`, have
    /// separate row numbers.
    pub cell: Arc<Reference>,
    /// The number of its relation.
    pub relation: usize,
    /// Its position among the variables of that.
    pub position: usize,
}

impl Variables {
    /// Returns the gradients by relation of a value, or of one for each row of a segment, with the column of it that numbers the rows.
    /// Those that several references to a relation read are computed once.
    pub fn gradients(
        &self,
        values: (&Segment, Option<&Column>),
        names: &mut Names,
        tangent: &Arc<ScalarUDF>,
        sweeping: Sweeping,
    ) -> Result<BTreeMap<usize, RowCotangents>> {
        let mut found = BTreeMap::new();
        for (relation, gradient) in gradients(values, &self.residuals, names, tangent, sweeping)? {
            let mut cells = self.columns.iter().filter(|column| column.relation == relation).map(|column| &column.cell);
            let first = cells.next().map(|cell| &cell.number);
            let is_shared = cells.any(|cell| Some(&cell.number) != first);
            found.insert(relation, if is_shared { gradient.shared(names)? } else { gradient });
        }
        Ok(found)
    }
}

/// A column by which a call differentiates, in the input of a node, and where it originates.
pub struct CallVariable {
    /// The column.
    pub column: Column,
    /// Where it originates.
    pub source: Source,
    /// The relation that it is a column of.
    pub relation: Relation,
    /// The number of this origin among those of the column.
    pub place: usize,
}

/// The variables by row of the calls of a node.
#[derive(Default)]
pub struct InCalls {
    /// Their columns.
    pub columns: Vec<CallVariable>,
    /// The queries in FROM that the calls differentiate, each row for itself.
    pub items: Vec<TableReference>,
}

/// Returns the columns by which calls of a node differentiate, if they originate in what a subquery of the call reads, or a query in FROM.
pub fn found(plan: &LogicalPlan, recognize: Recognize) -> Result<InCalls> {
    let inputs = plan.inputs();
    let [input] = inputs.as_slice() else { return Ok(InCalls::default()) };
    let InCalls { columns: mut found, mut items } = InCalls::default();
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            let Expr::ScalarFunction(call) = part else { return Ok(TreeNodeRecursion::Continue) };
            let [expression, variables @ ..] = call.args.as_slice() else { return Ok(TreeNodeRecursion::Continue) };
            if !is_call(part, recognize) {
                return Ok(TreeNodeRecursion::Continue);
            }
            let queries = queries_read(expression, input)?;
            let mut sources = vec![];
            for variable in variables.iter().step_by(2) {
                let Expr::Column(named) = unaliased(variable) else { continue };
                let Some(index) = input.schema().maybe_index_of_column(named) else { continue };
                // A column that is no float cannot be a variable, which is reported for the rows as written.
                if !is_float(input.schema().field(index).data_type()) {
                    continue;
                }
                let column = Column::from(input.schema().qualified_field(index));
                for (place, source) in sources_of(input, index)?.into_iter().enumerate() {
                    let path = source.path.iter().rev().copied();
                    let relation = Relation::read_by(plan, source.origin.clone(), path)?;
                    let beside = match reads(&queries, &relation)? {
                        true => Some(vec![]),
                        false => computed_beside(expression, input, &source, &relation)?,
                    };
                    sources.push((column.clone(), place, source, relation, beside));
                }
            }
            // A function of one of several variables itself is differentiated by these references alone.
            let is_direct = variables.len() > 2 && sources.iter().any(|(.., beside)| beside.is_none());
            for (column, place, source, relation, beside) in sources {
                let mut queries = queries.clone();
                for item in beside.into_iter().flatten().filter(|_| !is_direct) {
                    queries.push(&item.input);
                    if !items.contains(&item.alias) {
                        items.push(item.alias.clone());
                    }
                }
                check_is_clear(&queries, &source.origin)?;
                check_is_apart(&column, &source, &queries)?;
                check_is_not_below(&column, &source, &queries)?;
                if found.iter().any(|known| known.column == column && known.place == place) {
                    continue;
                }
                check_is_named(&queries, &relation)?;
                if reads(&queries, &relation)? {
                    found.push(CallVariable { column, source, relation, place });
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(InCalls { columns: found, items })
}

/// Refuses a variable that is a column of the rows of an outer derivative, together with a column that is computed from
/// it. The columns of these rows move one by one, so the computed column would count as constant.
///
/// ```sql
/// WITH p AS (SELECT x, x * x AS w FROM t), g AS (SELECT grad((SELECT SUM(w) FROM p), x) AS g FROM p)
/// SELECT grad((SELECT SUM(g) FROM g), w) FROM p
/// ```
fn check_is_apart(variable: &Column, source: &Source, queries: &[&LogicalPlan]) -> Result<()> {
    let scanned = SharedRelation::column_scanned_by(&source.origin, source.position);
    let Some((rows, Some(position))) = scanned.filter(|(rows, _)| rows.is_numbered()) else { return Ok(()) };
    let mut is_read = false;
    for query in queries {
        is_read = is_read || rows.is_read_by(query)?;
    }
    if !is_read {
        return Ok(());
    }
    for Source { origin, position, .. } in sources_of(rows.plan(), position)? {
        if computes_from(rows.plan(), &origin, position)? {
            return plan_err!(
                "the derivative by {variable} is itself differentiated by rows that have {} beside what is computed from it, where \
                 both move by themselves. Differentiate by the column that the others are computed from, or in the other order",
                variable.name
            );
        }
    }
    Ok(())
}

/// Refuses a variable from which the rows of another derivative are computed, if the derivative by it goes through
/// these rows: they also move by themselves.
///
/// ```sql
/// WITH p AS (SELECT x * x AS w FROM t), g AS (SELECT grad((SELECT SUM(w) FROM p), x) AS g FROM t)
/// SELECT grad((SELECT SUM(g) FROM g), w) FROM p
/// ```
fn check_is_not_below(variable: &Column, source: &Source, queries: &[&LogicalPlan]) -> Result<()> {
    let is_below = |node: &LogicalPlan| match SharedRelation::scanned_by(node).filter(|rows| rows.is_numbered()) {
        Some(rows) => computes_value_from(rows.plan(), source),
        None => Ok(false),
    };
    for query in queries {
        if any_node(query, is_below)? {
            return plan_err!(
                "the derivative by {variable} goes through rows that are computed from it and by which it is itself differentiated, where \
                 both move by themselves. Differentiate by {variable} in both"
            );
        }
    }
    Ok(())
}

/// Returns whether calls of a node have variables by row.
pub fn has_variables(plan: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    Ok(!found(plan, recognize)?.columns.is_empty())
}

/// Returns whether calls of a node differentiate queries in FROM, each row for itself.
pub fn differentiates_items(plan: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    Ok(!found(plan, recognize)?.items.is_empty())
}

/// Returns whether a call of a node computes more than sums, products and quotients of its subqueries. Then their
/// derivatives may be multiplied by an infinite one, such as that of `sqrt` at 0.
pub fn is_beyond_arithmetic(plan: &LogicalPlan, recognize: Recognize, items: &[TableReference]) -> Result<bool> {
    let apart = plan.inputs().into_iter().flat_map(decorrelated_beside).map(|alias| &alias.alias);
    let apart: Vec<_> = apart.chain(items).collect();
    let is_query = |part: &Expr| match part {
        Expr::ScalarSubquery(_) => true,
        Expr::Column(column) => column.relation.as_ref().is_some_and(|table| apart.contains(&table)),
        _ => false,
    };
    let mut found = false;
    plan.apply_expressions(|expr| {
        found |= expr.exists(|part| match part {
            Expr::ScalarFunction(call) if is_call(part, recognize) => {
                call.args.first().map_or(Ok(false), |function| has_query_in_function(function, &is_query))
            }
            _ => Ok(false),
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Returns whether an expression reads a query within anything but arithmetic.
fn has_query_in_function(expr: &Expr, is_query: &dyn Fn(&Expr) -> bool) -> Result<bool> {
    let is_arithmetic = match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide)
        }
        Expr::Alias(_) | Expr::Negative(_) | Expr::Cast(_) | Expr::TryCast(_) => true,
        query if is_query(query) => return Ok(false),
        _ => false,
    };
    if !is_arithmetic {
        return expr.exists(|part| Ok(is_query(part)));
    }
    let mut found = false;
    expr.apply_children(|part| {
        found |= has_query_in_function(part, is_query)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Returns the columns by relation.
pub fn by_relation(found: Vec<CallVariable>) -> Vec<(Relation, Vec<CallVariable>)> {
    let mut relations: Vec<(Relation, Vec<CallVariable>)> = vec![];
    for found in found {
        match relations.iter_mut().find(|(relation, _)| relation.is_same(&found.relation)) {
            Some((_, columns)) => columns.push(found),
            None => relations.push((found.relation.clone(), vec![found])),
        }
    }
    relations
}

/// Returns the position of a relation that none of the others is a part of.
pub fn innermost(relations: &[(Relation, Vec<CallVariable>)]) -> Result<usize> {
    for (number, (relation, _)) in relations.iter().enumerate() {
        let mut has_other = false;
        for (other, (part, _)) in relations.iter().enumerate() {
            has_other |= other != number && part.is_part_of(relation)?;
        }
        if !has_other {
            return Ok(number);
        }
    }
    Ok(0)
}
