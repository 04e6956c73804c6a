//! A function whose `simplify` is a closure, and its import as if from another library.

use std::fmt::{Debug, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, Result, exec_datafusion_err, exec_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion_ffi::udf::FFI_ScalarUDF;
use xql_simplify_ffi::{FFI_ScalarUDFSimplify, SimplifyingScalarUDF};

type Simplify = dyn Fn(Vec<Expr>, &SimplifyContext) -> Result<ExprSimplifyResult> + Send + Sync + 'static;

pub struct Probe {
    signature: Signature,
    returns: Option<DataType>,
    simplify: Arc<Simplify>,
}

impl Debug for Probe {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

impl PartialEq for Probe {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.simplify, &other.simplify)
    }
}

impl Eq for Probe {}

impl Hash for Probe {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.signature.hash(state);
    }
}

impl ScalarUDFImpl for Probe {
    fn name(&self) -> &str {
        "probe"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        self.returns.clone().ok_or_else(|| exec_datafusion_err!("the type of probe is not known"))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("probe was not simplified")
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        (self.simplify)(args, info)
    }
}

/// A function of this library that returns a Float64.
pub fn probe<F>(simplify: F) -> Arc<ScalarUDF>
where
    F: Fn(Vec<Expr>, &SimplifyContext) -> Result<ExprSimplifyResult> + Send + Sync + 'static,
{
    probe_udf(Some(DataType::Float64), simplify)
}

/// A function of this library that returns this type, or what cannot be told.
pub fn probe_udf<F>(returns: Option<DataType>, simplify: F) -> Arc<ScalarUDF>
where
    F: Fn(Vec<Expr>, &SimplifyContext) -> Result<ExprSimplifyResult> + Send + Sync + 'static,
{
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Probe { signature, returns, simplify: Arc::new(simplify) }))
}

extern "C" fn other_library() -> usize {
    1
}

/// The function as another library would import it without its `simplify`.
pub fn import_stock(udf: &Arc<ScalarUDF>) -> Arc<dyn ScalarUDFImpl> {
    let mut exported = FFI_ScalarUDF::from(Arc::clone(udf));
    exported.library_marker_id = other_library;
    (&exported).into()
}

/// The function as another library imports it.
pub fn import(udf: &Arc<ScalarUDF>) -> ScalarUDF {
    let simplify = FFI_ScalarUDFSimplify::from(Arc::clone(udf));
    ScalarUDF::from(SimplifyingScalarUDF::new(import_stock(udf), simplify))
}

/// A table `t` with columns of several types.
pub fn schema() -> DFSchema {
    let schema = Schema::new(vec![
        Field::new("x", DataType::Float64, true),
        Field::new("y", DataType::Float32, false),
        Field::new("n", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("h", DataType::Float16, true),
        Field::new("l", DataType::new_list(DataType::Float64, true), true),
    ]);
    DFSchema::try_from_qualified_schema("t", &schema).unwrap()
}

pub fn context(schema: DFSchema) -> SimplifyContext {
    SimplifyContext::builder().with_schema(Arc::new(schema)).build()
}

/// What `simplify` does to `args` on the other side.
pub fn simplify_with<F>(args: Vec<Expr>, simplify: F) -> Result<ExprSimplifyResult>
where
    F: Fn(Vec<Expr>, &SimplifyContext) -> Result<ExprSimplifyResult> + Send + Sync + 'static,
{
    import(&probe(simplify)).simplify(args, &context(schema()))
}

/// The single expression, of any type, that `simplify` makes of `arg` on the other side.
pub fn rewrite<F>(arg: Expr, simplify: F) -> Result<Expr>
where
    F: Fn(Expr) -> Result<Expr> + Send + Sync + 'static,
{
    let function = probe_udf(None, move |mut args, _| Ok(ExprSimplifyResult::Simplified(simplify(args.remove(0))?)));
    match import(&function).simplify(vec![arg], &context(schema()))? {
        ExprSimplifyResult::Simplified(expr) => Ok(expr),
        ExprSimplifyResult::Original(_) => panic!("not simplified"),
    }
}
