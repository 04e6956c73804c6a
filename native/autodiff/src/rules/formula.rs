//! Formulas over the inputs and the output of a function, and their evaluation to nodes of a graph.

use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{Expr, Operator, ScalarUDF, Volatility};
use sqlparser::ast::{BinaryOperator, DataType as SqlType, ExactNumberInfo, Expr as Sql, UnaryOperator, Value};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::syntax::{call_of, name_of, parse, unsupported};
use super::Rule;
use crate::dag::{Dag, NodeId};
use crate::vocabulary::functions::{function_of_datafusion, is_of_datafusion};
use crate::vocabulary::messages::{cut, message_of};
use crate::vocabulary::operator::is_operator;
use crate::vocabulary::types::decoded;

/// The name that a function's own output has in its partial derivatives.
pub const OUTPUT: &str = "Ω";

/// A partial derivative as written in a rule.
///
/// It is cloned, compared and printed as the text it was written as: what is parsed would be by recursion, and a long sum is
/// deep.
#[derive(Clone)]
pub struct Formula {
    text: Arc<str>,
    sql: Arc<Sql>,
}

impl PartialEq for Formula {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Formula {}

impl Hash for Formula {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What the formulas of a rule are over.
pub struct Bindings<'a> {
    pub rule: &'a Rule,
    /// The function as the query calls it; none for an operator.
    pub function: Option<&'a Arc<ScalarUDF>>,
    pub inputs: &'a [NodeId],
    pub output: NodeId,
}

impl Bindings<'_> {
    fn get(&self, name: &str) -> Result<NodeId> {
        if name == OUTPUT {
            return Ok(self.output);
        }
        let position = self.rule.inputs.iter().position(|input| input == name);
        position.and_then(|position| self.inputs.get(position)).copied().ok_or_else(|| {
            plan_datafusion_err!(
                "there is no {name} here, only the parameters ({}) and {OUTPUT}, the function's own output",
                cut(self.rule.inputs.join(", "))
            )
        })
    }
}

impl Formula {
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self { text: text.into(), sql: Arc::new(parse(text)?) })
    }

    /// The node of this formula over the given inputs.
    pub fn evaluate(&self, dag: &mut Dag, bindings: &Bindings) -> Result<NodeId> {
        number(&self.sql, dag, bindings)
    }
}

/// The node of a formula that is a number, in the working type.
fn number(sql: &Sql, dag: &mut Dag, bindings: &Bindings) -> Result<NodeId> {
    let id = evaluate(sql, dag, bindings)?;
    let data_type = decoded(dag.data_type(id));
    if data_type.is_numeric() || data_type.is_null() {
        dag.cast_to_working_type(id)
    } else {
        plan_err!("{} is {data_type}, where a number is needed", cut(sql))
    }
}

/// The node of a formula that is true or false.
fn condition(sql: &Sql, dag: &mut Dag, bindings: &Bindings) -> Result<NodeId> {
    let id = evaluate(sql, dag, bindings)?;
    match dag.data_type(id) {
        DataType::Boolean => Ok(id),
        other => plan_err!("{} is {other}, where a condition is needed", cut(sql)),
    }
}

