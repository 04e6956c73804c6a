//! The provider: answers a request with the `simplify` of a function of this library.

use std::sync::Arc;

use chrono::DateTime;
use datafusion_common::{DFSchema, DataFusionError, Result, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{Expr, ExprSchemable, ScalarUDF};
use datafusion_proto::protobuf::EmptyMessage;
use prost::Message;

use crate::ABI_VERSION;
use crate::default_functions::is_default;
use crate::entry::entry_from_wire;
use crate::error::{guard, malformed};
use crate::expand::expand;
use crate::field::{field_from_wire, field_to_wire};
use crate::flatten::{Crossing, Flattener, Opened};
use crate::foreign_function::{ForeignFunction, Role};
use crate::node::{placeholder, take_children, without_metadata};
use crate::opaque::is_opaque_kind;
use crate::schema::schema_from_wire;
use crate::stack::with_stack_for;
use crate::table::{Item, Table};
use crate::wire::{Answer, Call, Function, Opaque, Outcome, Request, Simplified};

/// The encoded answer to an encoded request; every failure is one of its outcomes.
pub(crate) fn answer(udf: &ScalarUDF, request: &[u8]) -> Vec<u8> {
    let outcome = guard(format_args!("simplify of '{}'", udf.name()), || {
        let request = Request::decode(request).map_err(malformed)?;
        simplify(udf, request)
    });
    encode(outcome)
}

/// The encoded answer that only says what failed.
pub(crate) fn failure(error: DataFusionError) -> Vec<u8> {
    encode(Err(error))
}

fn encode(outcome: Result<Outcome>) -> Vec<u8> {
    let outcome = outcome.unwrap_or_else(|error| Outcome::Failure(error.into()));
    let answer = Answer { outcome: Some(outcome) };
    answer.encode_to_vec()
}

fn simplify(udf: &ScalarUDF, request: Request) -> Result<Outcome> {
    check_versions(&request)?;
    let mut table = Table::default();
    for entry in request.entries {
        let shell = entry_from_wire(
            entry,
            |call| call_from_wire(call, &request.functions),
            |opaque| opaque_from_wire(opaque, &table),
        )?;
        let shared = !shell.is_volatile_node();
        table.push(Item::Shell(shell), shared)?;
    }
    let schema = Arc::new(schema_from_wire(request.schema)?);
    let mut info = SimplifyContext::builder().with_schema(schema);
    if let Some(time) = request.query_execution_start_time {
        let time = DateTime::from_timestamp(time.seconds, time.nanoseconds);
        let time = time.ok_or_else(|| malformed("a time that does not exist"))?;
        info = info.with_query_execution_start_time(Some(time));
    }
    let info = info.build();
    let functions = u32::try_from(request.functions.len()).map_err(malformed)?;
    let answered = Answered { schema: info.schema(), offered: &request.offered, functions };
    let (args, depth) = expand(table.items(), &request.arguments)?;
    with_stack_for(depth, || match udf.simplify(args, &info)? {
        ExprSimplifyResult::Original(_) => Ok(Outcome::Original(EmptyMessage {})),
        ExprSimplifyResult::Simplified(expr) => {
            let mut flattener = Flattener::new(&mut table, |expr| answered.open(expr));
            let root = flattener.add(expr)?;
            let (entries, _) = flattener.finish();
            Ok(Outcome::Simplified(Simplified { entries, root }))
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

/// The stand-in for a call of a function that the consumer has.
fn call_from_wire(call: Call, functions: &[Function]) -> Result<Expr> {
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
    Ok(call_of(stand_in.with_aliases(function.aliases.clone()), call.arguments))
}

/// The stand-in for an expression that is not shown, the next entry of the table.
fn opaque_from_wire(opaque: Opaque, table: &Table) -> Result<Expr> {
    let index = u32::try_from(table.items().len()).map_err(malformed)?;
    let volatility = opaque.volatility().into();
    let field = opaque.field.as_ref().map(field_from_wire).transpose()?;
    let stand_in = ForeignFunction::new(opaque.printed, Role::Opaque(index), volatility, field);
    Ok(call_of(stand_in, opaque.reads))
}

fn call_of(function: ForeignFunction, arguments: Vec<u32>) -> Expr {
    let arguments = arguments.into_iter().map(placeholder).collect();
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), arguments))
}

/// What an answer may refer to.
struct Answered<'a> {
    schema: &'a DFSchema,
    offered: &'a [Function],
    /// How many functions the request has besides those offered.
    functions: u32,
}

impl Answered<'_> {
    /// Parts an expression of the answer from its children and decides how it crosses.
    fn open(&self, expr: Expr) -> Result<Opened> {
        let crossing = match &expr {
            Expr::ScalarFunction(call) => match call.func.inner().downcast_ref::<ForeignFunction>() {
                Some(function) => match function.role() {
                    Role::Opaque(entry) => Crossing::Known(entry),
                    Role::Function(function) => Crossing::Call { function, return_field: None },
                    Role::Offered => self.offered(&expr, call.name())?,
                },
                None if is_default(&call.func)? => Crossing::Node,
                None => {
                    return plan_err!(
                        "simplify gave a call of the function '{}', which is neither one of DataFusion's own nor came \
                         with the request",
                        call.name()
                    );
                }
            },
            expr if is_opaque_kind(expr) => {
                return plan_err!("simplify gave an expression of a kind that does not cross: {expr}");
            }
            _ => Crossing::Node,
        };
        let (shell, children) = take_children(expr)?;
        if without_metadata(shell.clone()) != shell {
            return plan_err!("simplify gave an expression with metadata, which does not cross: {shell}");
        }
        Ok(Opened { item: Item::Shell(shell), children, crossing })
    }

    fn offered(&self, call: &Expr, name: &str) -> Result<Crossing> {
        let Some(place) = self.offered.iter().position(|offered| offered.name == name) else {
            return plan_err!("simplify gave a call of the function '{name}', which was not offered with the request");
        };
        let function = self.functions.saturating_add(u32::try_from(place).map_err(malformed)?);
        let (_, field) = call.to_field(self.schema)?;
        Ok(Crossing::Call { function, return_field: Some(field_to_wire(&field)?) })
    }
}
