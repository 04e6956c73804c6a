//! The library that other languages load: the operators of `xql-autodiff` as C structs.
//!
//! `xql_ffi_rule_new` makes a rule of the user's own, and `xql_ffi_operator_new` an operator with such rules. An operator
//! has the two structs that a host imports, `FFI_ScalarUDF` and `FFI_ScalarUDFSimplify`; a host makes its own handles with their
//! `clone`, which may outlive the operator. Errors are returned as strings, and nothing unwinds.
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

/// The allocator of plans and rows of this library, which the wheel of `datafusion` has for its own. Each library frees what it allocates.
#[cfg(feature = "datafusion-55")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
