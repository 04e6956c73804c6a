//! The provider: answers a request with the `simplify` of a function of this library.

pub(crate) mod foreign_function;

use std::sync::Arc;

use chrono::DateTime;
use datafusion_common::{DFSchema, DataFusionError, Result, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{Expr, ExprSchemable, ScalarUDF};
use datafusion_proto::protobuf::EmptyMessage;
use prost::Message;
use xql_guard::guard;

use crate::provider::foreign_function::{ForeignFunction, Role};
use crate::table::expand::{expand, with_stack_for};
use crate::table::flatten::{Deconstructed, Encoding, Flattener};
use crate::table::message::{is_builtin, node_from_wire, strip_metadata};
use crate::table::opaque::is_opaque;
use crate::table::{Node, NodeTable, placeholders, split};
use crate::wire::error::malformed;
use crate::wire::field::{field_from_wire, field_to_wire, schema_from_wire};
use crate::wire::{ABI_VERSION, Answer, Call, Function, Kind, Opaque, Outcome, Request, Simplified, Time};

/// Answers an encoded request. Every failure is one of the outcomes of the answer.
pub(crate) fn answer_request(udf: &ScalarUDF, request: &[u8]) -> Vec<u8> {
    let outcome = guard(format_args!("simplify of '{}'", udf.name()), || {
        let request = Request::decode(request).map_err(malformed)?;
        simplify(udf, request)
    });
    encode_outcome(outcome)
}

/// Encodes an answer that only reports a failure.
pub(crate) fn encode_failure(error: DataFusionError) -> Vec<u8> {
    encode_outcome(Err(error))
}

fn encode_outcome(outcome: Result<Outcome>) -> Vec<u8> {
    let outcome = outcome.unwrap_or_else(|error| Outcome::Failure(error.into()));
    let answer = Answer { outcome: Some(outcome) };
    answer.encode_to_vec()
}

fn simplify(udf: &ScalarUDF, request: Request) -> Result<Outcome> {
    check_versions(&request)?;
    let Request { schema, query_execution_start_time, functions, entries, arguments, extra_functions, .. } = request;
    let mut table = NodeTable::default();
    for entry in entries {
        let node = match entry.kind.ok_or_else(|| malformed("an entry without kind"))? {
            Kind::Call(call) => call_from_wire(call, &functions)?,
            Kind::Opaque(opaque) => opaque_from_wire(opaque, table.next_entry()?)?,
            kind => node_from_wire(kind)?,
        };
        let shared = !node.shape.is_volatile_node();
        table.push(node, shared)?;
    }
    let info = SimplifyContext::builder()
        .with_schema(Arc::new(schema_from_wire(schema)?))
        .with_query_execution_start_time(query_execution_start_time.map(time_from_wire).transpose()?)
        .build();
    let encoder =
        AnswerEncoder { schema: info.schema(), functions: functions.len(), extra_functions: &extra_functions };
    let (args, depth) = expand(table.nodes(), &arguments)?;
    with_stack_for(depth, || match udf.simplify(args, &info)? {
        ExprSimplifyResult::Original(_) => Ok(Outcome::Original(EmptyMessage {})),
        ExprSimplifyResult::Simplified(expr) => {
            let mut flattener = Flattener::new(&mut table, |expr| encoder.deconstruct(expr));
            let root = flattener.add(expr)?;
            Ok(Outcome::Simplified(Simplified { entries: flattener.finish(), root }))
        }
    })
}

fn check_versions(request: &Request) -> Result<()> {
    let major = datafusion_ffi::version();
    if request.abi_version != ABI_VERSION || request.datafusion_major != major {
        return Err(DataFusionError::Ffi(format!(
            "simplify was asked by version {} of its ABI for DataFusion {}; this library has version {ABI_VERSION} for \
             DataFusion {major}",
            request.abi_version, request.datafusion_major
        )));
    }
    Ok(())
}

fn time_from_wire(time: Time) -> Result<DateTime<chrono::Utc>> {
    DateTime::from_timestamp(time.seconds, time.nanoseconds).ok_or_else(|| malformed("a time that does not exist"))
}

/// Decodes a call of a function of the consumer as a call of a stand-in.
fn call_from_wire(call: Call, functions: &[Function]) -> Result<Node> {
    let function = functions
        .get(call.function as usize)
        .ok_or_else(|| malformed("a call of a function that is not in the request"))?;
    let return_field = call.return_field.as_ref().map(field_from_wire).transpose()?;
    let stand_in = ForeignFunction::new(
        function.name.clone(),
        Role::Function(call.function),
        function.volatility().into(),
        return_field,
    );
    Ok(stand_in_node(stand_in.with_aliases(function.aliases.clone()), call.arguments))
}

/// Decodes an opaque expression as a call of a stand-in.
fn opaque_from_wire(opaque: Opaque, entry: u32) -> Result<Node> {
    let volatility = opaque.volatility().into();
    let field = opaque.field.as_ref().map(field_from_wire).transpose()?;
    let stand_in = ForeignFunction::new(opaque.printed, Role::Opaque(entry), volatility, field);
    Ok(stand_in_node(stand_in, opaque.reads))
}

fn stand_in_node(function: ForeignFunction, children: Vec<u32>) -> Node {
    let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), placeholders(children.len()));
    Node { shape: Expr::ScalarFunction(call), children }
}

/// The functions that an answer may call in addition to DataFusion's own.
struct AnswerEncoder<'a> {
    schema: &'a DFSchema,
    /// The number of functions that the arguments call, which the extra ones follow.
    functions: usize,
    extra_functions: &'a [Function],
}

impl AnswerEncoder<'_> {
    /// Separates an expression of the answer from its children and decides its encoding.
    fn deconstruct(&self, expr: Expr) -> Result<Deconstructed> {
        let encoding = match &expr {
            Expr::ScalarFunction(call) => match call.func.inner().downcast_ref::<ForeignFunction>() {
                Some(function) => match function.role() {
                    Role::Opaque(entry) => Encoding::Existing(entry),
                    Role::Function(function) => Encoding::Call { function, return_field: None },
                    Role::Named => self.encode_named_call(&expr, call.name())?,
                },
                None if is_builtin(&call.func)? => Encoding::Node,
                None => {
                    return plan_err!(
                        "simplify gave a call of the function '{}', which is neither one of DataFusion's own nor came \
                         with the request",
                        call.name()
                    );
                }
            },
            expr if is_opaque(expr) => {
                return plan_err!("simplify gave an expression of a kind that does not cross: {expr}");
            }
            _ => Encoding::Node,
        };
        let (shape, children) = split(expr)?;
        if strip_metadata(shape.clone()) != shape {
            return plan_err!("simplify gave an expression with metadata, which does not cross: {shape}");
        }
        Ok(Deconstructed { shape, children, encoding })
    }

    fn encode_named_call(&self, call: &Expr, name: &str) -> Result<Encoding> {
        let Some(index) = self.extra_functions.iter().position(|function| function.name == name) else {
            return plan_err!("simplify gave a call of the function '{name}', which was not offered with the request");
        };
        let function = u32::try_from(self.functions.saturating_add(index)).map_err(malformed)?;
        let (_, field) = call.to_field(self.schema)?;
        Ok(Encoding::Call { function, return_field: Some(field_to_wire(&field)?) })
    }
}
