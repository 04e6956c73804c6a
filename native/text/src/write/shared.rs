//! Shared relations, which are common table expressions. A host computes these anew wherever they are read, and has to find the same
//! rows each time.

use datafusion_common::Result;
use std::sync::Arc;
use xql_relations::SharedRelation;
use xql_relations::anew::{check_found_again, recursion, repeatable};

use super::names::unique;
use super::writer::{Shared, Table, Writer};
use crate::names::plain;
use crate::plan::{loses_columns, simplified, tidied};

/// The common table expression of a shared relation, and the names of its columns.
pub fn shared(writer: &mut Writer, relation: &Arc<SharedRelation>) -> Result<(String, Vec<String>)> {
    if let Some(known) = writer.shared.iter().find(|known| Arc::ptr_eq(&known.relation, relation)) {
        let known = known.clone();
        for (open, reads) in writer.open.iter_mut().zip(&known.reads) {
            open.reads += reads;
        }
        return Ok((known.name, known.columns));
    }
    let before: Vec<_> = writer.open.iter().map(|open| open.reads).collect();
    // The rows of iterations have their numbers.
    let (plan, number) = match if writer.form.rereads { recursion(relation)? } else { None } {
        Some(iterations) => (iterations, None),
        None => (relation.plan().clone(), relation.number()),
    };
    let plan = tidied(simplified(plan, writer.form.options)?, writer.form.options)?;
    check_found_again(&plan)?;
    let plan = repeatable(plan, number)?;
    let depth = writer.depth_of(&plan)?;
    writer.loses_columns |= loses_columns(&plan);
    let columns = unique(relation.columns());
    let text = writer.at(depth, |writer| writer.select(&plan))?.text(&columns);
    let name = writer.table_name(&plain(relation.name()));
    writer.tables_at(depth).push(Table { name: name.clone(), text, is_recursive: false });
    let reads = writer.open.iter().zip(before).map(|(open, before)| open.reads - before).collect();
    let relation = Arc::clone(relation);
    writer.shared.push(Shared { relation, name: name.clone(), columns: columns.clone(), reads });
    Ok((name, columns))
}
