//! Messages of refusals: the expression, the column, the reason and a workaround.

use datafusion_common::utils::quote_identifier;
use datafusion_common::{DataFusionError, Result, plan_datafusion_err};
use datafusion_expr::Expr;
use datafusion_expr::expr::ScalarFunction;

use super::differentiation::Differentiation;
use crate::algebra::Algebra;
use crate::graph::{NodeId, export};
use crate::pullback::Refusal;
use crate::table::{DECIMAL, TEXT, TIME, refusal_of, refusal_of_higher_order};
use crate::vocabulary::messages::{abbreviate, error_text, truncate};

/// Words the reason why a call is refused as an error.
///
/// # Errors
/// If the expression cannot be shown.
pub fn word_refusal(call: &Differentiation, algebra: &Algebra, refusal: Refusal) -> Result<DataFusionError> {
    let shown = |id: NodeId| -> Result<String> { Ok(abbreviate(&export(algebra, id)?)) };
    Ok(match refusal {
        Refusal::Decimal(id) => plan_datafusion_err!(
            "{call}: {} varies with a float but is {}, and {DECIMAL}",
            shown(id)?,
            algebra.data_type(id)
        ),
        Refusal::NoRule(id) => {
            let columns: Vec<_> = call.seeds.iter().map(|seed| abbreviate(seed.column)).collect();
            let (columns, why) =
                (truncate(columns.join(", ")), explain_missing_rule(&export(algebra, id)?, algebra, id));
            plan_datafusion_err!("{call}: {} varies with {columns}, and {why}", shown(id)?)
        }
        Refusal::NoNumber { input, function } => plan_datafusion_err!(
            "{call}: the rule for {function} takes numbers; {} varies and is {}",
            shown(input)?,
            algebra.data_type(input)
        ),
        Refusal::UnusedRule(id) => {
            let node = algebra.node(id);
            let function = match &node.shape {
                Expr::ScalarFunction(function) => function.name(),
                other => other.variant_name(),
            };
            plan_datafusion_err!(
                "{call}: the rule for {function} needs a function that returns a float; this one returns {}. Let it return DOUBLE, \
                 or leave the rule out",
                node.field.data_type()
            )
        }
        Refusal::Formula { function, reason } => {
            plan_datafusion_err!("{call}: the rule for {function}: {}", error_text(reason))
        }
    })
}

/// Explains why an expression that varies has no derivative, and what to do.
fn explain_missing_rule(expr: &Expr, algebra: &Algebra, id: NodeId) -> String {
    let (function, reason) = match expr {
        Expr::ScalarFunction(call) => (Some(call.func.name()), refusal_of(&call.func)),
        Expr::HigherOrderFunction(call) => (Some(call.func.name()), refusal_of_higher_order(&call.func)),
        _ => (None, None),
    };
    let what = match (expr, function) {
        (_, Some(name)) => format!("the function {}", truncate(name)),
        (Expr::BinaryExpr(binary), _) => format!("the operator {}", binary.op),
        (Expr::ScalarSubquery(_), _) => "a subquery that reads the variable".to_owned(),
        (Expr::Cast(_) | Expr::TryCast(_), _) => format!("a conversion to {}", algebra.data_type(id)),
        (other, _) => other.variant_name().to_owned(),
    };
    let by_type = match algebra.data_type(id) {
        time if time.is_temporal() => Some(TIME),
        text if text.is_string() => Some(TEXT),
        _ => None,
    };
    if let Some(reason) = reason.or(by_type) {
        return format!("{what} is not differentiated: {reason}");
    }
    // An aggregate, as another library shows it and as it is.
    if matches!(expr, Expr::AggregateFunction(_)) || function.is_some_and(|name| name.contains('(')) {
        return "no call inside of an aggregate's own node can differentiate its value. Take the derivative above, in \
                SELECT ... GROUP BY x or `df.aggregate([x], [avg(f)]).select(grad(...))`, or move it inside: avg(grad(f, x)) \
                instead of grad(avg(f), x)"
            .to_owned();
    }
    let missing = match expr {
        Expr::ScalarFunction(call) => suggest_rule(call),
        _ => None,
    };
    let give_it = missing.map_or("W".to_owned(), |rule| format!("Give it a rule, {rule}. Or w"));
    format!("no derivative is known for {what}. {give_it}rite it with functions that have one")
}

/// Suggests a rule for a function that has none, if it can be named.
fn suggest_rule(function: &ScalarFunction) -> Option<String> {
    let name = function.name();
    // An expression that another library does not show, such as a subquery, is named as it is printed.
    if name.contains(['(', ')']) {
        return None;
    }
    let inputs: Vec<_> = match function.args.len() {
        1 => vec!["x".to_owned()],
        count => (1..=count).map(|number| format!("x{number}")).collect(),
    };
    let partials: String = inputs.iter().map(|input| format!(", \"<derivative by {input}>\"")).collect();
    let quoted = quote_identifier(name).replace('"', "\\\"");
    Some(format!("rule(\"{quoted}({})\"{partials})", inputs.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::suggest_rule;
    use datafusion_expr::expr::ScalarFunction;
    use datafusion_expr::{ScalarUDF, SimpleScalarUDF, Volatility, lit};
    use std::sync::Arc;

    fn suggest(name: &str, arity: usize) -> Option<String> {
        let function = SimpleScalarUDF::new(
            name,
            vec![],
            arrow::datatypes::DataType::Float64,
            Volatility::Immutable,
            Arc::new(|_| datafusion_common::internal_err!("never evaluated")),
        );
        suggest_rule(&ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), vec![lit(1.0); arity]))
    }

    #[test]
    fn a_missing_rule_is_shown_as_it_is_written() {
        for (name, arity, expected) in [
            ("f", 1, Some("rule(\"f(x)\", \"<derivative by x>\")")),
            ("f", 2, Some("rule(\"f(x1, x2)\", \"<derivative by x1>\", \"<derivative by x2>\")")),
            ("MyFn", 1, Some("rule(\"\\\"MyFn\\\"(x)\", \"<derivative by x>\")")),
            ("(<subquery>)", 1, None),
        ] {
            assert_eq!(suggest(name, arity).as_deref(), expected);
        }
    }
}
