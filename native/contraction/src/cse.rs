//! Common-subexpression elimination among expressions over the same rows.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, CaseExpr, CastExpr, Column, NegativeExpr};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use std::collections::HashMap;
use std::sync::Arc;

/// Expressions that call each repeated function once. The derivative of the logistic function repeats one call three times:
///
/// ```sql
/// exp(-x) / ((1 + exp(-x)) * (1 + exp(-x)))
/// ```
///
/// No expression may be volatile.
pub struct SharedEval {
    /// The repeated calls. Each reads those before it as columns that follow the columns of the rows.
    calls: Vec<Arc<dyn PhysicalExpr>>,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
}

impl SharedEval {
    /// Factors repeated calls out of expressions over rows with `width` columns, innermost calls first.
    pub fn try_new(mut exprs: Vec<Arc<dyn PhysicalExpr>>, width: usize) -> Result<Self> {
        let mut calls = vec![];
        while let Some(call) = find_repeated_call(&exprs)? {
            let column = Arc::new(Column::new("call", width + calls.len())) as Arc<dyn PhysicalExpr>;
            for expr in &mut exprs {
                *expr = replace_call(expr, &call, &column)?;
            }
            calls.push(call);
        }
        Ok(Self { calls, exprs })
    }

    /// Evaluates the expressions for the rows of a batch.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let mut batch = batch.clone();
        for call in &self.calls {
            batch = append_column(&batch, evaluate_expr(call, &batch)?)?;
        }
        self.exprs.iter().map(|expr| evaluate_expr(expr, &batch)).collect()
    }
}

fn evaluate_expr(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(batch)?.into_array(batch.num_rows())
}

fn append_column(batch: &RecordBatch, column: ArrayRef) -> Result<RecordBatch> {
    let field = Arc::new(Field::new("call", column.data_type().clone(), true));
    let fields = batch.schema_ref().fields().iter().cloned().chain([field]);
    let schema = Schema::new(fields.collect::<Vec<_>>());
    Ok(RecordBatch::try_new(Arc::new(schema), [batch.columns(), &[column]].concat())?)
}

fn replace_call(
    expr: &Arc<dyn PhysicalExpr>,
    call: &Arc<dyn PhysicalExpr>,
    column: &Arc<dyn PhysicalExpr>,
) -> Result<Arc<dyn PhysicalExpr>> {
    let replaced = Arc::clone(expr).transform_down(|part| match part.as_ref() == call.as_ref() {
        true => Ok(Transformed::new(Arc::clone(column), true, TreeNodeRecursion::Jump)),
        false => Ok(Transformed::no(part)),
    })?;
    Ok(replaced.data)
}

