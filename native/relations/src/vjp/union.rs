//! Unions.

use datafusion_common::{Column, Result, ScalarValue, internal_err};
use datafusion_expr::{Expr, LogicalPlan, Projection, Union};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::linearize::SegmentBuilder;
use super::segment::{Leaf, Segment};

/// Linearizes a union. Each row comes from one input, and the row numbers of the other inputs are NULL in it.
///
/// ```text
/// Union                 Union
///   Projection: a         Projection: a, ∂row of the first, NULL
///   Projection: b   ->    Projection: b, NULL, ∂row of the second
/// ```
pub fn union(builder: &mut SegmentBuilder, union: &Union) -> Result<Segment> {
    let width = union.schema.fields().len();
    let mut readers = vec![];
    for input in &union.inputs {
        let segment = builder.segment(input)?;
        let residual = builder.rows(segment)?;
        readers.push(builder.residuals.reader(residual, width, builder.names)?);
    }
    let names: Vec<_> = union.schema.fields().iter().map(|field| builder.names.part(field.name())).collect();
    let rows: Vec<_> = readers.iter().map(|_| builder.names.part("row")).collect();
    let mut inputs = vec![];
    let mut leaves = vec![];
    let mut varying = BTreeSet::new();
    for (number, reader) in readers.into_iter().enumerate() {
        let columns = reader.columns.iter().zip(&names);
        let mut exprs: Vec<_> =
            columns.map(|(column, name)| Expr::Column(column.clone()).alias(name.clone())).collect();
        for (other, name) in rows.iter().enumerate() {
            let row = reader.leaves.first().and_then(|leaf| leaf.row.clone()).filter(|_| other == number);
            let none = || Expr::Literal(ScalarValue::UInt64(None), None);
            exprs.push(row.map_or_else(none, Expr::Column).alias(name.clone()));
        }
        for leaf in reader.leaves {
            let columns = leaf.columns.iter().map(|column| {
                let position = reader.columns.iter().position(|own| &own.name == column)?;
                names.get(position).cloned()
            });
            let Some(columns) = columns.collect::<Option<Vec<_>>>() else {
                return internal_err!("a residual has a column that varies and is not read");
            };
            varying.extend(columns.iter().cloned());
            leaves.push(Leaf { row: Some(Column::new_unqualified(&rows[number])), columns, own: vec![], ..leaf });
        }
        inputs.push(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(reader.plan))?)));
    }
    let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
    let columns = names.into_iter().map(Column::new_unqualified).collect();
    Ok(Segment { plan, columns, varying, steps: vec![], leaves, single: false })
}
