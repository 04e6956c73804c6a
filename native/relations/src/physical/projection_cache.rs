//! Shares function calls between the projections of several readers of one relation.

use arrow::array::ArrayRef;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, Statistics, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::coop::CooperativeExec;
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;

use super::batch::batch_of;
use super::iterated_projection::are_in_place;
use super::projection_registry::Value;
use super::shared_scan::SharedScanExec;
use crate::version::{statistics, without_expressions};

/// Rewrites the projections over shared relations to evaluate each expression with function calls once for all readers.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn share_projections(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let shared = plan.transform_up(|node| {
        Ok(match CachedProjectionExec::match_node(&node)? {
            Some(shared) => Transformed::yes(Arc::new(shared) as _),
            None => Transformed::no(node),
        })
    })?;
    Ok(shared.data)
}

/// A [`ProjectionExec`] over a shared relation that caches expressions with function calls for all readers.
#[derive(Debug)]
struct CachedProjectionExec {
    /// The projection that it replaces.
    projection: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
    columns: Arc<[Asking]>,
    metrics: ExecutionPlanMetricsSet,
}

/// A column of a projection, and the value of the relation that it is, if it calls a function.
#[derive(Debug)]
struct Asking {
    expr: Arc<dyn PhysicalExpr>,
    value: Option<Arc<Value>>,
}

impl CachedProjectionExec {
    /// Converts a node, if it is a projection over a shared relation with function calls.
    fn match_node(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(None) };
        let Some(reader) = reader(projection.input()) else { return Ok(None) };
        let columns = projection.expr().iter().map(|column| Asking::try_new(&column.expr, reader));
        let columns = columns.collect::<Result<Arc<[_]>>>()?;
        let (input, metrics) = (Arc::clone(projection.input()), ExecutionPlanMetricsSet::new());
        let cached = Self { projection: Arc::clone(node), input, columns, metrics };
        Ok(cached.columns.iter().any(|column| column.value.is_some()).then_some(cached))
    }
}

/// Returns the reader of a relation that a node is.
fn reader(node: &Arc<dyn ExecutionPlan>) -> Option<&SharedScanExec> {
    let cooperative = node.downcast_ref::<CooperativeExec>();
    cooperative.map_or(node, |cooperative| cooperative.input()).downcast_ref()
}

impl Asking {
    fn try_new(expr: &Arc<dyn PhysicalExpr>, reader: &SharedScanExec) -> Result<Self> {
        let value = match is_called(expr)? {
            true => Some(reader.shared().projections().value(over_relation(expr, reader)?)),
            false => None,
        };
        Ok(Self { expr: Arc::clone(expr), value })
    }
}

