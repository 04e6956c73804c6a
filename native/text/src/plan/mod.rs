//! Planning and differentiation of statements.
//!
//! `catalog` has the tables and views that statements refer to, `functions` their functions that are not DataFusion's own,
//! `source_fragment` expressions that keep text of another engine; `planner` plans a statement with these; `derive` types and
//! differentiates a plan; `stale_views` has views over tables that have been replaced; `columns` has the columns of queries.

mod catalog;
mod columns;
mod derive;
mod functions;
mod planner;
mod source_fragment;
mod stale_views;

pub use catalog::{Catalog, CatalogTable};
pub use columns::{columns_of, query_or_statement};
pub use derive::{
    coerce_types, differentiate_plan, expand_calls, expand_expr, is_call, is_lateral, loses_columns, prune_columns,
    simplify_context,
};
pub use functions::CallSite;
pub use planner::Planner;
pub use source_fragment::{has_fragments, make_fragments_opaque};
pub use stale_views::read_stale_views_by_name;
