//! The request of a consumer, and the expression that it builds from the answer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion_common::{DFSchema, Result, plan_err, resources_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{Expr, ExprSchemable, ReturnFieldArgs, ScalarUDF};
use datafusion_proto::protobuf;

use crate::consumer::coercion::push_coerced_call;
use crate::consumer::typing::{NodeTypes, return_field};
use crate::table::expand::{expand, max_depth};
use crate::table::flatten::{Deconstructed, Encoding, Flattener};
use crate::table::message::{is_builtin, is_encodable, node_from_wire};
use crate::table::opaque::{is_opaque, read_columns, volatility};
use crate::table::{Node, NodeTable, join, placeholders, split};
use crate::wire::error::malformed;
use crate::wire::field::{field_from_wire, field_to_wire, schema_to_wire};
use crate::wire::{ABI_VERSION, Call, Entry, Function, Kind, Request, Simplified, Time, Volatility};

/// The maximum depth of an answer: this many levels for each entry of the request, and this many more. The host clones, compares and drops
/// it recursively, on whichever stack it has.
const MAX_DEPTH: (usize, usize) = (4, 1000);

/// A request with the expressions that its answer may refer to.
pub(crate) struct PendingRequest<'a> {
    /// The message.
    pub request: Request,
    table: NodeTable,
    functions: Vec<Arc<ScalarUDF>>,
    extra_functions: &'a [Arc<ScalarUDF>],
}

impl<'a> PendingRequest<'a> {
    /// Encodes a call with these arguments. Answers may call the extra functions as well.
    pub(crate) fn new(args: Vec<Expr>, info: &SimplifyContext, extra_functions: &'a [Arc<ScalarUDF>]) -> Result<Self> {
        let mut table = NodeTable::default();
        let mut functions = FunctionList::default();
        let schema = info.schema();
        let mut flattener = Flattener::new(&mut table, |expr| deconstruct(expr, schema, &mut functions));
        let arguments = args.into_iter().map(|arg| flattener.add(arg)).collect::<Result<_>>()?;
        let entries = flattener.finish();
        let functions = functions.list;
        let request = Request {
            abi_version: ABI_VERSION,
            datafusion_major: datafusion_ffi::version(),
            schema: schema_to_wire(schema, &column_names(&entries))?,
            query_execution_start_time: info
                .query_execution_start_time()
                .map(|time| Time { seconds: time.timestamp(), nanoseconds: time.timestamp_subsec_nanos() }),
            functions: functions.iter().map(|udf| function_to_wire(udf)).collect(),
            entries,
            arguments,
            extra_functions: extra_functions.iter().map(|udf| function_to_wire(udf)).collect(),
        };
        Ok(Self { request, table, functions, extra_functions })
    }

    /// Returns the arguments as they were.
    pub(crate) fn arguments(&self) -> Result<Vec<Expr>> {
        let (args, _) = expand(self.table.nodes(), &self.request.arguments)?;
        Ok(args)
    }

    /// Decodes the answer to the request for a call of `function`.
    pub(crate) fn decode_answer(
        mut self,
        simplified: Simplified,
        function: &ScalarUDF,
        schema: &DFSchema,
    ) -> Result<Expr> {
        let mut types = NodeTypes::from_request(self.table.nodes(), schema);
        let returned = self.call_field(function, &types);
        let allowed = MAX_DEPTH.0 * self.table.nodes().len() + MAX_DEPTH.1;
        // The table index of each entry of the answer; the table has casts as well.
        let mut indices: Vec<u32> = (0..self.table.next_entry()?).collect();
        for entry in simplified.entries {
            let index = match entry.kind.ok_or_else(|| malformed("an entry without kind"))? {
                Kind::Call(call) => self.push_call(call, &indices)?,
                kind => {
                    let Node { shape, children } = node_from_wire(kind)?;
                    self.table.push(Node { shape, children: resolve_entries(&children, &indices)? }, false)?
                }
            };
            indices.push(index);
        }
        let root = indices.get(simplified.root as usize).ok_or_else(|| malformed("a root is not in the table"))?;
        types.extend(self.table.nodes(), schema)?;
        if let (Some(returned), Some(given)) = (returned, types.get(*root))
            && !DFSchema::datatype_is_logically_equal(returned.data_type(), given.data_type())
        {
            let (name, returned, given) = (function.name(), returned.data_type(), given.data_type());
            return plan_err!(
                "simplify gave an expression of type {given} for a call of '{name}', which returns {returned}"
            );
        }
        let depth = max_depth(self.table.nodes())?;
        if depth > allowed {
            return resources_err!(
                "simplify gave an expression that is {depth} levels deep; at most {allowed} may come back"
            );
        }
        let (mut exprs, _) = expand(self.table.nodes(), &[*root])?;
        exprs.pop().ok_or_else(|| malformed("an answer without expression"))
    }

