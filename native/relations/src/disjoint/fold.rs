//! Constant folding of expressions over rows of which some columns are known.

use datafusion_common::{Column, DFSchema, Result, ScalarValue};
use datafusion_expr::expr::{Alias, Case, Cast, ScalarFunction};
use datafusion_expr::{Expr, ExprSchemable};
use datafusion_functions::core::coalesce;

/// What is known of columns and calls.
pub trait KnownValues {
    /// Returns the value of a column, if it has one in all rows that is known.
    fn value(&self, column: &Column) -> Result<Option<ScalarValue>>;

    /// Returns whether an expression is the call of an operator, which is NULL where its first argument is.
    fn is_call(&self, expr: &Expr) -> bool;
}

/// Removes the parts of an expression that are known not to be evaluated, and keeps its type. Other simplifications are
/// left to DataFusion.
///
/// ```text
/// coalesce(a.val, b.val)                       ->    b.val        where a.val is NULL
/// CASE WHEN a.val IS NOT NULL THEN ... END     ->    NULL
/// ```
pub fn folded(expr: &Expr, known: &impl KnownValues, schema: &DFSchema) -> Result<Expr> {
    Ok(match expr {
        Expr::Column(column) => known.value(column)?.map_or_else(|| expr.clone(), literal),
        Expr::Alias(alias) => {
            Expr::Alias(Alias { expr: Box::new(folded(&alias.expr, known, schema)?), ..alias.clone() })
        }
        Expr::Cast(cast) => match folded(&cast.expr, known, schema)? {
            Expr::Literal(value, _) => match value.cast_to(&expr.get_type(schema)?) {
                Ok(value) => literal(value),
                Err(_) => expr.clone(),
            },
            inner => Expr::Cast(Cast { expr: Box::new(inner), ..cast.clone() }),
        },
        Expr::IsNotNull(inner) => match folded(inner, known, schema)? {
            Expr::Literal(value, _) => literal(ScalarValue::from(!value.is_null())),
            inner => Expr::IsNotNull(Box::new(inner)),
        },
        Expr::Case(case) if case.expr.is_none() => match branches(case, known, schema)? {
            (kept, otherwise) if kept.is_empty() => typed(otherwise, expr, schema)?,
            (kept, otherwise) if kept.iter().map(|(_, then)| then.as_ref()).chain(&otherwise).all(is_null) => {
                typed(None, expr, schema)?
            }
            (kept, otherwise) => Expr::Case(Case::new(None, kept, otherwise.map(Box::new))),
        },
        Expr::ScalarFunction(call) if call.func == coalesce() => {
            let mut kept = candidates(&call.args, known, schema)?;
            match kept.len() {
                0 | 1 => typed(kept.pop(), expr, schema)?,
                _ => Expr::ScalarFunction(ScalarFunction { args: kept, func: call.func.clone() }),
            }
        }
        Expr::ScalarFunction(call) if known.is_call(expr) => match call.args.first() {
            Some(primal) if is_null(&folded(primal, known, schema)?) => typed(None, expr, schema)?,
            _ => expr.clone(),
        },
        other => other.clone(),
    })
}

/// Returns the branches of a `CASE` whose condition may hold, and what it is if none does.
#[expect(clippy::type_complexity)]
fn branches(
    case: &Case,
    known: &impl KnownValues,
    schema: &DFSchema,
) -> Result<(Vec<(Box<Expr>, Box<Expr>)>, Option<Expr>)> {
    let mut kept = vec![];
    let mut otherwise = case.else_expr.as_deref();
    for (when, then) in &case.when_then_expr {
        match folded(when, known, schema)? {
            Expr::Literal(ScalarValue::Boolean(Some(true)), _) => {
                otherwise = Some(then);
                break;
            }
            Expr::Literal(ScalarValue::Boolean(_), _) => {}
            when => kept.push((Box::new(when), Box::new(folded(then, known, schema)?))),
        }
    }
    let otherwise = otherwise.map(|other| folded(other, known, schema)).transpose()?;
    Ok((kept, otherwise))
}

/// Returns the values of which `coalesce` may be the first that is not NULL.
fn candidates(args: &[Expr], known: &impl KnownValues, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut kept = vec![];
    for arg in args {
        match folded(arg, known, schema)? {
            value if is_null(&value) => {}
            value @ Expr::Literal(..) => {
                kept.push(value);
                break;
            }
            other => kept.push(other),
        }
    }
    Ok(kept)
}

/// Returns a value in the place of an expression, as of its type; NULL without one.
fn typed(value: Option<Expr>, of: &Expr, schema: &DFSchema) -> Result<Expr> {
    let data_type = of.get_type(schema)?;
    match value {
        Some(value) => value.cast_to(&data_type, schema),
        None => ScalarValue::try_from(&data_type).map(literal),
    }
}

/// Returns whether an expression is NULL.
pub fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}

fn literal(value: ScalarValue) -> Expr {
    Expr::Literal(value, None)
}
