//! Entries of the table as expressions.

use datafusion_common::Result;
use datafusion_expr::Expr;

use crate::error::malformed;
use crate::field::{column_from_wire, field_from_wire};
use crate::node::node_from_wire;
use crate::wire::{Call, Entry, Kind, Opaque};

/// The shallow expression of an entry. What calls and opaque entries stand for, each side knows by itself.
pub(crate) fn entry_from_wire(
    entry: Entry,
    call: impl FnOnce(Call) -> Result<Expr>,
    opaque: impl FnOnce(Opaque) -> Result<Expr>,
) -> Result<Expr> {
    match entry.kind {
        Some(Kind::Node(node)) => node_from_wire(&node),
        Some(Kind::Column(column)) => Ok(Expr::Column(column_from_wire(column)?)),
        Some(Kind::OuterReference(reference)) => {
            Ok(Expr::OuterReferenceColumn(field_from_wire(&reference.field)?, column_from_wire(reference.column)?))
        }
        Some(Kind::Call(made)) => call(made),
        Some(Kind::Opaque(hidden)) => opaque(hidden),
        None => Err(malformed("an entry without kind")),
    }
}
