//! Evaluation of formulas to nodes of a graph.

use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion_expr::{Expr, Operator, ScalarUDF, Volatility};
use sqlparser::ast::{
    BinaryOperator, CaseWhen, DataType as SqlType, ExactNumberInfo, Expr as Sql, UnaryOperator, Value as SqlValue,
};

use super::scope::{Call, Scope};
use crate::algebra::{Algebra, add, divide, multiply, negate, power, square_root, subtract};
use crate::graph::NodeId;
use crate::table::{self, Algebraic};
use crate::vocabulary::functions::find_callable;
use crate::vocabulary::messages::{error_text, truncate};
use crate::vocabulary::syntax::{normalize, parse_call, unsupported_error};
use crate::vocabulary::transform::is_transform;
use crate::vocabulary::types::value_type;

/// Evaluates a numeric formula, in the working type.
pub fn evaluate_number(sql: &Sql, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
    let id = evaluate(sql, algebra, scope)?;
    let data_type = value_type(algebra.data_type(id));
    if data_type.is_numeric() || data_type.is_null() {
        algebra.cast_to_working_type(id)
    } else {
        plan_err!("{} must be a number; it is {data_type}", truncate(sql))
    }
}

/// Evaluates a condition.
fn evaluate_condition(sql: &Sql, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
    let id = evaluate(sql, algebra, scope)?;
    match algebra.data_type(id) {
        DataType::Boolean => Ok(id),
        other => plan_err!("{} must be a condition; it is {other}", truncate(sql)),
    }
}

/// Evaluates a formula of any type.
#[recursive::recursive]
pub fn evaluate(sql: &Sql, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
    match sql {
        Sql::Nested(inner) => evaluate(inner, algebra, scope),
        Sql::Identifier(name) => scope.name(&normalize(name)),
        Sql::Value(value) => evaluate_literal(sql, &value.value, algebra),
        Sql::UnaryOp { op: UnaryOperator::Plus, expr } => evaluate_number(expr, algebra, scope),
        Sql::UnaryOp { op: UnaryOperator::Minus, expr } => {
            let operand = evaluate_number(expr, algebra, scope)?;
            match algebra.as_number(operand) {
                Some(value) => algebra.number(-value),
                None => negate(algebra, operand),
            }
        }
        Sql::UnaryOp { op: UnaryOperator::Not, expr } => {
            let operand = evaluate_condition(expr, algebra, scope)?;
            algebra.not(operand)
        }
        Sql::UnaryOp { .. } => Err(unsupported_error(sql)),
        Sql::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
            let (a, b) = (evaluate_condition(left, algebra, scope)?, evaluate_condition(right, algebra, scope)?);
            if *op == BinaryOperator::And { algebra.and(a, b) } else { algebra.or(a, b) }
        }
        Sql::BinaryOp { left, op, right } => {
            let (a, b) = (evaluate_number(left, algebra, scope)?, evaluate_number(right, algebra, scope)?);
            evaluate_operation(algebra, a, op, b)?.ok_or_else(|| unsupported_error(sql))
        }
        Sql::Between { expr, negated, low, high } => {
            let value = evaluate_number(expr, algebra, scope)?;
            let (low, high) = (evaluate_number(low, algebra, scope)?, evaluate_number(high, algebra, scope)?);
            let (above, below) =
                (algebra.binary(value, Operator::GtEq, low)?, algebra.binary(value, Operator::LtEq, high)?);
            let between = algebra.and(above, below)?;
            if *negated { algebra.not(between) } else { Ok(between) }
        }
        Sql::IsNull(expr) => {
            let operand = evaluate(expr, algebra, scope)?;
            algebra.is_null(operand)
        }
        Sql::IsNotNull(expr) => {
            let operand = evaluate(expr, algebra, scope)?;
            algebra.is_not_null(operand)
        }
        Sql::Cast { expr, data_type, .. } => {
            let float = float_type(data_type).ok_or_else(|| unsupported_error(sql))?;
            let operand = evaluate_number(expr, algebra, scope)?;
            algebra.cast(operand, &float)
        }
        Sql::Case { operand, conditions, else_result, .. } => {
            let operand = operand.as_ref().map(|operand| evaluate_number(operand, algebra, scope)).transpose()?;
            match evaluate_branches(operand, conditions, algebra, scope)? {
                CaseOutcome::Known(value) => Ok(value),
                CaseOutcome::Open(open) => evaluate_case(&open, else_result.as_deref(), algebra, scope),
            }
        }
        call => evaluate_call(call, algebra, scope),
    }
}

