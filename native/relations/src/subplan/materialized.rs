//! The hints `AS MATERIALIZED` and `AS NOT MATERIALIZED`, which determine whether a CTE is computed once.
//!
//! DataFusion's SQL has neither, and where its parser knows them, as in PostgreSQL's dialect, its planner drops them. So the text of a
//! statement gets a marker behind the CTE, which is found by the rules of SQL for names: it is seen where the CTE is.
//!
//! ```sql
//! WITH k AS MATERIALIZED (SELECT ...) SELECT ... FROM k
//! -- is planned as
//! WITH k AS (SELECT ...), "∂materialized k" AS (SELECT 1 AS "∂always") SELECT ... FROM k
//! ```

use datafusion_expr::LogicalPlan;
use sqlparser::ast::{Ident, ObjectName, TableFactor};

/// The hint of a CTE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Materialization {
    /// `AS MATERIALIZED`: it is computed once, however many places read it.
    Always,
    /// `AS NOT MATERIALIZED`: it is written out where it is read.
    Never,
}

const ALWAYS: &str = "∂always";
const NEVER: &str = "∂never";
const MARKER: &str = "∂materialized ";

impl Materialization {
    /// Parses the marker of a CTE.
    pub fn of_marker(marker: &LogicalPlan) -> Option<Self> {
        match marker.schema().fields().first()?.name().as_str() {
            ALWAYS => Some(Self::Always),
            NEVER => Some(Self::Never),
            _ => None,
        }
    }

    /// Returns the marker that stands behind a CTE of this name, as a further CTE.
    pub fn marker(self, name: &str) -> String {
        let column = if self == Self::Always { ALWAYS } else { NEVER };
        format!("{} AS (SELECT 1 AS \"{column}\")", marker(name))
    }
}

/// Returns the relation that is there if the relation of this name says of itself whether it is computed once.
pub fn marker_of(name: &ObjectName) -> Option<TableFactor> {
    let [part] = name.0.as_slice() else { return None };
    Some(TableFactor::Table {
        name: ObjectName::from(vec![marker(&part.as_ident()?.value)]),
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    })
}

fn marker(name: &str) -> Ident {
    Ident::with_quote('"', format!("{MARKER}{}", name.to_lowercase()))
}

/// Returns whether a statement has markers.
pub fn has_materialization(sql: &str) -> bool {
    sql.contains(MARKER)
}
