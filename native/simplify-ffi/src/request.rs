//! The consumer's side of a request: what it asks, and what it makes of the answer.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion_common::{DFSchema, Result};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{Expr, ExprSchemable, ScalarUDF};
use datafusion_proto::protobuf;

use crate::default_functions::is_default;
use crate::entry::entry_from_wire;
use crate::error::malformed;
use crate::expand::expand;
use crate::field::field_to_wire;
use crate::flatten::{Crossing, Flattener, Opened};
use crate::node::{node_to_wire, placeholder, take_children, with_children, without_metadata};
use crate::offered::{Places, call_offered};
use crate::opaque::{is_opaque_kind, reads, volatility};
use crate::schema::schema_to_wire;
use crate::table::{Item, Table};
use crate::wire::{self, Kind};

/// A request together with what its answer refers to.
pub(crate) struct Asked<'a> {
    pub request: wire::Request,
    pub table: Table,
    functions: Vec<Arc<ScalarUDF>>,
    offered: &'a [Arc<ScalarUDF>],
}

impl<'a> Asked<'a> {
    pub(crate) fn new(args: Vec<Expr>, info: &SimplifyContext, offered: &'a [Arc<ScalarUDF>]) -> Result<Self> {
        let mut table = Table::default();
        let mut functions = Functions::default();
        let schema = info.schema();
        let mut flattener = Flattener::new(&mut table, |expr| open(expr, schema, &mut functions));
        let arguments = args.into_iter().map(|arg| flattener.add(arg)).collect::<Result<_>>()?;
        let (entries, _) = flattener.finish();
        let functions = functions.list;
        let request = wire::Request {
            abi_version: crate::ABI_VERSION,
            datafusion_major: datafusion_ffi::version(),
            schema: schema_to_wire(schema)?,
            query_execution_start_time: info
                .query_execution_start_time()
                .map(|time| wire::Time { seconds: time.timestamp(), nanoseconds: time.timestamp_subsec_nanos() }),
            functions: functions.iter().map(|udf| function_to_wire(udf)).collect(),
            entries,
            arguments,
            offered: offered.iter().map(|udf| function_to_wire(udf)).collect(),
        };
        Ok(Self { request, table, functions, offered })
    }

    /// The expression of an answer.
    pub(crate) fn answered(&mut self, simplified: wire::Simplified) -> Result<Expr> {
        // Where the entries of the answer are in the table, which has conversions besides.
        let mut places = Places::new(self.table.items().len())?;
        for entry in simplified.entries {
            let place = match self.offered_call(&entry)? {
                Some((function, call)) => call_offered(&mut self.table, function, call, &places)?,
                None => {
                    let shell = entry_from_wire(
                        entry,
                        |call| self.call_from_wire(call),
                        |_| Err(malformed("an opaque entry in an answer")),
                    )?;
                    let shell = places.relocate(shell)?;
                    self.table.push(Item::Shell(shell), false)?
                }
            };
            places.push(place);
        }
        let root = places.of(simplified.root).map_err(|_| malformed("a root is not in the table"))?;
        let (mut exprs, _) = expand(self.table.items(), &[root])?;
        exprs.pop().ok_or_else(|| malformed("an answer without expression"))
    }

    /// The function and the call, if an entry is one of an offered function.
    fn offered_call<'e>(&self, entry: &'e wire::Entry) -> Result<Option<(&'a Arc<ScalarUDF>, &'e wire::Call)>> {
        let Some(Kind::Call(call)) = &entry.kind else { return Ok(None) };
        let place = usize::try_from(call.function).map_err(malformed)?;
        let offered = place.checked_sub(self.functions.len()).and_then(|place| self.offered.get(place));
        Ok(offered.map(|function| (function, call)))
    }

    fn call_from_wire(&self, call: wire::Call) -> Result<Expr> {
        let function = self
            .functions
            .get(call.function as usize)
            .ok_or_else(|| malformed("a call of a function that is not in the request"))?;
        let arguments = call.arguments.into_iter().map(placeholder).collect();
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), arguments)))
    }
}

/// The functions of the consumer that the arguments call, each once.
#[derive(Default)]
struct Functions {
    list: Vec<Arc<ScalarUDF>>,
    index: HashMap<Arc<ScalarUDF>, u32>,
}

impl Functions {
    fn index(&mut self, udf: &Arc<ScalarUDF>) -> Result<u32> {
        if let Some(index) = self.index.get(udf) {
            return Ok(*index);
        }
        let index = u32::try_from(self.list.len()).map_err(malformed)?;
        self.list.push(Arc::clone(udf));
        self.index.insert(Arc::clone(udf), index);
        Ok(index)
    }
}

fn function_to_wire(udf: &ScalarUDF) -> wire::Function {
    wire::Function {
        name: udf.name().to_owned(),
        volatility: wire::Volatility::from(udf.signature().volatility).into(),
        aliases: udf.aliases().to_vec(),
    }
}

/// Parts an expression of the consumer from its children and decides how it crosses.
fn open(expr: Expr, schema: &DFSchema, functions: &mut Functions) -> Result<Opened> {
    if is_opaque_kind(&expr) {
        return opaque(expr, schema);
    }
    if let Expr::ScalarFunction(call) = &expr
        && !is_default(&call.func)?
    {
        let crossing = Crossing::Call { function: functions.index(&call.func)?, return_field: field(&expr, schema)? };
        return shell(expr, crossing);
    }
    let opened = shell(expr, Crossing::Node)?;
    match &opened.item {
        Item::Shell(Expr::Column(_) | Expr::OuterReferenceColumn(_, _)) => Ok(opened),
        Item::Shell(node) if node_to_wire(&without_metadata(node.clone())).is_ok() => Ok(opened),
        // `datafusion-proto` cannot carry this node.
        Item::Shell(node) | Item::Whole(node) => opaque(with_children(node.clone(), opened.children)?, schema),
    }
}

fn shell(expr: Expr, crossing: Crossing) -> Result<Opened> {
    let (shell, children) = take_children(expr)?;
    Ok(Opened { item: Item::Shell(shell), children, crossing })
}

fn opaque(expr: Expr, schema: &DFSchema) -> Result<Opened> {
    let crossing = Crossing::Opaque {
        printed: expr.to_string(),
        field: field(&expr, schema)?,
        volatility: volatility(&expr)?.into(),
    };
    Ok(Opened { children: reads(&expr, schema)?, item: Item::Whole(expr), crossing })
}

/// What an expression gives, if that can be told.
fn field(expr: &Expr, schema: &DFSchema) -> Result<Option<protobuf::Field>> {
    match expr.to_field(schema) {
        Ok((_, field)) => Ok(Some(field_to_wire(&field)?)),
        Err(_) => Ok(None),
    }
}
