//! Formulas in SQL, and their evaluation to nodes of a graph.

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion_expr::{Expr, Operator, ScalarUDF, Volatility};
use sqlparser::ast::{
    BinaryOperator, DataType as SqlType, ExactNumberInfo, Expr as Sql, UnaryOperator, Value as SqlValue,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::algebra::Algebra;
use crate::graph::NodeId;
use crate::table::{self, Algebraic};
use crate::vocabulary::functions::function_of_datafusion;
use crate::vocabulary::messages::{cut, message_of};
use crate::vocabulary::syntax::{call_of, name_of, normalized, parse, unsupported};
use crate::vocabulary::transform::is_transform;
use crate::vocabulary::types::decoded;

/// The name that a function's own output has in its partial derivatives.
pub const OUTPUT: &str = "Ω";

/// A derivative as written in a rule: SQL over what the rule names.
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

/// What the names and calls of a formula mean.
pub trait Scope {
    /// The node that a name stands for.
    fn name(&mut self, name: &str) -> Result<NodeId>;

    /// The node of a call that means something here; none for that of a function like any other.
    fn call(&mut self, algebra: &mut Algebra, call: &Call) -> Result<Option<NodeId>>;

    /// The function that a call means here, if it is not DataFusion's own of that name.
    fn function(&self, name: &str) -> Option<&Arc<ScalarUDF>>;

    /// What a formula may call, for messages.
    fn callable(&self) -> String;
}

/// A call in a formula.
pub struct Call<'a> {
    pub sql: &'a Sql,
    pub name: &'a str,
    pub arguments: &'a [&'a Sql],
}

/// What a call in a formula over given values stands for.
#[derive(Debug)]
pub enum Value {
    /// 0 in every row, which takes with it what it is multiplied with.
    Zero,
    /// What this expression, which is not looked into, computes, with its field.
    Given(Expr, FieldRef),
}

impl Formula {
    /// The formula that a text is.
    ///
    /// # Errors
    /// A plan error if it is no expression in SQL.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self { text: text.into(), sql: Arc::new(parse(text)?) })
    }

    /// The node of this formula, in the working type.
    pub(crate) fn evaluate(&self, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
        number(&self.sql, algebra, scope)
    }

    /// The expression of this formula, none if it is 0, in which `value_of` gives the calls that are not of DataFusion's own
    /// scalar functions by their names and the names that they are over. Numbers are DOUBLE.
    ///
    /// # Errors
    /// Those of `value_of`, and a plan error if the formula is not one over these calls.
    pub fn over_given(&self, value_of: impl FnMut(&str, &[String]) -> Result<Option<Value>>) -> Result<Option<Expr>> {
        let schema = DFSchema::empty();
        let mut algebra = Algebra::new(&schema);
        let mut given = Given { value_of, values: vec![] };
        let value = evaluate(&self.sql, &mut algebra, &mut given)?;
        let is_number = decoded(algebra.data_type(value)).is_numeric();
        let root = if is_number { algebra.cast_to_working_type(value)? } else { value };
        if algebra.is_zero(root) {
            return Ok(None);
        }
        let written = algebra.export(root)?.transform_up(|part| {
            let number = given.values.iter().enumerate().find(|(number, _)| part == stand_in(*number));
            Ok(match number {
                Some((_, value)) => Transformed::yes(value.clone()),
                None => Transformed::no(part),
            })
        })?;
        Ok(Some(written.data))
    }
}

/// Calls whose values are given.
struct Given<F> {
    value_of: F,
    values: Vec<Expr>,
}

/// The column that stands in a graph for a value that is given, whose own operations are none of the graph's.
fn stand_in(number: usize) -> Expr {
    Expr::Column(Column::new_unqualified(format!("given value {number}")))
}

impl<F: FnMut(&str, &[String]) -> Result<Option<Value>>> Scope for Given<F> {
    fn name(&mut self, name: &str) -> Result<NodeId> {
        plan_err!("{name} stands beside a call, where only numbers may")
    }

    fn call(&mut self, algebra: &mut Algebra, call: &Call) -> Result<Option<NodeId>> {
        let Some(names) = call.arguments.iter().map(|argument| name_of(argument)).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        Ok(match (self.value_of)(call.name, &names)? {
            None => None,
            Some(Value::Zero) => Some(algebra.number(0.0)?),
            Some(Value::Given(expr, field)) => {
                let known = self.values.iter().position(|value| *value == expr);
                let number = known.unwrap_or_else(|| {
                    self.values.push(expr);
                    self.values.len() - 1
                });
                Some(algebra.leaf(stand_in(number), field))
            }
        })
    }

