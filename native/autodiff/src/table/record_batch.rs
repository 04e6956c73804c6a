//! The table as data, for documentation and tests.

use arrow::array::{ArrayRef, ListArray, RecordBatch, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::Field;
use datafusion_common::Result;
use sqlparser::ast::{BinaryOperator, Expr as Sql, visit_expressions};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::families::{FAMILIES, Family};
use super::line::{Description, Kink, Refusal};
use crate::vocabulary::syntax::{name_of, parse};

/// A row of the table.
struct Row {
    family: &'static str,
    group: &'static str,
    signature: &'static str,
    inputs: Vec<String>,
    partials: &'static [&'static str],
    domain: &'static str,
    kinks: &'static [Kink],
    reason: Option<&'static str>,
}

impl Row {
    fn shown(family: &Family, shown: &'static Description) -> Result<Self> {
        let constant = shown.partials.iter().all(|partial| *partial == "0");
        Ok(Self {
            family: family.name,
            group: if constant { "piecewise constant" } else { "differentiable" },
            signature: shown.signature,
            inputs: if shown.variadic { vec!["xi".to_owned()] } else { inputs(shown.signature)? },
            partials: shown.partials,
            domain: shown.domain,
            kinks: shown.kinks,
            reason: None,
        })
    }

    fn refused(family: &Family, refusal: &'static Refusal) -> Result<Self> {
        Ok(Self {
            family: family.name,
            group: "refused",
            signature: refusal.signature,
            inputs: inputs(refusal.signature)?,
            partials: &[],
            domain: "TRUE",
            kinks: &[],
            reason: Some(refusal.reason),
        })
    }
}

/// Every rule: one row per function, operator and expression that takes or returns a float.
///
/// | column | type | |
/// |---|---|---|
/// | `family` | string | what the lines are listed under |
/// | `group` | string | `differentiable`, `piecewise constant` (derivative 0) or `refused` |
/// | `signature` | string | the call, as SQL over the names of its inputs |
/// | `inputs` | list of string | these names; `xi` if there is any number of them |
/// | `partials` | list of string | the partial derivative by each input, as SQL over the inputs and the output `Ω` |
/// | `domain` | string | where they hold, kinks aside: a condition in SQL |
/// | `kinks` | list of struct | `at`: `input = expression`, with any condition after `AND`, where `k` is any whole number; `partials`: the partial derivatives there; `why` |
/// | `reason` | string | why the call is refused; NULL for the other groups |
///
/// # Errors
/// If a line is not SQL, which would be a mistake in this crate.
pub fn rule_table() -> Result<RecordBatch> {
    let mut rows = vec![];
    for family in &FAMILIES {
        let shown = family.lines.iter().map(|line| &line.shown).chain(family.described);
        rows.extend(shown.map(|shown| Row::shown(family, shown)).collect::<Result<Vec<_>>>()?);
        rows.extend(family.refused.iter().map(|refusal| Row::refused(family, refusal)).collect::<Result<Vec<_>>>()?);
    }
    let texts = |text: fn(&Row) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows.iter().map(text))) };
    let columns: [(&str, ArrayRef, bool); 8] = [
        ("family", texts(|row| row.family), false),
        ("group", texts(|row| row.group), false),
        ("signature", texts(|row| row.signature), false),
        ("inputs", lists(rows.iter().map(|row| row.inputs.as_slice())), false),
        ("partials", lists(rows.iter().map(|row| row.partials)), false),
        ("domain", texts(|row| row.domain), false),
        ("kinks", kinks(rows.iter().map(|row| row.kinks)), false),
        ("reason", Arc::new(rows.iter().map(|row| row.reason).collect::<StringArray>()), true),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// Returns the names of the inputs in a signature of any form, in order.
fn inputs(signature: &str) -> Result<Vec<String>> {
    let (mut names, mut bound) = (vec![], vec![]);
    let _: ControlFlow<()> = visit_expressions(&parse(signature)?, |part| {
        match part {
            Sql::Identifier(name) if !names.contains(&name.value) => names.push(name.value.clone()),
            // v -> f(v)
            Sql::BinaryOp { left, op: BinaryOperator::Arrow, .. } => bound.extend(name_of(left)),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    names.retain(|name| !bound.contains(name));
    Ok(names)
}

/// Builds a column of lists of strings.
fn lists<'a, S: AsRef<str> + 'a>(rows: impl Iterator<Item = &'a [S]> + Clone) -> ArrayRef {
    let values: StringArray = rows.clone().flatten().map(|text| Some(text.as_ref())).collect();
    list_array(rows.map(<[S]>::len), Arc::new(values))
}

fn kinks(rows: impl Iterator<Item = &'static [Kink]> + Clone) -> ArrayRef {
    let all = || rows.clone().flatten();
    let columns: [(&str, ArrayRef); 3] = [
        ("at", Arc::new(all().map(|kink| Some(kink.at)).collect::<StringArray>())),
        ("partials", lists(all().map(|kink| kink.partials))),
        ("why", Arc::new(all().map(|kink| Some(kink.why)).collect::<StringArray>())),
    ];
    let fields: Vec<_> = columns
        .iter()
        .map(|(name, column)| (Arc::new(Field::new(*name, column.data_type().clone(), false)), Arc::clone(column)))
        .collect();
    list_array(rows.clone().map(<[Kink]>::len), Arc::new(StructArray::from(fields)))
}

fn list_array(lengths: impl Iterator<Item = usize>, values: ArrayRef) -> ArrayRef {
    let field = Field::new_list_field(values.data_type().clone(), false);
    Arc::new(ListArray::new(Arc::new(field), OffsetBuffer::from_lengths(lengths), values, None))
}
