//! The SQL that rules are written in, and its evaluation to nodes of a graph.

use datafusion_common::{Result, ScalarValue, internal_datafusion_err};
use datafusion_expr::{Expr, Operator};
use sqlparser::ast::{
    BinaryOperator, Expr as Sql, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value,
    visit_expressions,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;
use std::ops::ControlFlow;

use super::function;
use crate::dag::{Dag, NodeId};

/// The name that a function's own output has in its partial derivatives.
const OUTPUT: &str = "Ω";

/// A partial derivative as written in the table.
#[derive(Debug)]
pub struct Formula(Sql);

/// What a formula is over: the function's inputs by name, and its output.
pub struct Bindings<'a> {
    pub names: &'a [String],
    pub inputs: &'a [NodeId],
    pub output: NodeId,
}

impl Bindings<'_> {
    fn get(&self, name: &str) -> Option<NodeId> {
        if name == OUTPUT {
            return Some(self.output);
        }
        let position = self.names.iter().position(|input| input == name)?;
        self.inputs.get(position).copied()
    }
}

impl Formula {
    pub fn parse(sql: &str) -> Result<Self> {
        parse(sql).map(Self)
    }

    /// The node of this formula over the given inputs.
    pub fn evaluate(&self, dag: &mut Dag, bindings: &Bindings) -> Result<NodeId> {
        evaluate(&self.0, dag, bindings)
    }
}

/// The left-hand side of a rule: a function or operator and the names of its inputs.
pub struct Signature {
    pub name: String,
    pub inputs: Vec<String>,
}

impl Signature {
    pub fn parse(sql: &str) -> Result<Self> {
        let parsed = parse(sql)?;
        let (name, operands) = match &parsed {
            Sql::BinaryOp { left, op, right } => (op.to_string(), vec![left.as_ref(), right.as_ref()]),
            Sql::UnaryOp { op, expr } => (op.to_string(), vec![expr.as_ref()]),
            call => call_of(call)?,
        };
        let inputs = operands.into_iter().map(name_of).collect::<Result<_>>()?;
        Ok(Self { name, inputs })
    }
}

