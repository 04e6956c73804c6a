//! Construction of nodes: operands are converted, and nothing is rearranged.

use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::expr::{Case, ScalarFunction};
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::{Cast, Expr, Operator, ScalarUDF, binary_expr, lit};
use std::sync::Arc;

use super::intern::{Graph, NodeId, operand};
use crate::vocabulary::types::is_float;

impl Graph<'_> {
    /// Returns a constant of the working type.
    pub fn number(&mut self, value: f64) -> Result<NodeId> {
        let scalar = match self.working_type() {
            DataType::Float32 => ScalarValue::Float32(Some(value as f32)),
            _ => ScalarValue::Float64(Some(value)),
        };
        self.intern(Expr::Literal(scalar, None), vec![])
    }

    /// Returns NULL of the working type.
    pub fn null(&mut self) -> Result<NodeId> {
        let scalar = ScalarValue::try_new_null(self.working_type())?;
        self.intern(Expr::Literal(scalar, None), vec![])
    }

    /// Returns the value of a constant.
    pub fn as_number(&self, id: NodeId) -> Option<f64> {
        match &self.node(id).shape {
            Expr::Literal(ScalarValue::Float64(Some(value)), _) => Some(*value),
            Expr::Literal(ScalarValue::Float32(Some(value)), _) => Some(f64::from(*value)),
            _ => None,
        }
    }

    /// Returns whether a node is the constant 0.
    pub fn is_zero(&self, id: NodeId) -> bool {
        self.as_number(id) == Some(0.0)
    }

    /// Returns an operation, with operands converted to the working type.
    pub fn binary(&mut self, a: NodeId, op: Operator, b: NodeId) -> Result<NodeId> {
        let operands = vec![self.cast_to_working_type(a)?, self.cast_to_working_type(b)?];
        self.intern(binary_expr(operand(0), op, operand(1)), operands)
    }

    /// Returns the operands of a node, if it is this operation.
    pub fn as_binary(&self, a: NodeId, op: Operator) -> Option<(NodeId, NodeId)> {
        let node = self.node(a);
        match &node.shape {
            Expr::BinaryExpr(binary) if binary.op == op => Some((node.children[0], node.children[1])),
            _ => None,
        }
    }

    /// Returns a call, with arguments converted to the types of the function.
    pub fn call(&mut self, function: &Arc<ScalarUDF>, arguments: &[NodeId]) -> Result<NodeId> {
        let arguments = arguments.iter().map(|id| self.cast_to_working_type(*id)).collect::<Result<Vec<_>>>()?;
        let given: Vec<_> = arguments.iter().map(|id| self.node(*id).field.clone()).collect();
        let taken = fields_with_udf(&given, function.as_ref())?;
        let arguments: Vec<_> =
            arguments.iter().zip(&taken).map(|(id, field)| self.cast(*id, field.data_type())).collect::<Result<_>>()?;
        let operands = (0..arguments.len()).map(operand).collect();
        self.intern(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), operands)), arguments)
    }

    /// Returns `CASE WHEN condition THEN value ... [ELSE otherwise] END`.
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

    /// Returns TRUE or FALSE.
    pub fn truth(&mut self, value: bool) -> Result<NodeId> {
        self.intern(lit(value), vec![])
    }

    /// Returns `NOT a`.
    pub fn not(&mut self, a: NodeId) -> Result<NodeId> {
        self.intern(Expr::Not(Box::new(operand(0))), vec![a])
    }

    /// Returns `a IS NULL`.
    pub fn is_null(&mut self, a: NodeId) -> Result<NodeId> {
        self.intern(Expr::IsNull(Box::new(operand(0))), vec![a])
    }

    /// Returns `a IS NOT NULL`.
    pub fn is_not_null(&mut self, a: NodeId) -> Result<NodeId> {
        self.intern(Expr::IsNotNull(Box::new(operand(0))), vec![a])
    }

    /// Returns `a AND b`.
    pub fn and(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.logical(a, Operator::And, b)
    }

    /// Returns `a OR b`.
    pub fn or(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.logical(a, Operator::Or, b)
    }

    fn logical(&mut self, a: NodeId, op: Operator, b: NodeId) -> Result<NodeId> {
        self.intern(binary_expr(operand(0), op, operand(1)), vec![a, b])
    }

    /// Casts a node to the working type.
    pub fn cast_to_working_type(&mut self, a: NodeId) -> Result<NodeId> {
        let working_type = self.working_type().clone();
        self.cast(a, &working_type)
    }

    /// Casts a node to a type.
    pub fn cast(&mut self, a: NodeId, data_type: &DataType) -> Result<NodeId> {
        if self.data_type(a) == data_type {
            return Ok(a);
        }
        let node = self.node(a);
        match &node.shape {
            Expr::Literal(scalar, _) => {
                let converted = scalar.cast_to(data_type)?;
                return self.intern(Expr::Literal(converted, None), vec![]);
            }
            // A cast to a wider float and back.
            Expr::Cast(_)
                if self.data_type(node.children[0]) == data_type
                    && is_float(data_type)
                    && node.field.data_type() == &DataType::Float64 =>
            {
                return Ok(node.children[0]);
            }
            _ => {}
        }
        self.intern(Expr::Cast(Cast::new(Box::new(operand(0)), data_type.clone())), vec![a])
    }
}

/// Returns the positions of the values of a `CASE` among its children.
pub fn branches(case: &Case) -> Vec<usize> {
    let first = usize::from(case.expr.is_some());
    let pairs = case.when_then_expr.len();
    let values = (0..pairs).map(|i| first + 2 * i + 1);
    values.chain(case.else_expr.is_some().then_some(first + 2 * pairs)).collect()
}
