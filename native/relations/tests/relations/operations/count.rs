//! Counting the operations that a query executes.

use datafusion::arrow::array::{Array, ArrayRef, Float64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::cast::as_float64_array;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;

use crate::session::session_of;

const ROWS: usize = 20;
/// The products that take as long as one call of `power`.
const POWER: usize = 16;

/// A session with the operators and a table `t` of such columns, each value drawn from its column's range.
pub async fn with_columns(columns: &[(&str, f64, f64)], nullable: bool) -> Result<SessionContext> {
    let ctx = session_of(SessionConfig::new().with_target_partitions(1), [""; 0]).await?;
    let fields: Vec<_> = columns.iter().map(|(name, ..)| Field::new(*name, DataType::Float64, nullable)).collect();
    // Multiples of the golden ratio fill the range evenly.
    let mut drawn = 0.0_f64;
    let mut values = |low: f64, high: f64| -> ArrayRef {
        let draw = |_| {
            drawn = (drawn + 0.618_033_988_749_895).fract();
            low + drawn * (high - low)
        };
        Arc::new((0..ROWS).map(draw).collect::<Float64Array>())
    };
    let arrays = columns.iter().map(|(_, low, high)| values(*low, *high)).collect();
    ctx.register_batch("t", RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)?;
    Ok(ctx)
}

/// The number of operations that the expressions over the table take.
pub async fn operations(ctx: &SessionContext, select: &str) -> Result<usize> {
    operations_of(ctx, &format!("SELECT {select} FROM t")).await
}

/// The number of operations in the projections and aggregates of a query's physical plan.
pub async fn operations_of(ctx: &SessionContext, query: &str) -> Result<usize> {
    Ok(in_plan(&ctx.sql(query).await?.create_physical_plan().await?, 1))
}

/// As `operations`, with each call of `power` for as many products as take that long.
pub async fn products(ctx: &SessionContext, select: &str) -> Result<usize> {
    let query = format!("SELECT {select} FROM t");
    Ok(in_plan(&ctx.sql(&query).await?.create_physical_plan().await?, POWER))
}

fn in_plan(plan: &Arc<dyn ExecutionPlan>, power: usize) -> usize {
    let in_expr = |expr: &Arc<dyn PhysicalExpr>| in_expr(expr, power);
    let mut own = 0;
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        own += projection.expr().iter().map(|projected| in_expr(&projected.expr)).sum::<usize>();
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        for function in aggregate.aggr_expr() {
            own += 1 + function.expressions().iter().map(in_expr).sum::<usize>();
        }
    }
    own + plan.children().into_iter().map(|child| in_plan(child, power)).sum::<usize>()
}

fn in_expr(expr: &Arc<dyn PhysicalExpr>, power: usize) -> usize {
    let own = match expr.downcast_ref::<ScalarFunctionExpr>() {
        Some(call) if call.name() == "power" => power,
        _ => usize::from(!expr.is::<Column>() && !expr.is::<Literal>()),
    };
    own + expr.children().into_iter().map(|child| in_expr(child, power)).sum::<usize>()
}

/// The values of one expression over the table.
pub async fn values(ctx: &SessionContext, expression: &str) -> Result<Vec<f64>> {
    let batches = ctx.sql(&format!("SELECT {expression} FROM t")).await?.collect().await?;
    let mut values = vec![];
    for batch in batches {
        let column = as_float64_array(batch.column(0))?;
        assert_eq!(column.null_count(), 0, "{expression} is NULL somewhere");
        values.extend(column.values());
    }
    assert_eq!(values.len(), ROWS);
    Ok(values)
}
