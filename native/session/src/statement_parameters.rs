//! The parameters of a prepared statement that is planned here.
//!
//! The host keeps the statement, and puts the values of `EXECUTE` into it. They come here as a condition, which is always true:
//!
//! ```sql
//! PREPARE p(DOUBLE) AS WITH a AS (SELECT val * $1 AS val FROM w), ... SELECT grad((SELECT l FROM b), val) FROM w
//! -- is for the host
//! PREPARE p(DOUBLE) AS SELECT * FROM xql_statement_7 WHERE struct($1) IS NOT NULL
//! ```

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, cast, lit};
use datafusion::sql::sqlparser::ast::{self, DataType};
use datafusion::sql::unparser::expr_to_sql;

/// Returns the names of the parameters of a plan in their order, without the `$`.
///
/// # Errors
/// If the plan cannot be traversed.
pub fn parameters_of(plan: &LogicalPlan) -> Result<Vec<String>> {
    let names = plan.get_parameter_names()?;
    let mut names: Vec<_> = names.into_iter().map(|name| name.trim_start_matches('$').to_owned()).collect();
    names.sort_by_key(|name| name.parse::<usize>().ok());
    Ok(names)
}

/// Returns the query of a table, with the parameters of the statement that stands in it.
pub fn query_of(table: &str, parameters: &[String]) -> String {
    let values: Vec<_> = parameters.iter().map(|name| format!("${name}")).collect();
    match values.as_slice() {
        [] => format!("SELECT * FROM {table}"),
        values => format!("SELECT * FROM {table} WHERE struct({}) IS NOT NULL", values.join(", ")),
    }
}

/// Returns the types of parameters as SQL has them. None if it has none for one of them.
pub fn types_in_sql(fields: &[FieldRef]) -> Option<Vec<DataType>> {
    let type_in_sql = |field: &FieldRef| match expr_to_sql(&cast(lit(ScalarValue::Null), field.data_type().clone())) {
        Ok(ast::Expr::Cast { data_type, .. }) => Some(data_type),
        _ => None,
    };
    fields.iter().map(type_in_sql).collect()
}

/// Returns the values in a condition, if it is one of `query_of` with values in the place of parameters.
pub fn values_in(condition: &Expr) -> Option<Vec<ScalarAndMetadata>> {
    let Expr::IsNotNull(values) = condition else { return None };
    let Expr::ScalarFunction(ScalarFunction { func, args }) = values.as_ref() else { return None };
    let value = |value: &Expr| match value {
        Expr::Literal(value, metadata) => Some(ScalarAndMetadata::new(value.clone(), metadata.clone())),
        _ => None,
    };
    if func.name() == "struct" { args.iter().map(value).collect() } else { None }
}
