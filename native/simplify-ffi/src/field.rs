//! Columns and fields as messages.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use datafusion_common::{Column, Result, TableReference};
use datafusion_expr::Volatility;
use datafusion_proto::protobuf;

use crate::error::malformed;
use crate::wire;

pub(crate) fn field_to_wire(field: &Field) -> Result<protobuf::Field> {
    Ok(field.try_into()?)
}

pub(crate) fn field_from_wire(field: &protobuf::Field) -> Result<FieldRef> {
    Ok(Arc::new(Field::try_from(field).map_err(malformed)?))
}

pub(crate) fn relation_to_wire(relation: Option<&TableReference>) -> Option<protobuf::TableReference> {
    relation.map(|relation| relation.clone().into())
}

pub(crate) fn relation_from_wire(relation: Option<protobuf::TableReference>) -> Result<Option<TableReference>> {
    relation.map(|relation| TableReference::try_from(relation).map_err(malformed)).transpose()
}

pub(crate) fn column_to_wire(column: &Column) -> wire::Column {
    wire::Column { relation: relation_to_wire(column.relation.as_ref()), name: column.name.clone() }
}

pub(crate) fn column_from_wire(column: wire::Column) -> Result<Column> {
    Ok(Column::new(relation_from_wire(column.relation)?, column.name))
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