/// Evaluates a number, TRUE, FALSE or NULL.
fn evaluate_literal(sql: &Sql, value: &SqlValue, algebra: &mut Algebra) -> Result<NodeId> {
    match value {
        SqlValue::Number(digits, false) => match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => algebra.number(number),
            _ => Err(unsupported_error(sql)),
        },
        SqlValue::Boolean(value) => algebra.truth(*value),
        SqlValue::Null => algebra.null(),
        _ => Err(unsupported_error(sql)),
    }
}

/// Evaluates an operation of two numbers. Returns `None` if formulas have no such operator.
fn evaluate_operation(algebra: &mut Algebra, a: NodeId, op: &BinaryOperator, b: NodeId) -> Result<Option<NodeId>> {
    let node = match op {
        BinaryOperator::Plus => add(algebra, a, b),
        BinaryOperator::Minus => subtract(algebra, a, b),
        BinaryOperator::Multiply => multiply(algebra, a, b),
        BinaryOperator::Divide => divide(algebra, a, b),
        BinaryOperator::Modulo => algebra.binary(a, Operator::Modulo, b),
        BinaryOperator::Eq => compare(algebra, a, Operator::Eq, b),
        BinaryOperator::NotEq => compare(algebra, a, Operator::NotEq, b),
        BinaryOperator::Lt => compare(algebra, a, Operator::Lt, b),
        BinaryOperator::LtEq => compare(algebra, a, Operator::LtEq, b),
        BinaryOperator::Gt => compare(algebra, a, Operator::Gt, b),
        BinaryOperator::GtEq => compare(algebra, a, Operator::GtEq, b),
        _ => return Ok(None),
    };
    node.map(Some)
}

/// Evaluates a CASE of these conditions and values.
fn evaluate_case(
    open: &[(NodeId, NodeId)],
    otherwise: Option<&Sql>,
    algebra: &mut Algebra,
    scope: &mut impl Scope,
) -> Result<NodeId> {
    match otherwise.map(|otherwise| evaluate_number(otherwise, algebra, scope)).transpose()? {
        Some(otherwise) if open.is_empty() => Ok(otherwise),
        None if open.is_empty() => algebra.null(),
        otherwise => algebra.case(open, otherwise),
    }
}

/// What is known of a CASE when the query is planned.
enum CaseOutcome {
    /// The first branch that can be taken always is, and has this value.
    Known(NodeId),
    /// The conditions and values of the branches that may be taken.
    Open(Vec<(NodeId, NodeId)>),
}

/// Evaluates the branches of a CASE without those that are never taken.
fn evaluate_branches(
    operand: Option<NodeId>,
    conditions: &[CaseWhen],
    algebra: &mut Algebra,
    scope: &mut impl Scope,
) -> Result<CaseOutcome> {
    let mut open = vec![];
    for when in conditions {
        if operand.is_none()
            && let Some((test, input)) = planning_time_test(&when.condition)
        {
            let input = evaluate_number(input, algebra, scope)?;
            // Evaluated in any case, so that a mistake is found when the rule is created.
            let value = evaluate_number(&when.result, algebra, scope)?;
            if test(algebra, input) {
                return Ok(CaseOutcome::Known(value));
            }
            continue;
        }
        let condition = match operand {
            None => evaluate_condition(&when.condition, algebra, scope)?,
            Some(operand) => {
                let value = evaluate_number(&when.condition, algebra, scope)?;
                compare(algebra, operand, Operator::Eq, value)?
            }
        };
        match &algebra.node(condition).shape {
            Expr::Literal(ScalarValue::Boolean(Some(true)), _) if open.is_empty() => {
                return evaluate_number(&when.result, algebra, scope).map(CaseOutcome::Known);
            }
            Expr::Literal(ScalarValue::Boolean(Some(false)), _) => {}
            _ => open.push((condition, evaluate_number(&when.result, algebra, scope)?)),
        }
    }
    Ok(CaseOutcome::Open(open))
}

