//! Calls of functions that an answer names and whose types the provider does not know.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::{Cast, Expr, ReturnFieldArgs, ScalarUDF, Volatility};

use crate::table::{Node, NodeTable, placeholder, placeholders};

/// Appends a call whose arguments, all of type `data_type`, are cast to the parameters of the function, and whose result is cast back: for
/// a `slope` of Float32, `CAST(slope(CAST(x AS Float32)) AS Float64)`.
pub(crate) fn push_coerced_call(
    table: &mut NodeTable,
    function: &Arc<ScalarUDF>,
    arguments: &[u32],
    data_type: &DataType,
) -> Result<u32> {
    let name = function.name();
    if function.signature().volatility == Volatility::Volatile {
        return plan_err!("the function '{name}' is volatile, and simplify may not call it: its result would change");
    }
    let parameters = coerce_parameters(function, data_type, arguments.len())?;
    let scalars = vec![None; parameters.len()];
    let returned =
        function.return_field_from_args(ReturnFieldArgs { arg_fields: &parameters, scalar_arguments: &scalars })?;
    if !returned.data_type().is_numeric() {
        return plan_err!("the function '{name}' must return a number; it returns {}", returned.data_type());
    }
    let children = arguments
        .iter()
        .zip(&parameters)
        .map(|(&argument, parameter)| push_cast(table, argument, data_type, parameter.data_type()))
        .collect::<Result<Vec<_>>>()?;
    let call = ScalarFunction::new_udf(Arc::clone(function), placeholders(children.len()));
    let call = table.push(Node { shape: Expr::ScalarFunction(call), children }, false)?;
    push_cast(table, call, returned.data_type(), data_type)
}

/// Coerces `count` arguments of a type to the parameters of a function. If it does not take that type, tries other float types: DataFusion
/// never casts Float64 to Float32 by itself.
fn coerce_parameters(function: &ScalarUDF, data_type: &DataType, count: usize) -> Result<Vec<FieldRef>> {
    let arguments = |data_type: &DataType| {
        let field: FieldRef = Arc::new(Field::new("", data_type.clone(), true));
        vec![field; count]
    };
    let refused = match fields_with_udf(&arguments(data_type), function) {
        Ok(parameters) => return Ok(parameters),
        Err(error) => error,
    };
    let others = [DataType::Float64, DataType::Float32, DataType::Float16];
    others.iter().find_map(|other| fields_with_udf(&arguments(other), function).ok()).ok_or_else(|| {
        let types = vec![data_type.to_string(); count].join(", ");
        plan_datafusion_err!("the function '{}' cannot be called with ({types}): {refused}", function.name())
    })
}

fn push_cast(table: &mut NodeTable, entry: u32, from: &DataType, to: &DataType) -> Result<u32> {
    if from == to {
        return Ok(entry);
    }
    let cast = Expr::Cast(Cast::new(Box::new(placeholder(0)), to.clone()));
    table.push(Node { shape: cast, children: vec![entry] }, false)
}
