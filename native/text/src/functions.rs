//! Functions that a statement is planned with beside DataFusion's own.

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::ScalarValue;
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::expr::Cast;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion_sql::unparser::Unparser;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use xql_autodiff::Differential;

use crate::names::{quoted_if_needed, site_of};

/// With this a message starts that is no error but the question what a call gives.
pub const QUESTION: char = '\u{1}';

/// What calls of the session's own functions give, as far as has been asked.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Asked(Arc<HashMap<String, Answer>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    gives: Option<FieldRef>,
    is_volatile: bool,
}

impl Asked {
    pub fn insert(&mut self, call: &str, gives: Option<FieldRef>, is_volatile: bool) {
        Arc::make_mut(&mut self.0).insert(call.to_owned(), Answer { gives, is_volatile });
    }
}

/// A function of the session, of which is known what has been asked.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionFunction {
    name: String,
    asked: Asked,
    signature: Signature,
}

impl SessionFunction {
    pub fn new(name: &str, asked: &Asked) -> Self {
        let start = format!("{}(", quoted_if_needed(name));
        let is_volatile = asked.0.iter().any(|(call, answer)| call.starts_with(&start) && answer.is_volatile);
        let volatility = if is_volatile { Volatility::Volatile } else { Volatility::Immutable };
        Self { name: name.to_owned(), asked: asked.clone(), signature: Signature::user_defined(volatility) }
    }
}

impl Hash for SessionFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for SessionFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        plan_err!("the type of {} depends on the fields of its arguments", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let typed = args.arg_fields.iter().map(|field| {
            let null = Expr::Cast(Cast::new(Box::new(lit(ScalarValue::Null)), field.data_type().clone()));
            let null = Unparser::default().expr_to_sql(&null);
            null.map(|null| null.to_string()).map_err(|_| {
                plan_datafusion_err!(
                    "{}: a function that is not DataFusion's own takes a {}, which has no name in SQL",
                    self.name,
                    field.data_type()
                )
            })
        });
        let call = format!("{}({})", quoted_if_needed(&self.name), typed.collect::<Result<Vec<_>>>()?.join(", "));
        match self.asked.0.get(&call) {
            Some(Answer { gives: Some(field), .. }) => Ok(Arc::new(field.as_ref().clone().with_name(&self.name))),
            Some(Answer { gives: None, .. }) => plan_err!("there is no function for {call}"),
            None => plan_err!("{QUESTION}{call}{QUESTION}"),
        }
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        plan_err!("{} is a function of the session", self.name)
    }
}

/// An operator in a call that is known by its number in the text.
///
/// Two are equal if the operators are, so that the planner finds `grad(f, x)` of SELECT again in GROUP BY.
#[derive(Debug)]
pub struct Site {
    operator: Arc<ScalarUDF>,
    /// What it is called in the statement.
    aliases: Vec<String>,
}

impl Site {
    pub fn new(operator: Arc<ScalarUDF>, name: &str) -> Self {
        Self { operator, aliases: vec![name.to_owned()] }
    }

    /// The number of the call that an expression is.
    pub fn number_of(expr: &Expr) -> Option<usize> {
        match expr {
            Expr::ScalarFunction(call) => call.func.aliases().iter().find_map(|name| Some(site_of(name)?.1)),
            _ => None,
        }
    }
}

/// Tells the operators of calls for the analyzer rule. A call that it leaves as it is keeps its number.
pub fn recognize(function: &ScalarUDF) -> Option<Differential> {
    let Some(site) = function.inner().downcast_ref::<Site>() else { return xql_autodiff::recognize(function) };
    let Differential { tangent, analyzed } = xql_autodiff::recognize(&site.operator)?;
    let analyzed = ScalarUDF::new_from_impl(Site { operator: analyzed, aliases: site.aliases.clone() });
    Some(Differential { tangent, analyzed: Arc::new(analyzed) })
}

impl PartialEq for Site {
    fn eq(&self, other: &Self) -> bool {
        self.operator == other.operator
    }
}

impl Eq for Site {}

impl Hash for Site {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operator.hash(state);
    }
}

impl ScalarUDFImpl for Site {
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn signature(&self) -> &Signature {
        self.operator.signature()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.operator.coerce_types(arg_types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.operator.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.operator.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.operator.simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.operator.invoke_with_args(args)
    }
}