/// Finds a function that is called several times with the same arguments, and evaluated for every row at least once. Its arguments have no
/// such call.
fn find_repeated_call(exprs: &[Arc<dyn PhysicalExpr>]) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let mut count: HashMap<Arc<dyn PhysicalExpr>, usize> = HashMap::new();
    for expr in exprs {
        expr.apply(|part| {
            if part.is::<ScalarFunctionExpr>() {
                *count.entry(Arc::clone(part)).or_default() += 1;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if count.values().all(|times| *times < 2) {
        return Ok(None);
    }
    let is_repeated = |call: &Arc<dyn PhysicalExpr>| count.get(call).is_some_and(|times| *times > 1);
    Ok(exprs.iter().find_map(|expr| find_innermost(expr, &is_repeated)))
}

/// Finds the first innermost subexpression that matches, among those that are evaluated for every row.
fn find_innermost(
    expr: &Arc<dyn PhysicalExpr>,
    matches: &impl Fn(&Arc<dyn PhysicalExpr>) -> bool,
) -> Option<Arc<dyn PhysicalExpr>> {
    let children = unconditional_children(expr);
    children
        .into_iter()
        .find_map(|part| find_innermost(part, matches))
        .or_else(|| matches(expr).then(|| Arc::clone(expr)))
}

/// Returns the children that are evaluated for every row. What a condition guards may fail for other rows, so it cannot be evaluated ahead.
fn unconditional_children(expr: &Arc<dyn PhysicalExpr>) -> Vec<&Arc<dyn PhysicalExpr>> {
    if let Some(operator) = expr.downcast_ref::<BinaryExpr>() {
        return match operator.op() {
            Operator::And | Operator::Or => vec![operator.left()],
            _ => vec![operator.left(), operator.right()],
        };
    }
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        return case.expr().or(case.when_then_expr().first().map(|(condition, _)| condition)).into_iter().collect();
    }
    let evaluates_all = expr.is::<NegativeExpr>()
        || expr.is::<CastExpr>()
        || expr.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| !call.fun().short_circuits());
    if evaluates_all { expr.children() } else { vec![] }
}

#[cfg(test)]
#[cfg(not(feature = "datafusion-55"))]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Float64Array};
    use arrow::datatypes::{DataType, Float64Type};
    use datafusion_common::{DFSchema, exec_err};
    use datafusion_expr::execution_props::ExecutionProps;
    use datafusion_expr::{ColumnarValue, Expr, ScalarUDF, Volatility, col, create_udf, lit, when};
    use datafusion_physical_expr::create_physical_expr;
    use std::sync::Mutex;

    /// Creates a function that records for how many rows it is called, and fails for negative numbers.
    fn root(calls: &Arc<Mutex<Vec<usize>>>) -> ScalarUDF {
        let calls = Arc::clone(calls);
        let take_roots = move |args: &[ColumnarValue]| {
            let Some(ColumnarValue::Array(array)) = args.first() else { return exec_err!("no rows") };
            calls.lock().expect("no test has panicked").push(array.len());
            let values = array.as_primitive::<Float64Type>();
            match values.values().iter().any(|value| *value < 0.0) {
                true => exec_err!("it is negative"),
                false => Ok(ColumnarValue::Array(Arc::new(values.unary::<_, Float64Type>(f64::sqrt)))),
            }
        };
        create_udf("root", vec![DataType::Float64], DataType::Float64, Volatility::Immutable, Arc::new(take_roots))
    }

    /// The values of an expression.
    type Values = Vec<Option<f64>>;

    /// Evaluates expressions of the function over rows of `x`. Returns their values and the number of rows of each call.
    fn evaluate<const N: usize>(
        rows: [f64; 3],
        exprs: impl FnOnce(&dyn Fn(Expr) -> Expr) -> [Expr; N],
    ) -> Result<([Values; N], Vec<usize>)> {
        let calls = Arc::default();
        let function = root(&calls);
        let batch = RecordBatch::try_from_iter([("x", Arc::new(Float64Array::from(rows.to_vec())) as ArrayRef)])?;
        let (schema, props) = (DFSchema::try_from(batch.schema())?, ExecutionProps::new());
        let exprs = exprs(&|argument| function.call(vec![argument]));
        let exprs = exprs.iter().map(|expr| create_physical_expr(expr, &schema, &props));
        let shared = SharedEval::try_new(exprs.collect::<Result<_>>()?, batch.num_columns())?;
        let mut values = shared.evaluate(&batch)?.into_iter();
        let values = std::array::from_fn(|_| {
            let values = values.next().expect("there is one for each");
            values.as_primitive::<Float64Type>().iter().collect()
        });
        let calls = calls.lock().expect("no test has panicked").clone();
        Ok((values, calls))
    }

    #[test]
    fn a_function_is_called_once_for_all_expressions() -> Result<()> {
        let (values, calls) = evaluate([0.0, 1.0, 4.0], |root| {
            [root(col("x")) / (lit(1.0) + root(col("x"))), -root(root(col("x"))), root(col("x") + lit(1.0))]
        })?;
        let [quotient, negative, other] = values;
        assert_eq!(quotient, [Some(0.0), Some(0.5), Some(2.0 / 3.0)]);
        assert_eq!(negative, [Some(0.0), Some(-1.0), Some(-f64::sqrt(2.0))]);
        assert_eq!(other, [Some(1.0), Some(f64::sqrt(2.0)), Some(f64::sqrt(5.0))]);
        assert_eq!(calls, [3, 3, 3]);
        Ok(())
    }

    #[test]
    fn a_call_in_which_another_comes_again_is_called_once() -> Result<()> {
        let nested = |root: &dyn Fn(Expr) -> Expr| root(root(col("x")));
        let (values, calls) = evaluate([0.0, 1.0, 16.0], |root| [nested(root) * nested(root), root(col("x"))])?;
        assert_eq!(values, [[0.0, 1.0, 4.0], [0.0, 1.0, 4.0]].map(|values| values.map(Some).to_vec()));
        assert_eq!(calls, [3, 3]);
        Ok(())
    }

    #[test]
    fn what_a_condition_guards_is_not_called_for_other_rows() -> Result<()> {
        let rows = [-1.0, 4.0, 9.0];
        let (values, calls) = evaluate(rows, |root| {
            let guarded = || when(col("x").gt(lit(0.0)), root(col("x"))).end().expect("it has a condition");
            [guarded(), guarded() + lit(1.0)]
        })?;
        assert_eq!(values[0], [None, Some(2.0), Some(3.0)]);
        assert_eq!(values[1], [None, Some(3.0), Some(4.0)]);
        assert_eq!(calls, [2, 2]);
        // No row is positive, so DataFusion evaluates no other operand.
        let (values, calls) = evaluate([-1.0, -4.0, -9.0], |root| {
            let guarded = || col("x").gt(lit(0.0)).and(root(col("x")).gt(lit(2.0)));
            let number = |truth: Expr| when(truth, lit(1.0)).otherwise(lit(0.0)).expect("it has a condition");
            [number(guarded()), number(guarded().or(col("x").lt(lit(-2.0))))]
        })?;
        assert_eq!(values, [[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]].map(|values| values.map(Some).to_vec()));
        assert_eq!(calls, [0; 0]);
        // Calls within a condition are evaluated for every row.
        let (values, calls) = evaluate([1.0, 4.0, 9.0], |root| {
            [when(root(col("x")).gt(lit(1.0)), root(col("x"))).end().expect("it has a condition")]
        })?;
        assert_eq!(values, [vec![None, Some(2.0), Some(3.0)]]);
        assert_eq!(calls, [3]);
        Ok(())
    }
}
