//! The state of a query while its plan is unparsed, and the relations in its FROM clauses.

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

/// A CTE.
#[derive(Debug)]
pub struct CommonTable {
    /// Its name.
    pub name: String,
    /// Its query.
    pub text: String,
    /// Whether it reads itself.
    pub is_recursive: bool,
}

/// A recursive query whose recursive term is being written.
#[derive(Debug)]
pub struct OpenRecursion {
    /// Its name in the plan.
    pub name: String,
    /// Its name in the text.
    pub sql_name: String,
    /// Its columns in the text.
    pub columns: Vec<String>,
    /// The CTEs within the recursive term.
    pub tables: Vec<CommonTable>,
    /// How often the term reads the work table.
    pub reads: usize,
}

/// The CTE of a shared relation.
#[derive(Debug, Clone)]
pub struct SharedTable {
    /// The relation.
    pub relation: Arc<SharedRelation>,
    /// Its name in the text.
    pub name: String,
    /// Its columns in the text.
    pub columns: Vec<String>,
    /// How often it reads the work table of each open recursion.
    pub reads: Vec<usize>,
}

/// The dialect of a query.
#[derive(Debug, Clone, Copy)]
pub struct UnparseOptions<'a> {
    /// The configuration in which derivatives are simplified.
    pub config: &'a Arc<ConfigOptions>,
    /// Whether VALUES is written as a union of queries.
    pub values_as_union: bool,
    /// Whether a recursive term may read its work table several times.
    pub multi_read_recursion: bool,
}

/// Writes a query while traversing its plan.
pub struct QueryWriter<'a> {
    /// The dialect.
    pub options: UnparseOptions<'a>,
    /// The CTEs of the whole query so far.
    pub tables: Vec<CommonTable>,
    /// The shared relations that have a CTE.
    pub shared: Vec<SharedTable>,
    /// The recursive queries around the current node, outermost first.
    pub open_recursions: Vec<OpenRecursion>,
    /// The number of these that the part being written belongs into.
    pub depth: usize,
    /// The aliases in use.
    pub used_names: HashSet<String>,
    /// The names of tables in the plan, which no CTE may have.
    pub scanned: HashSet<String>,
    /// The columns of the outer queries, outermost first.
    pub outer: Vec<Vec<Select>>,
    /// Whether DataFusion would prune columns that only a recursive query itself reads.
    pub loses_columns: bool,
}

impl<'a> QueryWriter<'a> {
    /// Creates the writer of a plan.
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

    /// Returns an unused alias.
    pub fn fresh_alias(&mut self, wanted: &str) -> String {
        let name = first_free_name(wanted, |name| !self.used_names.contains(name));
        self.used_names.insert(name.clone());
        name
    }

    /// Returns an unused name for a CTE.
    pub fn fresh_table_name(&mut self, wanted: &str) -> String {
        let name = first_free_name(wanted, |name| !self.scanned.contains(name) && !self.used_names.contains(name));
        self.used_names.insert(name.clone());
        self.scanned.insert(name.clone());
        name
    }

    /// Returns the CTEs of a depth: 0 for the whole query, n for the n-th open recursion.
    pub fn tables_at(&mut self, depth: usize) -> &mut Vec<CommonTable> {
        match depth.checked_sub(1) {
            None => &mut self.tables,
            Some(index) => &mut self.open_recursions[index].tables,
        }
    }

    /// Puts the CTEs of a depth before a query.
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

    /// Turns a `SELECT` into a relation in FROM.
    pub fn take_relation(&mut self, select: Select) -> Select {
        if select.is_relation() {
            return select;
        }
        let names = unique_names(&select.schema);
        self.derived_table(&select.to_sql(&names), names, &select)
    }

    /// Turns a query into a relation in FROM: a derived table, or a CTE if derived tables are nested too deeply already, since parsers
    /// limit the depth of queries.
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

    /// Creates a scan of a CTE.
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

    /// Writes a part that belongs into this many open recursions.
    pub fn with_depth<T>(&mut self, depth: usize, write: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer_depth = std::mem::replace(&mut self.depth, depth);
        let written = write(self);
        self.depth = outer_depth;
        written
    }

    /// Returns how many open recursions a plan belongs into: up to the innermost one whose work table it reads.
    pub fn depth_of(&self, plan: &LogicalPlan) -> Result<usize> {
        for (index, open) in self.open_recursions.iter().enumerate().rev() {
            if SharedRelation::reads_iteration(plan, &open.name)? {
                return Ok(index + 1);
            }
        }
        Ok(0)
    }
}
