//! Functions of a statement that are not DataFusion's own.

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use xql_autodiff::Differential;

use crate::expr::cast_sql;
use crate::names::quote_if_needed;

/// A message with this character is not an error but a question for the result type of a call: it precedes and follows the name of the
/// function, and follows each argument.
pub const QUESTION: char = '\u{1}';

/// The result types of calls of the session's functions, as far as they have been requested.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FunctionAnswers(Arc<HashMap<String, Answer>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    result: Option<FieldRef>,
    is_volatile: bool,
}

impl FunctionAnswers {
    /// Adds the result of a call, `None` if there is no such function.
    pub fn insert(&mut self, call: &str, result: Option<FieldRef>, is_volatile: bool) {
        Arc::make_mut(&mut self.0).insert(call.to_owned(), Answer { result, is_volatile });
    }
}

/// A function of the session.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionFunction {
    name: String,
    answers: FunctionAnswers,
    signature: Signature,
}

impl SessionFunction {
    /// Creates the function of a name.
    pub fn new(name: &str, answers: &FunctionAnswers) -> Self {
        let start = format!("{}(", quote_if_needed(name));
        let is_volatile = answers.0.iter().any(|(call, answer)| call.starts_with(&start) && answer.is_volatile);
        let volatility = if is_volatile { Volatility::Volatile } else { Volatility::Immutable };
        Self { name: name.to_owned(), answers: answers.clone(), signature: Signature::user_defined(volatility) }
    }
}

impl Hash for SessionFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for SessionFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        plan_err!("the type of {} depends on the fields of its arguments", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let typed: Vec<_> = args.arg_fields.iter().map(|field| cast_sql("NULL", field.data_type())).collect();
        let name = quote_if_needed(&self.name);
        let call = format!("{name}({})", typed.join(", "));
        match self.answers.0.get(&call) {
            Some(Answer { result: Some(field), .. }) => Ok(Arc::new(field.as_ref().clone().with_name(&self.name))),
            Some(Answer { result: None, .. }) => plan_err!("the session has no function for {call}"),
            None => {
                let arguments: String = typed.iter().map(|argument| format!("{argument}{QUESTION}")).collect();
                plan_err!("{QUESTION}{name}{QUESTION}{arguments}")
            }
        }
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        plan_err!("only the session can run its function {}", self.name)
    }
}

/// An operator at a call with a number.
///
/// Two are equal if the operators are, so the planner recognizes `grad(f, x)` of SELECT in GROUP BY.
#[derive(Debug)]
pub struct CallSite {
    operator: Arc<ScalarUDF>,
    number: usize,
    /// Its function name: that of the call while the statement is planned, then that of the operator. Columns are always named by the
    /// operator, so that others can refer to them.
    name: String,
}

impl CallSite {
    /// Creates the operator of the call with this number and function name.
    pub fn new(operator: Arc<ScalarUDF>, number: usize, name: &str) -> Self {
        Self { operator, number, name: name.to_owned() }
    }

    fn from_expr(expr: &Expr) -> Option<&Self> {
        match expr {
            Expr::ScalarFunction(call) => call.func.inner().downcast_ref(),
            _ => None,
        }
    }

    /// Returns the number of the call that an expression is.
    pub fn number_of(expr: &Expr) -> Option<usize> {
        Some(Self::from_expr(expr)?.number)
    }
}

/// Renames the functions of calls to the names of their operators.
pub fn restore_operator_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    let restored = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|part| match (CallSite::from_expr(&part), &part) {
                (Some(site), Expr::ScalarFunction(call)) => {
                    let operator = Arc::clone(&site.operator);
                    let site = CallSite { name: operator.name().to_owned(), number: site.number, operator };
                    let function = Arc::new(ScalarUDF::new_from_impl(site));
                    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, call.args.clone()))))
                }
                _ => Ok(Transformed::no(part)),
            })
        })
    })?;
    Ok(restored.data)
}

/// Recognizes the operators of calls for the analyzer rule. A call that the rule leaves keeps its number.
pub fn recognize(function: &ScalarUDF) -> Option<Differential> {
    let Some(site) = function.inner().downcast_ref::<CallSite>() else { return xql_autodiff::recognize(function) };
    let Differential { tangent, analyzed } = xql_autodiff::recognize(&site.operator)?;
    let analyzed =
        ScalarUDF::new_from_impl(CallSite { operator: analyzed, number: site.number, name: site.name.clone() });
    Some(Differential { tangent, analyzed: Arc::new(analyzed) })
}

impl PartialEq for CallSite {
    fn eq(&self, other: &Self) -> bool {
        self.operator == other.operator
    }
}

impl Eq for CallSite {}

impl Hash for CallSite {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operator.hash(state);
    }
}

impl ScalarUDFImpl for CallSite {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.operator.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.operator.signature()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.operator.coerce_types(arg_types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.operator.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.operator.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.operator.simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.operator.invoke_with_args(args)
    }
}
