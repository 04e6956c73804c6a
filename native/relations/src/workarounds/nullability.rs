//! The nullability of recursive queries.
//!
//! DataFusion 54 takes it from the static term alone, although later iterations may be NULL where the first rows are not. Then
//! plans fail (`Physical input schema should be the same`, `declared as non-nullable but contains null values`), and what is
//! decided by the nullability is decided wrongly.

use arrow::datatypes::{DataType, FieldRef};
use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::provider_as_source;
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{Result, exec_err, internal_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{
    ColumnarValue, Expr, LogicalPlan, Projection, RecursiveQuery, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TableScan, Volatility,
};
use std::sync::{Arc, LazyLock};

use crate::names::{columns, is_added};
use crate::origin::{in_work_table, is_work_table, source_column};

/// When the static term can be trusted to be nullable where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Static {
    /// Always.
    Settled,
    /// Not before its derivatives have been written out, which may turn out never to be NULL.
    Derived,
}

/// The plan with columns of recursive queries nullable if either term is.
pub fn nullable_by_either_term(plan: LogicalPlan, trust: Static) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = found || matches!(node, LogicalPlan::RecursiveQuery(query) if !differing(query, trust).is_empty());
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let widened = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::RecursiveQuery(query) => Ok(Transformed::yes(LogicalPlan::RecursiveQuery(widen(query, trust)?))),
        // Expressions know the nullability of what they read only when they are put together again.
        other => other.recompute_schema().map(Transformed::yes),
    })?;
    Ok(widened.data)
}

/// The columns that later iterations may make NULL, and the static term may not.
fn differing(query: &RecursiveQuery, trust: Static) -> Vec<usize> {
    let [first, later] = [&query.static_term, &query.recursive_term].map(|term| term.schema());
    let trusted = |index: usize| match trust {
        Static::Settled => first.field(index).is_nullable(),
        Static::Derived => is_marked(&query.static_term, index),
    };
    (0..first.fields().len().min(later.fields().len()))
        .filter(|index| later.field(*index).is_nullable() && !trusted(*index))
        .collect()
}

fn is_marked(plan: &LogicalPlan, index: usize) -> bool {
    let LogicalPlan::Projection(projection) = plan else { return false };
    let marked = projection.expr.get(index).map(|expr| expr.clone().unalias_nested().data);
    matches!(marked, Some(Expr::ScalarFunction(call)) if is_nullability_marker(&call.func))
}

/// One column being nullable may make others so, through the working table.
fn widen(mut query: RecursiveQuery, trust: Static) -> Result<RecursiveQuery> {
    loop {
        let differing = differing(&query, trust);
        if differing.is_empty() {
            return Ok(query);
        }
        let mut exprs = columns(query.static_term.schema());
        for (index, expr) in exprs.iter_mut().enumerate() {
            if differing.contains(&index) || is_marked(&query.static_term, index) {
                *expr = marked(&NULLABLE, expr);
            }
        }
        let first = Projection::try_new(exprs, Arc::clone(&query.static_term))?;
        let table = CteWorkTable::new(&query.name, Arc::clone(first.schema.inner()));
        let source = provider_as_source(Arc::new(table));
        let later = query.recursive_term.as_ref().clone().transform_up_with_subqueries(|node| match node {
            LogicalPlan::TableScan(scan) if is_work_table(&scan, &query.name) => {
                let columns = 0..scan.projected_schema.fields().len();
                let projection = columns.map(|index| source_column(&scan, index)).collect();
                let TableScan { table_name, filters, fetch, .. } = scan;
                let scan = TableScan::try_new(table_name, Arc::clone(&source), Some(projection), filters, fetch)?;
                Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
            }
            other => other.recompute_schema().map(Transformed::yes),
        })?;
        query.static_term = Arc::new(LogicalPlan::Projection(first));
        query.recursive_term = Arc::new(later.data);
    }
}

/// The plan with columns of recursive queries never NULL that are not now, if the queries carry tangents.
///
/// A column may be never NULL because it is computed by a test for NULL. Where a tangent beside it has the same test, DataFusion
/// 54 makes that a column, no longer knows why the first is never NULL, and fails.
pub fn never_null_as_now(plan: LogicalPlan) -> Result<LogicalPlan> {
    let settled = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::RecursiveQuery(mut query) => {
            let term = &query.recursive_term;
            if !term.schema().fields().iter().any(|field| is_added(field.name())) {
                return Ok(Transformed::no(LogicalPlan::RecursiveQuery(query)));
            }
            let mut exprs = columns(term.schema());
            for (index, expr) in exprs.iter_mut().enumerate() {
                if !term.schema().field(index).is_nullable() && in_work_table(term, index, &query.name)?.is_none() {
                    *expr = marked(&NEVER_NULL, expr);
                }
            }
            query.recursive_term = Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, Arc::clone(term))?));
            Ok(Transformed::yes(LogicalPlan::RecursiveQuery(query)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(settled.data)
}

/// Whether a function gives its argument and says whether that may be NULL.
pub fn is_nullability_marker(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<Nullability>().is_some()
}

fn marked(marker: &Arc<ScalarUDF>, expr: &Expr) -> Expr {
    let (table, name) = expr.qualified_name();
    let call = ScalarFunction::new_udf(Arc::clone(marker), vec![expr.clone()]);
    Expr::ScalarFunction(call).alias_qualified(table, name)
}

static NULLABLE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(Nullability::marker("nullable", true)));
static NEVER_NULL: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(Nullability::marker("never_null", false)));

/// Gives its argument, and says whether that may be NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nullability {
    name: &'static str,
    nullable: bool,
    signature: Signature,
}

impl Nullability {
    fn marker(name: &'static str, nullable: bool) -> ScalarUDF {
        // Volatile, for else constants among its arguments would be taken for its value.
        ScalarUDF::new_from_impl(Self { name, nullable, signature: Signature::any(1, Volatility::Volatile) })
    }
}

impl ScalarUDFImpl for Nullability {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of {} is that of the field of its argument", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [field] => Ok(Arc::new(field.as_ref().clone().with_nullable(self.nullable))),
            fields => internal_err!("{} has one argument, not {}", self.name, fields.len()),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.pop() {
            Some(value) => Ok(value),
            None => exec_err!("{} has one argument", self.name),
        }
    }
}
