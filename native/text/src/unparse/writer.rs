//! What the writer of a query keeps while it goes through a plan, and the relations in FROM that it makes.

use datafusion_common::config::ConfigOptions;
use datafusion_common::{DFSchema, Result};
use datafusion_expr::LogicalPlan;
use std::collections::HashSet;
use std::sync::Arc;
use xql_relations::SharedRelation;

use super::names::{collect_table_names, unique_names};
use super::select::{FromClause, Item, Select, indent};
use crate::names::{first_free_name, plain_name, quote_if_needed};
use crate::plan::loses_columns;

/// A common table expression.
#[derive(Debug)]
pub struct CommonTable {
    /// What it is called.
    pub name: String,
    /// Its query.
    pub text: String,
    /// Whether that reads itself.
    pub is_recursive: bool,
}

/// A recursive query in whose second term the writer is.
#[derive(Debug)]
pub struct OpenRecursion {
    /// What the plan calls it.
    pub name: String,
    /// What the text calls it.
    pub sql_name: String,
    /// Its columns in the text.
    pub columns: Vec<String>,
    /// What its second term computes by itself.
    pub tables: Vec<CommonTable>,
    /// How often that reads the rows of the last iteration.
    pub reads: usize,
}

/// The common table expression of a shared relation.
#[derive(Debug, Clone)]
pub struct SharedTable {
    /// The relation.
    pub relation: Arc<SharedRelation>,
    /// What the text calls it.
    pub name: String,
    /// Its columns in the text.
    pub columns: Vec<String>,
    /// How often it reads the rows of each of the open recursions.
    pub reads: Vec<usize>,
}

/// How a query is written.
#[derive(Debug, Clone, Copy)]
pub struct UnparseOptions<'a> {
    /// What derivatives are simplified with.
    pub config: &'a Arc<ConfigOptions>,
    /// Whether rows that are written down are a query each.
    pub values_as_union: bool,
    /// Whether a recursive term may read the rows of the last iteration several times.
    pub multi_read_recursion: bool,
}

/// What is kept of a query while its plan is written.
pub struct QueryWriter<'a> {
    /// How it is written.
    pub options: UnparseOptions<'a>,
    /// The common table expressions of the whole query so far.
    pub tables: Vec<CommonTable>,
    /// The shared relations that have one.
    pub shared: Vec<SharedTable>,
    /// The recursive queries around, the outermost first.
    pub open_recursions: Vec<OpenRecursion>,
    /// In how many of them the part that is being written will stand.
    pub depth: usize,
    /// Names that relations in FROM have.
    pub used_names: HashSet<String>,
    /// Names of tables in the plan, which no common table expression may have.
    pub scanned: HashSet<String>,
    /// The columns of the queries around, the outermost first.
    pub outer: Vec<Vec<Select>>,
    /// Whether DataFusion would take columns from recursive queries that these read themselves.
    pub loses_columns: bool,
}

impl<'a> QueryWriter<'a> {
    /// Nothing of a plan so far.
    pub fn new(plan: &LogicalPlan, options: UnparseOptions<'a>) -> Result<Self> {
        let mut scanned = HashSet::new();
        collect_table_names(plan, &mut scanned)?;
        Ok(Self {
            options,
            tables: vec![],
            shared: vec![],
            open_recursions: vec![],
            depth: 0,
            used_names: HashSet::new(),
            scanned,
            outer: vec![],
            loses_columns: loses_columns(plan),
        })
    }

    /// A name for a relation in FROM that no other has.
    pub fn fresh_alias(&mut self, wanted: &str) -> String {
        let name = first_free_name(wanted, |name| !self.used_names.contains(name));
        self.used_names.insert(name.clone());
        name
    }

    /// A name for a common table expression.
    pub fn fresh_table_name(&mut self, wanted: &str) -> String {
        let name = first_free_name(wanted, |name| !self.scanned.contains(name) && !self.used_names.contains(name));
        self.used_names.insert(name.clone());
        self.scanned.insert(name.clone());
        name
    }

    /// The common table expressions of a depth: 0 for those of all, n for those of the n-th open recursion.
    pub fn tables_at(&mut self, depth: usize) -> &mut Vec<CommonTable> {
        match depth.checked_sub(1) {
            None => &mut self.tables,
            Some(index) => &mut self.open_recursions[index].tables,
        }
    }

    /// A query after the common table expressions of a depth.
    pub fn with_tables(&mut self, body: String, depth: usize) -> String {
        let tables = std::mem::take(self.tables_at(depth));
        if tables.is_empty() {
            return body;
        }
        let recursive = if tables.iter().any(|table| table.is_recursive) { "RECURSIVE " } else { "" };
        let written =
            tables.iter().map(|table| format!("{} AS (\n{}\n)", quote_if_needed(&table.name), indent(&table.text)));
        format!("WITH {recursive}{}\n{body}", written.collect::<Vec<_>>().join(", "))
    }

    /// A relation in FROM that has the rows of a `SELECT`.
    pub fn into_relation(&mut self, select: Select) -> Select {
        if select.is_relation() {
            return select;
        }
        let names = unique_names(&select.schema);
        self.derived_table(&select.to_sql(&names), names, &select)
    }

    /// A text as a relation in FROM that stands for a `SELECT`: a query in parentheses, or a common table expression, if there are
    /// too many of them in one another already. Parsers do not read queries of any depth.
    pub fn derived_table(&mut self, text: &str, names: Vec<String>, select: &Select) -> Select {
        const MAX_DEPTH: usize = 8;
        if select.source.depth >= MAX_DEPTH
            && self.outer.is_empty()
            && (self.open_recursions.is_empty() || self.options.multi_read_recursion)
        {
            let name = self.fresh_table_name(&plain_name(&select.source.hint));
            self.tables_at(self.depth).push(CommonTable {
                name: name.clone(),
                text: text.to_owned(),
                is_recursive: false,
            });
            return self.scan_table(&name, names, Arc::clone(&select.schema), &select.source.hint);
        }
        let alias = self.fresh_alias(&select.source.hint);
        let from = format!("(\n{}\n) AS {}", indent(text), quote_if_needed(&alias));
        let items = names.iter().map(|name| Item::column(&alias, name)).collect();
        let relation = Select::new(Arc::clone(&select.schema), Some(from), items, &select.source.hint);
        let source = FromClause { depth: select.source.depth + 1, ..relation.source };
        Select { source, ..relation }
    }

    /// A common table expression in FROM.
    pub fn scan_table(&mut self, table: &str, columns: Vec<String>, schema: Arc<DFSchema>, hint: &str) -> Select {
        let alias = self.fresh_alias(&plain_name(hint));
        let from = if alias == table {
            quote_if_needed(table)
        } else {
            format!("{} AS {}", quote_if_needed(table), quote_if_needed(&alias))
        };
        let items = columns.iter().map(|name| Item::column(&alias, name)).collect();
        Select::new(schema, Some(from), items, &alias)
    }

    /// What is written of a part that will stand in so many of the open recursions.
    pub fn with_depth<T>(&mut self, depth: usize, write: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer_depth = std::mem::replace(&mut self.depth, depth);
        let written = write(self);
        self.depth = outer_depth;
        written
    }

    /// How many of the open recursions a plan is inside of: up to the last one whose rows it reads.
    pub fn depth_of(&self, plan: &LogicalPlan) -> Result<usize> {
        for (index, open) in self.open_recursions.iter().enumerate().rev() {
            if SharedRelation::reads_iteration(plan, &open.name)? {
                return Ok(index + 1);
            }
        }
        Ok(0)
    }
}
