//! The types of expressions.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{ExprSchema, Result, ScalarValue};
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::{Expr, ExprSchemable, ReturnFieldArgs};
use std::sync::Arc;

use super::types::is_float;

/// Returns the type and nullability of an expression, as `to_field` does.
///
/// `to_field` composes the name of every part on the way, which takes the square of the size of a deep expression.
///
/// # Errors
/// If the expression cannot be typed over the columns.
#[recursive::recursive]
pub fn field_of(expr: &Expr, schema: &dyn ExprSchema) -> Result<FieldRef> {
    let typed = |data_type: &DataType, nullable: bool| Arc::new(Field::new("", data_type.clone(), nullable));
    match expr {
        Expr::Column(column) => return schema.field_from_column(column).map(Arc::clone),
        Expr::Literal(value, None) => return Ok(typed(&value.data_type(), value.is_null())),
        Expr::Alias(alias) => return field_of(&alias.expr, schema),
        Expr::Negative(operand) => return field_of(operand, schema),
        Expr::Cast(cast) => {
            let nullable = field_of(&cast.expr, schema)?.is_nullable();
            return Ok(typed(cast.field.data_type(), nullable));
        }
        Expr::BinaryExpr(binary) if binary.op.is_numerical_operators() => {
            let (left, right) = (field_of(&binary.left, schema)?, field_of(&binary.right, schema)?);
            if left.data_type() == right.data_type() && is_float(left.data_type()) {
                return Ok(typed(left.data_type(), left.is_nullable() || right.is_nullable()));
            }
        }
        Expr::ScalarFunction(call) => {
            let given = call.args.iter().map(|arg| field_of(arg, schema)).collect::<Result<Vec<_>>>()?;
            let taken = fields_with_udf(&given, call.func.as_ref())?;
            let scalars: Vec<_> = call.args.iter().map(literal).collect();
            let args = ReturnFieldArgs { arg_fields: &taken, scalar_arguments: &scalars };
            return call.func.return_field_from_args(args);
        }
        _ => {}
    }
    Ok(expr.to_field(schema)?.1)
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// Returns the type of an expression.
///
/// # Errors
/// If the expression cannot be typed over the columns.
pub fn type_of(expr: &Expr, schema: &dyn ExprSchema) -> Result<DataType> {
    field_of(expr, schema).map(|field| field.data_type().clone())
}
