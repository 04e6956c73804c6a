//! [`ScalarUDFImpl::simplify`] across a C boundary.
//!
//! `datafusion-ffi` hands a scalar function from one library to another as an [`FFI_ScalarUDF`], which has no slot for
//! `simplify`. This crate hands it over beside that struct, whose layout stays as it is:
//!
//! * a **provider** exports, besides the capsule `datafusion_scalar_udf`, a capsule [`CAPSULE_NAME`] that holds an
//!   [`FFI_ScalarUDFSimplify`]; its Python object gives it from the method [`METHOD_NAME`];
//! * a **consumer** imports both and joins them to a [`SimplifyingScalarUDF`], which is the stock imported function plus
//!   `simplify`.
//!
//! ```ignore
//! // The provider, for the two capsules:
//! let function = FFI_ScalarUDF::from(Arc::clone(&udf));
//! let simplify = FFI_ScalarUDFSimplify::from(udf);
//!
//! // The consumer, with what the two capsules point to:
//! let simplify = unsafe { FFI_ScalarUDFSimplify::import(simplify) }?; // checks the versions, so it comes first
//! let function: Arc<dyn ScalarUDFImpl> = function.into();
//! let udf = ScalarUDF::from(SimplifyingScalarUDF::new(function, simplify));
//! ```
//!
//! # What crosses
//! The arguments cross as one flat table of shallow `datafusion-proto` nodes in post-order, children by index, a shared
//! sub-expression once (module [`wire`] defines the messages). The input schema goes with them, with qualifiers, types and
//! nullability, and so does the time the query started. The answer continues the table: an index below the length of the
//! request stands for an expression of the consumer, which puts back its own. Configuration options do not cross: the
//! provider's `simplify` sees the defaults.
//!
//! What `datafusion-proto` cannot carry, or cannot carry faithfully, crosses as a stand-in:
//!
//! * A call of a function that is not one of DataFusion's own (or that overrides one) is a call of a [`ForeignFunction`]
//!   with the same arguments. The provider may give it back with these or with other arguments; the consumer puts its own
//!   function in its place.
//! * Subqueries, aggregate and window functions, lambdas, scalar variables and the like are *opaque*: a call of a
//!   [`ForeignFunction`] that is named like the printed expression, has its type, and whose arguments are the columns it
//!   reads. The provider may give it back anywhere, but as it is.
//! * A function that the arguments do not call may be offered for the answer
//!   ([`with_functions`](SimplifyingScalarUDF::with_functions)); the provider calls it by
//!   [`ForeignFunction::offered`], and the consumer converts its arguments and its result.
//! * Metadata of literals, aliases and casts stays behind. Expressions that come back have theirs again.
//!
//! A calculus thus needs no knowledge of this crate: both kinds are calls of functions it does not know. One that wants to
//! tell them apart finds a [`ForeignFunction`] by `ScalarUDFImpl::downcast_ref` and asks
//! [`is_opaque`](ForeignFunction::is_opaque).
//!
//! # What can go wrong
//! Every failure is an error with a message: another version of the ABI or another major version of DataFusion, bytes that
//! are no table, an `Err` of `simplify` (which keeps its kind), a panic. Nothing unwinds across the boundary.
//!
//! [`ScalarUDFImpl::simplify`]: datafusion_expr::ScalarUDFImpl::simplify
//! [`FFI_ScalarUDF`]: datafusion_ffi::udf::FFI_ScalarUDF

#![deny(missing_docs, unsafe_op_in_unsafe_fn)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod abi;
mod bytes;
mod consumer;
mod default_functions;
mod entry;
mod error;
mod expand;
mod field;
mod flatten;
mod foreign_function;
mod node;
mod offered;
mod opaque;
mod provider;
mod request;
mod schema;
mod stack;
mod table;
pub mod wire;

use std::ffi::CStr;

pub use abi::FFI_ScalarUDFSimplify;
pub use bytes::FFI_Bytes;
pub use consumer::SimplifyingScalarUDF;
pub use foreign_function::ForeignFunction;

/// Version of the layout of [`FFI_ScalarUDFSimplify`] and of the messages that cross.
pub const ABI_VERSION: u64 = 1;

/// Name of the capsule that holds an [`FFI_ScalarUDFSimplify`].
pub const CAPSULE_NAME: &CStr = c"datafusion_scalar_udf_simplify";

/// Method of a Python object that gives the capsule.
pub const METHOD_NAME: &str = "__datafusion_scalar_udf_simplify__";

/// Method of a Python object that gives the functions, a list of `datafusion._internal.ScalarUDF`, that its `simplify` is
/// offered for its answers. An object may lack it.
pub const FUNCTIONS_METHOD_NAME: &str = "__datafusion_scalar_udf_simplify_functions__";
