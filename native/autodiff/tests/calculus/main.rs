//! The calculus on sessions of DataFusion: derivatives as they are planned, rules of the user's own, and the table.

mod custom_rules;
mod derivatives;
mod every_function;
mod session;
mod special;
