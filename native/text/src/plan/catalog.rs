//! The tables, views and functions that statements name.

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

use super::functions::Asked;

/// What is known of the tables and functions that statements name.
#[derive(Debug, Default, Clone)]
pub struct Catalog {
    /// A table is one provider however often it is read, by which derivatives know that it is the same.
    pub tables: HashMap<String, Arc<Table>>,
    /// The queries of views.
    pub views: HashMap<String, String>,
    /// Tables of which nobody knows what computes them.
    pub opaque: HashMap<String, String>,
    /// What calls of the session's functions give.
    pub functions: Asked,
    /// Tables that views hold, by the names of the view and of the table.
    pub held: HashMap<(String, String), Arc<Table>>,
    /// Those that have been replaced, by what they are known by.
    replaced: HashMap<String, Arc<Table>>,
    /// Whether a recursive term may read the rows of the last iteration several times, and what is computed of them.
    pub rereads: bool,
    /// The names by which the session has special functions. Others of their names are functions of the session.
    pub special: HashSet<String>,
}

impl Catalog {
    /// Adds a table by its name in SQL.
    pub fn table(&mut self, name: impl Into<TableReference>, schema: SchemaRef) {
        let name = resolved(&name.into());
        self.views.remove(&name);
        self.tables.insert(name, Arc::new(Table::of(schema)));
    }

    /// Adds a view by its name in SQL and the query, or the statement that makes it.
    pub fn view(&mut self, name: impl Into<TableReference>, sql: &str) {
        let name = resolved(&name.into());
        self.held.retain(|(view, _), _| *view != name);
        self.views.insert(name, sql.to_owned());
    }

    /// Adds a table that a view reads, and that is not the one of its name, or of which nobody knows whether it is: a view holds the
    /// table that had the name when the view was made. Tables that are known by the same are one; by nothing is known one that may
    /// have its name still.
    pub fn held(&mut self, view: &str, table: &str, known_by: &str, schema: SchemaRef) {
        let [view, name] = [view, table].map(|name| resolved(&TableReference::from(name)));
        let table = if known_by.is_empty() {
            Arc::new(Table { held: Some(Held::Perhaps), ..Table::of(schema) })
        } else {
            let replaced = || Arc::new(Table { held: Some(Held::Replaced), ..Table::of(schema) });
            Arc::clone(self.replaced.entry(known_by.to_owned()).or_insert_with(replaced))
        };
        self.held.insert((view, name), table);
    }

    /// Whether there is a table or a view of a name.
    pub fn has(&self, name: &TableReference) -> bool {
        let name = resolved(name);
        self.tables.contains_key(&name) || self.views.contains_key(&name)
    }

    /// Adds a relation that a statement with derivatives may not read, and why.
    pub fn opaque(&mut self, name: &str, reason: &str) {
        self.opaque.insert(resolved(&TableReference::from(name)), reason.to_owned());
    }

    /// Adds what a function gives, by the call that was asked for; none if the session has no such function.
    pub fn function(&mut self, call: &str, gives: Option<FieldRef>, is_volatile: bool) {
        self.functions.insert(call, gives, is_volatile);
    }

    /// Adds the name of a special function of `xql-special` that the session has.
    pub fn special(&mut self, name: &str) {
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

/// The name of a table in full.
pub fn resolved(name: &TableReference) -> String {
    name.clone().resolve("datafusion", "public").to_string()
}

/// A table of which the schema is known, or a view.
#[derive(Debug)]
pub struct Table {
    /// Its columns.
    pub schema: SchemaRef,
    /// The plan of a view.
    pub view: Option<LogicalPlan>,
    /// The call of a table function that gives the rows.
    pub call: Option<String>,
    /// Why a text cannot read it by its name.
    pub held: Option<Held>,
}

/// Of a table that a view holds, whether another table has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It was replaced.
    Replaced,
    /// Nobody knows.
    Perhaps,
}

impl Table {
    /// A table with these columns.
    pub fn of(schema: SchemaRef) -> Self {
        Self { schema, view: None, call: None, held: None }
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        match (&self.view, self.held) {
            (Some(_), _) => TableType::View,
            // That it is another one than the one of its name is known.
            (None, Some(Held::Replaced)) => TableType::Temporary,
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
