//! Derivatives in the form they are planned, and what is refused, on a Rust session.

use datafusion::arrow::array::{Array, Float64Array};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;

use crate::session::{analyzed, session};

const TABLE: &str =
    "CREATE TABLE t (x DOUBLE NOT NULL, y DOUBLE NOT NULL, n DOUBLE, f REAL NOT NULL, i INT NOT NULL, s VARCHAR NOT NULL)
     AS VALUES (2.0, 3.0, NULL, 0.5, 7, 'a')";

/// A session in which all columns are those of a table, which the operators are told.
async fn told() -> Result<SessionContext> {
    session(analyzed(xql_autodiff::functions()), TABLE).await
}

/// The expression that `SELECT {call} FROM t` computes.
async fn derivative(call: &str) -> Result<String> {
    let plan = told().await?.sql(&format!("SELECT {call} AS d FROM t")).await?.into_optimized_plan()?;
    let LogicalPlan::Projection(projection) = plan else {
        return Ok(plan.to_string());
    };
    let expr = projection.expr[0].clone().unalias();
    Ok(expr.human_display().to_string().replace("t.", ""))
}

#[track_caller]
fn assert_refused(result: Result<String>, parts: &[&str]) {
    let message = result.expect_err("the call is refused").to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[tokio::test]
async fn derivatives_are_as_one_would_write_them() -> Result<()> {
    for (call, expected) in [
        ("grad(x * y, x)", "y"),
        ("grad(x * x, x)", "2 * x"),
        ("grad(3 * x + y, x)", "3"),
        ("grad(y, x)", "0"),
        ("grad(x - y, y)", "-1"),
        ("grad(x / y, x)", "1 / y"),
        ("grad(sin(x), x)", "cos(x)"),
        ("grad(exp(x), x)", "exp(x)"),
        ("grad(ln(x), x)", "1 / x"),
        ("grad(sqrt(x), x)", "0.5 / sqrt(x)"),
        ("grad(power(x, 2), x)", "2 * x"),
        ("grad(power(x, 3), x)", "3 * x * x"),
        ("grad(power(x, 6), x)", "6 * __common_expr_1 * __common_expr_1 * x"),
        ("grad(power(x, 1.5), x)", "1.5 * sqrt(x)"),
        ("grad(power(x, 2.5), x)", "2.5 * x * sqrt(x)"),
        ("grad(power(x, -0.5), x)", "-0.5 / x * sqrt(x)"),
        ("grad(grad(power(x, 2.5), x), x)", "3.75 * sqrt(x)"),
        (
            "grad(power(x, 0.7), x)",
            "0.7 * CASE WHEN isnan(__common_expr_1) THEN 1 / __common_expr_2 ELSE __common_expr_1 END",
        ),
        ("grad(power(x, 1.5) * sqrt(x), x)", "2 * x"),
        // As it stands, without a second power.
        ("grad(y * power(3 / x, 0.7), x)", "-0.7 * y * power(Float64(3) / x, Float64(0.7)) / x"),
        // The quotient is the same power in second order.
        (
            "grad(grad(power(x, 0.7), x), x)",
            "-0.21000000000000002 * CASE WHEN isnan(__common_expr_1) THEN 1 / __common_expr_2 ELSE __common_expr_1 END / x",
        ),
        ("grad(greatest(x * y, 0.0), x)", "CASE WHEN x * y >= 0 THEN y ELSE 0 END"),
        ("grad(least(y, x), x)", "CASE WHEN y <= x THEN 0 ELSE 1 END"),
        ("grad(greatest(n, x), x)", "CASE WHEN x <= n THEN 0 ELSE 1 END"),
        ("grad(greatest(x, n), x)", "CASE WHEN x < n THEN 0 ELSE 1 END"),
        ("grad(-x, x)", "-1"),
        ("grad(floor(x), x)", "0"),
        ("grad(grad(x * x * x, x), x)", "6 * x"),
        ("jvp(x * y, x, 1.0, y, x)", "y + x * x"),
        ("vjp(sin(x), x, y)", "y * cos(x)"),
        ("grad(CASE WHEN x > 0 THEN ln(x) ELSE y END, x)", "CASE WHEN x > 0 THEN 1 / x ELSE 0 END"),
    ] {
        assert_eq!(derivative(call).await?, expected, "{call}");
    }
    Ok(())
}

#[tokio::test]
async fn nulls_are_guarded_only_where_they_must() -> Result<()> {
    for (call, expected) in [
        ("grad(x * n, x)", "n"),
        ("grad(n * x, n)", "CASE WHEN n IS NOT NULL THEN x END"),
        ("grad(n * n, n)", "2 * n"),
        ("grad(n, n)", "CASE WHEN n IS NOT NULL THEN 1 END"),
        ("grad(coalesce(n, x), n)", "CASE WHEN n IS NOT NULL THEN 1 ELSE 0 END"),
        ("grad(CASE WHEN n > 0 THEN n * x ELSE x END, n)", "CASE WHEN n > 0 THEN x ELSE 0 END"),
    ] {
        assert_eq!(derivative(call).await?, expected, "{call}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_differentiated_is_refused_by_name() {
    assert_refused(derivative("grad(x * x, 2.0)").await, &["grad(", "2.0 is a number", "column"]);
    assert_refused(derivative("grad(x * x, x + y)").await, &["is an expression"]);
    assert_refused(derivative("grad(i * x, i)").await, &["t.i is Int32", "CAST(i AS DOUBLE) AS i"]);
    assert_refused(derivative("grad(s, x)").await, &["Utf8", "the expression must be a number"]);
    assert_refused(
        derivative("grad(gcd(i, i) * factorial(i) + array_distance([x], [y]), x)").await,
        &["array_distance", "t.x"],
    );
    assert_refused(derivative("grad(x * random(), x)").await, &["random()", "again"]);
    assert_refused(derivative("grad(x)").await, &["1 argument is given to grad", "grad(expression, column)"]);
    assert_refused(derivative("jvp(x, x)").await, &["jvp(expression, column, tangent"]);
    assert_refused(derivative("grad(1.0, 2.0)").await, &["2.0 is a number"]);
    assert_refused(derivative("grad(avg(x * y), x)").await, &["avg(t.x * t.y)", "aggregate"]);
}

#[tokio::test]
async fn what_would_be_a_silent_zero_is_refused() {
    let alone = session(xql_autodiff::functions(), TABLE).await.expect("a session");
    for (sql, unseen) in [
        ("WITH v AS (SELECT x, x * x AS q FROM t) SELECT grad(v.q * v.q, v.x) FROM v", "v.q"),
        ("SELECT grad(q * q, x) FROM (SELECT DISTINCT x, x * x AS q FROM t) AS m", "m.q"),
        ("SELECT grad(q['a'], x) FROM (SELECT DISTINCT x, named_struct('a', x) AS q FROM t) AS m", "m.q"),
        ("SELECT grad(CAST(q AS DOUBLE), x) FROM (SELECT DISTINCT x, CAST(x AS VARCHAR) AS q FROM t) AS m", "m.q"),
        ("SELECT jvp(a.x * b.x, a.x, 1.0) FROM t AS a CROSS JOIN t AS b", "b.x"),
        ("SELECT x, grad(avg(x * y), x) FROM t GROUP BY x", "avg(t.x * t.y)"),
        ("SELECT grad(x * (SELECT max(u.x) FROM t AS u), x) FROM t", "SELECT"),
        // In ORDER BY the planner puts the alias s in place of x * x.
        ("SELECT x * x AS s FROM t ORDER BY grad(x * x, x)", "may have computed s from"),
    ] {
        let plan = alone.sql(sql).await.expect("a plan").into_optimized_plan().map(|plan| plan.to_string());
        assert_refused(plan, &[unseen, "another node of the plan", "xql_relations::register(&ctx)"]);
    }
    let seen = alone.sql("SELECT jvp(sin(x) * i + y, x, f, y, x) FROM t").await.expect("a plan");
    assert!(seen.into_optimized_plan().is_ok());
    // The planner makes the float a decimal.
    let call = "grad(coalesce(nullif(x, y), CAST(i AS DECIMAL(21, 2))), x)";
    assert_refused(derivative(call).await, &["Decimal", "CAST(... AS DOUBLE)"]);
    // Written out, the product rule of the product rule of 450 factors has millions of terms.
    let product: Vec<_> = (0..450).map(|i| format!("(x + {i})")).collect();
    assert_refused(derivative(&format!("grad(grad({0}, x), x)", product.join(" * "))).await, &["terms", "lower order"]);
}

/// A time has the digits of the float it was made of, and gives them back.
#[tokio::test]
async fn numbers_made_of_times_made_of_floats_are_refused() {
    for time in [
        "to_timestamp(x)",
        "to_timestamp(x) + INTERVAL '1 day'",
        "date_bin(INTERVAL '1 second', to_timestamp(x))",
        "to_timestamp(x) - to_timestamp(0)",
        "CASE WHEN x > 1 THEN to_timestamp(x) ELSE to_timestamp(0) END",
        "CAST(x AS TIMESTAMP)",
    ] {
        assert_refused(derivative(&format!("grad(date_part('epoch', {time}), x)")).await, &["a time is not a number"]);
    }
    assert_refused(derivative("grad(CAST(CAST(x AS TIMESTAMP) AS DOUBLE), x)").await, &["a time is not a number"]);
}

#[tokio::test]
async fn conditions_on_times_made_of_floats_are_fine() -> Result<()> {
    let call = "grad(CASE WHEN to_timestamp(x) + INTERVAL '1 day' > to_timestamp(0) THEN x * x ELSE 0 END, x)";
    assert!(derivative(call).await?.contains("THEN 2 * x"));
    Ok(())
}

#[tokio::test]
async fn a_volatile_term_that_is_not_read_again_is_fine() -> Result<()> {
    assert_eq!(derivative("grad(2 * x + random(), x)").await?, "2");
    Ok(())
}

#[tokio::test]
async fn the_result_has_the_declared_type() -> Result<()> {
    for (call, expected) in [
        ("grad(f * f, f)", "Float32"),
        ("grad(f * x, f)", "Float64"),
        ("grad(f * x, x)", "Float64"),
        ("grad(i, x)", "Float64"),
        ("jvp(f * f, f, 1.0)", "Float32"),
    ] {
        let sql = format!("SELECT arrow_typeof({call}) FROM t");
        let batches = told().await?.sql(&sql).await?.collect().await?;
        assert_eq!(array_value_to_string(batches[0].column(0), 0)?, expected, "{call}");
    }
    Ok(())
}

/// Each call with its value on `t`, whose row has x = 2, y = 3, n = NULL.
#[tokio::test]
async fn selections_are_differentiated_as_the_input_they_return() -> Result<()> {
    for (call, expected) in [
        ("grad(greatest(x * x, y), x)", Some(4.0)),
        ("grad(greatest(x, y), x)", Some(0.0)),
        ("grad(greatest(x * y, 6.0), x)", Some(3.0)),
        ("grad(greatest(6.0, x * y), x)", Some(0.0)),
        ("grad(least(x * x, y, x * y), y)", Some(1.0)),
        ("grad(least(n, x * x), x)", Some(4.0)),
        ("grad(greatest(n, n), n)", None),
        ("grad(nullif(x * x, y), x)", Some(4.0)),
        ("grad(nullif(x * x, 4.0), x)", None),
        ("grad(nanvl(x * x, y), x)", Some(4.0)),
        ("grad(nanvl(x / 0.0 - x / 0.0, x * y), x)", Some(3.0)),
        ("grad(nvl(n, x * x), x)", Some(4.0)),
        ("grad(nvl2(n, x, x * x), x)", Some(4.0)),
    ] {
        let batches = told().await?.sql(&format!("SELECT {call} FROM t")).await?.collect().await?;
        let values = batches[0].column(0).as_any().downcast_ref::<Float64Array>().expect("a DOUBLE");
        assert_eq!(values.is_valid(0).then(|| values.value(0)), expected, "{call}");
    }
    Ok(())
}

#[tokio::test]
async fn newtons_method_converges_in_a_recursive_query() -> Result<()> {
    let newton = "WITH RECURSIVE newton AS (
        SELECT 0 AS step, 1.0 AS x
        UNION ALL
        SELECT step + 1, x - (x * x - 2) / grad(x * x - 2, x) FROM newton WHERE step < 6)
      SELECT x FROM newton ORDER BY step DESC LIMIT 1";
    let batches = told().await?.sql(newton).await?.collect().await?;
    let root = batches[0].column(0).as_any().downcast_ref::<Float64Array>().map(|values| values.value(0));
    assert!((root.unwrap_or(f64::NAN) - 2.0_f64.sqrt()).abs() < 1e-15);
    Ok(())
}

#[tokio::test]
async fn long_conditions_are_differentiated_without_exhausting_the_stack() -> Result<()> {
    let condition: Vec<_> = (0..1000).map(|number| format!("n <> {number}")).collect();
    let call = format!("grad(CASE WHEN {} THEN n * x ELSE x END, n)", condition.join(" AND "));
    assert!(derivative(&call).await?.contains("THEN x"));
    Ok(())
}

#[tokio::test]
async fn long_sums_are_differentiated_without_exhausting_the_stack() -> Result<()> {
    let sum = vec!["x * y"; 1000].join(" + ");
    assert!(derivative(&format!("grad({sum}, x)")).await?.contains('y'));
    Ok(())
}
