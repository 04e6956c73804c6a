//! Special functions: their rules, which are theirs alone.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Volatility, create_udf};
use std::sync::Arc;
use xql_autodiff::Refused;

use crate::session::{analyzed, session};

#[tokio::test]
async fn derivatives_of_all_orders() -> Result<()> {
    let functions = analyzed(xql_autodiff::functions()).chain(xql_special::functions());
    let ctx = session(functions, "CREATE TABLE t (x DOUBLE) AS VALUES (1.0)").await?;
    // The derivatives of lgamma at 1 are -gamma, zeta(2), -2 * zeta(3), 6 * zeta(4).
    let mut call = "lgamma(x)".to_owned();
    for expected in [-0.577_215_664_901_532_9, 1.644_934_066_848_226_4, -2.404_113_806_319_188_6, 6.493_939_402_266_829]
    {
        call = format!("grad({call}, x)");
        let rows = ctx.sql(&format!("SELECT {call} AS d FROM t")).await?.collect().await?;
        let found = rows[0].column(0).as_primitive::<Float64Type>().value(0);
        assert!((found - expected).abs() < 1e-14 * expected.abs(), "{call}: {found}");
    }
    Ok(())
}

#[tokio::test]
async fn a_function_of_the_user_has_no_rule() -> Result<()> {
    let double = DataType::Float64;
    let never = Arc::new(|_: &[_]| exec_err!("is never evaluated"));
    let of_user = create_udf("erf", vec![double.clone()], double, Volatility::Immutable, never);
    let functions = analyzed(xql_autodiff::functions()).chain(xql_special::functions()).chain([of_user]);
    let ctx = session(functions, "CREATE TABLE t (x DOUBLE) AS VALUES (1.0)").await?;
    let planned = ctx.sql("SELECT grad(erf(x), x) AS d FROM t").await?.collect().await;
    assert_eq!(Refused::from_error(&planned.expect_err("it has no rule")), Some(Refused::MissingRule));
    Ok(())
}
