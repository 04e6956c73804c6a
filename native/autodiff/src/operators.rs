//! `grad`, `jvp` and `vjp` as scalar functions.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{DFSchema, Result, ScalarValue, exec_datafusion_err, plan_err};
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use std::sync::Arc;
use xql_guard::check_interrupted;

use crate::api::{Differentiation, Seed, differentiate, differentiate_batch};
use crate::rules::Rules;
use crate::stop_gradient::stop_gradient;
use crate::vocabulary::messages::{abbreviate, literal_kind, must_be_column, truncate, unquoted_advice};
use crate::vocabulary::opaque_expr::unwrap_opaque;
use crate::vocabulary::refusals::Refused;
use crate::vocabulary::transform::Transform;
use crate::vocabulary::types::result_type;

/// `grad(f, x)`: the derivative of the expression `f` by the column `x`.
///
/// Float32 if both are Float32, else Float64; NULL exactly where `f` is NULL.
pub fn grad() -> ScalarUDF {
    grad_with(Rules::default())
}

/// `jvp(f, x, t[, y, u, ...])`: the directional derivative `df/dx * t + df/dy * u + ...`.
///
/// Float32 if `f` and all columns are Float32, else Float64; NULL exactly where `f` or a tangent is NULL.
pub fn jvp() -> ScalarUDF {
    jvp_with(Rules::default())
}

/// `vjp(f, x, c)`: the cotangent `c` of `f` pulled back to `x`, `c * df/dx`.
///
/// Float32 if `f` and `x` are Float32, else Float64; NULL exactly where `f` or `c` is NULL.
pub fn vjp() -> ScalarUDF {
    vjp_with(Rules::default())
}

/// Returns [`grad`] with rules of the user's own.
pub fn grad_with(rules: Rules) -> ScalarUDF {
    ScalarUDF::new_from_impl(DifferentialOperator::new(Transform::Grad, rules))
}

/// Returns [`jvp`] with rules of the user's own.
pub fn jvp_with(rules: Rules) -> ScalarUDF {
    ScalarUDF::new_from_impl(DifferentialOperator::new(Transform::Jvp, rules))
}

/// Returns [`vjp`] with rules of the user's own.
pub fn vjp_with(rules: Rules) -> ScalarUDF {
    ScalarUDF::new_from_impl(DifferentialOperator::new(Transform::Vjp, rules))
}

/// `jvp` as the analyzer rule emits it: its columns are all that vary, and it is NULL exactly where `f` is, as a tangent
/// that is carried is NULL only where its column is.
pub fn tangent_with(rules: Rules) -> ScalarUDF {
    ScalarUDF::new_from_impl(DifferentialOperator::new(Transform::Tangent, rules))
}

/// Returns an operator for calls for which an analyzer rule has found that all columns but those they differentiate by are constant.
/// Without it, [`grad`] and the others cannot know, and refuse such columns.
pub fn analyzed_with(transform: Transform, rules: Rules) -> ScalarUDF {
    ScalarUDF::new_from_impl(DifferentialOperator { analyzed: true, ..DifferentialOperator::new(transform, rules) })
}

/// Returns all functions of this crate, to be registered with a session.
///
/// By themselves they see one node of a plan. A call that reads other columns than those it differentiates by, which a CTE or a view may
/// have computed from these, is refused. The rules that see all nodes come with `xql_relations::register`.
pub fn functions() -> Vec<ScalarUDF> {
    functions_with(&Rules::default())
}

/// Returns all functions of this crate with rules of the user's own, to be registered with a session.
pub fn functions_with(rules: &Rules) -> Vec<ScalarUDF> {
    vec![grad_with(rules.clone()), jvp_with(rules.clone()), vjp_with(rules.clone()), stop_gradient()]
}

/// An operator as the analyzer rule sees it.
#[derive(Debug, Clone)]
pub struct Differential {
    /// The `jvp` that calls of it are replaced by; see [`tangent_with`].
    pub tangent: Arc<ScalarUDF>,
    /// The operator for calls that the rule leaves as they are; see [`analyzed_with`].
    pub analyzed: Arc<ScalarUDF>,
}