#[recursive::recursive]
fn evaluate(sql: &Sql, dag: &mut Dag, bindings: &Bindings) -> Result<NodeId> {
    match sql {
        Sql::Nested(inner) => evaluate(inner, dag, bindings),
        Sql::Identifier(_) => bindings.get(&name_of(sql).unwrap_or_default()),
        Sql::Value(value) => match &value.value {
            Value::Number(digits, false) => match digits.parse::<f64>() {
                Ok(number) if number.is_finite() => dag.number(number),
                _ => Err(unsupported(sql)),
            },
            Value::Boolean(value) => dag.truth(*value),
            Value::Null => dag.null(),
            _ => Err(unsupported(sql)),
        },
        Sql::UnaryOp { op, expr } => match op {
            UnaryOperator::Plus => number(expr, dag, bindings),
            UnaryOperator::Minus => {
                let operand = number(expr, dag, bindings)?;
                match dag.as_number(operand) {
                    Some(value) => dag.number(-value),
                    None => dag.negate(operand),
                }
            }
            UnaryOperator::Not => {
                let operand = condition(expr, dag, bindings)?;
                dag.not(operand)
            }
            _ => Err(unsupported(sql)),
        },
        Sql::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
            let (a, b) = (condition(left, dag, bindings)?, condition(right, dag, bindings)?);
            if *op == BinaryOperator::And { dag.and(a, b) } else { dag.or(a, b) }
        }
        Sql::BinaryOp { left, op, right } => {
            let (a, b) = (number(left, dag, bindings)?, number(right, dag, bindings)?);
            match op {
                BinaryOperator::Plus => dag.add(a, b),
                BinaryOperator::Minus => dag.subtract(a, b),
                BinaryOperator::Multiply => dag.multiply(a, b),
                BinaryOperator::Divide => dag.divide(a, b),
                BinaryOperator::Modulo => dag.binary(a, Operator::Modulo, b),
                BinaryOperator::Eq => compare(dag, a, Operator::Eq, b),
                BinaryOperator::NotEq => compare(dag, a, Operator::NotEq, b),
                BinaryOperator::Lt => compare(dag, a, Operator::Lt, b),
                BinaryOperator::LtEq => compare(dag, a, Operator::LtEq, b),
                BinaryOperator::Gt => compare(dag, a, Operator::Gt, b),
                BinaryOperator::GtEq => compare(dag, a, Operator::GtEq, b),
                _ => Err(unsupported(sql)),
            }
        }
        Sql::Between { expr, negated, low, high } => {
            let value = number(expr, dag, bindings)?;
            let (low, high) = (number(low, dag, bindings)?, number(high, dag, bindings)?);
            let (above, below) = (dag.binary(value, Operator::GtEq, low)?, dag.binary(value, Operator::LtEq, high)?);
            let between = dag.and(above, below)?;
            if *negated { dag.not(between) } else { Ok(between) }
        }
        Sql::IsNull(expr) => {
            let operand = evaluate(expr, dag, bindings)?;
            dag.is_null(operand)
        }
        Sql::IsNotNull(expr) => {
            let operand = evaluate(expr, dag, bindings)?;
            dag.is_not_null(operand)
        }
        Sql::Cast { expr, data_type, .. } => {
            let float = float_type(data_type).ok_or_else(|| unsupported(sql))?;
            let operand = number(expr, dag, bindings)?;
            dag.cast(operand, &float)
        }
        Sql::Case { operand, conditions, else_result, .. } => {
            let operand = operand.as_ref().map(|operand| number(operand, dag, bindings)).transpose()?;
            let mut branches = vec![];
            for when in conditions {
                if operand.is_none()
                    && let Some(input) = constant_input(&when.condition)
                {
                    let input = number(input, dag, bindings)?;
                    // Evaluated in any case, so that a mistake in it is found when the rule is made.
                    let value = number(&when.result, dag, bindings)?;
                    if dag.as_number(input).is_some() {
                        return Ok(value);
                    }
                    continue;
                }
                let condition = match operand {
                    None => condition(&when.condition, dag, bindings)?,
                    Some(operand) => {
                        let value = number(&when.condition, dag, bindings)?;
                        compare(dag, operand, Operator::Eq, value)?
                    }
                };
                match &dag.node(condition).shape {
                    Expr::Literal(ScalarValue::Boolean(Some(true)), _) if branches.is_empty() => {
                        return number(&when.result, dag, bindings);
                    }
                    Expr::Literal(ScalarValue::Boolean(Some(false)), _) => {}
                    _ => branches.push((condition, number(&when.result, dag, bindings)?)),
                }
            }
            let otherwise = else_result.as_ref().map(|otherwise| number(otherwise, dag, bindings)).transpose()?;
            match otherwise {
                Some(otherwise) if branches.is_empty() => Ok(otherwise),
                None if branches.is_empty() => dag.null(),
                otherwise => dag.case(&branches, otherwise),
            }
        }
        call => evaluate_call(call, dag, bindings),
    }
}

/// A comparison, decided in the order that DataFusion has floats in if both sides are numbers.
fn compare(dag: &mut Dag, a: NodeId, op: Operator, b: NodeId) -> Result<NodeId> {
    let (Some(left), Some(right)) = (dag.as_number(a), dag.as_number(b)) else { return dag.binary(a, op, b) };
    let order = left.total_cmp(&right);
    let holds = match op {
        Operator::Eq => order.is_eq(),
        Operator::NotEq => order.is_ne(),
        Operator::Lt => order.is_lt(),
        Operator::LtEq => order.is_le(),
        Operator::Gt => order.is_gt(),
        Operator::GtEq => order.is_ge(),
        _ => return dag.binary(a, op, b),
    };
    dag.intern(Expr::Literal(ScalarValue::Boolean(Some(holds)), None), vec![])
}

