//! Encoding of nodes as messages.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{Field, FieldRef};
use datafusion_common::{Column, Result, plan_datafusion_err, plan_err};
use datafusion_execution::TaskContext;
use datafusion_expr::expr::{Alias, Cast, Placeholder, TryCast};
use datafusion_expr::registry::FunctionRegistry;
use datafusion_expr::{Expr, ScalarUDF};
use datafusion_proto::logical_plan::DefaultLogicalExtensionCodec;
use datafusion_proto::logical_plan::from_proto::parse_expr;
use datafusion_proto::logical_plan::to_proto::serialize_expr;
use datafusion_proto::protobuf::LogicalExprNode;
use datafusion_proto::protobuf::logical_expr_node::ExprType;

use crate::table::shallow::check_shallow;
use crate::table::{Node, join, placeholder, split};
use crate::wire::error::malformed;
use crate::wire::field::{column_from_wire, column_to_wire, field_from_wire, field_to_wire};
use crate::wire::types::check_type;
use crate::wire::{Kind, OuterReference};

const CODEC: DefaultLogicalExtensionCodec = DefaultLogicalExtensionCodec {};

/// DataFusion's own scalar functions under their names and aliases, and the special functions of this project. Both sides have them, so
/// their names are enough.
static DEFAULT_FUNCTIONS: LazyLock<Result<TaskContext>> = LazyLock::new(|| {
    let mut registry = TaskContext::default();
    for udf in datafusion_functions::all_default_functions() {
        registry.register_udf(udf)?;
    }
    for udf in datafusion_functions_nested::all_default_nested_functions() {
        registry.register_udf(udf)?;
    }
    for udf in xql_special::functions() {
        registry.register_udf(Arc::new(udf))?;
    }
    Ok(registry)
});

fn builtin_registry() -> Result<&'static TaskContext> {
    DEFAULT_FUNCTIONS
        .as_ref()
        .map_err(|error| plan_datafusion_err!("DataFusion's own functions do not register: {error}"))
}

/// Returns whether `udf` is the function that both sides have under its name.
pub(crate) fn is_builtin(udf: &ScalarUDF) -> Result<bool> {
    let default = builtin_registry()?.scalar_functions().get(udf.name());
    Ok(default.is_some_and(|default| default.as_ref() == udf))
}

/// Returns whether `datafusion-proto` decodes a shape as it was encoded, apart from metadata: it refuses some and changes others.
pub(crate) fn is_encodable(shape: &Expr) -> bool {
    encode_shallow(&strip_metadata(shape.clone())).is_ok()
}

/// Encodes a node that is neither a call of one side's function nor opaque.
pub(crate) fn node_to_wire(node: &Node) -> Result<Kind> {
    Ok(match &node.shape {
        Expr::Column(column) => Kind::Column(column_to_wire(column)),
        Expr::OuterReferenceColumn(field, column) => {
            Kind::OuterReference(OuterReference { column: column_to_wire(column), field: field_to_wire(field)? })
        }
        shape => {
            let references = node.children.iter().map(placeholder);
            Kind::Node(encode_shallow(&join(strip_metadata(shape.clone()), references)?)?)
        }
    })
}

/// Decodes such a node.
pub(crate) fn node_from_wire(kind: Kind) -> Result<Node> {
    let leaf = |shape| Ok(Node { shape, children: vec![] });
    match kind {
        Kind::Node(node) => {
            let (shape, references) = split(decode_shallow(&node)?)?;
            Ok(Node { shape, children: references.iter().map(parse_reference).collect::<Result<_>>()? })
        }
        Kind::Column(column) => leaf(Expr::Column(column_from_wire(column)?)),
        Kind::OuterReference(OuterReference { column, field }) => {
            leaf(Expr::OuterReferenceColumn(field_from_wire(&field)?, column_from_wire(column)?))
        }
        Kind::Call(_) => Err(malformed("a call where it means nothing")),
        Kind::Opaque(_) => Err(malformed("an opaque entry in an answer")),
    }
}

/// Parses the entry that a child refers to.
fn parse_reference(child: &Expr) -> Result<u32> {
    match child {
        Expr::Column(Column { relation: None, name, .. }) => match name.parse::<u32>() {
            // Only the canonical form is accepted.
            Ok(entry) if entry.to_string() == *name => Ok(entry),
            _ => Err(malformed(format_args!("a reference to an entry {name:?}"))),
        },
        _ => Err(malformed("a node has a child that is no reference")),
    }
}

/// Encodes a shallow expression by `datafusion-proto`, after checking that it is decoded as the same.
fn encode_shallow(expr: &Expr) -> Result<LogicalExprNode> {
    let node = serialize_expr(expr, &CODEC)?;
    if &decode_shallow(&node)? != expr {
        return plan_err!("datafusion-proto changes the expression {expr}");
    }
    Ok(node)
}

fn decode_shallow(node: &LogicalExprNode) -> Result<Expr> {
    check_shallow(node)?;
    if let Some(ExprType::ScalarUdfExpr(call)) = &node.expr_type
        && !builtin_registry()?.scalar_functions().contains_key(&call.fun_name)
    {
        return plan_err!(
            "simplify: the function '{}' is not one of DataFusion's own, which alone cross by name",
            call.fun_name
        );
    }
    let expr = parse_expr(node, builtin_registry()?, &CODEC).map_err(malformed)?;
    if let Expr::Cast(Cast { field, .. })
    | Expr::TryCast(TryCast { field, .. })
    | Expr::Placeholder(Placeholder { field: Some(field), .. }) = &expr
    {
        check_type(field.data_type())?;
    }
    Ok(expr)
}

/// Strips what `datafusion-proto` drops and what has no part in the meaning of a shape: metadata, and names of fields.
pub(crate) fn strip_metadata(shape: Expr) -> Expr {
    match shape {
        Expr::Literal(value, _) => Expr::Literal(value, None),
        Expr::Alias(alias) => Expr::Alias(Alias { metadata: None, ..alias }),
        Expr::Cast(Cast { expr, field }) => Expr::Cast(Cast::new_from_field(expr, strip_field(&field))),
        Expr::TryCast(TryCast { expr, field }) => Expr::TryCast(TryCast::new_from_field(expr, strip_field(&field))),
        Expr::Placeholder(Placeholder { id, field }) => {
            let field = field.map(|field| strip_field(&field));
            Expr::Placeholder(Placeholder::new_with_field(id, field))
        }
        other => other,
    }
}

/// Removes everything but type and nullability from a field.
fn strip_field(field: &Field) -> FieldRef {
    Arc::new(Field::new("", field.data_type().clone(), field.is_nullable()))
}
