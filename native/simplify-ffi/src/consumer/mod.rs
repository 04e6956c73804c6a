//! The consumer: the stock imported function plus `simplify`.

mod coercion;
mod request;
mod typing;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{ExprSchema, Result, ScalarValue};
use datafusion_expr::interval_arithmetic::Interval;
use datafusion_expr::preimage::PreimageResult;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, StructFieldMapping,
};
use prost::Message;
use xql_guard::{check_interrupted, guard};

use crate::abi::FFI_ScalarUDFSimplify;
use crate::consumer::request::PendingRequest;
use crate::consumer::typing::return_field;
use crate::wire::error::malformed;
use crate::wire::{Answer, Outcome};

/// A scalar function of another library, with its `simplify`.
///
/// Every other method is that of the function it is made of.
#[derive(Clone, Debug)]
pub struct SimplifyingScalarUDF {
    function: ScalarUDF,
    simplify: Arc<FFI_ScalarUDFSimplify>,
    extra_functions: Vec<Arc<ScalarUDF>>,
    companions: Vec<Arc<ScalarUDF>>,
}

impl SimplifyingScalarUDF {
    /// Combines a function imported from [`FFI_ScalarUDF`](datafusion_ffi::udf::FFI_ScalarUDF) with the `simplify` imported beside it.
    pub fn new(function: Arc<dyn ScalarUDFImpl>, simplify: FFI_ScalarUDFSimplify) -> Self {
        Self {
            function: ScalarUDF::new_from_shared_impl(function),
            simplify: Arc::new(simplify),
            extra_functions: vec![],
            companions: vec![],
        }
    }

    /// Allows answers to call these functions, by name, in addition to those in the arguments.
    pub fn with_extra_functions(self, extra_functions: Vec<Arc<ScalarUDF>>) -> Self {
        Self { extra_functions, ..self }
    }

    /// Attaches other functions of the provider, for rules that replace calls of the one by calls of another.
    pub fn with_companions(self, companions: Vec<Arc<ScalarUDF>>) -> Self {
        Self { companions, ..self }
    }

    /// Returns the functions that [`with_companions`](Self::with_companions) has attached.
    pub fn companions(&self) -> &[Arc<ScalarUDF>] {
        &self.companions
    }

    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.function.inner().as_ref()
    }

    fn request_simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let pending = PendingRequest::new(args, info, &self.extra_functions)?;
        let answer = self.simplify.call(&pending.request.encode_to_vec());
        let answer = Answer::decode(answer.as_slice()?).map_err(malformed)?;
        match answer.outcome {
            Some(Outcome::Original(_)) => Ok(ExprSimplifyResult::Original(pending.arguments()?)),
            Some(Outcome::Simplified(simplified)) => {
                let expr = pending.decode_answer(simplified, &self.function, info.schema())?;
                Ok(ExprSimplifyResult::Simplified(expr))
            }
            Some(Outcome::Failure(failure)) => Err(failure.into()),
            None => Err(malformed("an answer without outcome")),
        }
    }
}

/// Equal if they are the same import: the function is compared as such, `simplify` by identity.
impl PartialEq for SimplifyingScalarUDF {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
            && Arc::ptr_eq(&self.simplify, &other.simplify)
            && self.extra_functions == other.extra_functions
    }
}

impl Eq for SimplifyingScalarUDF {}

impl Hash for SimplifyingScalarUDF {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

// Every method delegates, so the lint reports a missing one. Sessions of DataFusion 55 import functions in another way.
#[cfg_attr(not(feature = "datafusion-55"), warn(clippy::missing_trait_methods))]
impl ScalarUDFImpl for SimplifyingScalarUDF {
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        check_interrupted()?;
        guard(format_args!("simplify of '{}'", self.name()), || self.request_simplify(args, info))
    }

    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner().aliases()
    }

    #[expect(deprecated)]
    fn display_name(&self, args: &[Expr]) -> Result<String> {
        self.inner().display_name(args)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner().return_type(arg_types)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let function = self.inner().with_updated_config(config)?;
        Some(ScalarUDF::from(Self { function, ..self.clone() }))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        return_field(&self.function, args)
    }

    #[expect(deprecated)]
    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        self.inner().is_nullable(args, schema)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner().invoke_with_args(args)
    }

    fn preimage(&self, args: &[Expr], lit_expr: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner().preimage(args, lit_expr, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner().short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner().conditional_arguments(args)
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> Result<Interval> {
        self.inner().evaluate_bounds(input)
    }

    fn propagate_constraints(&self, interval: &Interval, inputs: &[&Interval]) -> Result<Option<Vec<Interval>>> {
        self.inner().propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner().output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner().preserves_lex_ordering(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner().coerce_types(arg_types)
    }

    fn struct_field_mapping(&self, literal_args: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.inner().struct_field_mapping(literal_args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner().placement(args)
    }
}
