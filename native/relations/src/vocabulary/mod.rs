//! Names, origins and identities of columns and relations, and the operators. All other modules use these.

pub mod decorrelated;
pub mod expressions;
pub mod identity;
pub mod names;
pub mod nodes;
pub mod nullable_wrapper;
pub mod observed;
pub mod operators;
pub mod origin;
pub mod source;
pub mod work_table;
