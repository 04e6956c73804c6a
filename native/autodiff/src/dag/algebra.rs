//! Construction of derivatives, in the form an engineer would write them.
//!
//! Each function returns the node of the operation it is named after, with zeros and ones folded, constants merged and
//! signs drawn outwards. A structural zero is exact, as JAX's symbolic zeros are: `0 * x` is 0 also where `x` is NaN.

use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::expr::{Case, ScalarFunction};
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::{BinaryExpr, Cast, Expr, Operator, ScalarUDF};
use std::sync::Arc;

use super::{Dag, NodeId, operand};

impl Dag<'_> {
    /// A constant of the working type.
    pub fn number(&mut self, value: f64) -> Result<NodeId> {
        let scalar = match self.working_type {
            DataType::Float32 => ScalarValue::Float32(Some(value as f32)),
            _ => ScalarValue::Float64(Some(value)),
        };
        self.intern(Expr::Literal(scalar, None), vec![])
    }

    /// NULL of the working type.
    pub fn null(&mut self) -> Result<NodeId> {
        let scalar = ScalarValue::try_new_null(&self.working_type)?;
        self.intern(Expr::Literal(scalar, None), vec![])
    }

    /// The value of a node that is a number.
    pub fn as_number(&self, id: NodeId) -> Option<f64> {
        match &self.node(id).shape {
            Expr::Literal(ScalarValue::Float64(Some(value)), _) => Some(*value),
            Expr::Literal(ScalarValue::Float32(Some(value)), _) => Some(f64::from(*value)),
            _ => None,
        }
    }

    pub fn is_zero(&self, id: NodeId) -> bool {
        self.as_number(id) == Some(0.0)
    }

    pub fn add(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        match (self.as_number(a), self.as_number(b)) {
            (Some(a), Some(b)) => return self.number(a + b),
            (Some(0.0), _) => return Ok(b),
            (_, Some(0.0)) => return Ok(a),
            _ => {}
        }
        if let Some(b) = self.as_negation(b)? {
            return self.subtract(a, b);
        }
        if let Some(a) = self.as_negation(a)? {
            return self.subtract(b, a);
        }
        if a == b {
            let two = self.number(2.0)?;
            return self.multiply(two, a);
        }
        self.binary(a, Operator::Plus, b)
    }

    pub fn subtract(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        match (self.as_number(a), self.as_number(b)) {
            (Some(a), Some(b)) => return self.number(a - b),
            (Some(0.0), _) => return self.negate(b),
            (_, Some(0.0)) => return Ok(a),
            _ => {}
        }
        if let Some(b) = self.as_negation(b)? {
            return self.add(a, b);
        }
        self.binary(a, Operator::Minus, b)
    }

    pub fn multiply(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        match (self.as_number(a), self.as_number(b)) {
            (Some(a), Some(b)) => return self.number(a * b),
            (Some(0.0), _) | (_, Some(0.0)) => return self.number(0.0),
            (Some(1.0), _) => return Ok(b),
            (_, Some(1.0)) => return Ok(a),
            (Some(-1.0), _) => return self.negate(b),
            (_, Some(-1.0)) => return self.negate(a),
            // Constants stand in front, where they meet and merge.
            (None, Some(_)) => return self.multiply(b, a),
            _ => {}
        }
        if let Some(b) = self.as_negation(b)? {
            let product = self.multiply(a, b)?;
            return self.negate(product);
        }
        if self.as_number(a).is_none()
            && let Some(a) = self.as_negation(a)?
        {
            let product = self.multiply(a, b)?;
            return self.negate(product);
        }
        if let Some((number, rest)) = self.as_scaled(b) {
            let scaled = self.multiply(a, number)?;
            return self.multiply(scaled, rest);
        }
        if let Some((number, rest)) = self.as_scaled(a) {
            let product = self.multiply(rest, b)?;
            return self.multiply(number, product);
        }
        if let Some((numerator, denominator)) = self.as_binary(b, Operator::Divide)
            && self.as_number(numerator).is_some()
        {
            let numerator = self.multiply(a, numerator)?;
            return self.divide(numerator, denominator);
        }
        if let Some((numerator, denominator)) = self.as_binary(a, Operator::Divide)
            && self.as_number(numerator).is_some()
        {
            let numerator = self.multiply(numerator, b)?;
            return self.divide(numerator, denominator);
        }
        self.binary(a, Operator::Multiply, b)
    }

    pub fn divide(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        match (self.as_number(a), self.as_number(b)) {
            (Some(0.0), _) => return self.number(0.0),
            (Some(a), Some(b)) => return self.number(a / b),
            (_, Some(1.0)) => return Ok(a),
            _ => {}
        }
        if let Some(b) = self.as_negation(b)? {
            let quotient = self.divide(a, b)?;
            return self.negate(quotient);
        }
        if self.as_number(a).is_none()
            && let Some(a) = self.as_negation(a)?
        {
            let quotient = self.divide(a, b)?;
            return self.negate(quotient);
        }
        self.binary(a, Operator::Divide, b)
    }

    pub fn negate(&mut self, a: NodeId) -> Result<NodeId> {
        if let Some(a) = self.as_negation(a)? {
            return Ok(a);
        }
        let a = self.cast_to_working_type(a)?;
        self.intern(Expr::Negative(Box::new(operand(0))), vec![a])
    }

    /// The operation as it stands, its operands converted to the working type.
    pub fn binary(&mut self, a: NodeId, op: Operator, b: NodeId) -> Result<NodeId> {
        let operands = vec![self.cast_to_working_type(a)?, self.cast_to_working_type(b)?];
        let shape = Expr::BinaryExpr(BinaryExpr::new(Box::new(operand(0)), op, Box::new(operand(1))));
        self.intern(shape, operands)
    }

    /// A call with its arguments converted to what the function takes.
    pub fn call(&mut self, function: &Arc<ScalarUDF>, arguments: &[NodeId]) -> Result<NodeId> {
        let arguments = arguments.iter().map(|id| self.cast_to_working_type(*id)).collect::<Result<Vec<_>>>()?;
        let given: Vec<_> = arguments.iter().map(|id| self.node(*id).field.clone()).collect();
        let taken = fields_with_udf(&given, function.as_ref())?;
        let arguments: Vec<_> =
            arguments.iter().zip(&taken).map(|(id, field)| self.cast(*id, field.data_type())).collect::<Result<_>>()?;
        let operands = (0..arguments.len()).map(operand).collect();
        self.intern(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), operands)), arguments)
    }

    /// `CASE WHEN condition THEN value ... [ELSE otherwise] END`.
    pub fn case(&mut self, branches: &[(NodeId, NodeId)], otherwise: Option<NodeId>) -> Result<NodeId> {
        let count = branches.len();
        let when_then = (0..count).map(|i| (Box::new(operand(2 * i)), Box::new(operand(2 * i + 1)))).collect();
        let shape = Expr::Case(Case::new(None, when_then, otherwise.map(|_| Box::new(operand(2 * count)))));
        let mut children = vec![];
        for (condition, value) in branches {
            children.push(*condition);
            children.push(self.cast_to_working_type(*value)?);
        }
        if let Some(otherwise) = otherwise {
            children.push(self.cast_to_working_type(otherwise)?);
        }
        self.intern(shape, children)
    }

    pub fn is_not_null(&mut self, a: NodeId) -> Result<NodeId> {
        self.intern(Expr::IsNotNull(Box::new(operand(0))), vec![a])
    }

    pub fn and(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.logical(a, Operator::And, b)
    }

    pub fn or(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.logical(a, Operator::Or, b)
    }

    fn logical(&mut self, a: NodeId, op: Operator, b: NodeId) -> Result<NodeId> {
        let shape = Expr::BinaryExpr(BinaryExpr::new(Box::new(operand(0)), op, Box::new(operand(1))));
        self.intern(shape, vec![a, b])
    }

    pub fn cast_to_working_type(&mut self, a: NodeId) -> Result<NodeId> {
        let working_type = self.working_type.clone();
        self.cast(a, &working_type)
    }

    pub fn cast(&mut self, a: NodeId, data_type: &DataType) -> Result<NodeId> {
        if self.data_type(a) == data_type {
            return Ok(a);
        }
        if let Expr::Literal(scalar, _) = &self.node(a).shape {
            let converted = scalar.cast_to(data_type)?;
            return self.intern(Expr::Literal(converted, None), vec![]);
        }
        self.intern(Expr::Cast(Cast::new(Box::new(operand(0)), data_type.clone())), vec![a])
    }

    /// `b` if `a` is `-b`, a negative number included.
    fn as_negation(&mut self, a: NodeId) -> Result<Option<NodeId>> {
        match self.as_number(a) {
            Some(value) if value < 0.0 => self.number(-value).map(Some),
            _ => Ok(match self.node(a).shape {
                Expr::Negative(_) => Some(self.node(a).children[0]),
                _ => None,
            }),
        }
    }

    fn as_scaled(&self, a: NodeId) -> Option<(NodeId, NodeId)> {
        let (number, rest) = self.as_binary(a, Operator::Multiply)?;
        self.as_number(number).map(|_| (number, rest))
    }

    fn as_binary(&self, a: NodeId, op: Operator) -> Option<(NodeId, NodeId)> {
        let node = self.node(a);
        match &node.shape {
            Expr::BinaryExpr(binary) if binary.op == op => Some((node.children[0], node.children[1])),
            _ => None,
        }
    }
}
