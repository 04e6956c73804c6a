//! Common subplans: what several places of a statement read is one node, from the statement on.
//!
//! DataFusion writes a CTE out wherever it is read, and so does everything that goes through a plan as a tree: ten CTEs of which each
//! reads the one before twice are a thousand copies of the first.
//!
//! ```sql
//! WITH a AS (SELECT ...), b AS (SELECT ... FROM a x JOIN a y ...), c AS (SELECT ... FROM b x JOIN b y ...) ...
//! ```
//!
//! [`CommonSubplans`] plans a CTE or a view that is large as a leaf, a `SubplanScan`, which all its readers have in common. The analyzer
//! rule takes these leaves away ([`Subplans`]): in a statement without a call they become what DataFusion would have planned, and in one
//! with a call those with several readers become shared relations, which are computed once. A CTE can say for itself which of both it is,
//! with `AS MATERIALIZED` and `AS NOT MATERIALIZED`.

mod capture;
mod materialized;
mod parameters;
mod resolve;
mod scan;

pub use capture::CommonSubplans;
pub use materialized::{Materialization, has_materialization};
pub use parameters::{replace_parameters, value_as};
pub use resolve::{Sharing, Subplans, has_calls, has_shared_subplans};
pub use scan::written_out_size;
