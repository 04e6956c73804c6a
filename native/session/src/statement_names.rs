//! What the names in the statements of a session are.
//!
//! A plan has the same node for `FROM (...) AS q` and for a CTE that is called `q`. A gradient by the rows of a derived table is that by all
//! queries of its text, since no name leads to it from elsewhere; a CTE is known by its name. So the texts of statements are looked at,
//! where a session has them. A name that is both in the statements of a session is neither: where it matters, the derivative is refused.

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, DFParser, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{Ident, Query, Statement, TableFactor, Visit, Visitor};
use std::collections::HashMap;
use std::ops::ControlFlow;
use xql_relations::NameKind;

use crate::format::CopyStatements;

/// With so many names a session begins anew.
const MAX_NAMES: usize = 10_000;

/// How the names begin by which hosts know statements that are planned here.
pub const STATEMENT_PREFIX: &str = "xql_statement_";

/// Whether a node is a statement that is planned here, under its name.
pub fn is_statement(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::SubqueryAlias(alias) if alias.alias.table().starts_with(STATEMENT_PREFIX))
}

/// The names of the statements of a session.
#[derive(Debug, Default)]
pub struct StatementNames {
    uses: HashMap<String, NameUse>,
    /// The files that the statements write.
    pub copies: CopyStatements,
}

/// What a name was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameUse {
    Derived,
    Cte,
    Both,
}

impl StatementNames {
    /// Notes the names of a statement, if it can be read.
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

    /// What a name is known to be, if it is not that of a CTE or view.
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