/// A call of the function that the rule is for, of one that came with the rule, or of one of DataFusion's own.
fn evaluate_call(sql: &Sql, dag: &mut Dag, bindings: &Bindings) -> Result<NodeId> {
    let (name, arguments) = call_of(sql)?;
    let rule = bindings.rule;
    if name == rule.name && arguments.len() == rule.inputs.len() {
        if arguments.iter().zip(&rule.inputs).all(|(argument, input)| name_of(argument).as_ref() == Some(input)) {
            return Ok(bindings.output);
        }
        if let Some(function) = bindings.function.filter(|function| !is_of_datafusion(function)) {
            return evaluate_own_call(sql, function, &arguments, dag, bindings);
        }
    }
    let arguments =
        arguments.into_iter().map(|argument| number(argument, dag, bindings)).collect::<Result<Vec<_>>>()?;
    if is_operator(&name) {
        return plan_err!(
            "{}: what {name} differentiates is only known in a query, not over the parameters; write the derivative out",
            cut(sql)
        );
    }
    let given = rule.functions.iter().find(|function| function.name() == name);
    if let (None, Some(value)) = (given, arguments.last().and_then(|last| dag.as_number(*last))) {
        // Of constants at once, for they merge with the constants around them.
        match (name.as_str(), arguments.as_slice()) {
            ("power" | "pow", [base, _]) => return dag.power(*base, value),
            ("ln", [_]) => return dag.number(value.ln()),
            ("abs", [_]) => return dag.number(value.abs()),
            _ => {}
        }
    }
    let function = given.or_else(|| function_of_datafusion(&name)).ok_or_else(|| {
        plan_datafusion_err!(
            "{}: DataFusion has no scalar function {name} of its own. If it is yours, hand it over with the rule \
             (functions=[{name}]); without, a formula calls those of DataFusion and {} with {} argument(s)",
            cut(sql),
            rule.name,
            rule.inputs.len()
        )
    })?;
    check_not_volatile(sql, function)?;
    dag.call(function, &arguments).map_err(|error| plan_datafusion_err!("{}: {}", cut(sql), message_of(error)))
}

/// A call of the function that the rule is for with other arguments: the instance of the query, which takes arguments of
/// the types that it takes there.
fn evaluate_own_call(
    sql: &Sql,
    function: &Arc<ScalarUDF>,
    arguments: &[&Sql],
    dag: &mut Dag,
    bindings: &Bindings,
) -> Result<NodeId> {
    check_not_volatile(sql, function)?;
    let mut operands = vec![];
    for (argument, input) in arguments.iter().zip(bindings.inputs) {
        let taken = dag.data_type(*input).clone();
        let value = evaluate(argument, dag, bindings)?;
        let is_number = |data_type: &DataType| decoded(data_type).is_numeric();
        if dag.data_type(value) != &taken && !(is_number(dag.data_type(value)) && is_number(&taken)) {
            return plan_err!(
                "{}: {} is {}, and the function takes {taken} there",
                cut(sql),
                cut(argument),
                dag.data_type(value)
            );
        }
        operands.push(dag.cast(value, &taken)?);
    }
    let call = ScalarFunction::new_udf(Arc::clone(function), Dag::operands(operands.len()));
    dag.intern(Expr::ScalarFunction(call), operands)
}

fn check_not_volatile(sql: &Sql, function: &ScalarUDF) -> Result<()> {
    if function.signature().volatility == Volatility::Volatile {
        return plan_err!(
            "{}: {} is volatile, so each evaluation would be another derivative",
            cut(sql),
            function.name()
        );
    }
    Ok(())
}

/// `y` if the condition is `constant(y)`, which holds where the input is a number in the query. It chooses among the
/// branches of a rule when the rule is used, and leaves nothing in the query.
fn constant_input(condition: &Sql) -> Option<&Sql> {
    let (name, arguments) = call_of(condition).ok()?;
    match arguments.as_slice() {
        [input] if name == "constant" => Some(input),
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
