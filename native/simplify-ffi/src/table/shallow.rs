//! Validation of a message before `datafusion-proto` decodes it.
//!
//! `datafusion-proto` trusts what it decodes: it follows expressions and plans however deep they are, truncates numbers to the width of
//! their type, and makes values as large as a message says they are. So it only gets one expression over references, with literals and
//! types that are validated here.

use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_proto::generated::datafusion_common::scalar_value::Value;
use datafusion_proto::protobuf::logical_expr_node::ExprType;
use datafusion_proto::protobuf::{ArrowType, LogicalExprNode, ScalarValue};

use crate::wire::error::malformed;
use crate::wire::types::is_type;

/// Refuses a message that is not one expression over references.
pub(crate) fn check_shallow(node: &LogicalExprNode) -> Result<()> {
    let Some(kind) = &node.expr_type else { return Err(malformed("a node without expression")) };
    if let ExprType::BinaryExpr(binary) = kind
        && binary.operands.len() != 2
    {
        // It would be decoded as a chain of nodes.
        return Err(malformed("a binary node without two operands"));
    }
    if let ExprType::Literal(literal) = kind {
        check_literal(literal)?;
    }
    for child in children(kind)? {
        if !matches!(&child.expr_type, Some(ExprType::Column(column)) if column.relation.is_none()) {
            return Err(malformed("a node has a child that is no reference"));
        }
    }
    Ok(())
}

/// Returns the children of a node that may be encoded as one. `datafusion-proto` reports missing ones by name.
fn children(kind: &ExprType) -> Result<Vec<&LogicalExprNode>> {
    Ok(match kind {
        ExprType::Literal(_) | ExprType::Placeholder(_) => vec![],
        ExprType::Alias(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::IsNullExpr(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::IsNotNullExpr(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::NotExpr(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::IsTrue(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::IsFalse(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::IsUnknown(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::IsNotTrue(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::IsNotFalse(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::IsNotUnknown(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::Negative(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::Cast(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::TryCast(node) => node.expr.as_deref().into_iter().collect(),
        ExprType::Like(node) => [&node.expr, &node.pattern].into_iter().filter_map(Option::as_deref).collect(),
        ExprType::Ilike(node) => [&node.expr, &node.pattern].into_iter().filter_map(Option::as_deref).collect(),
        ExprType::SimilarTo(node) => [&node.expr, &node.pattern].into_iter().filter_map(Option::as_deref).collect(),
        ExprType::Between(node) => {
            [&node.expr, &node.low, &node.high].into_iter().filter_map(Option::as_deref).collect()
        }
        ExprType::Case(node) => {
            let branches = node.when_then_expr.iter().flat_map(|branch| [&branch.when_expr, &branch.then_expr]);
            let ends = [&node.expr, &node.else_expr].into_iter().filter_map(Option::as_deref);
            branches.filter_map(Option::as_ref).chain(ends).collect()
        }
        ExprType::InList(node) => node.expr.as_deref().into_iter().chain(&node.list).collect(),
        ExprType::BinaryExpr(node) => node.operands.iter().collect(),
        ExprType::Unnest(node) => node.exprs.iter().collect(),
        ExprType::ScalarUdfExpr(node) => node.args.iter().collect(),
        ExprType::Column(_)
        | ExprType::Wildcard(_)
        | ExprType::WindowExpr(_)
        | ExprType::AggregateUdfExpr(_)
        | ExprType::GroupingSet(_)
        | ExprType::Cube(_)
        | ExprType::Rollup(_)
        | ExprType::ScalarSubqueryExpr(_) => return Err(malformed("a node of a kind that does not cross as a node")),
        #[cfg(feature = "datafusion-55")]
        ExprType::HigherOrderUdfExpr(_) | ExprType::Lambda(_) | ExprType::LambdaVariable(_) => {
            return Err(malformed("a node of a kind that does not cross as a node"));
        }
    })
}

/// Refuses literals that do not fit their type, and literals of nested types, whose size a message does not bound.
fn check_literal(literal: &ScalarValue) -> Result<()> {
    let fits = match literal.value.as_ref().ok_or_else(|| malformed("a literal without value"))? {
        Value::Int8Value(value) => i8::try_from(*value).is_ok(),
        Value::Int16Value(value) => i16::try_from(*value).is_ok(),
        Value::Uint8Value(value) => u8::try_from(*value).is_ok(),
        Value::Uint16Value(value) => u16::try_from(*value).is_ok(),
        Value::Decimal32Value(decimal) => is_decimal(&decimal.value, 4, decimal.p, decimal.s, DataType::Decimal32),
        Value::Decimal64Value(decimal) => is_decimal(&decimal.value, 8, decimal.p, decimal.s, DataType::Decimal64),
        Value::Decimal128Value(decimal) => is_decimal(&decimal.value, 16, decimal.p, decimal.s, DataType::Decimal128),
        Value::Decimal256Value(decimal) => is_decimal(&decimal.value, 32, decimal.p, decimal.s, DataType::Decimal256),
        Value::FixedSizeBinaryValue(binary) => usize::try_from(binary.length) == Ok(binary.values.len()),
        Value::NullValue(data_type) => is_flat(data_type),
        Value::DictionaryValue(dictionary) => {
            // A nested dictionary has no type.
            let flat = !matches!(
                dictionary.value.as_ref().and_then(|value| value.value.as_ref()),
                Some(Value::DictionaryValue(_))
            );
            if let Some(value) = dictionary.value.as_deref().filter(|_| flat) {
                check_literal(value)?;
            }
            flat && dictionary.index_type.as_ref().is_some_and(is_index)
        }
        Value::ListValue(_)
        | Value::LargeListValue(_)
        | Value::FixedSizeListValue(_)
        | Value::ListViewValue(_)
        | Value::LargeListViewValue(_)
        | Value::StructValue(_)
        | Value::MapValue(_)
        | Value::UnionValue(_)
        | Value::RunEndEncodedValue(_) => false,
        _ => true,
    };
    if fits { Ok(()) } else { Err(malformed("a literal that is not of its type, or of a type that does not cross")) }
}

fn is_decimal(bytes: &[u8], width: usize, precision: i64, scale: i64, data_type: fn(u8, i8) -> DataType) -> bool {
    let (Ok(precision), Ok(scale)) = (u8::try_from(precision), i8::try_from(scale)) else { return false };
    bytes.len() == width && is_type(&data_type(precision, scale))
}

fn is_flat(data_type: &ArrowType) -> bool {
    DataType::try_from(data_type).is_ok_and(|data_type| !data_type.is_nested() && is_type(&data_type))
}

fn is_index(data_type: &ArrowType) -> bool {
    DataType::try_from(data_type).is_ok_and(|data_type| data_type.is_dictionary_key_type())
}
