//! Shallow expressions: one node, its children replaced by placeholders that say where they are.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::Expr;
use datafusion_expr::expr::{Alias, Cast, Placeholder, TryCast};
use datafusion_proto::logical_plan::DefaultLogicalExtensionCodec;
use datafusion_proto::logical_plan::from_proto::parse_expr;
use datafusion_proto::logical_plan::to_proto::serialize_expr;
use datafusion_proto::protobuf::LogicalExprNode;
use datafusion_proto::protobuf::logical_expr_node::ExprType;

use crate::default_functions::registry;
use crate::error::malformed;

const CODEC: DefaultLogicalExtensionCodec = DefaultLogicalExtensionCodec {};

/// The placeholder for the entry at `index`.
pub(crate) fn placeholder(index: u32) -> Expr {
    Expr::Column(Column::new_unqualified(index.to_string()))
}

/// Parts `expr` from its children, which are left with placeholders.
pub(crate) fn take_children(expr: Expr) -> Result<(Expr, Vec<Expr>)> {
    let mut children = vec![];
    let shell = expr.map_children(|child| {
        children.push(child);
        Ok(Transformed::yes(placeholder(0)))
    })?;
    Ok((shell.data, children))
}

/// Puts children in place of the placeholders.
pub(crate) fn with_children(shell: Expr, children: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    let mut children = children.into_iter();
    let expr = shell.map_children(|_| match children.next() {
        Some(child) => Ok(Transformed::yes(child)),
        None => Err(malformed("a node lacks a child")),
    })?;
    Ok(expr.data)
}

/// The entries that the placeholders of a shallow expression refer to.
pub(crate) fn child_indices(shell: &Expr) -> Result<Vec<u32>> {
    let mut indices = vec![];
    shell.apply_children(|child| {
        match child {
            Expr::Column(Column { relation: None, name, .. }) => indices.push(name.parse().map_err(malformed)?),
            _ => return Err(malformed("a node has a child that is no reference")),
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(indices)
}

/// The expression without what `datafusion-proto` drops and has no part in its meaning: metadata, and names of fields.
pub(crate) fn without_metadata(shell: Expr) -> Expr {
    match shell {
        Expr::Literal(value, _) => Expr::Literal(value, None),
        Expr::Alias(alias) => Expr::Alias(Alias { metadata: None, ..alias }),
        Expr::Cast(Cast { expr, field }) => Expr::Cast(Cast::new_from_field(expr, bare(&field))),
        Expr::TryCast(TryCast { expr, field }) => Expr::TryCast(TryCast::new_from_field(expr, bare(&field))),
        Expr::Placeholder(Placeholder { id, field }) => {
            let field = field.map(|field| bare(&field));
            Expr::Placeholder(Placeholder::new_with_field(id, field))
        }
        other => other,
    }
}

/// A field of the same type and nullability.
fn bare(field: &Field) -> FieldRef {
    Arc::new(Field::new("", field.data_type().clone(), field.is_nullable()))
}

/// The message of a shallow expression, if what `datafusion-proto` would read from it is the same expression.
pub(crate) fn node_to_wire(shell: &Expr) -> Result<LogicalExprNode> {
    let node = serialize_expr(shell, &CODEC)?;
    if &node_from_wire(&node)? != shell {
        return plan_err!("datafusion-proto changes the expression {shell}");
    }
    Ok(node)
}

/// The shallow expression of a message.
pub(crate) fn node_from_wire(node: &LogicalExprNode) -> Result<Expr> {
    match &node.expr_type {
        // These have messages of their own, or do not cross at all.
        None
        | Some(
            ExprType::Column(_)
            | ExprType::AggregateUdfExpr(_)
            | ExprType::WindowExpr(_)
            | ExprType::Wildcard(_)
            | ExprType::GroupingSet(_)
            | ExprType::Cube(_)
            | ExprType::Rollup(_)
            | ExprType::ScalarSubqueryExpr(_),
        ) => return Err(malformed("a node of a kind that does not cross as a node")),
        Some(ExprType::BinaryExpr(binary)) if binary.operands.len() != 2 => {
            return Err(malformed("a binary node without two operands"));
        }
        Some(ExprType::ScalarUdfExpr(call)) if !registry()?.scalar_functions().contains_key(&call.fun_name) => {
            return plan_err!(
                "simplify: the function '{}' is not one of DataFusion's own, which alone cross by name",
                call.fun_name
            );
        }
        Some(_) => {}
    }
    let shell = parse_expr(node, registry()?, &CODEC).map_err(malformed)?;
    Ok(shell)
}
