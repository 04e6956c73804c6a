//! Whose a function is.
//!
//! A host hands out its functions as handles. DataFusion's own are those of this library again, so that the optimizer and the rules of
//! derivatives know them. A function is DataFusion's own if the host is its library, and it takes and returns what DataFusion's does; one
//! that a user has written stays what it is, whatever its name. The other way round, a derivative calls DataFusion's function where the
//! session has another one under its name: then it crosses as a number.
//!
//! ```sql
//! SELECT grad(sin(x), x) FROM t   -- is cos(x), whatever the session calls cos
//! ```

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, AggregateUDFImpl, ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::prelude::SessionConfig;
use datafusion_ffi::execution::FFI_TaskContext;
use datafusion_ffi::udf::ForeignScalarUDF;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::own::defaults;

/// Whether the libraries of a process know a function by its name: it is DataFusion's own. All others cross as numbers, so that they stay
/// what they are: a function in Python keeps its state, and need not be registered.
pub fn is_known_by_name(function: &ScalarUDF) -> bool {
    let own = defaults().scalar_functions().get(function.name()).filter(|own| xql_autodiff::recognize(own).is_none());
    own.is_some_and(|own| **own == *function || function.inner().is::<ForeignScalarUDF>() && is_same(own, function))
}

/// What a function says of itself: its other names, and whether it gives the same for the same.
type Said = (Vec<String>, Volatility);

fn said(aliases: &[String], volatility: Volatility) -> Said {
    let mut aliases = aliases.to_vec();
    aliases.sort_unstable();
    (aliases, volatility)
}

/// The functions of a kind, by their names, of which those are this library's that the host has of DataFusion too.
macro_rules! chosen {
    ($handles:expr, $own:expr, $host:expr, $function:ident, $implementation:ident) => {
        $handles
            .into_iter()
            .map(|(name, handle)| {
                let found: Arc<dyn $implementation> = (&handle).into();
                let found = Arc::new($function::new_from_shared_impl(found));
                let said = |function: &$function| said(function.aliases(), function.signature().volatility);
                let own = $own.get(name.as_str());
                let own = own.filter(|own| (handle.library_marker_id)() == $host && said(own) == said(&found));
                (name.to_string(), own.map_or(found, Arc::clone))
            })
            .collect()
    };
}

/// The functions of a session.
#[derive(Debug)]
pub struct Functions {
    /// The context in which its plans are read, in which DataFusion's own functions are those of this library.
    pub context: TaskContext,
    /// The scalar functions as the host has them.
    of_host: HashMap<String, Arc<ScalarUDF>>,
    /// Which names of DataFusion's functions are those of other functions.
    others: Mutex<HashMap<String, bool>>,
}

impl Functions {
    /// Those of a session.
    pub fn of(session: &FFI_TaskContext, config: SessionConfig) -> Self {
        let (own, host) = (defaults(), (session.library_marker_id)());
        // SAFETY: the functions are those of the owner.
        let (scalar, aggregate, window) = unsafe {
            (
                (session.scalar_functions)(session),
                (session.aggregate_functions)(session),
                (session.window_functions)(session),
            )
        };
        let mut of_host = HashMap::new();
        let scalar = scalar.into_iter().map(|(name, handle)| {
            let found: Arc<dyn ScalarUDFImpl> = (&handle).into();
            let found = Arc::new(ScalarUDF::new_from_shared_impl(found));
            of_host.insert(name.to_string(), Arc::clone(&found));
            let said = |function: &ScalarUDF| said(function.aliases(), function.signature().volatility);
            let own = own.scalar_functions().get(name.as_str());
            let own = own.filter(|own| (handle.library_marker_id)() == host && said(own) == said(&found));
            (name.to_string(), own.map_or(found, Arc::clone))
        });
        let scalar = scalar.collect();
        let aggregate = chosen!(aggregate, own.aggregate_functions(), host, AggregateUDF, AggregateUDFImpl);
        let window = chosen!(window, own.window_functions(), host, WindowUDF, WindowUDFImpl);
        let (higher_order, runtime) = (own.higher_order_functions().clone(), Arc::clone(own.runtime_env()));
        let id = "xql-ffi".to_owned();
        let context = TaskContext::new(None, id, config, scalar, higher_order, aggregate, window, runtime);
        Self { context, of_host, others: Mutex::default() }
    }

