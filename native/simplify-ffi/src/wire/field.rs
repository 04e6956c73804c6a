//! Columns, fields, schemas and volatilities as messages.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema};
use datafusion_common::{Column, DFSchema, Result, TableReference};
use datafusion_expr::Volatility;
use datafusion_proto::protobuf;

use crate::wire;
use crate::wire::error::malformed;
use crate::wire::types::check_type;

/// Encodes a field.
pub(crate) fn field_to_wire(field: &Field) -> Result<protobuf::Field> {
    Ok(field.try_into()?)
}

/// Decodes a field.
pub(crate) fn field_from_wire(field: &protobuf::Field) -> Result<FieldRef> {
    let field = Field::try_from(field).map_err(malformed)?;
    check_type(field.data_type())?;
    Ok(Arc::new(field))
}

fn relation_to_wire(relation: Option<&TableReference>) -> Option<protobuf::TableReference> {
    relation.map(|relation| relation.clone().into())
}

fn relation_from_wire(relation: Option<protobuf::TableReference>) -> Result<Option<TableReference>> {
    relation.map(|relation| TableReference::try_from(relation).map_err(malformed)).transpose()
}

/// Encodes a column.
pub(crate) fn column_to_wire(column: &Column) -> wire::Column {
    wire::Column { relation: relation_to_wire(column.relation.as_ref()), name: column.name.clone() }
}

/// Decodes a column.
pub(crate) fn column_from_wire(column: wire::Column) -> Result<Column> {
    Ok(Column::new(relation_from_wire(column.relation)?, column.name))
}

/// Encodes the fields of a schema that have one of these names.
pub(crate) fn schema_to_wire(schema: &DFSchema, names: &HashSet<&str>) -> Result<Vec<wire::QualifiedField>> {
    schema
        .iter()
        .filter(|(_, field)| names.contains(field.name().as_str()))
        .map(|(qualifier, field)| {
            Ok(wire::QualifiedField { qualifier: relation_to_wire(qualifier), field: field_to_wire(field)? })
        })
        .collect()
}

/// Decodes a schema without checking its names: those of a plan node's merged inputs need not be unique.
pub(crate) fn schema_from_wire(fields: Vec<wire::QualifiedField>) -> Result<DFSchema> {
    let (qualifiers, fields): (Vec<Option<TableReference>>, Vec<FieldRef>) = fields
        .into_iter()
        .map(|field| Ok((relation_from_wire(field.qualifier)?, field_from_wire(&field.field)?)))
        .collect::<Result<_>>()?;
    DFSchema::try_from(Arc::new(Schema::new(fields)))?.with_field_specific_qualified_schema(qualifiers)
}

impl From<Volatility> for wire::Volatility {
    fn from(volatility: Volatility) -> Self {
        match volatility {
            Volatility::Immutable => Self::Immutable,
            Volatility::Stable => Self::Stable,
            Volatility::Volatile => Self::Volatile,
        }
    }
}

impl From<wire::Volatility> for Volatility {
    fn from(volatility: wire::Volatility) -> Self {
        match volatility {
            wire::Volatility::Immutable => Self::Immutable,
            wire::Volatility::Stable => Self::Stable,
            wire::Volatility::Volatile => Self::Volatile,
        }
    }
}
