//! The SQL that rules are written in, parsed.

use datafusion_common::utils::quote_identifier;
use datafusion_common::{DataFusionError, Result, plan_datafusion_err, plan_err};
use sqlparser::ast::{
    CeilFloorKind, DateTimeField, Expr as Sql, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use crate::vocabulary::messages::truncate;

/// Parses an expression with nothing after it.
///
/// # Errors
/// A plan error if the text is anything else.
pub fn parse(sql: &str) -> Result<Sql> {
    let parsed = Parser::new(&GenericDialect {}).try_with_sql(sql).and_then(|mut parser| {
        let parsed = parser.parse_expr()?;
        parser.expect_token(&Token::EOF)?;
        Ok(parsed)
    });
    parsed.map_err(|error| {
        plan_datafusion_err!("{:?} cannot be parsed as an expression: {}", truncate(sql), truncate(error))
    })
}

/// The left-hand side of a rule: a function or operator and the names of its inputs.
#[derive(Debug, Clone)]
pub struct Signature {
    /// The name of the function, or the operator as it is written.
    pub name: String,
    /// The names of the inputs, in order.
    pub inputs: Vec<String>,
}

impl Signature {
    /// Parses the signature of a line of a table, which may be that of an operator.
    ///
    /// # Errors
    /// A plan error if it is none.
    pub fn parse(sql: &str) -> Result<Self> {
        match parse(sql)? {
            Sql::BinaryOp { left, op, right } => Self::new(op.to_string(), &[&left, &right]),
            Sql::UnaryOp { op, expr } => Self::new(op.to_string(), &[&expr]),
            call => {
                let (name, inputs) = parse_call(&call)?;
                Self::new(name, &inputs.into_iter().map(strip_cast).collect::<Vec<_>>())
            }
        }
    }

    /// Reads the signature of a function.
    ///
    /// # Errors
    /// A plan error if it is none.
    pub fn from_call(sql: &Sql) -> Result<Self> {
        if let Sql::Function(call) = sql
            && call.name.0.len() > 1
        {
            let parts =
                call.name.0.iter().map(|part| part.as_ident().map_or(part.to_string(), |part| part.value.clone()));
            let name = parts.collect::<Vec<_>>().join(".");
            return plan_err!(
                "functions of DataFusion are in no schema, and {} names one; if the function itself is called {}, quote \
                 the whole, {}(...)",
                truncate(&call.name),
                truncate(&name),
                truncate(quote_identifier(&name))
            );
        }
        let (name, inputs) = parse_call(sql).map_err(|_| {
            plan_datafusion_err!("{} is not a call of a function with its parameters, such as f(x, y)", truncate(sql))
        })?;
        Self::new(name, &inputs)
    }

    fn new(name: String, inputs: &[&Sql]) -> Result<Self> {
        let inputs = inputs.iter().map(|input| {
            name_of(input).ok_or_else(|| {
                plan_datafusion_err!("{} is not a name; parameters are plain names, such as f(x, y)", truncate(input))
            })
        });
        Ok(Self { name, inputs: inputs.collect::<Result<_>>()? })
    }
}

/// Returns the name that an expression is, in lower case unless it is quoted, as in all SQL of DataFusion.
pub fn name_of(sql: &Sql) -> Option<String> {
    match sql {
        Sql::Identifier(name) => Some(normalize(name)),
        _ => None,
    }
}

/// Strips a cast from an expression: `n` in `CAST(n AS BIGINT)`, an input that is an integer.
pub fn strip_cast(sql: &Sql) -> &Sql {
    match sql {
        Sql::Cast { expr, .. } => expr,
        other => other,
    }
}

/// Returns the function that a call names, and its arguments. The parser has syntax of its own for floor, ceil and struct.
///
/// # Errors
/// A plan error if it is no call.
pub fn parse_call(sql: &Sql) -> Result<(String, Vec<&Sql>)> {
    const PLAIN: CeilFloorKind = CeilFloorKind::DateTimeField(DateTimeField::NoDateTime);
    match sql {
        Sql::Function(call) => {
            let arguments = arguments(call).ok_or_else(|| unsupported_error(sql))?;
            let name = match call.name.0.as_slice() {
                [part] => part.as_ident().map(normalize),
                _ => None,
            };
            Ok((name.unwrap_or_else(|| call.name.to_string()), arguments))
        }
        Sql::Floor { expr, field: PLAIN } => Ok(("floor".to_owned(), vec![expr])),
        Sql::Ceil { expr, field: PLAIN } => Ok(("ceil".to_owned(), vec![expr])),
        Sql::Struct { values, fields } if fields.is_empty() => Ok(("struct".to_owned(), values.iter().collect())),
        other => Err(unsupported_error(other)),
    }
}

/// Returns the arguments of a call that has nothing but arguments: no FILTER, OVER, DISTINCT, names or stars.
fn arguments(call: &Function) -> Option<Vec<&Sql>> {
    let FunctionArguments::List(list) = &call.args else { return None };
    let plain = call.parameters == FunctionArguments::None
        && call.filter.is_none()
        && call.null_treatment.is_none()
        && call.over.is_none()
        && call.within_group.is_empty()
        && list.duplicate_treatment.is_none()
        && list.clauses.is_empty();
    let arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if plain => Some(expr),
        _ => None,
    });
    if plain { arguments.collect() } else { None }
}

/// Normalizes a name to lower case unless it is quoted.
pub fn normalize(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

/// Creates the error for SQL that no formula may contain.
pub fn unsupported_error(sql: &Sql) -> DataFusionError {
    plan_datafusion_err!(
        "a formula cannot be written with {}; it has numbers, parameters, + - * / %, comparisons, AND, OR, NOT, \
         BETWEEN, IS NULL, CASE, casts to REAL or DOUBLE, and calls of scalar functions (power(x, y) for a power)",
        truncate(sql)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_of_functions_and_operators() -> Result<()> {
        for (sql, name, inputs) in [
            ("atan2(y, X)", "atan2", &["y", "x"][..]),
            ("\"MyFn\"(\"A\")", "MyFn", &["A"]),
            ("x / y", "/", &["x", "y"]),
            ("-x", "-", &["x"]),
            ("floor(x)", "floor", &["x"]),
            ("round(x, CAST(n AS BIGINT))", "round", &["x", "n"]),
        ] {
            let signature = Signature::parse(sql)?;
            assert_eq!(
                (signature.name.as_str(), signature.inputs),
                (name, inputs.iter().map(ToString::to_string).collect())
            );
        }
        Ok(())
    }

    #[test]
    fn what_is_no_signature_is_an_error() -> Result<()> {
        for (sql, reason) in [
            ("f(x) g", "cannot be parsed"),
            ("f(x + 1)", "is not a name"),
            ("f(DISTINCT x)", "not a call of a function with its parameters"),
            ("f(x) OVER ()", "not a call of a function with its parameters"),
            ("x + y", "not a call of a function with its parameters"),
            ("s.f(x)", "functions of DataFusion are in no schema"),
        ] {
            let error = parse(sql).and_then(|sql| Signature::from_call(&sql)).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.contains(reason)), "{sql}: {error:?}");
        }
        Ok(())
    }
}
