//! What other languages load: the operators of `xql-autodiff` as C structs.
//!
//! A rule of the user's own is made by `xql_ffi_rule_new`, an operator with such rules by `xql_ffi_operator_new`. An operator
//! has the two structs a host imports, `FFI_ScalarUDF` and `FFI_ScalarUDFSimplify`; a host makes its own handles with their
//! `clone`, which may outlive the operator. What is wrong comes back as a string, and nothing unwinds.
//!
//! In layers, each using only those before it: `boundary` (handles, strings, errors), `rule`, `operator`, `capsule`; beside
//! them `rule_table` and `text`, and, for DataFusion 55, `session` and `observe`.

mod boundary;
mod capsule;
#[cfg(feature = "datafusion-55")]
mod observe;
mod operator;
mod rule;
mod rule_table;
#[cfg(feature = "datafusion-55")]
mod session;
mod text;