/// One of several calls of operators that are requested in a batch.
#[derive(Debug, Clone)]
pub struct Call {
    /// The operator.
    pub transform: Transform,
    /// Its arguments after the function.
    pub directions: Vec<Expr>,
}

/// Returns the arguments by which [`tangent_with`] is requested for the derivatives of one function that several calls stand for. It
/// answers with a program for [`import_program`](crate::import_program).
///
/// ```text
/// f, 'grad', x, 'grad', y, 'jvp', x, t, y, u         grad(f, x), grad(f, y), jvp(f, x, t, y, u)
/// ```
pub fn batch_request(function: Expr, calls: &[Call]) -> Vec<Expr> {
    let called = |call: &Call| [vec![lit(call.transform.key())], call.directions.clone()].concat();
    [vec![function], calls.iter().flat_map(called).collect()].concat()
}

/// Parses the arguments of a batch request.
fn parse_batch_request(args: &[Expr]) -> Option<Vec<(Transform, &[Expr])>> {
    let key = |arg: &Expr| match arg {
        Expr::Literal(value, _) => parse_transform_key(value),
        _ => None,
    };
    let mut rest = args.get(1..)?;
    let mut calls = vec![];
    while let Some((first, others)) = rest.split_first() {
        let end = others.iter().position(|arg| key(arg).is_some()).unwrap_or(others.len());
        let (directions, next) = others.split_at(end);
        calls.push((key(first)?, directions));
        rest = next;
    }
    Some(calls)
}

/// Parses the key of an operator.
fn parse_transform_key(argument: &ScalarValue) -> Option<Transform> {
    match argument {
        ScalarValue::Utf8(Some(key)) => Transform::from_key(key),
        _ => None,
    }
}

