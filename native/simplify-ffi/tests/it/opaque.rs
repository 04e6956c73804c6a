//! Expressions the provider is not shown.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Column, DataFusionError, Result, ScalarValue, plan_err};
use datafusion::functions::expr_fn as f;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::functions_nested::array_transform::array_transform_higher_order_function;
use datafusion::logical_expr::expr::{
    BinaryExpr, HigherOrderFunction, Lambda, LambdaVariable, SetComparison, SetQuantifier, WindowFunction,
};
use datafusion::logical_expr::{
    Expr, ExprSchemable, GroupingSet, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, WindowFunctionDefinition,
    col, exists, in_subquery, lit, scalar_subquery, table_scan,
};
use xql_simplify_ffi::ForeignFunction;

use crate::common::{rewrite, schema};

fn outer(column: &str) -> Expr {
    let field = Field::new("x", DataType::Float64, true);
    Expr::OuterReferenceColumn(Arc::new(field), Column::from(column))
}

fn scan(table: &str) -> Result<LogicalPlanBuilder> {
    let schema = Schema::new(vec![Field::new("v", DataType::Float64, true)]);
    table_scan(Some(table), &schema, None)
}

fn subplan(predicate: Expr) -> Result<Arc<LogicalPlan>> {
    let plan = scan("u")?.filter(predicate)?.project(vec![col("u.v")])?;
    Ok(Arc::new(plan.build()?))
}

/// What is seen of an opaque expression: what it reads.
fn seen_reads(expr: Expr) -> Result<Vec<Expr>> {
    let reads = Arc::new(std::sync::Mutex::new(vec![]));
    let seen = Arc::clone(&reads);
    let printed = expr.to_string();
    let answer = rewrite(f::sin(expr.clone()), move |arg| {
        let Expr::ScalarFunction(sin) = &arg else {
            return plan_err!("no call: {arg}");
        };
        let Expr::ScalarFunction(call) = &sin.args[0] else {
            return plan_err!("no call: {arg}");
        };
        let function = call.func.inner().downcast_ref::<ForeignFunction>();
        assert!(function.is_some_and(ForeignFunction::is_opaque), "{arg}");
        assert_eq!(call.name(), printed);
        *seen.lock().unwrap() = call.args.clone();
        Ok(arg.clone() * arg)
    })?;
    let sin = f::sin(expr);
    assert_eq!(answer, sin.clone() * sin);
    Ok(reads.lock().unwrap().clone())
}

#[test]
fn subqueries_read_their_outer_references() -> Result<()> {
    let correlated = subplan(col("u.v").eq(outer("t.x")).and(col("u.v").lt(outer("far.z") + outer("t.x"))))?;
    let expected = vec![col("t.x"), outer("far.z")];
    assert_eq!(seen_reads(scalar_subquery(Arc::clone(&correlated)))?, expected);
    assert_eq!(seen_reads(exists(Arc::clone(&correlated)))?, expected);
    assert_eq!(
        seen_reads(in_subquery(col("t.y"), Arc::clone(&correlated)))?,
        [vec![], expected.clone(), vec![col("t.y")]].concat()
    );
    let subquery = Subquery { subquery: correlated, outer_ref_columns: vec![], spans: Default::default() };
    let comparison =
        Expr::SetComparison(SetComparison::new(Box::new(col("t.y")), subquery, Operator::Lt, SetQuantifier::Any));
    assert_eq!(seen_reads(comparison)?, [expected, vec![col("t.y")]].concat());
    Ok(())
}

/// A subquery within the subquery reads from both; what it reads of the one around it is no business of the query.
#[test]
fn nested_subqueries_read_through_one_another() -> Result<()> {
    let schema = Schema::new(vec![Field::new("w", DataType::Float64, true)]);
    let inner = table_scan(Some("w"), &schema, None)?
        .filter(col("w.w").eq(outer("u.v")).and(col("w.w").eq(outer("t.n"))))?
        .build()?;
    let plan = subplan(exists(Arc::new(inner)))?;
    assert_eq!(seen_reads(scalar_subquery(plan))?, vec![col("t.n")]);
    Ok(())
}

