//! The messages that cross, as protocol buffers.

use datafusion_proto::protobuf::{EmptyMessage, Field, LogicalExprNode, TableReference};

/// What the consumer asks: simplify a call with these arguments.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    #[prost(uint64, tag = "1")]
    pub abi_version: u64,
    #[prost(uint64, tag = "2")]
    pub datafusion_major: u64,
    #[prost(message, repeated, tag = "3")]
    pub schema: Vec<QualifiedField>,
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
}

/// What the provider answers.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Answer {
    #[prost(oneof = "Outcome", tags = "1, 2, 3")]
    pub outcome: Option<Outcome>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Outcome {
    /// The call stays as it is.
    #[prost(message, tag = "1")]
    Original(EmptyMessage),
    #[prost(message, tag = "2")]
    Simplified(Simplified),
    #[prost(message, tag = "3")]
    Failure(Failure),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Simplified {
    /// Entries that continue those of the request.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    #[prost(uint32, tag = "2")]
    pub root: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Failure {
    #[prost(enumeration = "FailureKind", tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The kinds of `DataFusionError` that are a kind and a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum FailureKind {
    /// Any other kind, and every failure of the crossing itself.
    Ffi = 0,
    Plan = 1,
    NotImplemented = 2,
    Configuration = 3,
    Execution = 4,
    ResourcesExhausted = 5,
    Internal = 6,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(uint32, tag = "2")]
    pub nanoseconds: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct QualifiedField {
    #[prost(message, optional, tag = "1")]
    pub qualifier: Option<TableReference>,
    #[prost(message, required, tag = "2")]
    pub field: Field,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Function {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "Volatility", tag = "2")]
    pub volatility: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Volatility {
    Immutable = 0,
    Stable = 1,
    Volatile = 2,
}

/// One sub-expression.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Entry {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Kind {
    /// A shallow expression: each child is a column without qualifier, named by the decimal index of its entry.
    #[prost(message, tag = "1")]
    Node(LogicalExprNode),
    #[prost(message, tag = "2")]
    Column(Column),
    #[prost(message, tag = "3")]
    OuterReference(OuterReference),
    #[prost(message, tag = "4")]
    Call(Call),
    /// In a request only.
    #[prost(message, tag = "5")]
    Opaque(Opaque),
}

/// A column; the qualifier is structured because printed it would be ambiguous.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Column {
    #[prost(message, optional, tag = "1")]
    pub relation: Option<TableReference>,
    #[prost(string, tag = "2")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OuterReference {
    #[prost(message, required, tag = "1")]
    pub column: Column,
    #[prost(message, required, tag = "2")]
    pub field: Field,
}

/// A call of one of the request's functions.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Call {
    #[prost(uint32, tag = "1")]
    pub function: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub arguments: Vec<u32>,
    /// What this call returns, if that is known; in a request only.
    #[prost(message, optional, tag = "3")]
    pub return_field: Option<Field>,
}

/// An expression the provider is not shown.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Opaque {
    #[prost(string, tag = "1")]
    pub printed: String,
    /// What it gives, if that is known.
    #[prost(message, optional, tag = "2")]
    pub field: Option<Field>,
    /// The entries of the columns and outer references it reads.
    #[prost(uint32, repeated, tag = "3")]
    pub reads: Vec<u32>,
    #[prost(enumeration = "Volatility", tag = "4")]
    pub volatility: i32,
}
