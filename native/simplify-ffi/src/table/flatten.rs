//! Flattening of expression trees to a table.

use datafusion_common::{Result, plan_err};
use datafusion_expr::{Expr, Volatility};
use datafusion_proto::protobuf::Field;

use crate::table::message::node_to_wire;
use crate::table::{Node, NodeTable};
use crate::wire::error::malformed;
use crate::wire::{self, Call, Entry, Kind, Opaque};

/// An expression separated from its children.
pub(crate) struct Deconstructed {
    /// The expression with placeholders for its children.
    pub shape: Expr,
    /// The children, in the order of the placeholders.
    pub children: Vec<Expr>,
    /// The encoding of the node.
    pub encoding: Encoding,
}

/// The encoding of a node.
pub(crate) enum Encoding {
    /// As the `datafusion-proto` node of its shape.
    Node,
    /// As a call of one of the request's functions.
    Call { function: u32, return_field: Option<Field> },
    /// As an opaque expression; its children are the columns it reads.
    Opaque { printed: String, field: Option<Field>, volatility: Volatility },
    /// None: it is this entry, which the other side has.
    Existing(u32),
}

/// Appends expressions to a table, in post-order and without recursion.
pub(crate) struct Flattener<'a, F> {
    table: &'a mut NodeTable,
    entries: Vec<Entry>,
    deconstruct: F,
}

struct Frame {
    shape: Expr,
    encoding: Encoding,
    /// The remaining children, the next one last.
    pending: Vec<Expr>,
    /// The entries of visited children.
    visited: Vec<u32>,
}

impl<'a, F: FnMut(Expr) -> Result<Deconstructed>> Flattener<'a, F> {
    /// Creates a flattener. `deconstruct` separates an expression from its children and decides its encoding.
    pub(crate) fn new(table: &'a mut NodeTable, deconstruct: F) -> Self {
        Self { table, entries: vec![], deconstruct }
    }

    /// Returns the appended entries.
    pub(crate) fn finish(self) -> Vec<Entry> {
        self.entries
    }

    /// Appends `expr` and returns its entry.
    pub(crate) fn add(&mut self, expr: Expr) -> Result<u32> {
        let mut stack = vec![self.frame(expr)?];
        while let Some(mut frame) = stack.pop() {
            if let Some(child) = frame.pending.pop() {
                stack.push(frame);
                stack.push(self.frame(child)?);
                continue;
            }
            let entry = self.close(frame)?;
            match stack.last_mut() {
                Some(parent) => parent.visited.push(entry),
                None => return Ok(entry),
            }
        }
        Err(malformed("an expression without end"))
    }

    fn frame(&mut self, expr: Expr) -> Result<Frame> {
        let Deconstructed { shape, children, encoding } = (self.deconstruct)(expr)?;
        Ok(Frame { shape, encoding, pending: children.into_iter().rev().collect(), visited: vec![] })
    }

    fn close(&mut self, frame: Frame) -> Result<u32> {
        let Frame { shape, encoding, visited, .. } = frame;
        // Two volatile calls are two entries even if they look the same.
        let (node, volatile) = match &encoding {
            Encoding::Opaque { volatility, .. } => {
                (Node { shape, children: vec![] }, *volatility == Volatility::Volatile)
            }
            _ => {
                let volatile = shape.is_volatile_node();
                (Node { shape, children: visited.clone() }, volatile)
            }
        };
        if let Encoding::Existing(entry) = encoding {
            return self.existing_entry(&node, entry);
        }
        if !volatile && let Some(entry) = self.table.find(&node) {
            return Ok(entry);
        }
        let kind = match encoding {
            Encoding::Call { function, return_field } => {
                Kind::Call(Call { function, arguments: visited, return_field })
            }
            Encoding::Opaque { printed, field, volatility } => Kind::Opaque(Opaque {
                printed,
                field,
                reads: visited,
                volatility: wire::Volatility::from(volatility).into(),
            }),
            Encoding::Node | Encoding::Existing(_) => node_to_wire(&node)?,
        };
        self.entries.push(Entry { kind: Some(kind) });
        self.table.push(node, !volatile)
    }

    fn existing_entry(&self, node: &Node, entry: u32) -> Result<u32> {
        if self.table.get(entry)? == node {
            return Ok(entry);
        }
        plan_err!("simplify: the arguments of the opaque expression {} cannot be changed", node.shape)
    }
}
