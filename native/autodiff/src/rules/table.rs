//! The rule table as data, for documentation and tests.

use arrow::array::{ArrayRef, ListArray, RecordBatch, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::Field;
use datafusion_common::Result;
use sqlparser::ast::{BinaryOperator, Expr as Sql, visit_expressions};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::syntax::{name_of, parse};
use super::{FAMILIES, Kink, Line, Treatment};

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
    let lines: Vec<(&str, &Line)> =
        FAMILIES.iter().flat_map(|(family, lines)| lines.iter().map(|line| (*family, line))).collect();
    let inputs = lines.iter().map(|(_, line)| inputs(line.signature)).collect::<Result<Vec<_>>>()?;
    let texts = |text: fn(&Line) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(lines.iter().map(|(_, line)| text(line))))
    };
    let columns: [(&str, ArrayRef, bool); 8] = [
        ("family", Arc::new(StringArray::from_iter_values(lines.iter().map(|(family, _)| family))), false),
        ("group", texts(group), false),
        ("signature", texts(|line| line.signature), false),
        ("inputs", lists(inputs.iter().map(Vec::as_slice)), false),
        ("partials", lists(lines.iter().map(|(_, line)| line.partials)), false),
        ("domain", texts(|line| line.domain), false),
        ("kinks", kinks(lines.iter().map(|(_, line)| line.kinks)), false),
        ("reason", Arc::new(lines.iter().map(|(_, line)| reason(line)).collect::<StringArray>()), true),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// The names of the inputs in a signature of any form, in order; `xi` for any number of them.
fn inputs(signature: &str) -> Result<Vec<String>> {
    if signature.contains("...") {
        return Ok(vec!["xi".to_owned()]);
    }
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

fn group(line: &Line) -> &'static str {
    match line.treatment {
        Treatment::Refusal(_) => "refused",
        _ if line.partials.iter().all(|partial| *partial == "0") => "piecewise constant",
        _ => "differentiable",
    }
}

fn reason(line: &Line) -> Option<&'static str> {
    match line.treatment {
        Treatment::Refusal(reason) => Some(reason),
        _ => None,
    }
}

/// A list of strings for each row.
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
