//! Expressions that keep text of another engine.
//!
//! A caller that parses another engine's dialect writes `"∂ 3"(expression, part, ...)` for an expression with the source fragment of number
//! 3, and its parts that have fragments of their own or none: columns, aggregates, subqueries, calls. DataFusion binds and types the
//! expression. The result has `"∂ 3"(part, ...)`, which the caller replaces by the fragment.

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, Result, exec_err, plan_datafusion_err, plan_err};
use datafusion_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use xql_autodiff::vocabulary::opaque_expr::OpaqueExpr;
use xql_relations::{SharedRelation, any_part, with_expressions};

use crate::names::{IMPLICIT_CAST, is_fragment};

/// The function that stands for a source fragment.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SourceFragment {
    name: String,
    signature: Signature,
}

impl SourceFragment {
    /// Creates the function of a name with the fragment's number.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for SourceFragment {
    fn name(&self) -> &str {
        &self.name
    }

    /// Names a column by the expression and the fragment: `SUM(x + 0.1)` and `SUM(x + 0.10)` are two columns. So are an expression and its
    /// derivative, which is taken without the fragment.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args.first() {
            Some(expression) => Ok(format!("{} {}", expression.schema_name(), self.name)),
            None => plan_err!("{} is of no expression", self.name),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let first = arg_types.first().cloned();
        first.ok_or_else(|| plan_datafusion_err!("{} is of no expression", self.name))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let first = args.arg_fields.first().map(Arc::clone);
        first.ok_or_else(|| plan_datafusion_err!("{} is of no expression", self.name))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("only the engine of these words can run them")
    }
}

/// Replaces expressions with fragments by opaque functions of their parts. The casts around them are DataFusion's, and not part of a
/// fragment: the other engine adds its own.
pub fn make_fragments_opaque(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_fragments(&plan)? {
        return Ok(plan);
    }
    let opaque = plan.transform_up_with_subqueries(|node| {
        let schema = super::derive::input_schema(&node)?;
        with_expressions(node, |expr| make_opaque(expr, &schema))
    })?;
    Ok(opaque.data)
}

/// Returns whether a plan, or a shared relation that it scans, has fragments.
pub fn has_fragments(plan: &LogicalPlan) -> Result<bool> {
    // The predicate never fails.
    SharedRelation::any_node_in(plan, &|node| any_part(node, is_fragment_call).unwrap_or(true))
}

fn is_fragment_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if is_fragment(call.func.name()))
}

fn make_opaque(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let opaque = expr.transform_up(|expr| match &expr {
        Expr::ScalarFunction(call) if call.func.inner().is::<SourceFragment>() => match call.args.split_first() {
            Some((expression, parts)) => {
                Ok(Transformed::yes(OpaqueExpr::call(call.func.name(), expression, parts.to_vec(), schema)?))
            }
            None => plan_err!("{expr} is of no expression"),
        },
        _ => Ok(Transformed::no(expr)),
    })?;
    opaque.transform_data(|expr| {
        expr.transform_down(|expr| match &expr {
            Expr::ScalarFunction(_) => Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump)),
            Expr::Cast(cast) => {
                let inside = vec![cast.expr.as_ref().clone()];
                let opaque = OpaqueExpr::call(IMPLICIT_CAST, &expr, inside, schema)?;
                Ok(Transformed::new(opaque, true, TreeNodeRecursion::Jump))
            }
            _ => Ok(Transformed::no(expr)),
        })
    })
}
