//! Unparses aliases.

use datafusion_expr::SubqueryAlias;
use std::sync::Arc;

use super::select::{FromClause, Select};

/// Renames the input.
pub fn write_subquery_alias(node: &SubqueryAlias, input: Select) -> Select {
    let source = FromClause { hint: node.alias.table().to_owned(), ..input.source };
    Select { schema: Arc::clone(&node.schema), source, ..input }
}
