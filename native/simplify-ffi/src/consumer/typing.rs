//! The types of the nodes of an answer.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion_common::{Column, DFSchema, ExprSchema, Result, plan_err};
use datafusion_expr::{Expr, ExprSchemable, ReturnFieldArgs, ScalarUDF};
use xql_guard::guard;

use crate::table::{Node, join, placeholder};
use crate::wire::error::malformed;

/// Returns the field of a call of an imported function.
///
/// A field has the name of an expression. Names cross the boundary as strings that end in NUL, so a NUL within one is escaped.
pub(crate) fn return_field(function: &ScalarUDF, args: ReturnFieldArgs) -> Result<FieldRef> {
    let named = |field: &FieldRef| match field.name().contains('\0') {
        true => Arc::new(field.as_ref().clone().with_name(field.name().replace('\0', "\\0"))),
        false => Arc::clone(field),
    };
    let arg_fields: Vec<_> = args.arg_fields.iter().map(named).collect();
    guard(format_args!("the type of '{}'", function.name()), || {
        function.return_field_from_args(ReturnFieldArgs { arg_fields: &arg_fields, ..args })
    })
}

/// The field of each node of a table, computed once and without recursion.
pub(crate) struct NodeTypes {
    /// `None` for what the consumer's own expressions do not tell, and what reads it.
    fields: Vec<Option<FieldRef>>,
    /// Functions whose calls have no type in the consumer. If they are volatile, the answer has calls of its own.
    untyped: Vec<Arc<ScalarUDF>>,
}

impl NodeTypes {
    /// Computes the fields of the consumer's own nodes. Errors leave a node without field.
    pub(crate) fn from_request(nodes: &[Node], schema: &DFSchema) -> Self {
        let mut types = Self { fields: Vec::with_capacity(nodes.len()), untyped: vec![] };
        for (entry, node) in nodes.iter().enumerate() {
            let field = types.field(nodes, entry, schema);
            if let (Err(_), Expr::ScalarFunction(call)) = (&field, &node.shape)
                && !types.untyped.contains(&call.func)
            {
                types.untyped.push(Arc::clone(&call.func));
            }
            types.fields.push(field.unwrap_or(None));
        }
        types
    }

    /// Computes the fields of the nodes that an answer has added.
    ///
    /// # Errors
    /// [`Plan`](datafusion_common::DataFusionError::Plan) for a node that has no type.
    pub(crate) fn extend(&mut self, nodes: &[Node], schema: &DFSchema) -> Result<()> {
        for entry in self.fields.len()..nodes.len() {
            let shape = &nodes[entry].shape;
            let field = match (self.field(nodes, entry, schema), shape) {
                (Ok(field), _) => field,
                (Err(_), Expr::ScalarFunction(call)) if self.untyped.contains(&call.func) => None,
                (Err(error), _) => return plan_err!("simplify gave an expression without type, {shape}: {error}"),
            };
            self.fields.push(field);
        }
        Ok(())
    }

    /// Returns the field of an entry, if it is known.
    pub(crate) fn get(&self, entry: u32) -> Option<&FieldRef> {
        self.fields.get(entry as usize)?.as_ref()
    }

    fn field(&self, nodes: &[Node], entry: usize, schema: &DFSchema) -> Result<Option<FieldRef>> {
        let Node { shape, children } = &nodes[entry];
        if children.is_empty() {
            return Ok(Some(shape.to_field(schema)?.1));
        }
        let Some(fields) = children.iter().map(|&child| self.get(child)).collect() else { return Ok(None) };
        // The type of some functions depends on the value of a literal.
        let arguments = children.iter().enumerate().map(|(number, &child)| match &nodes[child as usize].shape {
            literal @ Expr::Literal(..) => literal.clone(),
            _ => placeholder(number),
        });
        let (_, field) = join(shape.clone(), arguments)?.to_field(&Operands { fields })?;
        Ok(Some(field))
    }
}

/// The fields of the placeholders of a shape.
#[derive(Debug)]
struct Operands<'a> {
    fields: Vec<&'a FieldRef>,
}

impl ExprSchema for Operands<'_> {
    fn field_from_column(&self, column: &Column) -> Result<&FieldRef> {
        let number = column.name.parse::<usize>().ok();
        number.and_then(|number| self.fields.get(number).copied()).ok_or_else(|| malformed("a shape lacks a child"))
    }
}
