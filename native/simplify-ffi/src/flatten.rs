//! From expression trees to the table.

use datafusion_common::Result;
use datafusion_expr::Expr;
use datafusion_proto::protobuf;

use crate::error::malformed;
use crate::field::{column_to_wire, field_to_wire};
use crate::node::{node_to_wire, placeholder, with_children, without_metadata};
use crate::table::{Item, Table};
use crate::wire::{self, Kind};

/// How an expression crosses.
pub(crate) enum Crossing {
    /// As the `datafusion-proto` node of the shell.
    Node,
    /// As a call of one of the request's functions.
    Call { function: u32, return_field: Option<protobuf::Field> },
    /// As an opaque expression; its children are the columns it reads.
    Opaque { printed: String, field: Option<protobuf::Field>, volatility: wire::Volatility },
    /// Not at all: it is this entry, which the other side has.
    Known(u32),
}

/// An expression parted from its children.
pub(crate) struct Opened {
    pub item: Item,
    pub children: Vec<Expr>,
    pub crossing: Crossing,
}

/// Appends expressions to a table, in post-order and without recursion.
pub(crate) struct Flattener<'a, F> {
    table: &'a mut Table,
    entries: Vec<wire::Entry>,
    depth: usize,
    open: F,
}

struct Frame {
    item: Item,
    crossing: Crossing,
    /// Children still to be visited, the next one last.
    pending: Vec<Expr>,
    /// The entries of those visited.
    done: Vec<u32>,
}

impl<'a, F: FnMut(Expr) -> Result<Opened>> Flattener<'a, F> {
    /// `open` parts an expression from its children and decides how it crosses.
    pub(crate) fn new(table: &'a mut Table, open: F) -> Self {
        Self { table, entries: vec![], depth: 0, open }
    }

    /// The entries that were appended, and the depth of the deepest expression.
    pub(crate) fn finish(self) -> (Vec<wire::Entry>, usize) {
        (self.entries, self.depth)
    }

    /// The entry of `expr`.
    pub(crate) fn add(&mut self, expr: Expr) -> Result<u32> {
        let mut stack = vec![self.frame(expr)?];
        while let Some(mut frame) = stack.pop() {
            self.depth = self.depth.max(stack.len() + 1);
            if let Some(child) = frame.pending.pop() {
                stack.push(frame);
                stack.push(self.frame(child)?);
                continue;
            }
            let entry = self.close(frame)?;
            match stack.last_mut() {
                Some(parent) => parent.done.push(entry),
                None => return Ok(entry),
            }
        }
        Err(malformed("an expression without end"))
    }

    fn frame(&mut self, expr: Expr) -> Result<Frame> {
        let Opened { item, children, crossing } = (self.open)(expr)?;
        Ok(Frame { item, crossing, pending: children.into_iter().rev().collect(), done: vec![] })
    }

    fn close(&mut self, frame: Frame) -> Result<u32> {
        let Frame { item, crossing, done, .. } = frame;
        let item = match item {
            Item::Shell(shell) => {
                let placeholders = done.iter().map(|&entry| placeholder(entry));
                Item::Shell(with_children(shell, placeholders)?)
            }
            whole => whole,
        };
        if let Crossing::Known(entry) = crossing {
            return self.known(&item, entry);
        }
        let shared = !is_volatile(&item, &crossing);
        if shared && let Some(entry) = self.table.find(&item) {
            return Ok(entry);
        }
        let kind = kind(&item, crossing, done)?;
        self.entries.push(wire::Entry { kind: Some(kind) });
        self.table.push(item, shared)
    }

    fn known(&self, item: &Item, entry: u32) -> Result<u32> {
        if self.table.get(entry)? == item {
            return Ok(entry);
        }
        let (Item::Shell(expr) | Item::Whole(expr)) = item;
        datafusion_common::plan_err!("simplify: the arguments of the opaque expression {expr} cannot be changed")
    }
}

/// Two volatile calls are two entries even if they look the same.
fn is_volatile(item: &Item, crossing: &Crossing) -> bool {
    match (item, crossing) {
        (_, Crossing::Opaque { volatility, .. }) => *volatility == wire::Volatility::Volatile,
        (Item::Shell(expr) | Item::Whole(expr), _) => expr.is_volatile_node(),
    }
}

fn kind(item: &Item, crossing: Crossing, done: Vec<u32>) -> Result<Kind> {
    let (Item::Shell(expr) | Item::Whole(expr)) = item;
    Ok(match (crossing, expr) {
        (Crossing::Call { function, return_field }, _) => {
            Kind::Call(wire::Call { function, arguments: done, return_field })
        }
        (Crossing::Opaque { printed, field, volatility }, _) => {
            Kind::Opaque(wire::Opaque { printed, field, reads: done, volatility: volatility.into() })
        }
        (_, Expr::Column(column)) => Kind::Column(column_to_wire(column)),
        (_, Expr::OuterReferenceColumn(field, column)) => {
            Kind::OuterReference(wire::OuterReference { column: column_to_wire(column), field: field_to_wire(field)? })
        }
        _ => Kind::Node(node_to_wire(&without_metadata(expr.clone()))?),
    })
}