/// Recognizes an operator of this crate.
pub fn recognize(function: &ScalarUDF) -> Option<Differential> {
    let operator = function.inner().downcast_ref::<DifferentialOperator>()?;
    let rules = || operator.rules.clone();
    (!operator.analyzed).then(|| Differential {
        tangent: Arc::new(tangent_with(rules())),
        analyzed: Arc::new(analyzed_with(operator.transform, rules())),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DifferentialOperator {
    transform: Transform,
    rules: Rules,
    /// Whether an analyzer rule has seen the nodes below the call.
    analyzed: bool,
    signature: Signature,
}

impl DifferentialOperator {
    fn new(transform: Transform, rules: Rules) -> Self {
        // Arguments are never coerced: an expression is differentiated as the planner typed it.
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { transform, rules, analyzed: transform == Transform::Tangent, signature }
    }

    /// Parses a call, alone or in a batch request.
    fn parse<'a>(
        &self,
        transform: Transform,
        expression: &'a Expr,
        directions: &'a [Expr],
    ) -> Result<Differentiation<'a>> {
        transform.check_arity(1 + directions.len())?;
        let seeds = transform.seeds(directions).into_iter().map(|(column, factor)| Seed { column, factor }).collect();
        let (seeds_complete, analyzed) = (transform == Transform::Tangent, self.analyzed);
        Ok(Differentiation { operator: transform.name(), expression, seeds, analyzed, seeds_complete })
    }

    /// Refuses a call with a literal for a column, already here for sessions that do not call `simplify`. In these, an optimizer may also
    /// have replaced a column by a literal.
    fn check_no_literal_column(&self, args: &ReturnFieldArgs) -> Result<()> {
        let scalars = args.scalar_arguments.get(1..).unwrap_or_default();
        let Some(constant) = self.transform.seeds(scalars).into_iter().find_map(|(column, _)| *column) else {
            return Ok(());
        };
        let literal = |value: &ScalarValue| abbreviate(&Expr::Literal(value.clone(), None));
        let shown = args.arg_fields.iter().zip(args.scalar_arguments).map(|(field, scalar)| match scalar {
            Some(value) => literal(value),
            None => truncate(field.name()),
        });
        let workaround = unquoted_advice(constant).unwrap_or_else(|| {
            "Name a column of the query; a parameter is one in `FROM (SELECT $a AS a)`. If you named one, DataFusion put its value in \
             its place, because nothing had differentiated the call before; in Python, `xql_ffi.engine_status()` says why"
                .to_owned()
        });
        plan_err!(
            "{}({}): {}; {} is {}. {workaround}",
            self.name(),
            truncate(shown.collect::<Vec<_>>().join(", ")),
            must_be_column(self.name()),
            literal(constant),
            literal_kind(constant)
        )
    }
}

impl ScalarUDFImpl for DifferentialOperator {
    fn name(&self) -> &str {
        self.transform.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        plan_err!("the type of {} depends on the fields of its arguments", self.name())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = self.return_field(&args).map_err(|error| Refused::Other.mark(error))?;
        // A session of DataFusion 55 plans with the call in place, and a derivative by row may be NULL where no argument is.
        #[cfg(feature = "datafusion-55")]
        let field = Arc::new(Arc::unwrap_or_clone(field).with_nullable(true));
        Ok(field)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        check_interrupted()?;
        let args = args.into_iter().map(|arg| Ok(unwrap_opaque(arg)?.data)).collect::<Result<Vec<_>>>()?;
        let derivative = self.differentiate(&args, info.schema()).map_err(|error| Refused::Other.mark(error))?;
        Ok(ExprSimplifyResult::Simplified(derivative))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = self.name();
        let error = exec_datafusion_err!(
            "nothing differentiated this call of {name}. {WORKAROUNDS} Otherwise check datafusion.optimizer.max_passes and \
             skip_failed_rules"
        );
        Err(Refused::MissingEngine.mark(error))
    }
}

/// The advice to a user whose session differentiates nothing.
#[cfg(not(feature = "datafusion-55"))]
const WORKAROUNDS: &str = "Run `xql_ffi.sql(ctx, ...)`, or install the engine (`pip install \"xql-ffi[engine]\"`), leave \
                        XQL_FFI_ENGINE unset and start Python again; `xql_ffi.engine_status()` says more.";
#[cfg(feature = "datafusion-55")]
const WORKAROUNDS: &str = "Register the session, `xql_ffi.register(ctx)`, or run `xql_ffi.sql(ctx, ...)`.";

impl DifferentialOperator {
    fn return_field(&self, args: &ReturnFieldArgs) -> Result<FieldRef> {
        let fields = args.arg_fields;
        if let (Transform::Grad, [function, columns @ ..]) = (self.transform, fields)
            && columns.len() > 1
        {
            let count = fields.len();
            let calls = columns.iter().map(|column| format!("grad({}, {})", truncate(function.name()), column.name()));
            return plan_err!(
                "grad takes two arguments, {}; {count} are given. Write one call for each column: {}",
                self.transform.usage(),
                truncate(calls.collect::<Vec<_>>().join(", "))
            );
        }
        if self.transform == Transform::Tangent
            && let Some(Some(first)) = args.scalar_arguments.get(1)
            && parse_transform_key(first).is_some()
        {
            return plan_err!("the type of several derivatives is that of the program that computes them");
        }
        self.transform.check_arity(fields.len())?;
        let seeds = self.transform.seeds(&fields[1..]);
        let data_type = result_type(fields[0].data_type(), seeds.iter().map(|(column, _)| column.data_type()));
        let total = self.transform == Transform::Tangent;
        if !total {
            self.check_no_literal_column(args).map_err(|error| Refused::Variable.mark(error))?;
        }
        let nullable = fields[0].is_nullable()
            || !total && seeds.iter().any(|(_, factor)| factor.is_some_and(|f| f.is_nullable()));
        Ok(Arc::new(Field::new(self.name(), data_type, nullable)))
    }

    fn differentiate(&self, args: &[Expr], schema: &DFSchema) -> Result<Expr> {
        if self.transform == Transform::Tangent
            && let Some(calls) = parse_batch_request(args)
        {
            let calls = calls.into_iter().map(|(transform, directions)| self.parse(transform, &args[0], directions));
            return differentiate_batch(&calls.collect::<Result<Vec<_>>>()?, schema, &self.rules);
        }
        self.transform.check_arity(args.len())?;
        differentiate(&self.parse(self.transform, &args[0], &args[1..])?, schema, &self.rules)
    }
}
