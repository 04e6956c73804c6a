//! From a call of `grad`, `jvp` or `vjp` to the expression that replaces it.

use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, Result, plan_err};
use datafusion_expr::{Expr, ExprSchemable};

use crate::call::Call;
use crate::dag::{Dag, NodeId};
use crate::nulls::NullSets;
use crate::pullback::Pullback;
use crate::rules::Rules;
use crate::variable;
use crate::vocabulary::columns::is_volatile;
use crate::vocabulary::messages::abbreviated;
use crate::vocabulary::types::{decoded, result_type};

/// The derivative that a call stands for by these rules: the sum over its directions of partial derivative times factor.
///
/// # Errors
/// A plan error if an argument cannot be differentiated by, a function on the way has no rule, a volatile call would
/// be evaluated again, or a value was computed from the variable by a node of the plan below.
pub fn differentiate(call: &Call, schema: &DFSchema, rules: &Rules) -> Result<Expr> {
    let columns = call
        .directions
        .iter()
        .map(|direction| variable::check(call, direction.column, schema))
        .collect::<Result<Vec<_>>>()?;
    let expression_type = check_numeric(call, call.expression, schema)?;
    let column_types = columns.iter().map(|column| column.get_type(schema)).collect::<Result<Vec<_>>>()?;
    let result_type = result_type(&expression_type, &column_types);

    let mut dag = Dag::new(schema);
    let root = dag.import(call.expression)?;
    let primal = dag.reachable(root);
    let variables = columns.iter().map(|column| dag.import(column)).collect::<Result<Vec<_>>>()?;
    if !call.total {
        variable::check_none_computed_from(call, &dag, &primal, &columns)?;
    }

    let mut nulls = NullSets::new(rules);
    let mut required = nulls.of(&dag, root)?;
    let mut factors = vec![];
    for (direction, variable) in call.directions.iter().zip(&variables) {
        factors.push(match direction.factor {
            None => None,
            Some(factor) => {
                check_numeric(call, factor, schema)?;
                let carried = matches!(factor, Expr::Column(_));
                let factor = dag.import(factor)?;
                if !call.total {
                    required.extend(nulls.of(&dag, factor)?);
                } else if carried {
                    nulls.equate(&dag, factor, *variable)?;
                }
                Some(factor)
            }
        });
    }
    let mut pullback = Pullback::new(call, rules, &mut dag, &mut nulls, &primal, &variables, &factors)?;
    let derivative = pullback.derivative(root)?;
    let derivative = dag.place_sign(derivative)?;
    // What is volatile must not be evaluated again.
    let whole = primal.iter().all(|id| !is_volatile(&dag.node(*id).shape)).then_some(root);
    let exact = nulls.guard(&mut dag, derivative, &required, whole)?;
    check_not_volatile(call, &dag, &primal, exact)?;
    let whole = if dag.node(exact).field.is_nullable() && !is_nullable(call, schema)? {
        nulls.assert_never(&mut dag, exact)?
    } else {
        exact
    };
    let typed = dag.cast(whole, &result_type)?;
    dag.export(typed)
}

/// Whether the call may be NULL, as declared to the planner.
fn is_nullable(call: &Call, schema: &DFSchema) -> Result<bool> {
    let factors = call.directions.iter().filter_map(|direction| direction.factor).filter(|_| !call.total);
    for read in std::iter::once(call.expression).chain(factors) {
        if read.nullable(schema)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn check_numeric(call: &Call, expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    let data_type = expr.get_type(schema)?;
    let plain = decoded(&data_type);
    if plain.is_numeric() || plain.is_null() {
        return Ok(data_type);
    }
    plan_err!("{call}: {} is {data_type}, and only numbers are differentiated", abbreviated(expr))
}

fn check_not_volatile(call: &Call, dag: &Dag, primal: &[NodeId], derivative: NodeId) -> Result<()> {
    let read_again = dag.reachable(derivative);
    match primal.iter().find(|id| is_volatile(&dag.node(**id).shape) && read_again.contains(id)) {
        None => Ok(()),
        Some(id) => {
            let volatile = dag.export(*id)?;
            plan_err!(
                "{call}: {} is volatile, and the derivative would evaluate it again and so draw another value. Compute it \
                 first, in a subquery or CTE, and use its column",
                abbreviated(&volatile)
            )
        }
    }
}
