//! The names in the statements of a session.
//!
//! A plan has the same node for `FROM (...) AS q` and for a CTE called `q`. A gradient by the rows of a derived table is by all queries of
//! its text, since no name refers to it from elsewhere; a CTE is identified by its name, and by that of the query whose own `WITH` has it.
//! So the texts of statements are parsed, where a session has them. A name that is two of these in the statements of a session is ambiguous:
//! where that matters, the derivative is refused.
//!
//! ```sql
//! WITH p AS (WITH i AS (SELECT ...) SELECT * FROM i), q AS (WITH i AS (SELECT ...) SELECT * FROM i) ...   -- two relations called i
//! ```

use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, DFParser, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{Ident, Query, Statement, TableFactor, Visit, Visitor};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use xql_relations::NameKind;

use crate::format::CopyStatements;

/// The number of names at which a session starts again.
const MAX_NAMES: usize = 10_000;

/// The prefix of the names under which hosts know statements that are planned here.
pub const STATEMENT_PREFIX: &str = "xql_statement_";

/// Returns whether a node is a statement that is planned here, under its name.
pub fn is_statement(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::SubqueryAlias(alias) if alias.alias.table().starts_with(STATEMENT_PREFIX))
}

/// The names in the statements of a session.
#[derive(Debug, Default)]
pub struct StatementNames {
    uses: HashMap<String, NameUse>,
    /// By the name of a CTE, the named queries that have it in a `WITH` of their own.
    definers: HashMap<String, HashSet<String>>,
    /// The files that the statements write.
    pub copies: CopyStatements,
}

/// The use of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameUse {
    Derived,
    Cte,
    View,
    Several,
}

impl StatementNames {
    /// Records the names of a statement, if it can be parsed.
    pub fn record(&mut self, sql: &str) {
        if self.uses.len() + self.copies.len() > MAX_NAMES {
            *self = Self::default();
        }
        for statement in DFParser::parse_sql(sql).unwrap_or_default() {
            let mut scopes = Scopes { names: self, queries: HashMap::new(), defined: HashSet::new(), open: vec![] };
            match &statement {
                DFStatement::CopyTo(copy) => {
                    let _ = scopes.names.copies.record(copy);
                    if let CopyToSource::Query(query) = &copy.source {
                        let _ = query.visit(&mut scopes);
                    }
                }
                DFStatement::Statement(statement) => {
                    if let Statement::CreateView(view) = statement.as_ref()
                        && let Some(name) = view.name.0.last().and_then(|name| name.as_ident())
                    {
                        scopes.names.add(&normalized(name), NameUse::View);
                        scopes.queries.insert(address(&view.query), (normalized(name), NameUse::View));
                    }
                    let _ = statement.visit(&mut scopes);
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, name: &str, name_use: NameUse) {
        let before = self.uses.entry(name.to_owned()).or_insert(name_use);
        if *before != name_use {
            *before = NameUse::Several;
        }
    }

    /// Returns whether a statement has a query of this name.
    pub fn has(&self, name: &str) -> bool {
        self.uses.contains_key(name)
    }

    /// Returns which of the queries around it has a CTE of this name in its own `WITH`; none for one of a whole statement.
    pub fn definer<'e>(&self, name: &str, enclosing: &'e [TableReference]) -> Option<&'e TableReference> {
        let definers = self.definers.get(name)?;
        enclosing.iter().rev().find(|query| definers.contains(query.table()))
    }

    /// Returns the kind of a name, `None` for a CTE or a view.
    pub fn kind(&self, name: &str) -> Option<NameKind> {
        match self.uses.get(name) {
            Some(NameUse::Derived) => Some(NameKind::Derived),
            Some(NameUse::Cte | NameUse::View) => None,
            Some(NameUse::Several) | None => Some(NameKind::Unsure),
        }
    }
}

/// A statement whose names are recorded.
struct Scopes<'n> {
    names: &'n mut StatementNames,
    /// The queries that have names, by where they are.
    queries: HashMap<*const Query, (String, NameUse)>,
    /// The CTEs that have been seen, each with the named query that has it.
    defined: HashSet<(String, Option<String>)>,
    /// The queries around what is visited, the innermost last.
    open: Vec<Scope>,
}

/// A query around what is visited.
struct Scope {
    /// Its name and what it is the name of, if it has one.
    name: Option<(String, NameUse)>,
    /// The CTEs of its own `WITH`, unless they are recursive.
    ctes: Vec<String>,
}

impl Visitor for Scopes<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let name = self.queries.get(&address(query)).cloned();
        self.open.push(Scope { name, ctes: vec![] });
        let definer = self.open.iter().rev().find_map(|scope| scope.name.as_ref()).map(|(name, _)| name.clone());
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            let name = normalized(&cte.alias.name);
            self.names.add(&name, NameUse::Cte);
            if let Some(definer) = &definer {
                self.names.definers.entry(name.clone()).or_default().insert(definer.clone());
            }
            // Of two in queries without names nobody can tell which one a plan reads.
            if !self.defined.insert((name.clone(), definer.clone())) {
                self.names.add(&name, NameUse::Several);
            }
            self.queries.insert(address(&cte.query), (name, NameUse::Cte));
        }
        if let (Some(scope), Some(with)) = (self.open.last_mut(), &query.with)
            && !with.recursive
        {
            scope.ctes = with.cte_tables.iter().map(|cte| normalized(&cte.alias.name)).collect();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Derived { alias: Some(alias), subquery, .. } => {
                let name = normalized(&alias.name);
                self.names.add(&name, NameUse::Derived);
                self.queries.insert(address(subquery), (name, NameUse::Derived));
            }
            // A CTE that reads the one of its own name around it: both are read in the query that has the inner one.
            TableFactor::Table { name, .. } if name.0.len() == 1 => {
                let Some(read) = name.0.first().and_then(|name| name.as_ident()).map(normalized) else {
                    return ControlFlow::Continue(());
                };
                let is_within = self.open.iter().any(|scope| scope.name == Some((read.clone(), NameUse::Cte)));
                if is_within && self.open.iter().filter(|scope| scope.ctes.contains(&read)).count() > 1 {
                    self.names.add(&read, NameUse::Several);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn normalized(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn address(query: &Query) -> *const Query {
    std::ptr::from_ref(query)
}