/// Evaluates a comparison. If both sides are constants, it is decided in DataFusion's order of floats.
fn compare(algebra: &mut Algebra, a: NodeId, op: Operator, b: NodeId) -> Result<NodeId> {
    let (Some(left), Some(right)) = (algebra.as_number(a), algebra.as_number(b)) else {
        return algebra.binary(a, op, b);
    };
    let order = left.total_cmp(&right);
    let holds = match op {
        Operator::Eq => order.is_eq(),
        Operator::NotEq => order.is_ne(),
        Operator::Lt => order.is_lt(),
        Operator::LtEq => order.is_le(),
        Operator::Gt => order.is_gt(),
        Operator::GtEq => order.is_ge(),
        _ => return algebra.binary(a, op, b),
    };
    algebra.intern(Expr::Literal(ScalarValue::Boolean(Some(holds)), None), vec![])
}

/// Evaluates a call that has a meaning in the scope, of a function that the scope has, or of one of DataFusion's own.
fn evaluate_call(sql: &Sql, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
    let (name, arguments) = parse_call(sql)?;
    if let Some(value) = scope.call(algebra, &Call { sql, name: &name, arguments: &arguments })? {
        return Ok(value);
    }
    let arguments =
        arguments.into_iter().map(|argument| evaluate_number(argument, algebra, scope)).collect::<Result<Vec<_>>>()?;
    if is_transform(&name) {
        return plan_err!(
            "{}: what {name} differentiates is only known in a query, not over the parameters; write the derivative out",
            truncate(sql)
        );
    }
    let function = scope.function(&name).or_else(|| find_callable(&name)).ok_or_else(|| {
        plan_datafusion_err!(
            "{}: DataFusion has no scalar function {name} of its own. If it is yours, hand it over with the rule \
             (functions=[{name}]); without, a formula calls {}",
            truncate(sql),
            scope.callable()
        )
    })?;
    if let Some(value) = fold_constant_call(function, algebra, &arguments)? {
        return Ok(value);
    }
    check_not_volatile(sql, function)?;
    let called = match arguments.as_slice() {
        [of] if name == "sqrt" => square_root(algebra, function, *of),
        arguments => algebra.call(function, arguments),
    };
    called.map_err(|error| plan_datafusion_err!("{}: {}", truncate(sql), error_text(error)))
}

/// Evaluates a call that the algebra expands or folds, so that it merges with the numbers around it.
fn fold_constant_call(function: &ScalarUDF, algebra: &mut Algebra, arguments: &[NodeId]) -> Result<Option<NodeId>> {
    let Some(number) = arguments.last().and_then(|last| algebra.as_number(*last)) else { return Ok(None) };
    let Some(line) = table::find_function(function, arguments.len()).map(|known| known.line) else { return Ok(None) };
    match (arguments, line.at_number) {
        ([base, _], _) if line.algebraic == Some(Algebraic::Power) => power(algebra, *base, number).map(Some),
        ([_], Some(value)) => algebra.number(value(number)).map(Some),
        _ => Ok(None),
    }
}

/// Refuses a volatile function.
pub fn check_not_volatile(sql: &Sql, function: &ScalarUDF) -> Result<()> {
    if function.signature().volatility == Volatility::Volatile {
        return plan_err!(
            "{}: {} is volatile, so each evaluation would be another derivative",
            truncate(sql),
            function.name()
        );
    }
    Ok(())
}

/// A test of an input while the query is planned.
type Test = fn(&Algebra, NodeId) -> bool;

/// Returns the test and the input `y` if the condition is `constant(y)`, which holds if the input is a constant in the query, or
/// `never_null(y)`. It chooses among the branches of a rule when the rule is used, and leaves nothing in the query.
fn planning_time_test(condition: &Sql) -> Option<(Test, &Sql)> {
    let (name, arguments) = parse_call(condition).ok()?;
    let test: Test = match name.as_str() {
        "constant" => |algebra, input| algebra.as_number(input).is_some(),
        "never_null" => |algebra, input| !algebra.node(input).field.is_nullable(),
        _ => return None,
    };
    match arguments.as_slice() {
        [input] => Some((test, input)),
        _ => None,
    }
}

/// Returns the float type that SQL names, by the names that DataFusion knows.
fn float_type(data_type: &SqlType) -> Option<DataType> {
    match data_type {
        SqlType::Float(ExactNumberInfo::None) | SqlType::Real | SqlType::Float4 => Some(DataType::Float32),
        SqlType::Double(ExactNumberInfo::None) | SqlType::DoublePrecision | SqlType::Float8 => Some(DataType::Float64),
        _ => None,
    }
}
