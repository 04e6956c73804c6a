//! Rules of the user's own, in the form that their derivatives are planned, on a Rust session.

use datafusion::arrow::array::{AsArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::unparser::Unparser;
use datafusion_ffi::udf::FFI_ScalarUDF;
use std::sync::Arc;
use xql_autodiff::{Rule, Rules};

use crate::session::{analyzed, session};

/// The sum of its arguments times a factor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sum {
    name: String,
    factor: i32,
    nullable: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Sum {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn return_field_from_args(&self, _args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(&self.name, DataType::Float64, self.nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut sums = vec![0.0; args.number_rows];
        for column in ColumnarValue::values_to_arrays(&args.args)? {
            let values = column.as_primitive::<Float64Type>().values();
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value * f64::from(self.factor));
        }
        Ok(ColumnarValue::Array(Arc::new(Float64Array::from(sums))))
    }
}

fn sum(name: &str, factor: i32) -> Sum {
    let any = TypeSignature::OneOf(vec![TypeSignature::Nullary, TypeSignature::Variadic(vec![DataType::Float64])]);
    let signature = Signature::new(any, Volatility::Immutable);
    Sum { name: name.to_owned(), factor, nullable: true, signature }
}

/// A session with rules, in which all columns are those of a table, which the operators are told.
async fn with_rules(rules: Vec<Rule>, functions: Vec<ScalarUDF>) -> Result<SessionContext> {
    let operators = analyzed(xql_autodiff::functions_with(&Rules::new(rules)?));
    let table = "CREATE TABLE t (x DOUBLE NOT NULL, y DOUBLE NOT NULL, n DOUBLE, r REAL NOT NULL)
                 AS VALUES (2.0, 3.0, NULL, 0.5)";
    session(functions.into_iter().chain(operators), table).await
}

/// The expression that `SELECT {call} FROM t` computes.
async fn derivative(ctx: &SessionContext, call: &str) -> Result<String> {
    let plan = ctx.sql(&format!("SELECT {call} AS d FROM t")).await?.into_optimized_plan()?;
    let LogicalPlan::Projection(projection) = plan else {
        return Ok(plan.to_string());
    };
    let expr = projection.expr[0].clone().unalias();
    Ok(Unparser::default().with_pretty(true).expr_to_sql(&expr)?.to_string().replace("t.", "").replace(".0", ""))
}

async fn value(ctx: &SessionContext, call: &str) -> Result<f64> {
    let batches = ctx.sql(&format!("SELECT {call} FROM t")).await?.collect().await?;
    Ok(batches[0].column(0).as_primitive::<Float64Type>().value(0))
}

#[track_caller]
fn assert_refused<T>(result: Result<T>, parts: &[&str]) {
    let message = result.err().expect("it is refused").to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[tokio::test]
async fn derivatives_are_as_the_rule_says() -> Result<()> {
    let mut different = vec![];
    for (rule, call, expected) in [
        (Rule::new("f(a)", &["1 / (1 + exp(-a))"])?.strict(), "grad(f(x), x)", "1 / (1 + exp(-x))"),
        (Rule::new("f(a)", &["2 * Ω"])?, "grad(f(x), x)", "2 * f(x)"),
        (Rule::new("f(a)", &["2 * f(a)"])?, "grad(f(x), x)", "2 * f(x)"),
        (Rule::new("f(a, b)", &["f(b, a)", "f(a, b + 1)"])?.strict(), "grad(f(x, y), x)", "f(y, x)"),
        (Rule::new("f(a, b)", &["f(b, a)", "f(a, b + 1)"])?.strict(), "grad(f(x, y), y)", "f(x, y + 1)"),
        (Rule::new("F(A)", &["A * 3"])?.strict(), "grad(f(x), x)", "3 * x"),
        (
            Rule::new("f(a)", &["CASE WHEN a > 0 AND NOT a BETWEEN 1 AND 2 THEN 1 ELSE a % 2 END"])?.strict(),
            "grad(f(x), x)",
            "CASE WHEN ((x > 0) AND ((x < 1) OR (x > 2))) THEN 1 ELSE (x % 2) END",
        ),
        (
            Rule::new("f(a)", &["CASE a WHEN 0 THEN 1 WHEN 1 THEN 2 END"])?.strict(),
            "grad(f(x), x)",
            "CASE WHEN (x = 0) THEN 1 WHEN (x = 1) THEN 2 END",
        ),
        (
            Rule::new("f(a)", &["CASE WHEN a <> 1 OR a <= 0 OR a = 2 OR a IS NULL THEN +1 ELSE -floor(a) END"])?
                .strict(),
            "grad(f(n), n)",
            "CASE WHEN n IS NOT NULL THEN CASE WHEN ((((n <> 1) OR (n <= 0)) OR (n = 2)) OR n IS NULL) THEN 1 ELSE -floor(n) END END",
        ),
        (
            Rule::new("f(a)", &["CAST(a AS REAL) + a::DOUBLE"])?.strict(),
            "grad(f(x), x)",
            "CAST(CAST(x AS FLOAT) AS DOUBLE) + x",
        ),
        (Rule::new("f(a)", &["power(a, 3) + pow(a, -1)"])?.strict(), "grad(f(x), x)", "x * x * x + 1 / x"),
        // DataFusion's own, with the NULLs of the function itself.
        (Rule::new("tanh(a)", &["5 * Ω"])?, "grad(tanh(x), x)", "5 * tanh(x)"),
        (Rule::new("floor(a)", &["1"])?, "grad(floor(x), x)", "1"),
        (Rule::new("floor(a)", &["1"])?, "grad(floor(n), n)", "CASE WHEN n IS NOT NULL THEN 1 END"),
        (Rule::new("pow(a, b)", &["7", "8"])?, "grad(power(x, y), x)", "7"),
        (Rule::new("log(b, a)", &["7", "8"])?, "grad(log(x), x)", "0.4342944819032518 / x"),
        (Rule::new("log(b, a)", &["7", "8"])?, "grad(log(y, x), x)", "8"),
        // One of the user's need not be strict.
        (Rule::new("f(a)", &["3"])?, "grad(f(x), x)", "CASE WHEN f(x) IS NOT NULL THEN 3 END"),
        (Rule::new("f(a)", &["3"])?.strict(), "grad(f(n), n)", "CASE WHEN n IS NOT NULL THEN 3 END"),
        (Rule::new("f(a)", &["a"])?.strict(), "grad(f(n), n)", "n"),
        (Rule::new("f(a)", &["a"])?.strict(), "grad(grad(f(3 * x), x), x)", "9"),
    ] {
        let ctx = with_rules(vec![rule.clone()], vec![sum("f", 1).into()]).await?;
        let planned = derivative(&ctx, call).await?;
        if planned != expected {
            different.push(format!("{call} by {rule:?} is {planned}, not {expected}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    Ok(())
}

/// A function of the session with the name of one of DataFusion's has no rule of the table, and may have one of the user's.
#[tokio::test]
async fn a_function_named_like_a_built_in_is_another() -> Result<()> {
    let none = with_rules(vec![], vec![sum("sin", 1).into()]).await?;
    assert_refused(derivative(&none, "grad(sin(x), x)").await, &["the function sin", "rule(\"sin(x)\", "]);
    let rule = Rule::new("sin(x)", &["cos(x) + sin(2 * x)"])?;
    let own = with_rules(vec![rule.clone()], vec![sum("sin", 10).into()]).await?;
    assert_eq!(value(&own, "grad(sin(x), x)").await?, 2.0_f64.cos() + 40.0);
    let built_in = with_rules(vec![rule], vec![]).await?;
    assert_eq!(value(&built_in, "grad(sin(x), x)").await?, 2.0_f64.cos() + 4.0_f64.sin());
    Ok(())
}

/// What the table refuses is DataFusion's own function: one of the session's that is called so may have a rule.
#[tokio::test]
async fn a_function_named_like_a_refused_one_is_another() -> Result<()> {
    for name in ["to_date", "array_distance", "date_part"] {
        let none = with_rules(vec![], vec![sum(name, 1).into()]).await?;
        assert_refused(
            derivative(&none, &format!("grad({name}(x), x)")).await,
            &[&format!("no derivative is known for the function {name}"), &format!("rule(\"{name}(x)\", ")],
        );
        let with_rule =
            with_rules(vec![Rule::new(&format!("{name}(x)"), &["2 * x"])?], vec![sum(name, 1).into()]).await?;
        assert_eq!(value(&with_rule, &format!("grad({name}(x), x)")).await?, 4.0);
    }
    Ok(())
}

/// The derivatives of a function with a rule of the user's may be infinite where those of the table are not, so a branch that
/// is not taken keeps out of the product.
#[tokio::test]
async fn a_choice_of_a_function_with_another_rule_keeps_its_branches_apart() -> Result<()> {
    let steep = Rule::new("sin(x)", &["1 / (x - x)"])?;
    let chosen = "greatest(y * sin(greatest(x - 2, 0)) - 1, 0)";
    let ctx = with_rules(vec![steep], vec![]).await?;
    assert_eq!(value(&ctx, &format!("grad({chosen}, x)")).await?, 0.0);
    Ok(())
}

#[tokio::test]
async fn a_rule_holds_for_an_alias() -> Result<()> {
    let rules = || -> Result<_> { Ok(vec![Rule::new("g(x)", &["4 * g(x + 1)"])?.strict()]) };
    let aliased = ScalarUDF::from(sum("f", 1)).with_aliases(["g", "h"]);
    let ctx = with_rules(rules()?, vec![aliased]).await?;
    for call in ["grad(f(x), x)", "grad(g(x), x)", "grad(h(x), x)"] {
        assert_eq!(value(&ctx, call).await?, 12.0, "{call}");
    }
    // A rule for the name itself comes first.
    let both = rules()?.into_iter().chain([Rule::new("f(x)", &["5"])?]).collect();
    let ctx = with_rules(both, vec![ScalarUDF::from(sum("f", 1)).with_aliases(["g"])]).await?;
    assert_eq!(value(&ctx, "grad(g(x), x)").await?, 5.0);
    Ok(())
}

#[tokio::test]
async fn functions_handed_over_need_not_be_registered() -> Result<()> {
    let slope = Arc::new(ScalarUDF::from(sum("slope", 100)));
    let rule = Rule::with_functions("f(x)", &["slope(x, 1)"], [slope])?;
    let ctx = with_rules(vec![rule], vec![sum("f", 1).into()]).await?;
    assert_eq!(value(&ctx, "grad(f(x), x)").await?, 300.0);
    Ok(())
}

/// The function as another library exports it.
fn foreign(function: Sum) -> ScalarUDF {
    extern "C" fn other_library() -> usize {
        1
    }
    let mut exported = FFI_ScalarUDF::from(Arc::new(ScalarUDF::from(function)));
    exported.library_marker_id = other_library;
    ScalarUDF::new_from_shared_impl((&exported).into())
}

#[tokio::test]
async fn functions_may_be_of_other_libraries() -> Result<()> {
    let without = with_rules(vec![], vec![foreign(sum("f", 3))]).await?;
    assert_eq!(value(&without, "f(x)").await?, 6.0);
    assert_refused(value(&without, "grad(f(x), x)").await, &["rule(\"f(x)\", "]);

    let slope = Arc::new(foreign(sum("slope", 100)));
    let rule = Rule::with_functions("f(x)", &["x * Ω + f(5 * x) + slope(x, 1)"], [slope])?;
    let ctx = with_rules(vec![rule], vec![foreign(sum("f", 3))]).await?;
    assert_eq!(value(&ctx, "grad(f(x), x)").await?, 2.0 * 6.0 + 30.0 + 300.0);
    assert_eq!(value(&ctx, "grad(f(x * x), x)").await?, (4.0 * 12.0 + 60.0 + 500.0) * 4.0);
    // REAL is converted to the DOUBLE that the function takes.
    assert_eq!(value(&ctx, "CAST(grad(f(r), r) AS DOUBLE)").await?, 0.5 * 1.5 + 7.5 + 150.0);
    assert_eq!(value(&ctx, "CASE WHEN grad(f(n), n) IS NULL THEN 1.0 END").await?, 1.0);

    let twice = with_rules(vec![Rule::new("f(x)", &["f(f(x))"])?], vec![foreign(sum("f", 3))]).await?;
    assert_eq!(value(&twice, "grad(grad(f(x), x), x)").await?, 54.0 * 18.0);
    Ok(())
}

/// The call is declared NOT NULL, so what the rule leaves NULL is no number.
#[tokio::test]
async fn a_partial_that_is_null_by_mistake_is_no_number() -> Result<()> {
    let never_null = Sum { nullable: false, ..sum("f", 1) };
    let rule = Rule::new("f(x)", &["CASE WHEN x > 100 THEN 1 END"])?;
    let ctx = with_rules(vec![rule], vec![never_null.into()]).await?;
    assert!(value(&ctx, "grad(f(x), x)").await?.is_nan());
    Ok(())
}

#[tokio::test]
async fn operators_with_other_rules_are_other_functions() -> Result<()> {
    let with = |partial: &str| Rules::new([Rule::new("f(x)", &[partial])?]);
    assert_eq!(xql_autodiff::grad_with(with("x")?), xql_autodiff::grad_with(with("x")?));
    assert_ne!(xql_autodiff::grad_with(with("x")?), xql_autodiff::grad_with(with("2 * x")?));
    assert_ne!(xql_autodiff::grad_with(with("x")?), xql_autodiff::grad());
    assert_eq!(xql_autodiff::grad_with(Rules::default()), xql_autodiff::grad());
    let strict = Rules::new([Rule::new("f(x)", &["x"])?.strict()])?;
    assert_ne!(xql_autodiff::jvp_with(strict), xql_autodiff::jvp_with(with("x")?));
    let functions = [sum("f", 1).into(), xql_autodiff::grad_with(with("1")?), xql_autodiff::vjp_with(with("2")?)];
    let functions = functions.into_iter().chain([xql_autodiff::jvp_with(with("3")?)]);
    let ctx = session(functions, "CREATE TABLE t (x DOUBLE) AS VALUES (1.0)").await?;
    for (call, expected) in [("grad(f(x), x)", 1.0), ("vjp(f(x), x, 10.0)", 20.0), ("jvp(f(x), x, 10.0)", 30.0)] {
        assert_eq!(value(&ctx, call).await?, expected, "{call}");
    }
    Ok(())
}

#[test]
fn contradictions_are_refused() -> Result<()> {
    let rule = |sql: &str| Rule::new(sql, &["1"]);
    assert_refused(Rules::new([rule("f(x)")?, rule("f(y)")?]), &["two rules for f(x)"]);
    assert!(Rules::new([rule("f(x)")?, rule("\"F\"(x)")?, Rule::new("f(x, y)", &["1", "1"])?]).is_ok());
    let g = || Arc::new(ScalarUDF::from(sum("g", 1)));
    assert_refused(Rule::with_functions("f(x)", &["g(x)"], [g(), g()]), &["called g"]);
    assert_refused(Rule::with_functions("g(x)", &["g(x)"], [g()]), &["the function itself"]);
    let one = ScalarUDF::from(Sum {
        signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable),
        ..sum("g", 1)
    });
    assert_refused(Rule::with_functions("f(x)", &["g(x, 1)"], [Arc::new(one)]), &["g(x, 1): ", "Float64, Float64"]);
    let noise = ScalarUDF::from(Sum { signature: Signature::variadic_any(Volatility::Volatile), ..sum("g", 1) });
    assert_refused(Rule::with_functions("f(x)", &["g(x)"], [Arc::new(noise)]), &["g is volatile"]);
    Ok(())
}

#[tokio::test]
async fn the_function_is_called_with_the_types_it_takes() -> Result<()> {
    let single = Signature::exact(vec![DataType::Float32, DataType::Int64], Volatility::Immutable);
    let f = ScalarUDF::from(Sum { signature: single, ..sum("f", 1) });
    let rule = Rule::new("f(a, k)", &["a * f(a + 1, k - 1)", "0"])?.strict();
    let ctx = with_rules(vec![rule], vec![f]).await?;
    assert_eq!(
        derivative(&ctx, "grad(f(r, 3), r)").await?,
        "__common_expr_1 * f(CAST((__common_expr_1 + 1) AS FLOAT), 2)"
    );
    let text = Signature::exact(vec![DataType::Float64, DataType::Utf8], Volatility::Immutable);
    let f = || ScalarUDF::from(Sum { signature: text.clone(), ..sum("f", 1) });
    let ctx = with_rules(vec![Rule::new("f(a, mode)", &["f(2 * a, mode)", "0"])?.strict()], vec![f()]).await?;
    assert_eq!(derivative(&ctx, "grad(f(x, 'fast'), x)").await?, "f(2 * x, 'fast')");
    let ctx = with_rules(vec![Rule::new("f(a, mode)", &["f(a, 1)", "0"])?], vec![f()]).await?;
    assert_refused(derivative(&ctx, "grad(f(x, 'fast'), x)").await, &["the rule for f", "takes Utf8 there"]);
    let ctx = with_rules(vec![Rule::new("f(a, mode)", &["a * mode", "0"])?], vec![f()]).await?;
    assert_refused(derivative(&ctx, "grad(f(x, 'fast'), x)").await, &["mode must be a number; it is Utf8"]);
    Ok(())
}