#[test]
fn other_kinds_read_their_columns() -> Result<()> {
    let x = || col("t.x");
    assert_eq!(seen_reads(sum(x() * col("t.y") + x()))?, [x(), col("t.y")]);
    let window = WindowFunction::new(WindowFunctionDefinition::AggregateUDF(sum_udaf()), vec![x()]);
    assert_eq!(seen_reads(Expr::from(window))?, [x()]);
    let variable: FieldRef = Arc::new(Field::new("@v", DataType::Float64, true));
    assert!(seen_reads(Expr::ScalarVariable(variable, vec!["@v".to_owned()]))?.is_empty());
    assert_eq!(seen_reads(Expr::GroupingSet(GroupingSet::Rollup(vec![x()])))?, [x()]);
    let element: FieldRef = Arc::new(Field::new("e", DataType::Float64, true));
    let body = Expr::LambdaVariable(LambdaVariable::new("e".to_owned(), Some(element))) * x();
    let transform = Expr::HigherOrderFunction(HigherOrderFunction::new(
        array_transform_higher_order_function(),
        vec![col("t.l"), Expr::Lambda(Lambda::new(vec!["e".to_owned()], body))],
    ));
    assert_eq!(seen_reads(transform)?, [col("t.l"), x()]);
    Ok(())
}

/// Nodes that `datafusion-proto` would change or refuse.
#[test]
fn what_proto_cannot_carry_is_opaque() -> Result<()> {
    let half = ScalarValue::from(2.0).cast_to(&DataType::Float16)?;
    assert!(seen_reads(lit(half))?.is_empty());
    let arrow = Expr::BinaryExpr(BinaryExpr::new(Box::new(col("t.s")), Operator::LongArrow, Box::new(lit("key"))));
    assert_eq!(seen_reads(arrow)?, [col("t.s")]);
    Ok(())
}

#[test]
fn it_has_the_type_the_nullability_and_the_name() -> Result<()> {
    let subquery = scalar_subquery(Arc::new(scan("u")?.build()?));
    let (_, expected) = subquery.to_field(&schema())?;
    rewrite(subquery, move |seen| {
        let (_, field) = seen.to_field(&schema())?;
        assert_eq!(field.data_type(), expected.data_type());
        assert_eq!(field.is_nullable(), expected.is_nullable());
        assert!(!seen.is_volatile());
        assert_eq!(seen.schema_name().to_string(), "(<subquery>)");
        Ok(lit(0.0))
    })?;
    Ok(())
}

#[test]
fn a_volatile_subquery_is_volatile() -> Result<()> {
    let plan = scan("u")?.project(vec![col("u.v") + f::random()])?.build()?;
    rewrite(scalar_subquery(Arc::new(plan)), |seen| {
        assert!(seen.is_volatile());
        Ok(lit(0.0))
    })?;
    Ok(())
}

#[test]
fn two_subqueries_that_print_alike_are_told_apart() -> Result<()> {
    let one = scalar_subquery(Arc::new(scan("u")?.build()?));
    let two = scalar_subquery(Arc::new(scan("w")?.build()?));
    let product = one.clone() * two.clone() + one.clone();
    let answer = rewrite(product, |seen| {
        let Expr::BinaryExpr(sum) = &seen else {
            return plan_err!("no sum: {seen}");
        };
        let Expr::BinaryExpr(product) = sum.left.as_ref() else {
            return plan_err!("no product: {seen}");
        };
        assert_ne!(product.left, product.right);
        assert_eq!(product.left, sum.right);
        Ok(product.right.as_ref().clone() - product.left.as_ref().clone())
    })?;
    assert_eq!(answer, two - one);
    Ok(())
}

#[test]
fn its_arguments_cannot_be_changed() -> Result<()> {
    let error = rewrite(sum(col("t.x")), |seen| {
        let Expr::ScalarFunction(call) = seen else {
            return plan_err!("no call: {seen}");
        };
        Ok(call.func.call(vec![lit(1.0)]))
    })
    .unwrap_err();
    assert!(matches!(error, DataFusionError::Plan(_)), "{error:?}");
    assert!(error.to_string().contains("cannot be changed"), "{error}");
    Ok(())
}

/// Kinds that do not cross cannot come out of an answer either.
#[test]
fn an_answer_cannot_hold_an_aggregate() {
    let error = rewrite(col("t.x"), |seen| Ok(sum(seen))).unwrap_err();
    assert!(error.to_string().contains("sum(t.x)"), "{error}");
}

#[test]
fn metadata_cannot_be_in_an_answer() {
    let error = rewrite(col("t.x"), |seen| {
        let metadata = std::collections::BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        Ok(seen * Expr::Literal(ScalarValue::from(1.0), Some(metadata.into())))
    })
    .unwrap_err();
    assert!(error.to_string().contains("metadata"), "{error}");
}
