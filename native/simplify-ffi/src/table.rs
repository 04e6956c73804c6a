//! The table of sub-expressions that both sides build.

use std::collections::HashMap;

use datafusion_common::Result;
use datafusion_expr::Expr;

use crate::error::malformed;

/// One entry of the table, as the side that holds it sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// A shallow expression, its children being placeholders.
    Shell(Expr),
    /// An expression of the consumer that stands for itself, children and all.
    Whole(Expr),
}

/// Distinct sub-expressions, each after those it refers to.
#[derive(Debug, Default)]
pub(crate) struct Table {
    items: Vec<Item>,
    index: HashMap<Item, u32>,
}

impl Table {
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(crate) fn get(&self, index: u32) -> Result<&Item> {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.items.get(index))
            .ok_or_else(|| malformed(format_args!("there is no entry {index}")))
    }

    /// The entry of an equal item, if there is one that may be shared.
    pub(crate) fn find(&self, item: &Item) -> Option<u32> {
        self.index.get(item).copied()
    }

    /// Appends an item; `shared` says whether an equal one may later be taken for it.
    pub(crate) fn push(&mut self, item: Item, shared: bool) -> Result<u32> {
        let index = u32::try_from(self.items.len()).map_err(malformed)?;
        if shared {
            self.index.entry(item.clone()).or_insert(index);
        }
        self.items.push(item);
        Ok(index)
    }
}
