//! The names in the statements of a session.
//!
//! A plan has the same node for `FROM (...) AS q` and for a CTE called `q`. A gradient by the rows of a derived table is by all queries of
//! its text, since no name refers to it from elsewhere; a CTE is identified by its name. So the texts of statements are parsed, where a
//! session has them. A name that is both in the statements of a session is ambiguous: where that matters, the derivative is refused.

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, DFParser, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{Ident, Query, Statement, TableFactor, Visit, Visitor};
use std::collections::HashMap;
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
    /// The files that the statements write.
    pub copies: CopyStatements,
}

/// The use of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameUse {
    Derived,
    Cte,
    Both,
}

impl StatementNames {
    /// Records the names of a statement, if it can be parsed.
    pub fn record(&mut self, sql: &str) {
        if self.uses.len() + self.copies.len() > MAX_NAMES {
            *self = Self::default();
        }
        for statement in DFParser::parse_sql(sql).unwrap_or_default() {
            if let DFStatement::CopyTo(copy) = &statement {
                let _ = self.copies.record(copy);
                if let CopyToSource::Query(query) = &copy.source {
                    let _ = query.visit(self);
                }
            }
            if let DFStatement::Statement(statement) = statement {
                if let Statement::CreateView(view) = statement.as_ref()
                    && let Some(name) = view.name.0.last().and_then(|name| name.as_ident())
                {
                    self.add(name, NameUse::Cte);
                }
                let _ = statement.visit(self);
            }
        }
    }

    fn add(&mut self, name: &Ident, name_use: NameUse) {
        let name = if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() };
        let before = self.uses.entry(name).or_insert(name_use);
        if *before != name_use {
            *before = NameUse::Both;
        }
    }

    /// Returns the kind of a name, `None` for a CTE or a view.
    pub fn kind(&self, name: &str) -> Option<NameKind> {
        match self.uses.get(name) {
            Some(NameUse::Derived) => Some(NameKind::Derived),
            Some(NameUse::Cte) => None,
            Some(NameUse::Both) | None => Some(NameKind::Unsure),
        }
    }
}

impl Visitor for StatementNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.add(&cte.alias.name, NameUse::Cte);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { alias: Some(alias), .. } = factor {
            self.add(&alias.name, NameUse::Derived);
        }
        ControlFlow::Continue(())
    }
}
