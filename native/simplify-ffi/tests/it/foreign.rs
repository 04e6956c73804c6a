//! Functions of the consumer that are not DataFusion's own.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::functions::expr_fn as f;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ExprSchemable, ScalarUDF, SimpleScalarUDF, Volatility, col, lit};
use xql_simplify_ffi::ForeignFunction;

use crate::common::{rewrite, schema, simplify_with};

fn function(name: &str, volatility: Volatility) -> ScalarUDF {
    ScalarUDF::from(SimpleScalarUDF::new(
        name,
        vec![DataType::Float64],
        DataType::Float32,
        volatility,
        Arc::new(|args| Ok(ColumnarValue::clone(&args[0]))),
    ))
}

/// The stand-in that a call calls.
fn stand_in(expr: &Expr) -> Result<&ForeignFunction> {
    let Expr::ScalarFunction(call) = expr else {
        return plan_err!("no call: {expr}");
    };
    match call.func.inner().downcast_ref::<ForeignFunction>() {
        Some(function) => Ok(function),
        None => plan_err!("no stand-in: {expr}"),
    }
}

#[test]
fn it_has_the_name_the_volatility_and_the_type() -> Result<()> {
    let call = function("mine", Volatility::Volatile).call(vec![col("t.x")]);
    rewrite(call, |seen| {
        let function = stand_in(&seen)?;
        assert!(!function.is_opaque());
        assert_eq!(function.index(), Some(0));
        assert!(seen.is_volatile());
        assert_eq!(seen.to_string(), "mine(t.x)");
        assert_eq!(seen.schema_name().to_string(), "mine(t.x)");
        let (_, field) = seen.to_field(&schema())?;
        assert_eq!(field.data_type(), &DataType::Float32);
        Ok(lit(0.0))
    })?;
    Ok(())
}

#[test]
fn the_same_function_comes_back() -> Result<()> {
    for volatility in [Volatility::Immutable, Volatility::Volatile] {
        let mine = Arc::new(function("mine", volatility));
        let call = |args| Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&mine), args));
        let sum = call(vec![col("t.x")]) + call(vec![lit(1.0)]);
        assert_eq!(rewrite(sum.clone(), Ok)?, sum);
        assert_eq!(rewrite(sum.clone(), |sum| Ok(-sum))?, -sum);

        let answer = rewrite(call(vec![col("t.x")]), |seen| {
            let Expr::ScalarFunction(call) = seen else {
                return plan_err!("no call: {seen}");
            };
            Ok(call.func.call(vec![f::sin(call.args[0].clone())]))
        })?;
        assert_eq!(answer, call(vec![f::sin(col("t.x"))]));
        let Expr::ScalarFunction(answer) = answer else {
            return plan_err!("no call: {answer}");
        };
        assert!(Arc::ptr_eq(&answer.func, &mine));
    }
    Ok(())
}

#[test]
fn functions_of_one_name_are_told_apart() -> Result<()> {
    let one = function("mine", Volatility::Immutable);
    let two = function("mine", Volatility::Stable);
    let sum = one.call(vec![col("t.x")]) + two.call(vec![col("t.x")]);
    assert_eq!(rewrite(sum.clone(), Ok)?, sum);
    Ok(())
}

/// The function named like one of DataFusion's own stays what it is, while the provider's `sin` is DataFusion's.
#[test]
fn an_overridden_function_is_foreign() -> Result<()> {
    let mine = function("sin", Volatility::Immutable);
    let answer = rewrite(mine.call(vec![col("t.x")]), |seen| {
        assert_eq!(stand_in(&seen)?.index(), Some(0));
        Ok(seen + f::sin(lit(1.0)))
    })?;
    assert_eq!(answer, mine.call(vec![col("t.x")]) + f::sin(lit(1.0)));
    Ok(())
}

#[test]
fn an_alias_of_an_own_function_is_foreign() -> Result<()> {
    let aliased = f::sin(lit(1.0));
    let Expr::ScalarFunction(call) = aliased else {
        return plan_err!("no call: {aliased}");
    };
    let aliased = Arc::unwrap_or_clone(call.func).with_aliases(["sine"]);
    let call = aliased.call(vec![col("t.x")]);
    let expected = call.clone();
    let answer = rewrite(call, |seen| stand_in(&seen).map(|_| seen.clone()))?;
    assert_eq!(answer, expected);
    Ok(())
}

#[test]
fn it_cannot_be_evaluated_by_the_provider() -> Result<()> {
    let call = function("mine", Volatility::Immutable).call(vec![lit(1.0)]);
    let error = simplify_with(vec![call], |args, info| {
        let Expr::ScalarFunction(call) = &args[0] else {
            return plan_err!("no call");
        };
        call.func.invoke_with_args(datafusion::logical_expr::ScalarFunctionArgs {
            args: vec![],
            arg_fields: vec![],
            number_rows: 1,
            return_field: args[0].to_field(info.schema().as_ref())?.1,
            config_options: Arc::clone(info.config_options()),
        })?;
        plan_err!("it was")
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("belongs to another library"), "{error}");
    Ok(())
}
