//! Functions that answers may call although the arguments do not.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::simplify::ExprSimplifyResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarUDF, ScalarUDFImpl, SimpleScalarUDF, Volatility, cast, col, lit,
};
use xql_simplify_ffi::{FFI_ScalarUDFSimplify, ForeignFunction, SimplifyingScalarUDF};

use crate::common::{context, import_stock, probe_udf, rewrite, schema};

fn function(name: &str, taken: &[DataType], given: DataType, volatility: Volatility) -> Arc<ScalarUDF> {
    let body = Arc::new(|args: &[ColumnarValue]| Ok(args[0].clone()));
    Arc::new(ScalarUDF::from(SimpleScalarUDF::new(name, taken.to_vec(), given, volatility, body)))
}

/// What `simplify` makes of `arg` on the other side when it may also call `functions`.
fn rewrite_with(
    functions: &[Arc<ScalarUDF>],
    arg: Expr,
    simplify: impl Fn(Expr) -> Result<Expr> + Send + Sync + 'static,
) -> Result<Expr> {
    let udf = probe_udf(None, move |mut args, _| {
        Ok(ExprSimplifyResult::Simplified(simplify(args.pop().unwrap_or_else(|| lit(0.0)))?))
    });
    let simplify = FFI_ScalarUDFSimplify::from(Arc::clone(&udf));
    let udf = SimplifyingScalarUDF::new(import_stock(&udf), simplify).with_extra_functions(functions.to_vec());
    match udf.simplify(vec![arg], &context(schema()))? {
        ExprSimplifyResult::Simplified(expr) => Ok(expr),
        ExprSimplifyResult::Original(_) => plan_err!("not simplified"),
    }
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    ScalarUDF::from(ForeignFunction::from_name(name)).call(args)
}

#[track_caller]
fn assert_refused(functions: &[Arc<ScalarUDF>], answer: Expr, parts: &[&str]) {
    let refused = rewrite_with(functions, col("t.x"), move |_| Ok(answer.clone()));
    let message = refused.expect_err("the call is refused").to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn an_extra_function_is_called() -> Result<()> {
    let slope = function("slope", &[DataType::Float64], DataType::Float64, Volatility::Immutable);
    let other = function("other", &[DataType::Float64], DataType::Float64, Volatility::Stable);
    let functions = [Arc::clone(&other), Arc::clone(&slope)];
    let answer = rewrite_with(&functions, col("t.x"), |x| Ok(call("slope", vec![x.clone() + x]) * lit(2.0)))?;
    assert_eq!(answer, slope.call(vec![col("t.x") + col("t.x")]) * lit(2.0));
    // Beside functions that the arguments call, which come first in the list.
    let mine = function("mine", &[DataType::Float64], DataType::Float64, Volatility::Immutable);
    let answer = rewrite_with(&functions, mine.call(vec![col("t.x")]), |mine| {
        Ok(call("other", vec![mine.clone()]) + call("slope", vec![mine]))
    })?;
    let inner = mine.call(vec![col("t.x")]);
    assert_eq!(answer, other.call(vec![inner.clone()]) + slope.call(vec![inner]));
    Ok(())
}

#[test]
fn arguments_and_result_are_converted() -> Result<()> {
    let single = function("single", &[DataType::Float32], DataType::Float32, Volatility::Immutable);
    let functions = [Arc::clone(&single)];
    let answer = rewrite_with(&functions, col("t.x"), |x| Ok(call("single", vec![x.clone()]) + x))?;
    let converted = cast(single.call(vec![cast(col("t.x"), DataType::Float32)]), DataType::Float64);
    assert_eq!(answer, converted + col("t.x"));
    assert_eq!(answer.get_type(&schema())?, DataType::Float64);
    // One within the other, and of the type of the arguments.
    let answer = rewrite_with(&functions, col("t.y"), |y| Ok(call("single", vec![call("single", vec![y])])))?;
    assert_eq!(answer, single.call(vec![single.call(vec![col("t.y")])]));
    let none = function("none", &[], DataType::Float32, Volatility::Immutable);
    let answer = rewrite_with(&[Arc::clone(&none)], col("t.x"), |_| Ok(call("none", vec![])))?;
    assert_eq!(answer, cast(none.call(vec![]), DataType::Float64));
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() {
    let (f, double) = (DataType::Float64, [DataType::Float64]);
    let slope = function("slope", &double, f.clone(), Volatility::Immutable);
    assert_refused(&[], call("slope", vec![col("t.x")]), &["'slope'", "not offered"]);
    let twice = call("slope", vec![col("t.x"), col("t.x")]);
    assert_refused(&[slope], twice, &["'slope' cannot be called with (Float64, Float64)"]);
    let random = function("noise", &double, f, Volatility::Volatile);
    assert_refused(&[random], call("noise", vec![col("t.x")]), &["'noise' is volatile"]);
    let text = function("text", &double, DataType::Utf8, Volatility::Immutable);
    assert_refused(&[text], call("text", vec![col("t.x")]), &["'text' must return a number", "it returns Utf8"]);
}

#[test]
fn aliases_cross() -> Result<()> {
    let mine = function("mine", &[DataType::Float64], DataType::Float64, Volatility::Immutable);
    let mine = Arc::unwrap_or_clone(mine).with_aliases(["my_own", "ours"]);
    rewrite(mine.call(vec![col("t.x")]), |seen| {
        let Expr::ScalarFunction(call) = &seen else { return plan_err!("no call: {seen}") };
        assert_eq!(call.func.aliases(), ["my_own", "ours"]);
        Ok(lit(0.0))
    })?;
    Ok(())
}
