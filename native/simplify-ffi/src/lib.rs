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
//! * Extra functions, which the arguments need not call, go with the request by name
//!   ([`with_extra_functions`](SimplifyingScalarUDF::with_extra_functions)). The provider calls them by
//!   [`ForeignFunction::from_name`], and the consumer coerces their arguments and their result.
//! * Literals of nested types are opaque too: how large one is could not be told from its message.
//! * Metadata of literals, aliases and casts stays behind. Expressions that come back have theirs again; of two that differ in
//!   metadata alone, both come back as the first.
//!
//! A calculus thus needs no knowledge of this crate: both kinds are calls of functions it does not know. One that wants to
//! tell them apart finds a [`ForeignFunction`] by `ScalarUDFImpl::downcast_ref` and asks
//! [`is_opaque`](ForeignFunction::is_opaque).
//!
//! # Layers
//! Each uses only those before it:
//!
//! 1. [`wire`]: the messages, and fields, schemas and errors as such.
//! 2. `table`: expressions as a table of nodes, and back; nodes as messages; what is opaque.
//! 3. `provider`: a request answered by the `simplify` of a function of this library.
//! 4. `abi`: the structs that cross, made of the provider.
//! 5. `consumer`: a request made of a call, and the expression made of its answer.
//!
//! # What can go wrong
//! Every failure is an error with a message: another version of the ABI or another major version of DataFusion, bytes that
//! are no table, an expression that is too large or too deep, an answer without type or of another type than the call, an `Err`
//! of `simplify` (which keeps its kind), a panic. Nothing unwinds across the boundary, and a panic prints nothing, because
//! [`guard`](xql_guard::guard) catches it.
//!
//! Not checked, because no check finds it, is what callers of `unsafe` functions promise: that a pointer points to a struct or to
//! as many bytes as are said, which live until they are released, and that the functions of a struct do what is said of them.
//!
//! [`ScalarUDFImpl::simplify`]: datafusion_expr::ScalarUDFImpl::simplify
//! [`FFI_ScalarUDF`]: datafusion_ffi::udf::FFI_ScalarUDF

#![deny(missing_docs)]

mod abi;
mod consumer;
mod provider;
mod table;
pub mod wire;

pub use abi::{CAPSULE_NAME, FFI_Bytes, FFI_ScalarUDFSimplify, FUNCTIONS_METHOD_NAME, METHOD_NAME};
pub use consumer::SimplifyingScalarUDF;
pub use provider::foreign_function::ForeignFunction;
pub use wire::ABI_VERSION;
