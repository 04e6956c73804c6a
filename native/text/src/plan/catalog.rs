//! The tables, views and functions that statements refer to.

use arrow::datatypes::{FieldRef, SchemaRef};
use async_trait::async_trait;
use datafusion_catalog::{Session, TableProvider};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, TableReference, not_impl_err, plan_datafusion_err};
use datafusion_expr::{Expr, LogicalPlan, TableType};
use datafusion_physical_plan::ExecutionPlan;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use xql_autodiff::Refused;

use super::functions::FunctionAnswers;

/// The tables, views and functions that statements may refer to.
#[derive(Debug, Default, Clone)]
pub struct Catalog {
    /// A table has one provider however often it is scanned, by which derivatives recognize it.
    pub tables: HashMap<String, Arc<CatalogTable>>,
    /// The queries of views.
    pub views: HashMap<String, String>,
    /// Tables whose definition is unknown, with the reason.
    pub opaque: HashMap<String, String>,
    /// The result types of calls of the session's functions.
    pub functions: FunctionAnswers,
    /// Tables that views hold, by the names of the view and the table.
    pub stale_tables: HashMap<(String, String), Arc<CatalogTable>>,
    /// Replaced tables, by the key that the session knows them by.
    replaced: HashMap<String, Arc<CatalogTable>>,
    /// Whether a recursive term may read its work table several times, and what is computed from it.
    pub multi_read_recursion: bool,
    /// The names by which the session has special functions. Others of their names are functions of the session.
    pub special: HashSet<String>,
}

impl Catalog {
    /// Adds a table by its name in SQL.
    pub fn add_table(&mut self, name: impl Into<TableReference>, schema: SchemaRef) {
        let name = full_name(&name.into());
        self.views.remove(&name);
        self.tables.insert(name, Arc::new(CatalogTable::new(schema)));
    }

    /// Adds a view by its name in SQL, with its query or the statement that creates it.
    pub fn add_view(&mut self, name: impl Into<TableReference>, sql: &str) {
        let name = full_name(&name.into());
        self.stale_tables.retain(|(view, _), _| *view != name);
        self.views.insert(name, sql.to_owned());
    }

    /// Adds a table that a view scans, and that is not, or may not be, the table which has its name now: a view holds the table that had
    /// the name when the view was created. Tables with the same `known_by` are one; without it the table may still have its name.
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

    /// Returns whether there is a table or a view of a name.
    pub fn contains(&self, name: &TableReference) -> bool {
        let name = full_name(name);
        self.tables.contains_key(&name) || self.views.contains_key(&name)
    }

    /// Adds a relation that a statement with derivatives must not read, with the reason.
    pub fn add_opaque(&mut self, name: &str, reason: &str) {
        self.opaque.insert(full_name(&TableReference::from(name)), reason.to_owned());
    }

    /// Adds the result of a call of a session's function, `None` if the session has no such function.
    pub fn add_function(&mut self, call: &str, result: Option<FieldRef>, is_volatile: bool) {
        self.functions.insert(call, result, is_volatile);
    }

    /// Adds the name of a special function of `xql-special` that the session has.
    pub fn add_special(&mut self, name: &str) {
        self.special.insert(name.to_owned());
    }

    /// Checks that an expression calls no special function that the session has not.
    ///
    /// # Errors
    /// If it does: a derivative may call others than the statement.
    pub fn check_special(&self, expr: &Expr) -> Result<()> {
        expr.apply(|part| match part {
            Expr::ScalarFunction(call)
                if xql_special::canonical(&call.func).is_some() && !self.special.contains(call.name()) =>
            {
                let error = plan_datafusion_err!(
                    "the derivative calls {}, and nothing says that there is such a function where the text is to run: hand over \
                     functions=True for a session that has it by register(ctx, functions=True), or a rule without it",
                    call.name()
                );
                Err(Refused::MissingRule.mark(error))
            }
            _ => Ok(TreeNodeRecursion::Continue),
        })?;
        Ok(())
    }
}

/// Returns the full name of a table.
pub fn full_name(name: &TableReference) -> String {
    name.clone().resolve("datafusion", "public").to_string()
}

/// A table of which only the schema is known, or a view.
#[derive(Debug)]
pub struct CatalogTable {
    /// Its columns.
    pub schema: SchemaRef,
    /// The plan of a view.
    pub view: Option<LogicalPlan>,
    /// The call of a table function that returns the rows.
    pub call: Option<String>,
    /// Why text cannot refer to it by its name.
    pub staleness: Option<Staleness>,
}

/// Whether a table that a view holds has lost its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    /// Another table has replaced it.
    Replaced,
    /// It is not known.
    Unknown,
}

impl CatalogTable {
    /// Creates a table with these columns.
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
            // It is known not to be the table of its name.
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
