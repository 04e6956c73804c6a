//! Unions of inputs that have got further columns.

use datafusion_common::{DFSchema, Result};
use datafusion_expr::{LogicalPlan, Union};
use std::sync::Arc;

/// Returns a union of inputs that have more columns behind those that it had.
pub fn widened_union(union: &Union, widened: Vec<Arc<LogicalPlan>>) -> Result<LogicalPlan> {
    // The names of the first input, the nullability of all.
    let first = widened[0].schema();
    let mut fields: Vec<_> = union.schema.iter().map(|(table, field)| (table.cloned(), Arc::clone(field))).collect();
    for position in fields.len()..first.fields().len() {
        let nullable = widened.iter().any(|input| input.schema().field(position).is_nullable());
        let field = first.field(position).as_ref().clone().with_nullable(nullable);
        fields.push((None, Arc::new(field)));
    }
    let schema = DFSchema::new_with_metadata(fields, union.schema.metadata().clone())?;
    Ok(LogicalPlan::Union(Union { inputs: widened, schema: Arc::new(schema) }))
}
