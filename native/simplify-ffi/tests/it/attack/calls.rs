//! Calls whose requests and answers are attacked.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::functions::expr_fn as f;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    Cast, Expr, ExprSchemable, LogicalPlanBuilder, ScalarUDF, TryCast, col, lit, scalar_subquery, when,
};
use xql_autodiff::vocabulary::transform::Transform;
use xql_autodiff::{Call, Rules, analyzed_with, batch_request, stop_gradient, tangent_with};

use crate::common::{import, probe, probe_udf, rewrite};
use crate::round_trip::expressions;

/// A call of a function of the provider.
pub struct Attacked {
    pub function: Arc<ScalarUDF>,
    pub args: Vec<Expr>,
}

fn x() -> Expr {
    col("t.x")
}

/// 1 where one of them is NULL, in a tree that is no deeper than it has to be.
fn any_null(exprs: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    let mut nulls: Vec<_> = exprs.into_iter().map(Expr::is_null).collect();
    while nulls.len() > 1 {
        nulls = nulls.chunks(2).filter_map(|pair| pair.iter().cloned().reduce(Expr::or)).collect();
    }
    when(nulls.pop().unwrap_or(lit(false)), lit(1.0)).otherwise(lit(0.0))
}

/// A call of the consumer, a subquery, an outer reference, literals of other types than numbers.
fn only_of_the_consumer() -> Expr {
    let list = ScalarValue::new_list_nullable(&[ScalarValue::from(1.0)], &DataType::Float64);
    let plan = LogicalPlanBuilder::values(vec![vec![lit(1.0)]]).unwrap().build().unwrap();
    let foreign = probe(|args, _| Ok(ExprSimplifyResult::Original(args)));
    let outer = Expr::OuterReferenceColumn(
        Arc::new(Field::new("x", DataType::Float64, true)),
        Column::new(Some("o.uter"), "x"),
    );
    foreign.call(vec![col("t.y"), lit("text"), lit(ScalarValue::List(list))]) * scalar_subquery(Arc::new(plan)) - outer
}

/// Of two expressions that differ in metadata alone, the one that crossed first comes back.
fn has_metadata(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(_, metadata) => metadata.is_some(),
        Expr::Alias(alias) => alias.metadata.is_some(),
        Expr::Cast(Cast { field, .. })
        | Expr::TryCast(TryCast { field, .. })
        | Expr::Placeholder(Placeholder { field: Some(field), .. }) => {
            !field.name().is_empty() || !field.metadata().is_empty()
        }
        _ => false,
    }
}

/// The calls, which files of the corpus name by their place: new ones come last.
pub fn calls() -> Vec<Attacked> {
    let operator = |transform| Arc::new(analyzed_with(transform, Rules::default()));
    let call = |function: Arc<ScalarUDF>, args| Attacked { function, args };
    let branches = when(
        x().gt(lit(0.0)),
        f::sqrt(x()) * col("t.n").cast_to(&DataType::Float64, &crate::common::schema()).unwrap(),
    )
    .otherwise(f::tanh(-x()))
    .unwrap();
    let formula = f::sin(f::exp(x() * lit(0.5))) / f::greatest(vec![x(), lit(1.0)]);
    let asked = [
        Call { transform: Transform::Grad, directions: vec![x()] },
        Call { transform: Transform::Vjp, directions: vec![x(), lit(2.0)] },
    ];
    let mut calls = vec![
        call(operator(Transform::Grad), vec![f::power(x(), lit(2.0)) + x(), x()]),
        call(operator(Transform::Grad), vec![branches, x()]),
        call(operator(Transform::Jvp), vec![formula.clone(), x(), f::cos(x())]),
        call(operator(Transform::Vjp), vec![only_of_the_consumer() * x(), x(), lit(0.25)]),
        call(Arc::new(tangent_with(Rules::default())), batch_request(formula * x(), &asked)),
        call(Arc::new(stop_gradient()), vec![x() * lit(2.0)]),
        // An answer with nodes of every kind.
        call(
            probe(|_, _| Ok(ExprSimplifyResult::Simplified(any_null(expressions().into_iter().filter(crosses))?))),
            vec![x(), col("t.y")],
        ),
    ];
    // Requests with nodes of every kind.
    let used = || probe(|args, _| Ok(ExprSimplifyResult::Simplified(any_null(args)?)));
    let expressions: Vec<_> = expressions().into_iter().filter(|expr| !has_metadata(expr)).collect();
    calls.extend(expressions.chunks(7).map(|args| call(used(), args.to_vec())));
    calls
}

/// All of these in one expression, which takes them of any types.
fn together_as_list(exprs: &[Expr]) -> Expr {
    exprs[0].clone().in_list(exprs[1..].to_vec(), false)
}

/// That these are the same when they have crossed to a provider and come back in its answer.
pub fn cross_unchanged(exprs: &[Expr], info: &SimplifyContext) -> Result<(), String> {
    if exprs.is_empty() {
        return Ok(());
    }
    let there = probe_udf(None, |args, _| Ok(ExprSimplifyResult::Simplified(together_as_list(&args))));
    match import(&there).simplify(exprs.to_vec(), info) {
        Ok(ExprSimplifyResult::Simplified(answer)) if answer == together_as_list(exprs) => Ok(()),
        Ok(ExprSimplifyResult::Simplified(answer)) => Err(format!("{exprs:?} have crossed to {answer:?}")),
        Ok(ExprSimplifyResult::Original(_)) => Err("not simplified".to_owned()),
        Err(_) if exprs.iter().any(|expr| has_no_type(expr, info)) => Ok(()),
        Err(error) => Err(format!("{exprs:?} do not cross: {error}")),
    }
}

/// Whether a part has no type, as `UNNEST(x IN (1.0))`, for which an answer is refused.
fn has_no_type(expr: &Expr, info: &SimplifyContext) -> bool {
    expr.exists(|part| Ok(part.to_field(info.schema().as_ref()).is_err())).unwrap_or(true)
}

/// Whether a provider may answer with this expression, which it makes itself.
fn crosses(expr: &Expr) -> bool {
    let made = expr.clone();
    rewrite(lit(0.0), move |_| Ok(made.clone())).is_ok()
}

/// The function of a provider that looks at what it is asked before it answers as `function` does: its arguments cross again
/// unchanged, and so does its answer.
pub fn watched(function: &Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    let function = Arc::clone(function);
    probe(move |args, info| {
        if let Err(reason) = cross_unchanged(&args, info) {
            panic!("{reason}");
        }
        let here = function.inner().simplify(args.clone(), info);
        let there = import(&function).simplify(args, info);
        match (&here, there) {
            (Ok(ExprSimplifyResult::Simplified(here)), Ok(ExprSimplifyResult::Simplified(there))) => {
                assert_eq!(*here, there, "the answer is another when it has crossed");
            }
            (Err(_) | Ok(ExprSimplifyResult::Original(_)), Ok(ExprSimplifyResult::Simplified(there))) => {
                panic!("across the boundary only, the answer is {there}");
            }
            (_, Err(error)) => assert!(!error.to_string().contains("panicked"), "{error}"),
            _ => {}
        }
        here
    })
}