    /// A plan as the host means it: where the session has another function under the name of one of DataFusion's, it is that.
    ///
    /// # Errors
    /// If the plan cannot be put together again.
    pub fn meant(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        replaced(plan, &mut |function| {
            let found = self.of_host.get(function.name()).filter(|_| self.is_other(function));
            found.map(Arc::clone)
        })
    }

    /// A plan as the host reads it: DataFusion's functions that it would take for others cross as numbers.
    ///
    /// # Errors
    /// If the plan cannot be put together again.
    pub fn told(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        replaced(plan, &mut |function| {
            let numbered = || Arc::new(ScalarUDF::from(Numbered(Arc::clone(function))));
            self.is_other(function).then(numbered)
        })
    }

    /// Whether a function is DataFusion's own, and that of its name in the session is not.
    fn is_other(&self, function: &Arc<ScalarUDF>) -> bool {
        let own = defaults().scalar_functions().get(function.name());
        if !own.is_some_and(|own| Arc::ptr_eq(own, function)) {
            return false;
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = || self.of_host.get(function.name()).is_some_and(|found| is_same(function, found));
        *others.entry(function.name().to_owned()).or_insert_with(|| !is_same())
    }
}

/// The plan with other scalar functions for those for which there is one.
fn replaced(
    plan: LogicalPlan,
    other: &mut dyn FnMut(&Arc<ScalarUDF>) -> Option<Arc<ScalarUDF>>,
) -> Result<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|expr| {
                let Expr::ScalarFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
                Ok(match other(&call.func) {
                    Some(function) => {
                        call.func = function;
                        Transformed::yes(Expr::ScalarFunction(call))
                    }
                    None => Transformed::no(Expr::ScalarFunction(call)),
                })
            })
        })
    })?;
    Ok(replaced.data)
}

/// Whether two functions take and return the same. A function that a user has written for one type differs from DataFusion's, which take
/// several.
fn is_same(own: &ScalarUDF, found: &ScalarUDF) -> bool {
    use DataType::{Float32, Float64, Int64, Utf8};
    let tried: [&[DataType]; 12] = [
        &[],
        &[Float32],
        &[Float64],
        &[Int64],
        &[Utf8],
        &[Float32, Float32],
        &[Float64, Float64],
        &[Int64, Int64],
        &[Utf8, Utf8],
        &[Float64, Float64, Float64],
        &[Utf8, Int64, Int64],
        &[Utf8, Utf8, Utf8],
    ];
    said(own.aliases(), own.signature().volatility) == said(found.aliases(), found.signature().volatility)
        && tried.iter().all(|types| taken(own, types) == taken(found, types))
}

/// What a function makes of arguments of these types, and what it returns for them; none if it does not take them.
fn taken(function: &ScalarUDF, types: &[DataType]) -> Option<(Vec<DataType>, Option<DataType>)> {
    let given: Vec<_> = types.iter().map(|given| Arc::new(Field::new("a", given.clone(), true))).collect();
    let taken = fields_with_udf(&given, function).ok()?;
    let arguments = ReturnFieldArgs { arg_fields: &taken, scalar_arguments: &vec![None; taken.len()] };
    let returned = function.return_field_from_args(arguments).ok().map(|field| field.data_type().clone());
    Some((taken.iter().map(|field| field.data_type().clone()).collect(), returned))
}

/// A function of DataFusion that another library knows by a number and not by its name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Numbered(Arc<ScalarUDF>);

impl ScalarUDFImpl for Numbered {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.0.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.0.invoke_with_args(args)
    }
}
