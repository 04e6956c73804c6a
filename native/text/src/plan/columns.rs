//! The columns of queries.

use datafusion_common::config::ConfigOptions;
use datafusion_common::{DFSchemaRef, Result};
use datafusion_sql::parser::Statement;
use sqlparser::ast;
use std::sync::Arc;

use super::derive::coerce_types;
use super::planner::Planner;
use crate::statement::{outer_query, parse_one};

/// Returns the columns of the query that a statement is or contains, with or without calls.
///
/// DataFusion plans a CTE again for each reader, so the time doubles with each CTE that reads the previous one twice. Here each is planned
/// once, and its name then stands for its columns.
pub fn columns_of(statement: &Statement, planner: &Planner, options: &ConfigOptions) -> Result<DFSchemaRef> {
    let schema = |planner: &Planner, statement| -> Result<DFSchemaRef> {
        Ok(Arc::clone(coerce_types(planner.plan(statement)?, options)?.schema()))
    };
    let Some(query) = outer_query(statement) else { return schema(planner, statement.clone()) };
    let mut planner = planner.clone();
    let mut query = query.clone();
    if let Some(ast::With { recursive, cte_tables, with_token }) = query.with.take() {
        for table in cte_tables {
            let name = table.alias.name.clone();
            let Some(mut all) = outer_query(&parse_one(&format!("SELECT * FROM {name}"))?).cloned() else { continue };
            all.with = Some(ast::With { recursive, cte_tables: vec![table], with_token: with_token.clone() });
            let columns = schema(&planner, wrap_query(all))?;
            planner.bind_name(&name, Arc::clone(columns.inner()));
        }
    }
    schema(&planner, wrap_query(query))
}

/// Returns the query that a statement is or contains, or else the statement.
pub fn query_or_statement(statement: &Statement) -> Statement {
    outer_query(statement).cloned().map_or_else(|| statement.clone(), wrap_query)
}

fn wrap_query(query: ast::Query) -> Statement {
    Statement::Statement(Box::new(ast::Statement::Query(Box::new(query))))
}
