//! Formulas evaluated to nodes of a graph.

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
use crate::vocabulary::functions::known_function;
use crate::vocabulary::messages::{cut, message_of};
use crate::vocabulary::syntax::{call_of, normalized, unsupported};
use crate::vocabulary::transform::is_transform;
use crate::vocabulary::types::decoded;

/// The node of a formula that is a number, in the working type.
pub fn number(sql: &Sql, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
    let id = evaluate(sql, algebra, scope)?;
    let data_type = decoded(algebra.data_type(id));
    if data_type.is_numeric() || data_type.is_null() {
        algebra.cast_to_working_type(id)
    } else {
        plan_err!("{} must be a number; it is {data_type}", cut(sql))
    }
}

/// The node of a formula that is true or false.
fn condition(sql: &Sql, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
    let id = evaluate(sql, algebra, scope)?;
    match algebra.data_type(id) {
        DataType::Boolean => Ok(id),
        other => plan_err!("{} must be a condition; it is {other}", cut(sql)),
    }
}

/// The node of a formula, of any type.
#[recursive::recursive]
pub fn evaluate(sql: &Sql, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
    match sql {
        Sql::Nested(inner) => evaluate(inner, algebra, scope),
        Sql::Identifier(name) => scope.name(&normalized(name)),
        Sql::Value(value) => literal(sql, &value.value, algebra),
        Sql::UnaryOp { op: UnaryOperator::Plus, expr } => number(expr, algebra, scope),
        Sql::UnaryOp { op: UnaryOperator::Minus, expr } => {
            let operand = number(expr, algebra, scope)?;
            match algebra.as_number(operand) {
                Some(value) => algebra.number(-value),
                None => negate(algebra, operand),
            }
        }
        Sql::UnaryOp { op: UnaryOperator::Not, expr } => {
            let operand = condition(expr, algebra, scope)?;
            algebra.not(operand)
        }
        Sql::UnaryOp { .. } => Err(unsupported(sql)),
        Sql::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
            let (a, b) = (condition(left, algebra, scope)?, condition(right, algebra, scope)?);
            if *op == BinaryOperator::And { algebra.and(a, b) } else { algebra.or(a, b) }
        }
        Sql::BinaryOp { left, op, right } => {
            let (a, b) = (number(left, algebra, scope)?, number(right, algebra, scope)?);
            operation(algebra, a, op, b)?.ok_or_else(|| unsupported(sql))
        }
        Sql::Between { expr, negated, low, high } => {
            let value = number(expr, algebra, scope)?;
            let (low, high) = (number(low, algebra, scope)?, number(high, algebra, scope)?);
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
            let float = float_type(data_type).ok_or_else(|| unsupported(sql))?;
            let operand = number(expr, algebra, scope)?;
            algebra.cast(operand, &float)
        }
        Sql::Case { operand, conditions, else_result, .. } => {
            let operand = operand.as_ref().map(|operand| number(operand, algebra, scope)).transpose()?;
            match branches(operand, conditions, algebra, scope)? {
                Branches::Known(value) => Ok(value),
                Branches::Open(open) => case(&open, else_result.as_deref(), algebra, scope),
            }
        }
        call => evaluate_call(call, algebra, scope),
    }
}

/// A number, TRUE, FALSE or NULL.
fn literal(sql: &Sql, value: &SqlValue, algebra: &mut Algebra) -> Result<NodeId> {
    match value {
        SqlValue::Number(digits, false) => match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => algebra.number(number),
            _ => Err(unsupported(sql)),
        },
        SqlValue::Boolean(value) => algebra.truth(*value),
        SqlValue::Null => algebra.null(),
        _ => Err(unsupported(sql)),
    }
}