    /// Returns the field of the call, if it can be computed.
    fn call_field(&self, function: &ScalarUDF, types: &NodeTypes) -> Option<FieldRef> {
        let arguments = &self.request.arguments;
        let fields: Vec<_> = arguments.iter().map(|&entry| types.get(entry).cloned()).collect::<Option<_>>()?;
        let literal = |&entry: &u32| match &self.table.nodes()[entry as usize].shape {
            Expr::Literal(value, _) => Some(value),
            _ => None,
        };
        let literals: Vec<_> = arguments.iter().map(literal).collect();
        let args = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &literals };
        return_field(function, args).ok()
    }

    fn push_call(&mut self, call: Call, indices: &[u32]) -> Result<u32> {
        let children = resolve_entries(&call.arguments, indices)?;
        let number = call.function as usize;
        if let Some(function) = self.functions.get(number) {
            let call = ScalarFunction::new_udf(Arc::clone(function), placeholders(children.len()));
            return self.table.push(Node { shape: Expr::ScalarFunction(call), children }, false);
        }
        let function = number
            .checked_sub(self.functions.len())
            .and_then(|number| self.extra_functions.get(number))
            .ok_or_else(|| malformed("a call of a function that is not in the request"))?;
        let field = call.return_field.ok_or_else(|| malformed("a call of an extra function without type"))?;
        push_coerced_call(&mut self.table, function, &children, field_from_wire(&field)?.data_type())
    }
}

/// Translates entries of the answer to table indices.
fn resolve_entries(entries: &[u32], indices: &[u32]) -> Result<Vec<u32>> {
    let index = |entry: &u32| indices.get(*entry as usize).copied();
    let precede = || malformed("an entry refers to one that does not precede it");
    entries.iter().map(|entry| index(entry).ok_or_else(precede)).collect()
}

/// Collects the names of columns among the entries. Only their fields are encoded: a table may have thousands.
fn column_names(entries: &[Entry]) -> HashSet<&str> {
    entries
        .iter()
        .filter_map(|entry| match &entry.kind {
            Some(Kind::Column(column)) => Some(column.name.as_str()),
            _ => None,
        })
        .collect()
}

/// The distinct functions of the consumer that the arguments call.
#[derive(Default)]
struct FunctionList {
    list: Vec<Arc<ScalarUDF>>,
    indices: HashMap<Arc<ScalarUDF>, u32>,
}

impl FunctionList {
    fn intern(&mut self, udf: &Arc<ScalarUDF>) -> Result<u32> {
        if let Some(number) = self.indices.get(udf) {
            return Ok(*number);
        }
        let number = u32::try_from(self.list.len()).map_err(malformed)?;
        self.list.push(Arc::clone(udf));
        self.indices.insert(Arc::clone(udf), number);
        Ok(number)
    }
}

fn function_to_wire(udf: &ScalarUDF) -> Function {
    Function {
        name: udf.name().to_owned(),
        volatility: Volatility::from(udf.signature().volatility).into(),
        aliases: udf.aliases().to_vec(),
    }
}

/// Separates an expression of the consumer from its children and decides its encoding.
fn deconstruct(expr: Expr, schema: &DFSchema, functions: &mut FunctionList) -> Result<Deconstructed> {
    if is_opaque(&expr) {
        return deconstruct_opaque(expr, schema);
    }
    if let Expr::ScalarFunction(call) = &expr
        && !is_builtin(&call.func)?
    {
        let encoding =
            Encoding::Call { function: functions.intern(&call.func)?, return_field: output_field(&expr, schema)? };
        let (shape, children) = split(expr)?;
        return Ok(Deconstructed { shape, children, encoding });
    }
    let (shape, children) = split(expr)?;
    if matches!(shape, Expr::Column(_) | Expr::OuterReferenceColumn(_, _)) || is_encodable(&shape) {
        return Ok(Deconstructed { shape, children, encoding: Encoding::Node });
    }
    deconstruct_opaque(join(shape, children)?, schema)
}

fn deconstruct_opaque(expr: Expr, schema: &DFSchema) -> Result<Deconstructed> {
    let encoding = Encoding::Opaque {
        printed: expr.to_string(),
        field: output_field(&expr, schema)?,
        volatility: volatility(&expr)?,
    };
    Ok(Deconstructed { children: read_columns(&expr, schema)?, shape: expr, encoding })
}

/// Returns the field of an expression, if it can be computed.
fn output_field(expr: &Expr, schema: &DFSchema) -> Result<Option<protobuf::Field>> {
    match expr.to_field(schema) {
        Ok((_, field)) => Ok(Some(field_to_wire(&field)?)),
        Err(_) => Ok(None),
    }
}
