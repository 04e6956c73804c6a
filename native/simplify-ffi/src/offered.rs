//! Calls, in an answer, of functions that the consumer offers.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::{Cast, Expr, ReturnFieldArgs, ScalarUDF, Volatility};

use crate::error::malformed;
use crate::field::field_from_wire;
use crate::node::{child_indices, placeholder, with_children};
use crate::table::{Item, Table};
use crate::wire;

/// Where the entries that an answer counts are in the table.
pub(crate) struct Places(Vec<u32>);

impl Places {
    /// The entries of the request are where they are.
    pub(crate) fn new(asked: usize) -> Result<Self> {
        Ok(Self((0..u32::try_from(asked).map_err(malformed)?).collect()))
    }

    pub(crate) fn push(&mut self, place: u32) {
        self.0.push(place);
    }

    pub(crate) fn of(&self, entry: u32) -> Result<u32> {
        let place = usize::try_from(entry).ok().and_then(|entry| self.0.get(entry));
        place.copied().ok_or_else(|| malformed("an entry refers to one that does not precede it"))
    }

    /// A shallow expression whose placeholders say where its children are in the table.
    pub(crate) fn relocate(&self, shell: Expr) -> Result<Expr> {
        let children = child_indices(&shell)?.into_iter().map(|entry| self.of(entry)).collect::<Result<Vec<_>>>()?;
        with_children(shell, children.into_iter().map(placeholder))
    }
}

/// The entry of a call whose arguments are converted to what the function takes, and its result to what the call is to
/// give, which is also what the arguments are.
pub(crate) fn call_offered(
    table: &mut Table,
    function: &Arc<ScalarUDF>,
    call: &wire::Call,
    places: &Places,
) -> Result<u32> {
    let name = function.name();
    if function.signature().volatility == Volatility::Volatile {
        return plan_err!("the function '{name}' is volatile, and simplify may not call it: its result would change");
    }
    let wanted = call.return_field.as_ref().ok_or_else(|| malformed("an offered function without type"))?;
    let wanted = field_from_wire(wanted)?.data_type().clone();
    let taken = taken(function, &wanted, call.arguments.len())?;
    let scalars = vec![None; taken.len()];
    let result = function.return_field_from_args(ReturnFieldArgs { arg_fields: &taken, scalar_arguments: &scalars })?;
    if !result.data_type().is_numeric() {
        return plan_err!("the function '{name}' gives {}, where a number is needed", result.data_type());
    }
    let mut arguments = vec![];
    for (argument, field) in call.arguments.iter().zip(&taken) {
        arguments.push(converted(table, places.of(*argument)?, &wanted, field.data_type())?);
    }
    let arguments = arguments.into_iter().map(placeholder).collect();
    let call = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), arguments));
    let call = table.push(Item::Shell(call), false)?;
    converted(table, call, result.data_type(), &wanted)
}

/// What a function takes for this many arguments of a type, or if it has no use for them, for such of another float type:
/// DataFusion never makes Float64 Float32 by itself.
fn taken(function: &ScalarUDF, wanted: &DataType, count: usize) -> Result<Vec<FieldRef>> {
    let given = |data_type: &DataType| {
        let field: FieldRef = Arc::new(Field::new("", data_type.clone(), true));
        std::iter::repeat_n(field, count).collect::<Vec<_>>()
    };
    let refused = match fields_with_udf(&given(wanted), function) {
        Ok(taken) => return Ok(taken),
        Err(error) => error,
    };
    let others = [DataType::Float64, DataType::Float32, DataType::Float16];
    others.iter().find_map(|other| fields_with_udf(&given(other), function).ok()).ok_or_else(|| {
        let types = vec![wanted.to_string(); count];
        plan_datafusion_err!(
            "the function '{}' cannot be called with ({}): {refused}",
            function.name(),
            types.join(", ")
        )
    })
}

fn converted(table: &mut Table, entry: u32, from: &DataType, to: &DataType) -> Result<u32> {
    if from == to {
        return Ok(entry);
    }
    let cast = Expr::Cast(Cast::new(Box::new(placeholder(entry)), to.clone()));
    table.push(Item::Shell(cast), false)
}