/// An operation of two numbers; none if formulas have no such operator.
fn operation(algebra: &mut Algebra, a: NodeId, op: &BinaryOperator, b: NodeId) -> Result<Option<NodeId>> {
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

/// A CASE of these conditions and values.
fn case(
    open: &[(NodeId, NodeId)],
    otherwise: Option<&Sql>,
    algebra: &mut Algebra,
    scope: &mut impl Scope,
) -> Result<NodeId> {
    match otherwise.map(|otherwise| number(otherwise, algebra, scope)).transpose()? {
        Some(otherwise) if open.is_empty() => Ok(otherwise),
        None if open.is_empty() => algebra.null(),
        otherwise => algebra.case(open, otherwise),
    }
}

/// What is known of the branches of a CASE when the query is planned.
enum Branches {
    /// The first that can be taken always is, and has this value.
    Known(NodeId),
    /// The conditions and values of those that may be taken.
    Open(Vec<(NodeId, NodeId)>),
}

/// The branches of a CASE, without those that are never taken.
fn branches(
    operand: Option<NodeId>,
    conditions: &[CaseWhen],
    algebra: &mut Algebra,
    scope: &mut impl Scope,
) -> Result<Branches> {
    let mut open = vec![];
    for when in conditions {
        if operand.is_none()
            && let Some((test, input)) = known_when_planned(&when.condition)
        {
            let input = number(input, algebra, scope)?;
            // Evaluated in any case, so that a mistake in it is found when the rule is made.
            let value = number(&when.result, algebra, scope)?;
            if test(algebra, input) {
                return Ok(Branches::Known(value));
            }
            continue;
        }
        let condition = match operand {
            None => condition(&when.condition, algebra, scope)?,
            Some(operand) => {
                let value = number(&when.condition, algebra, scope)?;
                compare(algebra, operand, Operator::Eq, value)?
            }
        };
        match &algebra.node(condition).shape {
            Expr::Literal(ScalarValue::Boolean(Some(true)), _) if open.is_empty() => {
                return number(&when.result, algebra, scope).map(Branches::Known);
            }
            Expr::Literal(ScalarValue::Boolean(Some(false)), _) => {}
            _ => open.push((condition, number(&when.result, algebra, scope)?)),
        }
    }
    Ok(Branches::Open(open))
}

/// A comparison, decided in the order that DataFusion has floats in if both sides are numbers.
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

/// A call that means something in the scope, of a function that the scope has, or of one of DataFusion's own.
fn evaluate_call(sql: &Sql, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
    let (name, arguments) = call_of(sql)?;
    if let Some(value) = scope.call(algebra, &Call { sql, name: &name, arguments: &arguments })? {
        return Ok(value);
    }
    let arguments =
        arguments.into_iter().map(|argument| number(argument, algebra, scope)).collect::<Result<Vec<_>>>()?;
    if is_transform(&name) {
        return plan_err!(
            "{}: what {name} differentiates is only known in a query, not over the parameters; write the derivative out",
            cut(sql)
        );
    }
    let function = scope.function(&name).or_else(|| known_function(&name)).ok_or_else(|| {
        plan_datafusion_err!(
            "{}: DataFusion has no scalar function {name} of its own. If it is yours, hand it over with the rule \
             (functions=[{name}]); without, a formula calls {}",
            cut(sql),
            scope.callable()
        )
    })?;
    if let Some(value) = at_numbers(function, algebra, &arguments)? {
        return Ok(value);
    }
    check_not_volatile(sql, function)?;
    let called = match arguments.as_slice() {
        [of] if name == "sqrt" => square_root(algebra, function, *of),
        arguments => algebra.call(function, arguments),
    };
    called.map_err(|error| plan_datafusion_err!("{}: {}", cut(sql), message_of(error)))
}

/// A call that the algebra takes apart or evaluates at once, so that it merges with the numbers around it.
fn at_numbers(function: &ScalarUDF, algebra: &mut Algebra, arguments: &[NodeId]) -> Result<Option<NodeId>> {
    let Some(number) = arguments.last().and_then(|last| algebra.as_number(*last)) else { return Ok(None) };
    let Some(line) = table::of_function(function, arguments.len()).map(|known| known.line) else { return Ok(None) };
    match (arguments, line.at_number) {
        ([base, _], _) if line.algebraic == Some(Algebraic::Power) => power(algebra, *base, number).map(Some),
        ([_], Some(value)) => algebra.number(value(number)).map(Some),
        _ => Ok(None),
    }
}

/// The error for a function that gives another value each time.
pub fn check_not_volatile(sql: &Sql, function: &ScalarUDF) -> Result<()> {
    if function.signature().volatility == Volatility::Volatile {
        return plan_err!(
            "{}: {} is volatile, so each evaluation would be another derivative",
            cut(sql),
            function.name()
        );
    }
    Ok(())
}

/// What is asked of an input while the query is planned.
type Test = fn(&Algebra, NodeId) -> bool;

/// The question and the input `y` if the condition is `constant(y)`, which holds where the input is a number in the query, or
/// `never_null(y)`. It chooses among the branches of a rule when the rule is used, and leaves nothing in the query.
fn known_when_planned(condition: &Sql) -> Option<(Test, &Sql)> {
    let (name, arguments) = call_of(condition).ok()?;
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

/// The float type that SQL names, by the names that DataFusion knows.
fn float_type(data_type: &SqlType) -> Option<DataType> {
    match data_type {
        SqlType::Float(ExactNumberInfo::None) | SqlType::Real | SqlType::Float4 => Some(DataType::Float32),
        SqlType::Double(ExactNumberInfo::None) | SqlType::DoublePrecision | SqlType::Float8 => Some(DataType::Float64),
        _ => None,
    }
}
