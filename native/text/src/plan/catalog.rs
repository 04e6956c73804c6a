//! The tables, views and functions that statements name.

use arrow::datatypes::{FieldRef, SchemaRef};
use async_trait::async_trait;
use datafusion_catalog::{Session, TableProvider};
use datafusion_common::{Result, TableReference, not_impl_err};
use datafusion_expr::{Expr, LogicalPlan, TableType};
use datafusion_physical_plan::ExecutionPlan;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::functions::FunctionAnswers;

/// What is known of the tables and functions that statements name.
#[derive(Debug, Default, Clone)]
pub struct Catalog {
    /// A table is one provider however often it is read, by which derivatives know that it is the same.
    pub tables: HashMap<String, Arc<CatalogTable>>,
    /// The queries of views.
    pub views: HashMap<String, String>,
    /// Tables of which nobody knows what computes them.
    pub opaque: HashMap<String, String>,
    /// What calls of the session's functions give.
    pub functions: FunctionAnswers,
    /// Tables that views hold, by the names of the view and of the table.
    pub stale_tables: HashMap<(String, String), Arc<CatalogTable>>,
    /// Those that have been replaced, by what they are known by.
    replaced: HashMap<String, Arc<CatalogTable>>,
    /// Whether a recursive term may read the rows of the last iteration several times, and what is computed of them.
    pub multi_read_recursion: bool,
}

impl Catalog {
    /// Adds a table by its name in SQL.
    pub fn add_table(&mut self, name: impl Into<TableReference>, schema: SchemaRef) {
        let name = full_name(&name.into());
        self.views.remove(&name);
        self.tables.insert(name, Arc::new(CatalogTable::new(schema)));
    }

    /// Adds a view by its name in SQL and the query, or the statement that makes it.
    pub fn add_view(&mut self, name: impl Into<TableReference>, sql: &str) {
        let name = full_name(&name.into());
        self.stale_tables.retain(|(view, _), _| *view != name);
        self.views.insert(name, sql.to_owned());
    }

    /// Adds a table that a view reads, and that is not the one of its name, or of which nobody knows whether it is: a view holds the
    /// table that had the name when the view was made. Tables that are known by the same are one; by nothing is known one that may
    /// have its name still.
    pub fn add_stale_table(&mut self, view: &str, table: &str, known_by: &str, schema: SchemaRef) {
        let [view, name] = [view, table].map(|name| full_name(&TableReference::from(name)));
        let table = if known_by.is_empty() {
            Arc::new(CatalogTable { staleness: Some(Staleness::Unknown), ..CatalogTable::new(schema) })
        } else {
            let replaced =
                || Arc::new(CatalogTable { staleness: Some(Staleness::Replaced), ..CatalogTable::new(schema) });
            Arc::clone(self.replaced.entry(known_by.to_owned()).or_insert_with(replaced))
        };
        self.stale_tables.insert((view, name), table);
    }

    /// Whether there is a table or a view of a name.
    pub fn contains(&self, name: &TableReference) -> bool {
        let name = full_name(name);
        self.tables.contains_key(&name) || self.views.contains_key(&name)
    }

    /// Adds a relation that a statement with derivatives may not read, and why.
    pub fn add_opaque(&mut self, name: &str, reason: &str) {
        self.opaque.insert(full_name(&TableReference::from(name)), reason.to_owned());
    }

    /// Adds what a function gives, by the call that was asked for; none if the session has no such function.
    pub fn add_function(&mut self, call: &str, result: Option<FieldRef>, is_volatile: bool) {
        self.functions.insert(call, result, is_volatile);
    }
}

/// The name of a table in full.
pub fn full_name(name: &TableReference) -> String {
    name.clone().resolve("datafusion", "public").to_string()
}

/// A table of which the schema is known, or a view.
#[derive(Debug)]
pub struct CatalogTable {
    /// Its columns.
    pub schema: SchemaRef,
    /// The plan of a view.
    pub view: Option<LogicalPlan>,
    /// The call of a table function that gives the rows.
    pub call: Option<String>,
    /// Why a text cannot read it by its name.
    pub staleness: Option<Staleness>,
}

/// Of a table that a view holds, whether another table has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    /// It was replaced.
    Replaced,
    /// Nobody knows.
    Unknown,
}

impl CatalogTable {
    /// A table with these columns.
    pub fn new(schema: SchemaRef) -> Self {
        Self { schema, view: None, call: None, staleness: None }
    }
}

#[async_trait]
impl TableProvider for CatalogTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        match (&self.view, self.staleness) {
            (Some(_), _) => TableType::View,
            // That it is another one than the one of its name is known.
            (None, Some(Staleness::Replaced)) => TableType::Temporary,
            (None, _) => TableType::Base,
        }
    }

    fn get_logical_plan(&'_ self) -> Option<Cow<'_, LogicalPlan>> {
        self.view.as_ref().map(Cow::Borrowed)
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        not_impl_err!("xql-ffi knows the schema of a table, not its rows")
    }
}