    fn function(&self, _name: &str) -> Option<&Arc<ScalarUDF>> {
        None
    }

    fn callable(&self) -> String {
        "those of DataFusion".to_owned()
    }
}

/// The node of a formula that is a number, in the working type.
fn number(sql: &Sql, algebra: &mut Algebra, scope: &mut impl Scope) -> Result<NodeId> {
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
        Sql::Value(value) => match &value.value {
            SqlValue::Number(digits, false) => match digits.parse::<f64>() {
                Ok(number) if number.is_finite() => algebra.number(number),
                _ => Err(unsupported(sql)),
            },
            SqlValue::Boolean(value) => algebra.truth(*value),
            SqlValue::Null => algebra.null(),
            _ => Err(unsupported(sql)),
        },
        Sql::UnaryOp { op, expr } => match op {
            UnaryOperator::Plus => number(expr, algebra, scope),
            UnaryOperator::Minus => {
                let operand = number(expr, algebra, scope)?;
                match algebra.as_number(operand) {
                    Some(value) => algebra.number(-value),
                    None => algebra.negate(operand),
                }
            }
            UnaryOperator::Not => {
                let operand = condition(expr, algebra, scope)?;
                algebra.not(operand)
            }
            _ => Err(unsupported(sql)),
        },
        Sql::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
            let (a, b) = (condition(left, algebra, scope)?, condition(right, algebra, scope)?);
            if *op == BinaryOperator::And { algebra.and(a, b) } else { algebra.or(a, b) }
        }
        Sql::BinaryOp { left, op, right } => {
            let (a, b) = (number(left, algebra, scope)?, number(right, algebra, scope)?);
            match op {
                BinaryOperator::Plus => algebra.add(a, b),
                BinaryOperator::Minus => algebra.subtract(a, b),
                BinaryOperator::Multiply => algebra.multiply(a, b),
                BinaryOperator::Divide => algebra.divide(a, b),
                BinaryOperator::Modulo => algebra.binary(a, Operator::Modulo, b),
                BinaryOperator::Eq => compare(algebra, a, Operator::Eq, b),
                BinaryOperator::NotEq => compare(algebra, a, Operator::NotEq, b),
                BinaryOperator::Lt => compare(algebra, a, Operator::Lt, b),
                BinaryOperator::LtEq => compare(algebra, a, Operator::LtEq, b),
                BinaryOperator::Gt => compare(algebra, a, Operator::Gt, b),
                BinaryOperator::GtEq => compare(algebra, a, Operator::GtEq, b),
                _ => Err(unsupported(sql)),
            }
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
            let mut branches = vec![];
            for when in conditions {
                if operand.is_none()
                    && let Some((test, input)) = known_when_planned(&when.condition)
                {
                    let input = number(input, algebra, scope)?;
                    // Evaluated in any case, so that a mistake in it is found when the rule is made.
                    let value = number(&when.result, algebra, scope)?;
                    if test(algebra, input) {
                        return Ok(value);
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
                    Expr::Literal(ScalarValue::Boolean(Some(true)), _) if branches.is_empty() => {
                        return number(&when.result, algebra, scope);
                    }
                    Expr::Literal(ScalarValue::Boolean(Some(false)), _) => {}
                    _ => branches.push((condition, number(&when.result, algebra, scope)?)),
                }
            }
            let otherwise = else_result.as_ref().map(|otherwise| number(otherwise, algebra, scope)).transpose()?;
            match otherwise {
                Some(otherwise) if branches.is_empty() => Ok(otherwise),
                None if branches.is_empty() => algebra.null(),
                otherwise => algebra.case(&branches, otherwise),
            }
        }
        call => evaluate_call(call, algebra, scope),
    }
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
    let function = scope.function(&name).or_else(|| function_of_datafusion(&name)).ok_or_else(|| {
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
    algebra.call(function, &arguments).map_err(|error| plan_datafusion_err!("{}: {}", cut(sql), message_of(error)))
}

/// A call that the algebra takes apart or evaluates at once, so that it merges with the numbers around it.
fn at_numbers(function: &ScalarUDF, algebra: &mut Algebra, arguments: &[NodeId]) -> Result<Option<NodeId>> {
    let Some(number) = arguments.last().and_then(|last| algebra.as_number(*last)) else { return Ok(None) };
    let Some(line) = table::of_function(function, arguments.len()).map(|known| known.line) else { return Ok(None) };
    match (arguments, line.at_number) {
        ([base, _], _) if line.algebraic == Some(Algebraic::Power) => algebra.power(*base, number).map(Some),
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
