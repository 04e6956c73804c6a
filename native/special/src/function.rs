//! The functions as DataFusion calls them.

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::compute::{binary, unary};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use crate::random::{MAX_KEYS, sample};
use crate::values::{LINES, Value};

/// All functions, each under each of its names.
pub fn functions() -> Vec<ScalarUDF> {
    let named =
        LINES.iter().flat_map(|(names, value)| names.iter().map(move |name| Special::new(name, names[0], *value)));
    named.map(ScalarUDF::new_from_impl).collect()
}

/// The function of this name, which is one for all.
pub fn function(name: &str) -> Option<&'static Arc<ScalarUDF>> {
    static FUNCTIONS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
        functions().into_iter().map(|function| (function.name().to_owned(), Arc::new(function))).collect()
    });
    FUNCTIONS.get(name)
}

/// The name that the calculus knows a function by, if it is one of these: `ndtr` is `normal_cdf`. Another function of such a name is none.
pub fn canonical(function: &ScalarUDF) -> Option<&'static str> {
    function.inner().downcast_ref::<Special>().map(|special| special.canonical)
}

/// A function under one of its names.
#[derive(Debug)]
struct Special {
    name: &'static str,
    canonical: &'static str,
    value: Value,
    signature: Signature,
}

impl Special {
    fn new(name: &'static str, canonical: &'static str, value: Value) -> Self {
        Self { name, canonical, value, signature: Signature::user_defined(Volatility::Immutable) }
    }

    /// How many arguments it takes.
    fn arities(&self) -> RangeInclusive<usize> {
        match self.value {
            Value::One(_) => 1..=1,
            Value::Two(_) => 2..=2,
            Value::Random(_) => 2..=1 + MAX_KEYS,
        }
    }

    fn check_arity(&self, found: usize) -> Result<()> {
        let arities = self.arities();
        if arities.contains(&found) {
            return Ok(());
        }
        match self.value {
            Value::Random(_) => plan_err!(
                "{0} takes a seed and from 1 to {MAX_KEYS} keys, not {found} argument{1}: {0}(42, id)",
                self.name,
                plural(found)
            ),
            _ => plan_err!("{} takes {} argument{}, not {found}", self.name, arities.end(), plural(*arities.end())),
        }
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// There is one function of each name.
impl PartialEq for Special {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Special {}

impl Hash for Special {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Special {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.check_arity(arg_types.len())?;
        if let Value::Random(_) = self.value {
            return match arg_types.iter().find(|data_type| !is_whole(data_type)) {
                Some(other) => plan_err!("{} takes whole numbers, not {other}: CAST(... AS BIGINT)", self.name),
                None => Ok(vec![DataType::Int64; arg_types.len()]),
            };
        }
        match arg_types.iter().find(|data_type| !is_number(data_type)) {
            Some(other) => plan_err!("{} takes numbers, not {other}", self.name),
            None => Ok(vec![DataType::Float64; arg_types.len()]),
        }
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name, DataType::Float64, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let computed: Float64Array = match (self.value, arrays.as_slice()) {
            (Value::One(value), [x]) => unary::<_, _, Float64Type>(floats(x)?, value),
            (Value::Two(value), [x, y]) => binary(floats(x)?, floats(y)?, value)?,
            (Value::Random(of_words), columns) => sample(columns, of_words)?,
            _ => return internal_err!("{} is called with {} arguments", self.name, arrays.len()),
        };
        if is_scalar {
            return ScalarValue::try_from_array(&computed, 0).map(ColumnarValue::Scalar);
        }
        Ok(ColumnarValue::Array(Arc::new(computed)))
    }
}

/// Whether a type is one of numbers, or of NULL.
fn is_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_number(value),
        other => other.is_numeric() || other.is_null(),
    }
}

/// Whether a type is one of whole numbers, or of NULL.
fn is_whole(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_whole(value),
        other => other.is_integer() || other.is_null(),
    }
}

fn floats(array: &ArrayRef) -> Result<&Float64Array> {
    match array.as_primitive_opt::<Float64Type>() {
        Some(floats) => Ok(floats),
        None => exec_err!("a special function takes Float64, not {}", array.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_common::config::ConfigOptions;
    use datafusion_expr::create_udf;

    fn called(name: &str, args: Vec<ColumnarValue>) -> Result<ColumnarValue> {
        let Some(function) = function(name) else { return internal_err!("there is no {name}") };
        let number_rows =
            args.iter().map(|arg| if let ColumnarValue::Array(array) = arg { array.len() } else { 1 }).max();
        let field = || Arc::new(Field::new("x", DataType::Float64, true));
        function.invoke_with_args(ScalarFunctionArgs {
            arg_fields: args.iter().map(|_| field()).collect(),
            args,
            number_rows: number_rows.unwrap_or(1),
            return_field: field(),
            config_options: Arc::new(ConfigOptions::new()),
        })
    }

    fn column(values: &[Option<f64>]) -> ColumnarValue {
        ColumnarValue::Array(Arc::new(values.iter().copied().collect::<Float64Array>()))
    }

    fn number(value: Option<f64>) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::Float64(value))
    }

    #[test]
    fn columns_numbers_and_null() -> Result<()> {
        let values = |value: ColumnarValue| -> Result<Vec<Option<f64>>> {
            Ok(value.into_array(1)?.as_primitive::<Float64Type>().iter().collect())
        };
        let logarithms = called("log1p", vec![column(&[Some(0.0), None, Some(-2.0)])])?;
        assert!(matches!(&values(logarithms)?[..], [Some(0.0), None, Some(nan)] if nan.is_nan()));
        assert!(matches!(
            called("erf", vec![number(Some(0.0))])?,
            ColumnarValue::Scalar(ScalarValue::Float64(Some(0.0)))
        ));
        assert!(matches!(called("erf", vec![number(None)])?, ColumnarValue::Scalar(ScalarValue::Float64(None))));
        let of_both = called("polygamma", vec![number(Some(1.0)), column(&[Some(f64::INFINITY), None])])?;
        assert_eq!(values(of_both)?, [Some(0.0), None]);
        Ok(())
    }

    #[test]
    fn names_are_of_one_function_each_and_others_have_none_of_them() {
        let all = functions();
        assert!(all.iter().all(|function| all.iter().filter(|other| *other == function).count() == 1));
        assert_eq!(function("ndtr").and_then(|function| canonical(function)), Some("normal_cdf"));
        assert_eq!(function("sin"), None);
        let double = DataType::Float64;
        let of_user =
            create_udf("erf", vec![double.clone()], double, Volatility::Immutable, Arc::new(|_| exec_err!("never")));
        assert_eq!(canonical(&of_user), None);
        assert!(all.iter().all(|function| *function != of_user));
    }
}
