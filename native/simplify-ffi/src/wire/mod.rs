//! The messages that cross, as protocol buffers.
//!
//! `Field`, `LogicalExprNode` and `TableReference` are those of `datafusion-proto` of the same major version.

pub(crate) mod error;
pub(crate) mod field;
pub(crate) mod types;

use datafusion_proto::protobuf::{EmptyMessage, Field, LogicalExprNode, TableReference};

/// Version of these messages, and of the layout of [`FFI_ScalarUDFSimplify`](crate::FFI_ScalarUDFSimplify).
pub const ABI_VERSION: u64 = 1;

/// What the consumer asks: simplify a call with these arguments.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// [`ABI_VERSION`] of the consumer.
    #[prost(uint64, tag = "1")]
    pub abi_version: u64,
    /// Major version of DataFusion of the consumer.
    #[prost(uint64, tag = "2")]
    pub datafusion_major: u64,
    /// The fields of the input's schema that have the name of a column among the entries.
    #[prost(message, repeated, tag = "3")]
    pub schema: Vec<QualifiedField>,
    /// When the query started, if that is known.
    #[prost(message, optional, tag = "4")]
    pub query_execution_start_time: Option<Time>,
    /// Functions of the consumer that are not DataFusion's own.
    #[prost(message, repeated, tag = "5")]
    pub functions: Vec<Function>,
    /// Every distinct sub-expression, each after those it refers to.
    #[prost(message, repeated, tag = "6")]
    pub entries: Vec<Entry>,
    /// The entry of each argument.
    #[prost(uint32, repeated, tag = "7")]
    pub arguments: Vec<u32>,
    /// Functions that the answer may call although the arguments do not. In a [`Call`] they continue `functions`.
    #[prost(message, repeated, tag = "8")]
    pub extra_functions: Vec<Function>,
}

/// What the provider answers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    /// The outcome; required.
    #[prost(oneof = "Outcome", tags = "1, 2, 3")]
    pub outcome: Option<Outcome>,
}

/// What came of a request.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Outcome {
    /// The call stays as it is.
    #[prost(message, tag = "1")]
    Original(EmptyMessage),
    /// The call becomes this.
    #[prost(message, tag = "2")]
    Simplified(Simplified),
    /// There is no answer.
    #[prost(message, tag = "3")]
    Failure(Failure),
}

/// The expression that takes the place of the call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Simplified {
    /// Entries that continue those of the request.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// The entry of the new expression.
    #[prost(uint32, tag = "2")]
    pub root: u32,
}

/// An error.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Failure {
    /// The kind, a [`FailureKind`].
    #[prost(enumeration = "FailureKind", tag = "1")]
    pub kind: i32,
    /// The message, without the prefix of its kind.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The kinds of `DataFusionError` that are a kind and a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum FailureKind {
    /// Any other kind, and every failure of the crossing itself.
    Ffi = 0,
    /// `Plan`.
    Plan = 1,
    /// `NotImplemented`.
    NotImplemented = 2,
    /// `Configuration`.
    Configuration = 3,
    /// `Execution`.
    Execution = 4,
    /// `ResourcesExhausted`.
    ResourcesExhausted = 5,
    /// `Internal`.
    Internal = 6,
}

/// A time in UTC.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Time {
    /// Whole seconds since 1970, rounded down.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds on top of them.
    #[prost(uint32, tag = "2")]
    pub nanoseconds: u32,
}

/// A field of the input schema.
#[derive(Clone, PartialEq, prost::Message)]
pub struct QualifiedField {
    /// The table it belongs to.
    #[prost(message, optional, tag = "1")]
    pub qualifier: Option<TableReference>,
    /// The field itself.
    #[prost(message, required, tag = "2")]
    pub field: Field,
}

/// A function of the consumer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Function {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The volatility, a [`Volatility`].
    #[prost(enumeration = "Volatility", tag = "2")]
    pub volatility: i32,
    /// Other names.
    #[prost(string, repeated, tag = "3")]
    pub aliases: Vec<String>,
}

/// How often a function may be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Volatility {
    /// `Immutable`.
    Immutable = 0,
    /// `Stable`.
    Stable = 1,
    /// `Volatile`.
    Volatile = 2,
}

/// One sub-expression.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entry {
    /// The expression; required.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<Kind>,
}

/// What a sub-expression is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// A shallow expression: each child is a column without qualifier, named by the decimal index of its entry.
    #[prost(message, tag = "1")]
    Node(LogicalExprNode),
    /// A column of the input.
    #[prost(message, tag = "2")]
    Column(Column),
    /// A column of a query further out.
    #[prost(message, tag = "3")]
    OuterReference(OuterReference),
    /// A call of a function that does not cross by name.
    #[prost(message, tag = "4")]
    Call(Call),
    /// In a request only.
    #[prost(message, tag = "5")]
    Opaque(Opaque),
}

/// A column; the qualifier is structured because printed it would be ambiguous.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Column {
    /// The table.
    #[prost(message, optional, tag = "1")]
    pub relation: Option<TableReference>,
    /// The name.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// A column of a query further out.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OuterReference {
    /// The column.
    #[prost(message, required, tag = "1")]
    pub column: Column,
    /// The field itself.
    #[prost(message, required, tag = "2")]
    pub field: Field,
}

/// A call of one of the request's functions.
///
/// The provider does not know which types an extra function takes and returns. It answers with arguments that are all of the
/// type that the call is to return, and the consumer coerces both.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Call {
    /// The place of the function in the request's `functions`, which its `extra_functions` continue.
    #[prost(uint32, tag = "1")]
    pub function: u32,
    /// The entries of the arguments.
    #[prost(uint32, repeated, tag = "2")]
    pub arguments: Vec<u32>,
    /// In a request, what this call returns, if that is known; in an answer, what a call of an extra function is to
    /// return.
    #[prost(message, optional, tag = "3")]
    pub return_field: Option<Field>,
}

/// An expression the provider is not shown.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Opaque {
    /// The expression as printed.
    #[prost(string, tag = "1")]
    pub printed: String,
    /// What it gives, if that is known.
    #[prost(message, optional, tag = "2")]
    pub field: Option<Field>,
    /// The entries of the columns and outer references it reads.
    #[prost(uint32, repeated, tag = "3")]
    pub reads: Vec<u32>,
    /// The volatility, a [`Volatility`].
    #[prost(enumeration = "Volatility", tag = "4")]
    pub volatility: i32,
}
