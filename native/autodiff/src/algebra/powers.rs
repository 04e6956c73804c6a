//! Powers with a number as exponent, in the form that is computed fastest.
//!
//! `power` takes as long as sixteen products. So whole powers are products, half powers are products with a square root, and a
//! power that the query has stands for the one whose exponent is 1 less. Third powers stay as they are: `cbrt` takes longer
//! than `power`.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};
use std::ops::RangeInclusive;

use super::roots::{as_guarded_root, square_root};
use crate::graph::{Graph, NodeId};
use crate::table::Algebraic;
use crate::vocabulary::functions;

/// Powers up to this one are products: six at most, whose rounding errors are small in single precision, too.
pub const MAX_PRODUCT_EXPONENT: f64 = 16.0;
/// The exponents `p` for which `u^p / u` is exact to rounding wherever the derivative of `u^p` is a number: above, `u^p` is no normal
/// number for the least `u`, and below, the quotient is too large, in single precision, too.
pub const LOWERED_EXPONENTS: RangeInclusive<f64> = 0.15..=0.95;

/// Builds `base^exponent` for an exponent that is not negative.
pub fn factor(graph: &mut Graph, base: NodeId, exponent: f64) -> Result<NodeId> {
    let (whole, rest) = (exponent.trunc(), exponent.fract());
    if exponent <= MAX_PRODUCT_EXPONENT && rest == 0.0 {
        return whole_power(graph, base, whole as u32);
    }
    if exponent <= MAX_PRODUCT_EXPONENT && rest == 0.5 {
        let root = square_root(graph, functions::function("sqrt")?, base)?;
        return times_whole_power(graph, base, whole as u32, root);
    }
    let exponent = graph.number(exponent)?;
    graph.call(functions::function("power")?, &[base, exponent])
}

/// Builds `u^(p - 1)` from a power `u^p` of the query, which is computed once for both: the quotient of `u^p` and `u`, or `1 / u^p`, where
/// the quotient is no number because `u` is 0 or infinite.
pub fn lower_power(graph: &mut Graph, base: NodeId, power: NodeId) -> Result<NodeId> {
    let quotient = graph.binary(power, Operator::Divide, base)?;
    let is_none = graph.call(functions::function("isnan")?, &[quotient])?;
    let one = graph.number(1.0)?;
    let reciprocal = graph.binary(one, Operator::Divide, power)?;
    graph.case(&[(is_none, reciprocal)], Some(quotient))
}

/// Returns the base and the exponent of a power that is written as a `CASE`, for derivatives of higher order: a quotient of a power, or a
/// square root that is NaN for negative arguments.
pub fn as_written_power(graph: &Graph, id: NodeId) -> Option<(NodeId, f64)> {
    as_guarded_root(graph, id).map(|base| (base, 0.5)).or_else(|| as_lowered(graph, id))
}

fn as_lowered(graph: &Graph, id: NodeId) -> Option<(NodeId, f64)> {
    let node = graph.node(id);
    let (Expr::Case(_), &[condition, reciprocal, quotient]) = (&node.shape, node.children.as_slice()) else {
        return None;
    };
    let (power, divisor) = graph.as_binary(quotient, Operator::Divide)?;
    let (base, exponent) = as_power(graph, power)?;
    let (one, reciprocal_of) = graph.as_binary(reciprocal, Operator::Divide)?;
    let asks = graph.node(condition);
    let asks_for_nan = matches!(&asks.shape, Expr::ScalarFunction(call) if call.func.name() == "isnan");
    let is_lowered = asks_for_nan
        && asks.children == [quotient]
        && divisor == base
        && reciprocal_of == power
        && graph.as_number(one) == Some(1.0)
        && LOWERED_EXPONENTS.contains(&exponent);
    is_lowered.then_some((base, exponent - 1.0))
}

/// Returns the base and the exponent of a call of `power` with a constant exponent.
pub fn as_power(graph: &Graph, id: NodeId) -> Option<(NodeId, f64)> {
    let node = graph.node(id);
    let is_power = node.line().is_some_and(|line| line.algebraic == Some(Algebraic::Power));
    if is_power { Some((node.children[0], graph.as_number(node.children[1])?)) } else { None }
}

/// Builds `base^exponent * other`.
fn times_whole_power(graph: &mut Graph, base: NodeId, exponent: u32, other: NodeId) -> Result<NodeId> {
    if exponent == 0 {
        return Ok(other);
    }
    let whole = whole_power(graph, base, exponent)?;
    graph.binary(whole, Operator::Multiply, other)
}

/// Builds `base^exponent` as products of squares.
pub fn whole_power(graph: &mut Graph, base: NodeId, exponent: u32) -> Result<NodeId> {
    match exponent {
        0 => graph.number(1.0),
        1 => Ok(base),
        _ if exponent.is_multiple_of(2) => {
            let root = whole_power(graph, base, exponent / 2)?;
            graph.binary(root, Operator::Multiply, root)
        }
        _ => {
            let rest = whole_power(graph, base, exponent - 1)?;
            graph.binary(rest, Operator::Multiply, base)
        }
    }
}
