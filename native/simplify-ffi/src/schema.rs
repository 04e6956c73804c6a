//! The input schema as a message.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use datafusion_common::{DFSchema, Result, TableReference};

use crate::field::{field_from_wire, field_to_wire, relation_from_wire, relation_to_wire};
use crate::wire;

pub(crate) fn schema_to_wire(schema: &DFSchema) -> Result<Vec<wire::QualifiedField>> {
    schema
        .iter()
        .map(|(qualifier, field)| {
            Ok(wire::QualifiedField { qualifier: relation_to_wire(qualifier), field: field_to_wire(field)? })
        })
        .collect()
}

/// The schema, with no check of its names: the merged inputs of a plan node need not pass one.
pub(crate) fn schema_from_wire(fields: Vec<wire::QualifiedField>) -> Result<DFSchema> {
    let (qualifiers, fields): (Vec<Option<TableReference>>, Vec<FieldRef>) = fields
        .into_iter()
        .map(|field| Ok((relation_from_wire(field.qualifier)?, field_from_wire(&field.field)?)))
        .collect::<Result<_>>()?;
    DFSchema::try_from(Arc::new(Schema::new(fields)))?.with_field_specific_qualified_schema(qualifiers)
}
