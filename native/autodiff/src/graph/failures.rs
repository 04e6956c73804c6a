//! Expressions that may fail.

use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, Result, ScalarValue};
use datafusion_expr::{Expr, Operator};

use super::import::import;
use super::intern::{Graph, Node};
use crate::table::{Algebraic, Treatment};
use crate::vocabulary::opaque_expr::unwrap_opaque;
use crate::vocabulary::types::is_float;

/// Returns whether an expression has a value in all rows, so that it may be computed where it is not needed: `CAST(t AS DOUBLE)` fails for
/// a text that is no number.
///
/// # Errors
/// If the expression cannot be typed over the columns.
pub fn never_fails(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    let mut graph = Graph::new(schema);
    let root = import(&mut graph, &unwrap_opaque(expression.clone())?.data)?;
    Ok(graph.reachable(root).into_iter().all(|id| is_total(&graph, graph.node(id))))
}

/// Returns whether an operation has a value whatever its operands are, as float arithmetic has.
pub fn is_total(graph: &Graph, node: &Node) -> bool {
    let of_floats = node.children.iter().all(|child| is_float(graph.data_type(*child)));
    match &node.shape {
        Expr::Literal(..) | Expr::Column(_) | Expr::Case(_) => true,
        Expr::Not(_) | Expr::IsNull(_) | Expr::IsNotNull(_) => true,
        Expr::Negative(_) => of_floats,
        Expr::Cast(_) => {
            let from = graph.data_type(node.children[0]);
            is_float(node.field.data_type()) && (is_float(from) || from.is_integer())
        }
        Expr::BinaryExpr(binary) => match binary.op {
            Operator::Divide | Operator::Modulo if is_whole_part(graph, node) => true,
            Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide => of_floats,
            Operator::And | Operator::Or => true,
            Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => true,
            _ => false,
        },
        // A power may: DataFusion refuses to raise 0 to a negative one.
        Expr::ScalarFunction(_) => node.line().is_some_and(|line| match line.treatment {
            Treatment::Constant(_) => true,
            Treatment::Choice(_) => of_floats,
            Treatment::Partials => of_floats && line.algebraic != Some(Algebraic::Power),
        }),
        _ => false,
    }
}

/// Returns whether an operation divides integers by a literal, as in `dim / 8`, for which it cannot fail. It fails for 0, and for -1 and
/// the least number.
fn is_whole_part(graph: &Graph, node: &Node) -> bool {
    let are_whole = node.children.iter().all(|child| graph.data_type(*child).is_integer());
    let divisor = match node.children.last().map(|child| &graph.node(*child).shape) {
        Some(Expr::Literal(divisor, _)) => divisor.cast_to(&DataType::Int64),
        _ => return false,
    };
    are_whole && matches!(divisor, Ok(ScalarValue::Int64(Some(divisor))) if !matches!(divisor, 0 | -1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::testing::columns;
    use datafusion_expr::{cast, col, lit};

    #[test]
    fn what_may_fail() -> Result<()> {
        let schema = columns()?;
        let exprs = [
            col("x") / col("y"),
            col("i") / col("i"),
            col("x") % col("y"),
            col("i") / lit(8),
            col("i") % lit(8),
            col("i") / lit(0),
            col("i") / lit(-1),
            col("x") / lit(0.0),
            col("x").lt(col("y")),
            col("y") * (col("i") / col("i")),
            cast(col("i"), DataType::Float64),
            cast(lit("a"), DataType::Float64),
        ];
        let fails: Vec<_> = exprs.iter().map(|expr| Ok(!never_fails(expr, &schema)?)).collect::<Result<_>>()?;
        assert_eq!(fails, [false, true, true, false, false, true, true, false, false, true, false, true]);
        Ok(())
    }
}
