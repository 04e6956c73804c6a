//! Unparses shared relations as CTEs. Another engine may compute a CTE again for each reader, so the rows have to be the same each time.

use datafusion_common::Result;
use std::sync::Arc;
use xql_relations::SharedRelation;
use xql_relations::determinism::{check_found_again, recursion, repeatable};

use super::names::unique;
use super::writer::{CommonTable, QueryWriter, SharedTable};
use crate::names::plain_name;
use crate::plan::{expand_calls, loses_columns, prune_columns};

/// Writes the CTE of a shared relation once, and returns its name and its columns.
pub fn write_shared_relation(
    writer: &mut QueryWriter,
    relation: &Arc<SharedRelation>,
) -> Result<(String, Vec<String>)> {
    if let Some(known) = writer.shared.iter().find(|known| Arc::ptr_eq(&known.relation, relation)) {
        let known = known.clone();
        for (open, reads) in writer.open_recursions.iter_mut().zip(&known.reads) {
            open.reads += reads;
        }
        return Ok((known.name, known.columns));
    }
    let before: Vec<_> = writer.open_recursions.iter().map(|open| open.reads).collect();
    // The rows of iterations have numbers already.
    let (plan, number) = match if writer.options.multi_read_recursion { recursion(relation)? } else { None } {
        Some(iterations) => (iterations, None),
        None => (relation.plan().clone(), relation.number()),
    };
    let plan = prune_columns(expand_calls(plan, writer.options.config)?, writer.options.config)?;
    check_found_again(&plan)?;
    let plan = repeatable(plan, number)?;
    let depth = writer.depth_of(&plan)?;
    writer.loses_columns |= loses_columns(&plan);
    let columns = unique(relation.columns());
    let text = writer.with_depth(depth, |writer| writer.select(&plan))?.to_sql(&columns);
    let name = writer.fresh_table_name(&plain_name(relation.name()));
    writer.tables_at(depth).push(CommonTable { name: name.clone(), text, is_recursive: false });
    let reads = writer.open_recursions.iter().zip(before).map(|(open, before)| open.reads - before).collect();
    let relation = Arc::clone(relation);
    writer.shared.push(SharedTable { relation, name: name.clone(), columns: columns.clone(), reads });
    Ok((name, columns))
}
