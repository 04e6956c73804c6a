//! What a call of `simplify` costs across the boundary. Prints a table:
//!
//! ```sh
//! cargo test --workspace --test it -- --ignored --nocapture cost
//! ```

use std::fs::read_to_string;
use std::hint::black_box;

use datafusion::common::Result;
use datafusion::logical_expr::simplify::ExprSimplifyResult;
use datafusion::logical_expr::{Expr, ScalarUDF};
use datafusion::prelude::{col, lit, sin};

use crate::common::{context, import, probe, schema};

/// An expression in which no part stands twice: `sin(sin(x * 0 + 0.5) * 1 + 0.5) ...`, three operations a level.
fn chain(levels: usize) -> Expr {
    (0..levels).fold(col("t.x"), |inner, level| sin(inner * lit(level as f64) + lit(0.5)))
}

/// Nanoseconds that this thread has computed, which a busy machine does not change. Linux knows.
fn processor_time() -> f64 {
    let times = read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

/// Microseconds of processor time that `simplify` takes, the fastest of five rounds.
fn microseconds(function: &ScalarUDF, argument: &Expr, calls: u32) -> Result<f64> {
    let context = context(schema());
    let mut fastest = f64::INFINITY;
    for _ in 0..5 {
        let start = processor_time();
        for _ in 0..calls {
            black_box(function.simplify(vec![argument.clone()], &context)?);
        }
        fastest = fastest.min((processor_time() - start) / 1e3 / f64::from(calls));
    }
    Ok(fastest)
}

#[test]
#[ignore = "it measures; it checks nothing"]
fn cost_of_a_call() -> Result<()> {
    let here = probe(|mut args, _| Ok(ExprSimplifyResult::Simplified(args.remove(0) + lit(1.0))));
    let there = import(&here);
    println!("operations   in one library   across the boundary");
    for levels in [1, 10, 100] {
        let argument = chain(levels);
        let calls = 2000 / u32::try_from(levels).unwrap_or(1) + 3;
        let (inside, across) = (microseconds(&here, &argument, 200 * calls)?, microseconds(&there, &argument, calls)?);
        println!("{:10} {inside:13.1} us {across:18.1} us", 3 * levels);
    }
    Ok(())
}
