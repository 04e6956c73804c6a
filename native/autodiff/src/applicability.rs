//! Whether rules fit the calls that they are used for, and which rule a call lacks.

use datafusion_common::utils::quote_identifier;
use datafusion_common::{Result, plan_err};
use datafusion_expr::Expr;
use datafusion_expr::expr::ScalarFunction;
use std::collections::HashSet;

use crate::call::Call;
use crate::dag::{Dag, NodeId};
use crate::rules::{Rule, Rules};
use crate::vocabulary::messages::abbreviated;
use crate::vocabulary::types::is_float;

/// The error for a rule of the user's that could not be used, because its function gives no floats.
pub fn check_used(call: &Call, rules: &Rules, dag: &Dag, primal: &[NodeId], active: &HashSet<NodeId>) -> Result<()> {
    for id in primal {
        let node = dag.node(*id);
        if let Expr::ScalarFunction(function) = &node.shape
            && rules.has_own(&function.func, node.children.len())
            && !is_float(node.field.data_type())
            && node.children.iter().any(|child| active.contains(child))
        {
            return plan_err!(
                "{call}: the rule for {} cannot be used, because the function gives {} here. Let it give DOUBLE, or leave \
                 the rule out",
                function.name(),
                node.field.data_type()
            );
        }
    }
    Ok(())
}

/// The error for an argument that varies but is no number: a partial derivative by a list says nothing.
pub fn check_number(call: &Call, rule: &Rule, dag: &Dag, input: NodeId) -> Result<()> {
    let data_type = dag.data_type(input);
    if is_float(data_type) || data_type.is_decimal() {
        return Ok(());
    }
    plan_err!(
        "{call}: {} varies and is {data_type}, and the rule for {} is over numbers",
        abbreviated(&dag.export(input)?),
        rule.name
    )
}

/// The rule to write for a function that has none, if it is one that can be named.
pub fn missing_rule(function: &ScalarFunction) -> Option<String> {
    let name = function.name();
    // What another library does not show, such as a subquery, is named as it is printed.
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
    use super::missing_rule;
    use datafusion_expr::expr::ScalarFunction;
    use datafusion_expr::{ScalarUDF, SimpleScalarUDF, Volatility, lit};
    use std::sync::Arc;

    fn suggested(name: &str, arity: usize) -> Option<String> {
        let function = SimpleScalarUDF::new(
            name,
            vec![],
            arrow::datatypes::DataType::Float64,
            Volatility::Immutable,
            Arc::new(|_| datafusion_common::internal_err!("never evaluated")),
        );
        missing_rule(&ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), vec![lit(1.0); arity]))
    }

    #[test]
    fn a_missing_rule_is_shown_as_it_is_written() {
        for (name, arity, expected) in [
            ("f", 1, Some("rule(\"f(x)\", \"<derivative by x>\")")),
            ("f", 2, Some("rule(\"f(x1, x2)\", \"<derivative by x1>\", \"<derivative by x2>\")")),
            ("MyFn", 1, Some("rule(\"\\\"MyFn\\\"(x)\", \"<derivative by x>\")")),
            ("(<subquery>)", 1, None),
        ] {
            assert_eq!(suggested(name, arity).as_deref(), expected);
        }
    }
}