/// Returns whether an expression calls a function, and is of the columns of a row alone, the same whoever computes it.
fn is_called(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    let (mut calls, mut is_of_row) = (false, true);
    expr.apply(|part| {
        calls |= part.is::<ScalarFunctionExpr>();
        let is_leaf = part.is::<Column>() || part.is::<Literal>();
        is_of_row &= !part.is_volatile_node() && (is_leaf || !part.children().is_empty());
        Ok(if is_of_row { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(calls && is_of_row)
}

/// Rewrites an expression over the columns of a reader as one over those of the relation. The columns have no names,
/// since each reader has its own.
fn over_relation(expr: &Arc<dyn PhysicalExpr>, reader: &SharedScanExec) -> Result<Arc<dyn PhysicalExpr>> {
    let of_relation = Arc::clone(expr).transform(|part| {
        let Some(read) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
        let Some(column) = reader.projection().get(read.index()) else {
            return internal_err!("a projection reads column {} of {}", read.index(), reader.projection().len());
        };
        Ok(Transformed::yes(Arc::new(Column::new("", *column)) as _))
    })?;
    Ok(of_relation.data)
}

impl DisplayAs for CachedProjectionExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let schema = self.schema();
        let columns = self.columns.iter().zip(schema.fields());
        let columns: Vec<_> = columns.map(|(column, field)| format!("{} as {}", column.expr, field.name())).collect();
        write!(f, "CachedProjectionExec: expr=[{}]", columns.join(", "))
    }
}

impl ExecutionPlan for CachedProjectionExec {
    fn name(&self) -> &str {
        "CachedProjectionExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.projection.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    without_expressions!();

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![are_in_place(self.columns.iter().map(|column| &column.expr))]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.projection.benefits_from_input_partitioning()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else {
            return internal_err!("CachedProjectionExec has one input");
        };
        let projection = Arc::clone(&self.projection).map_children(|_| Ok(Transformed::yes(Arc::clone(&input))))?.data;
        let of_same = |reader: &SharedScanExec, other: &SharedScanExec| {
            reader.shared().id() == other.shared().id() && reader.projection() == other.projection()
        };
        // Another input has other values.
        match reader(&self.input).zip(reader(&input)).is_some_and(|(reader, other)| of_same(reader, other)) {
            true => {
                let (columns, metrics) = (Arc::clone(&self.columns), ExecutionPlanMetricsSet::new());
                Ok(Arc::new(Self { projection, input, columns, metrics }))
            }
            false => Ok(projection),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        statistics(&self.projection, partition)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(reader) = reader(&self.input).cloned() else {
            return internal_err!("CachedProjectionExec reads a relation");
        };
        let rows = self.input.execute(partition, Arc::clone(&context))?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (columns, schema) = (Arc::clone(&self.columns), self.schema());
        let named = Arc::clone(&schema);
        let batches = async move { reader.computed(&context).await }.map_ok(move |computed| {
            rows.enumerate().map(move |(index, batch)| {
                let batch = batch?;
                let timer = metrics.elapsed_compute().timer();
                let columns = columns.iter().map(|column| {
                    let compute = || column.expr.evaluate(&batch)?.into_array(batch.num_rows());
                    match &column.value {
                        Some(value) => computed.values.get(value, (partition, index), compute),
                        None => compute(),
                    }
                });
                let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
                timer.done();
                Ok(batch_of(&named, columns, batch.num_rows())?.record_output(&metrics))
            })
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches.into_stream().try_flatten())))
    }
}

#[cfg(test)]
#[cfg(not(feature = "datafusion-55"))]
mod tests {
    use super::*;
    use crate::physical::shared_scan::Shared;
    use arrow::array::{AsArray, Float64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
    use datafusion::physical_expr::create_physical_expr;
    use datafusion::prelude::{SessionConfig, SessionContext, col, lit};
    use datafusion_common::stats::Precision;
    use datafusion_common::{DFSchema, ScalarValue};
    use datafusion_expr::{Expr, ScalarUDF};
    use datafusion_physical_plan::{ExecutionPlanProperties, collect, displayable};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn schema() -> SchemaRef {
        let field = |name| Field::new(name, DataType::Float64, false);
        Arc::new(Schema::new(vec![field("x"), field("y")]))
    }

    /// Returns a relation of two partitions, in the first of which are two batches.
    fn relation() -> Result<Arc<Shared>> {
        let batch = |x: Vec<f64>| {
            let y = x.iter().map(|x| 10.0 * x).collect::<Float64Array>();
            RecordBatch::try_new(schema(), vec![Arc::new(Float64Array::from(x)), Arc::new(y)])
        };
        let partitions = [vec![batch(vec![1.0, 2.0, 3.0])?, batch(vec![4.0])?], vec![batch(vec![5.0])?]];
        let rows = MemorySourceConfig::try_new_exec(&partitions, schema(), None)?;
        Ok(Arc::new(Shared::new("r".to_owned(), schema(), false, rows)))
    }

    /// Returns a function that is its argument, and how often it is called.
    fn counted(volatility: Volatility) -> (ScalarUDF, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let call = move |args: &[ColumnarValue]| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(args[0].clone())
        };
        (create_udf("counted", vec![DataType::Float64], DataType::Float64, volatility, Arc::new(call)), calls)
    }

    /// Returns what `share_projections` makes of a projection of columns of a relation.
    fn reader(relation: &Arc<Shared>, columns: Vec<usize>, exprs: &[Expr]) -> Result<Arc<dyn ExecutionPlan>> {
        let reader = SharedScanExec::new(Arc::clone(relation), &schema(), Some(columns), false)?;
        let of_reader = DFSchema::try_from(reader.schema().as_ref().clone())?;
        let exprs = exprs.iter().enumerate().map(|(index, expr)| {
            Ok((create_physical_expr(expr, &of_reader, &Default::default())?, format!("c{index}")))
        });
        let below = Arc::new(CooperativeExec::new(Arc::new(reader)));
        share_projections(Arc::new(ProjectionExec::try_new(exprs.collect::<Result<Vec<_>>>()?, below)?))
    }

    /// Returns a column of the rows of a plan, in order.
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
        let second = reader(&relation, vec![1], &[expr.clone(), col("y")])?;
        let third = reader(&relation, vec![1, 0], &[lit(2.0), expr])?;
        let expected = [11.0, 21.0, 31.0, 41.0, 51.0];
        for executions in 1..3 {
            let task = Arc::default();
            assert_eq!(column(&first, 1, &task).await?, expected);
            assert_eq!(column(&second, 0, &task).await?, expected);
            assert_eq!(column(&third, 1, &task).await?, expected);
            assert_eq!(calls.load(Ordering::Relaxed), 3 * executions);
        }
        assert_eq!(column(&second, 1, &Arc::default()).await?, [10.0, 20.0, 30.0, 40.0, 50.0]);
        let shown = displayable(second.as_ref()).indent(false).to_string();
        let expected = "CachedProjectionExec: expr=[counted(y@0 + 1) as c0, y@0 as c1]\n  CooperativeExec\n    SharedScanExec: reads r, columns=[y]\n";
        assert_eq!(shown, expected);
        Ok(())
    }

    #[tokio::test]
    async fn values_are_held_for_those_that_ask_for_them_if_there_is_memory() -> Result<()> {
        // The rows have 80 bytes, the values 40, of which the last batch has 8.
        for (readers, memory, calls_expected, held_expected) in
            [(2, 1 << 20, 3, [120, 80]), (3, 1 << 20, 3, [120, 120]), (1, 1 << 20, 6, [80, 80]), (2, 84, 6, [80, 80])]
        {
            let (counted, calls) = counted(Volatility::Immutable);
            let relation = relation()?;
            let exprs = [counted.call(vec![col("y")]), lit(1.0)];
            let plans = (0..readers).map(|_| reader(&relation, vec![0, 1], &exprs)).collect::<Result<Vec<_>>>()?;
            let runtime = RuntimeEnvBuilder::new().with_memory_limit(memory, 1.0).build_arc()?;
            let task = SessionContext::new_with_config_rt(SessionConfig::new(), Arc::clone(&runtime)).task_ctx();
            let mut held = vec![];
            for plan in [&plans[0], plans.last().unwrap_or(&plans[0])] {
                assert_eq!(column(plan, 0, &task).await?, [10.0, 20.0, 30.0, 40.0, 50.0]);
                held.push(runtime.memory_pool.reserved());
            }
            assert_eq!(calls.load(Ordering::Relaxed), calls_expected, "{readers} readers, {memory} bytes");
            assert_eq!(held, held_expected, "{readers} readers, {memory} bytes");
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
        for (exprs, is_asked) in [
            (vec![called.clone()], true),
            (vec![drawn], false),
            (vec![called.clone() + of_nothing], false),
            (vec![col("x") + lit(1.0)], false),
            (vec![called + lit(1.0), lit(1.0)], true),
        ] {
            let plan = reader(&relation, vec![0, 1], &exprs)?;
            assert_eq!(plan.is::<CachedProjectionExec>(), is_asked, "{exprs:?}");
            assert_eq!(plan.is::<ProjectionExec>(), !is_asked, "{exprs:?}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn nodes_above_see_the_projection() -> Result<()> {
        let relation = relation()?;
        let called = counted(Volatility::Immutable).0.call(vec![col("x")]);
        let cached = reader(&relation, vec![0, 1], &[called, lit(1.0), col("y")])?;
        let one = Arc::new(Column::new("c1", 1)) as Arc<dyn PhysicalExpr>;
        assert!(cached.equivalence_properties().is_expr_constant(&one).is_some());
        assert_eq!(statistics(&cached, None)?.total_byte_size, Precision::Exact(5 * 3 * size_of::<f64>()));
        // Over other rows it is a projection again.
        let other = SharedScanExec::new(self::relation()?, &schema(), None, false)?;
        let over_other = Arc::clone(&cached).with_new_children(vec![Arc::new(other)])?;
        assert!(over_other.is::<ProjectionExec>());
        let bound = SharedScanExec::new(Arc::clone(&relation), &schema(), Some(vec![0, 1]), false)?;
        assert!(cached.with_new_children(vec![Arc::new(bound)])?.is::<CachedProjectionExec>());
        assert_eq!(column(&over_other, 0, &Arc::default()).await?, [1.0, 2.0, 3.0, 4.0, 5.0]);
        Ok(())
    }
}
