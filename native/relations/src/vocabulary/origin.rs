//! Where a column of a node comes from.

use datafusion_common::{Column, DFSchema, JoinType, Result};
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Distinct, Expr, ExprSchemable, Join, LogicalPlan, Unnest};
use xql_autodiff::vocabulary::opaque_expr::cast_operand;
use xql_autodiff::vocabulary::types::is_float;

use super::nodes::non_query_nodes;
use super::nullable_wrapper::unwrap_nullable;
use super::work_table::{is_work_table, source_column};

/// What stands behind a column of a node.
#[derive(Debug, PartialEq, Eq)]
pub enum Origin {
    /// The node itself: a table, or an expression it computes.
    Here,
    /// A column of each of these inputs, by numbers of input and column.
    Below(Vec<(usize, usize)>),
}

/// Returns the column that an expression passes on, be it under another name or as another type of float.
pub fn passed_on<'a>(expr: &'a Expr, schema: &DFSchema) -> Option<&'a Column> {
    if let Some(expr) = unwrap_nullable(expr) {
        return passed_on(expr, schema);
    }
    let float = |expr: &Expr| expr.get_type(schema).is_ok_and(|data_type| is_float(&data_type));
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => passed_on(&alias.expr, schema),
        Expr::Cast(cast) if is_float(cast.field.data_type()) && float(&cast.expr) => passed_on(&cast.expr, schema),
        Expr::TryCast(cast) if is_float(cast.field.data_type()) && float(&cast.expr) => passed_on(&cast.expr, schema),
        expr => match cast_operand(expr) {
            Some(part) if float(part) => passed_on(part, schema),
            _ => None,
        },
    }
}

/// Returns where column number `index` of a node comes from.
pub fn origin(plan: &LogicalPlan, index: usize) -> Result<Origin> {
    let of_expr = |expr: Option<&Expr>, input: &LogicalPlan| {
        let column = expr.and_then(|expr| passed_on(expr, input.schema()));
        match column.and_then(|column| input.schema().maybe_index_of_column(column)) {
            Some(below) => Origin::Below(vec![(0, below)]),
            None => Origin::Here,
        }
    };
    Ok(match plan {
        LogicalPlan::Projection(projection) => of_expr(projection.expr.get(index), &projection.input),
        LogicalPlan::Aggregate(aggregate) => {
            let keys = grouping_set_to_exprlist(&aggregate.group_expr)?;
            of_expr(keys.get(index).copied(), &aggregate.input)
        }
        LogicalPlan::Distinct(Distinct::On(on)) => of_expr(on.select_expr.get(index), &on.input),
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => Origin::Below(vec![(0, index)]),
        LogicalPlan::Window(window) if index < window.input.schema().fields().len() => Origin::Below(vec![(0, index)]),
        LogicalPlan::Union(union) => Origin::Below((0..union.inputs.len()).map(|input| (input, index)).collect()),
        LogicalPlan::Join(join) => origin_in_join(join, index),
        LogicalPlan::Unnest(unnest) => match unnest.dependency_indices.get(index) {
            Some(below) if !is_unnested(unnest, *below) => Origin::Below(vec![(0, *below)]),
            _ => Origin::Here,
        },
        // What every iteration passes on unchanged comes from the static term.
        LogicalPlan::RecursiveQuery(query)
            if in_work_table(&query.recursive_term, index, &query.name)? == Some(index) =>
        {
            Origin::Below(vec![(0, index)])
        }
        // A node of another library may compute anything.
        LogicalPlan::Extension(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::EmptyRelation(_)
        | non_query_nodes!() => Origin::Here,
    })
}

fn origin_in_join(join: &Join, index: usize) -> Origin {
    let left = join.left.schema().fields().len();
    match join.join_type {
        JoinType::RightSemi | JoinType::RightAnti => Origin::Below(vec![(1, index)]),
        JoinType::RightMark if index < join.right.schema().fields().len() => Origin::Below(vec![(1, index)]),
        JoinType::RightMark => Origin::Here,
        _ if index < left => Origin::Below(vec![(0, index)]),
        JoinType::LeftMark => Origin::Here,
        _ => Origin::Below(vec![(1, index - left)]),
    }
}

/// Returns whether a column of the input is one that is unnested.
pub fn is_unnested(unnest: &Unnest, column: usize) -> bool {
    unnest.list_type_columns.iter().any(|(list, _)| *list == column) || unnest.struct_type_columns.contains(&column)
}

/// Returns the column of the working table called `name` that column number `index` of a node is, unchanged.
#[recursive::recursive]
pub fn in_work_table(plan: &LogicalPlan, index: usize, name: &str) -> Result<Option<usize>> {
    if let LogicalPlan::TableScan(scan) = plan {
        return Ok(is_work_table(scan, name).then(|| source_column(scan, index)));
    }
    let Origin::Below(sources) = origin(plan, index)? else { return Ok(None) };
    let inputs = plan.inputs();
    let mut found = vec![];
    for (input, column) in sources {
        found.push(match inputs.get(input) {
            Some(input) => in_work_table(input, column, name)?,
            None => None,
        });
    }
    let first = found.first().copied().flatten();
    Ok(first.filter(|_| found.iter().all(|column| *column == first)))
}
