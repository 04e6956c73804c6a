//! Readers that compute what a projection above them calls functions for.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::coop::CooperativeExec;
use datafusion_physical_plan::projection::ProjectionExec;
use std::sync::Arc;

use super::shared::SharedExec;

/// A plan in which readers of relations take the place of projections above them that call functions. What several of them call alike
/// is computed once.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn asked(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let asked = plan.transform_down(|node| {
        let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(Transformed::no(node)) };
        let cooperative = projection.input().downcast_ref::<CooperativeExec>();
        let below = cooperative.map_or(projection.input(), |cooperative| cooperative.input());
        let exprs = projection.expr().iter().map(|computed| &computed.expr);
        let Some(reader) = below.downcast_ref::<SharedExec>() else { return Ok(Transformed::no(node)) };
        if !are_of_rows(exprs.clone())? {
            return Ok(Transformed::no(node));
        }
        let Some(reader) = reader.computing(exprs, node.schema())? else { return Ok(Transformed::no(node)) };
        let reader = Arc::new(reader) as Arc<dyn ExecutionPlan>;
        Ok(Transformed::yes(if cooperative.is_some() { Arc::new(CooperativeExec::new(reader)) } else { reader }))
    })?;
    Ok(asked.data)
}

/// Whether expressions call a function, and are of the columns of a row alone, the same whoever computes them.
fn are_of_rows<'e>(exprs: impl Iterator<Item = &'e Arc<dyn PhysicalExpr>>) -> Result<bool> {
    let (mut calls, mut are) = (false, true);
    for expr in exprs {
        expr.apply(|part| {
            calls |= part.is::<ScalarFunctionExpr>();
            let is_leaf = part.is::<Column>() || part.is::<Literal>();
            are &= !part.is_volatile_node() && (is_leaf || !part.children().is_empty());
            Ok(if are { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })?;
    }
    Ok(calls && are)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physical::Shared;
    use arrow::array::{AsArray, Float64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
    use datafusion::physical_expr::create_physical_expr;
    use datafusion::prelude::{SessionConfig, SessionContext, col, lit};
    use datafusion_common::{DFSchema, ScalarValue};
    use datafusion_execution::TaskContext;
    use datafusion_expr::{Expr, ScalarUDF};
    use datafusion_physical_plan::{collect, displayable};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn schema() -> SchemaRef {
        let field = |name| Field::new(name, DataType::Float64, false);
        Arc::new(Schema::new(vec![field("x"), field("y")]))
    }

    /// A relation of two partitions, in the first of which are two batches.
    fn relation() -> Result<Arc<Shared>> {
        let batch = |x: Vec<f64>| {
            let y = x.iter().map(|x| 10.0 * x).collect::<Float64Array>();
            RecordBatch::try_new(schema(), vec![Arc::new(Float64Array::from(x)), Arc::new(y)])
        };
        let partitions = [vec![batch(vec![1.0, 2.0, 3.0])?, batch(vec![4.0])?], vec![batch(vec![5.0])?]];
        let rows = MemorySourceConfig::try_new_exec(&partitions, schema(), None)?;
        Ok(Arc::new(Shared::new("r".to_owned(), schema(), false, rows)))
    }

    /// A function that is its argument, and how often it is called.
    fn counted(volatility: Volatility) -> (ScalarUDF, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let call = move |args: &[ColumnarValue]| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(args[0].clone())
        };
        (create_udf("counted", vec![DataType::Float64], DataType::Float64, volatility, Arc::new(call)), calls)
    }

    /// What a projection of columns of a relation computes, in the places that `asked` has for it.
    fn reader(relation: &Arc<Shared>, columns: Vec<usize>, exprs: &[Expr]) -> Result<Arc<dyn ExecutionPlan>> {
        let reader = SharedExec::new(Arc::clone(relation), &schema(), Some(columns), false)?;
        let of_reader = DFSchema::try_from(reader.schema().as_ref().clone())?;
        let exprs = exprs.iter().enumerate().map(|(index, expr)| {
            Ok((create_physical_expr(expr, &of_reader, &Default::default())?, format!("c{index}")))
        });
        let below = Arc::new(CooperativeExec::new(Arc::new(reader)));
        asked(Arc::new(ProjectionExec::try_new(exprs.collect::<Result<Vec<_>>>()?, below)?))
    }

    /// A column of the rows of a plan, in order.
    async fn column(plan: &Arc<dyn ExecutionPlan>, column: usize, task: &Arc<TaskContext>) -> Result<Vec<f64>> {
        let batches = collect(Arc::clone(plan), Arc::clone(task)).await?;
        let values = batches.iter().flat_map(|batch| batch.column(column).as_primitive::<Float64Type>().values());
        let mut values: Vec<_> = values.copied().collect();
        values.sort_by(f64::total_cmp);
        Ok(values)
    }

    #[tokio::test]
    async fn what_several_readers_call_alike_is_called_once_for_each_batch() -> Result<()> {
        let (counted, calls) = counted(Volatility::Immutable);
        let relation = relation()?;
        let expr = counted.call(vec![col("y") + lit(1.0)]);
        let first = reader(&relation, vec![0, 1], &[col("x"), expr.clone()])?;
        let second = reader(&relation, vec![1], &[expr, col("y")])?;
        let task = Arc::default();
        let expected = [11.0, 21.0, 31.0, 41.0, 51.0];
        assert_eq!(column(&first, 1, &task).await?, expected);
        assert_eq!(column(&second, 0, &task).await?, expected);
        assert_eq!(column(&first, 1, &task).await?, expected);
        assert_eq!(column(&second, 1, &task).await?, [10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        // Another execution has other rows.
        assert_eq!(column(&second, 0, &Arc::default()).await?, expected);
        assert_eq!(calls.load(Ordering::Relaxed), 6);
        let shown = displayable(second.as_ref()).indent(false).to_string();
        assert_eq!(shown, "CooperativeExec\n  SharedExec: reads r, columns=[counted(y@1 + 1), y]\n");
        Ok(())
    }

    #[tokio::test]
    async fn nothing_is_kept_for_one_reader_or_without_memory() -> Result<()> {
        for (readers, memory, expected) in [(2, 1 << 20, 3), (1, 1 << 20, 6), (2, 84, 6)] {
            let (counted, calls) = counted(Volatility::Immutable);
            let relation = relation()?;
            let exprs = [counted.call(vec![col("y")])];
            let plans = (0..readers).map(|_| reader(&relation, vec![0, 1], &exprs)).collect::<Result<Vec<_>>>()?;
            let runtime = RuntimeEnvBuilder::new().with_memory_limit(memory, 1.0).build_arc()?;
            let task = SessionContext::new_with_config_rt(SessionConfig::new(), Arc::clone(&runtime)).task_ctx();
            let mut held = vec![];
            for _ in 0..2 {
                assert_eq!(column(&plans[0], 0, &task).await?, [10.0, 20.0, 30.0, 40.0, 50.0]);
                held.push(runtime.memory_pool.reserved());
            }
            assert_eq!(calls.load(Ordering::Relaxed), expected, "{readers} readers, {memory} bytes");
            let of_values = if expected == 3 { 5 * size_of::<f64>() } else { 0 };
            assert_eq!(held, [10 * size_of::<f64>() + of_values; 2], "{readers} readers, {memory} bytes");
        }
        Ok(())
    }

    #[test]
    fn what_is_drawn_or_calls_nothing_stays_in_its_projection() -> Result<()> {
        let relation = relation()?;
        let drawn = counted(Volatility::Volatile).0.call(vec![col("x")]);
        let called = counted(Volatility::Immutable).0.call(vec![col("x")]);
        let of_nothing = Arc::new(|_: &[ColumnarValue]| Ok(ColumnarValue::from(ScalarValue::from(1.0))));
        let of_nothing =
            create_udf("of_nothing", vec![], DataType::Float64, Volatility::Stable, of_nothing).call(vec![]);
        for (exprs, is_taken) in [
            (vec![called.clone()], true),
            (vec![called.clone(), drawn], false),
            (vec![called.clone() + of_nothing], false),
            (vec![col("x") + lit(1.0)], false),
            (vec![called + lit(1.0), lit(1.0)], true),
        ] {
            let plan = reader(&relation, vec![0, 1], &exprs)?;
            assert_eq!(!plan.is::<ProjectionExec>(), is_taken, "{exprs:?}");
        }
        Ok(())
    }
}
