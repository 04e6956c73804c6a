//! `stop_gradient`: a value that counts as constant.

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::{Result, ScalarValue, exec_err};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::vocabulary::functions::STOP_GRADIENT;

/// Returns `stop_gradient(x)`: `x`, of any type, with derivative 0.
///
/// No optimizer may replace it before a later derivative is taken. So it is a function that returns its argument, unless a session has the
/// rules of `xql-relations`, which remove it at the end.
pub fn stop_gradient() -> ScalarUDF {
    ScalarUDF::new_from_impl(StopGradient { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StopGradient {
    signature: Signature,
}

impl ScalarUDFImpl for StopGradient {
    fn name(&self) -> &str {
        STOP_GRADIENT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [data_type] => Ok(data_type.clone()),
            _ => exec_err!("{STOP_GRADIENT} takes one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let data_type =
            self.return_type(&args.arg_fields.iter().map(|field| field.data_type().clone()).collect::<Vec<_>>())?;
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(FieldRef::new(arrow::datatypes::Field::new(STOP_GRADIENT, data_type, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.into_iter().next().unwrap_or(ColumnarValue::Scalar(ScalarValue::Null)))
    }
}