/// The names of the inputs in a signature of any form, in order; `xi` for any number of them.
pub fn inputs(signature: &str) -> Result<Vec<String>> {
    if signature.contains("...") {
        return Ok(vec!["xi".to_owned()]);
    }
    let (mut names, mut bound) = (vec![], vec![]);
    let _: ControlFlow<()> = visit_expressions(&parse(signature)?, |part| {
        match part {
            Sql::Identifier(name) if !names.contains(&name.value) => names.push(name.value.clone()),
            // v -> f(v)
            Sql::BinaryOp { left, op: BinaryOperator::Arrow, .. } => bound.extend(name_of(left)),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    names.retain(|name| !bound.contains(name));
    Ok(names)
}

fn parse(sql: &str) -> Result<Sql> {
    Parser::new(&GenericDialect {})
        .try_with_sql(sql)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| internal_datafusion_err!("{sql}: {error}"))
}

fn evaluate(sql: &Sql, dag: &mut Dag, bindings: &Bindings) -> Result<NodeId> {
    match sql {
        Sql::Nested(inner) => evaluate(inner, dag, bindings),
        Sql::Identifier(_) => {
            let name = name_of(sql)?;
            let id = bindings.get(&name).ok_or_else(|| internal_datafusion_err!("a rule names no input {name}"))?;
            dag.cast_to_working_type(id)
        }
        Sql::Value(value) => match &value.value {
            Value::Number(digits, _) => {
                let number = digits.parse().map_err(|_| unsupported(sql))?;
                dag.number(number)
            }
            Value::Null => dag.null(),
            _ => Err(unsupported(sql)),
        },
        Sql::UnaryOp { op: UnaryOperator::Minus, expr } => {
            let operand = evaluate(expr, dag, bindings)?;
            dag.negate(operand)
        }
        Sql::BinaryOp { left, op, right } => {
            let (a, b) = (evaluate(left, dag, bindings)?, evaluate(right, dag, bindings)?);
            match op {
                BinaryOperator::Plus => dag.add(a, b),
                BinaryOperator::Minus => dag.subtract(a, b),
                BinaryOperator::Multiply => dag.multiply(a, b),
                BinaryOperator::Divide => dag.divide(a, b),
                BinaryOperator::Eq => compare(dag, a, Operator::Eq, b),
                BinaryOperator::Gt => compare(dag, a, Operator::Gt, b),
                BinaryOperator::GtEq => compare(dag, a, Operator::GtEq, b),
                BinaryOperator::Or => dag.or(a, b),
                _ => Err(unsupported(sql)),
            }
        }
        Sql::Case { operand: None, conditions, else_result: Some(otherwise), .. } => {
            let mut branches = vec![];
            for when in conditions {
                if let Some(input) = constant_input(&when.condition) {
                    let input = evaluate(input, dag, bindings)?;
                    if dag.as_number(input).is_some() {
                        return evaluate(&when.result, dag, bindings);
                    }
                    continue;
                }
                let condition = evaluate(&when.condition, dag, bindings)?;
                match &dag.node(condition).shape {
                    Expr::Literal(ScalarValue::Boolean(Some(true)), _) if branches.is_empty() => {
                        return evaluate(&when.result, dag, bindings);
                    }
                    Expr::Literal(ScalarValue::Boolean(Some(false)), _) => {}
                    _ => branches.push((condition, evaluate(&when.result, dag, bindings)?)),
                }
            }
            let otherwise = evaluate(otherwise, dag, bindings)?;
            if branches.is_empty() { Ok(otherwise) } else { dag.case(&branches, Some(otherwise)) }
        }
        call => {
            let (name, arguments) = call_of(call)?;
            let arguments =
                arguments.into_iter().map(|argument| evaluate(argument, dag, bindings)).collect::<Result<Vec<_>>>()?;
            // Of constants at once, for they merge with the constants around them.
            let constant = arguments.last().and_then(|last| dag.as_number(*last));
            match (name.as_str(), arguments.as_slice(), constant) {
                ("power", [base, _], Some(exponent)) => constant_power(dag, *base, exponent),
                ("ln", [_], Some(value)) => dag.number(value.ln()),
                ("abs", [_], Some(value)) => dag.number(value.abs()),
                _ => dag.call(function(&name)?, &arguments),
            }
        }
    }
}

/// A comparison, decided if both sides are numbers.
fn compare(dag: &mut Dag, a: NodeId, op: Operator, b: NodeId) -> Result<NodeId> {
    let (Some(left), Some(right)) = (dag.as_number(a), dag.as_number(b)) else { return dag.binary(a, op, b) };
    let holds = match op {
        Operator::Eq => left == right,
        Operator::Gt => left > right,
        _ => left >= right,
    };
    dag.intern(Expr::Literal(ScalarValue::Boolean(Some(holds)), None), vec![])
}

/// `base^exponent`: small whole powers as products, negative ones as quotients, so that 0 is never raised to them.
fn constant_power(dag: &mut Dag, base: NodeId, exponent: f64) -> Result<NodeId> {
    if exponent < 0.0 {
        let one = dag.number(1.0)?;
        let positive = constant_power(dag, base, -exponent)?;
        dag.divide(one, positive)
    } else if exponent == 0.0 {
        dag.number(1.0)
    } else if exponent == 1.0 {
        Ok(base)
    } else if exponent == 2.0 {
        dag.multiply(base, base)
    } else if exponent == 3.0 {
        let square = dag.multiply(base, base)?;
        dag.multiply(square, base)
    } else {
        let exponent = dag.number(exponent)?;
        dag.call(function("power")?, &[base, exponent])
    }
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

/// The function that a call names, and its arguments. floor and ceil are syntax of their own to the parser.
fn call_of(sql: &Sql) -> Result<(String, Vec<&Sql>)> {
    match sql {
        Sql::Function(call) => Ok((call.name.to_string(), arguments(&call.args)?)),
        Sql::Floor { expr, .. } => Ok(("floor".to_owned(), vec![expr])),
        Sql::Ceil { expr, .. } => Ok(("ceil".to_owned(), vec![expr])),
        other => Err(unsupported(other)),
    }
}

fn name_of(sql: &Sql) -> Result<String> {
    match sql {
        Sql::Identifier(name) => Ok(name.value.clone()),
        // CAST(n AS BIGINT): the input is a whole number.
        Sql::Cast { expr, .. } => name_of(expr),
        other => Err(unsupported(other)),
    }
}

fn arguments(arguments: &FunctionArguments) -> Result<Vec<&Sql>> {
    let FunctionArguments::List(list) = arguments else {
        return Err(internal_datafusion_err!("a rule is written with an argument list, not {arguments}"));
    };
    let expressions = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
        other => Err(internal_datafusion_err!("a rule is written with plain arguments, not {other}")),
    });
    expressions.collect()
}

fn unsupported(sql: &Sql) -> datafusion_common::DataFusionError {
    internal_datafusion_err!("a rule cannot be written with {sql}")
}
