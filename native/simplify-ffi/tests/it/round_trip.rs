//! What crosses comes back as it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::common::{context, import, probe, rewrite, schema, simplify_with};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference};
use datafusion::functions::expr_fn as f;
use datafusion::functions_nested::expr_fn as nested;
use datafusion::logical_expr::expr::{Alias, BinaryExpr, Cast, FieldMetadata, Placeholder};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    Between, Expr, ExprSchemable, Like, Operator, TryCast, col, ident, lit, try_cast, when,
};

fn x() -> Expr {
    col("t.x")
}

fn metadata(key: &str) -> FieldMetadata {
    FieldMetadata::from(BTreeMap::from([(key.to_owned(), "1".to_owned())]))
}

fn placeholder(field: &str) -> Expr {
    let field = Field::new(field, DataType::Float64, false);
    Expr::Placeholder(Placeholder::new_with_field("$2".to_owned(), Some(Arc::new(field))))
}

/// Expressions of every kind that crosses as a node.
pub fn expressions() -> Vec<Expr> {
    let boxed = |expr: Expr| Box::new(expr);
    let b = || col("t.b");
    let s = || col("t.s");
    let mut expressions = vec![
        x(),
        ident("unqualified"),
        Expr::Column(Column::new(Some(TableReference::bare("a.b \"c\"")), "d.e")),
        Expr::Column(Column::new(Some(TableReference::full("c", "s", "T")), "X y")),
        lit(1.5),
        lit(ScalarValue::Float64(None)),
        lit(f64::NAN),
        lit(-0.0),
        lit(ScalarValue::Null),
        lit("it's"),
        lit(ScalarValue::from(2.0).cast_to(&DataType::Float16).unwrap()),
        lit(ScalarValue::Dictionary(Box::new(DataType::Int32), Box::new(ScalarValue::from("d")))),
        lit(ScalarValue::List(ScalarValue::new_list_nullable(&[ScalarValue::from(1.0)], &DataType::Float64))),
        Expr::Literal(ScalarValue::from(2.0), Some(metadata("unit"))),
        x().alias("a"),
        x().alias_qualified(Some("q"), "a"),
        Expr::Alias(Alias { metadata: Some(metadata("unit")), ..Alias::new(x(), None::<TableReference>, "a") }),
        Expr::Like(Like::new(true, boxed(s()), boxed(lit("%a")), Some('\\'), false)),
        Expr::Like(Like::new(false, boxed(s()), boxed(lit("%a")), None, true)),
        Expr::Like(Like::new(false, boxed(s()), boxed(lit("%a")), Some('é'), true)),
        Expr::SimilarTo(Like::new(false, boxed(s()), boxed(lit("a")), None, false)),
        Expr::SimilarTo(Like::new(false, boxed(s()), boxed(lit("a")), None, true)),
        Expr::Not(boxed(b())),
        Expr::IsNotNull(boxed(x())),
        Expr::IsNull(boxed(x())),
        Expr::IsTrue(boxed(b())),
        Expr::IsFalse(boxed(b())),
        Expr::IsUnknown(boxed(b())),
        Expr::IsNotTrue(boxed(b())),
        Expr::IsNotFalse(boxed(b())),
        Expr::IsNotUnknown(boxed(b())),
        Expr::Negative(boxed(x())),
        Expr::Between(Between::new(boxed(x()), true, boxed(lit(0.0)), boxed(lit(1.0)))),
        when(x().gt(lit(0.0)), x()).otherwise(-x()).unwrap(),
        when(b(), lit(1)).end().unwrap(),
        datafusion::logical_expr::case(col("t.n")).when(lit(1), x()).when(lit(2), lit(0.0)).end().unwrap(),
        x().cast_to(&DataType::Float32, &schema()).unwrap(),
        Expr::Cast(Cast::new_from_field(
            boxed(x()),
            Arc::new(
                Field::new("named", DataType::Float32, false)
                    .with_metadata(HashMap::from([("k".to_owned(), "v".to_owned())])),
            ),
        )),
        try_cast(s(), DataType::Float64),
        Expr::TryCast(TryCast::new_from_field(boxed(s()), Arc::new(Field::new("named", DataType::Float64, false)))),
        f::sin(x()),
        f::power(x(), lit(2.0)),
        f::coalesce(vec![x(), lit(0.0)]),
        f::pi(),
        f::now(),
        nested::array_length(col("t.l")),
        f::random(),
        x().in_list(vec![lit(1.0), x()], false),
        x().in_list(vec![lit(1.0)], true),
        Expr::Placeholder(Placeholder::new_with_field("$1".to_owned(), None)),
        placeholder("named"),
        datafusion::logical_expr::unnest(col("t.l")),
        Expr::OuterReferenceColumn(
            Arc::new(Field::new("x", DataType::Float64, false)),
            Column::new(Some("o.uter"), "x"),
        ),
    ];
    expressions.extend(
        OPERATORS.iter().map(|&operator| Expr::BinaryExpr(BinaryExpr::new(boxed(x()), operator, boxed(col("t.y"))))),
    );
    expressions
}

const OPERATORS: [Operator; 42] = [
    Operator::Eq,
    Operator::NotEq,
    Operator::Lt,
    Operator::LtEq,
    Operator::Gt,
    Operator::GtEq,
    Operator::Plus,
    Operator::Minus,
    Operator::Multiply,
    Operator::Divide,
    Operator::Modulo,
    Operator::And,
    Operator::Or,
    Operator::IsDistinctFrom,
    Operator::IsNotDistinctFrom,
    Operator::RegexMatch,
    Operator::RegexIMatch,
    Operator::RegexNotMatch,
    Operator::RegexNotIMatch,
    Operator::LikeMatch,
    Operator::ILikeMatch,
    Operator::NotLikeMatch,
    Operator::NotILikeMatch,
    Operator::BitwiseAnd,
    Operator::BitwiseOr,
    Operator::BitwiseXor,
    Operator::BitwiseShiftRight,
    Operator::BitwiseShiftLeft,
    Operator::StringConcat,
    Operator::AtArrow,
    Operator::ArrowAt,
    Operator::Arrow,
    Operator::LongArrow,
    Operator::HashArrow,
    Operator::HashLongArrow,
    Operator::AtAt,
    Operator::IntegerDivide,
    Operator::HashMinus,
    Operator::AtQuestion,
    Operator::Question,
    Operator::QuestionAnd,
    Operator::QuestionPipe,
];

#[test]
fn arguments_come_back_as_they_were() -> Result<()> {
    let simplified = simplify_with(expressions(), |args, _| Ok(ExprSimplifyResult::Original(args)))?;
    let ExprSimplifyResult::Original(args) = simplified else {
        panic!("simplified");
    };
    assert_eq!(args, expressions());
    Ok(())
}

#[test]
fn every_kind_comes_back_inside_an_answer() -> Result<()> {
    for expr in expressions() {
        assert_eq!(rewrite(expr.clone(), Ok)?, expr);
        let answer = rewrite(expr.clone(), |expr| Ok(expr.is_null().is_true()))?;
        assert_eq!(answer, expr.is_null().is_true());
    }
    Ok(())
}

/// Kinds and operators `datafusion-proto` has are seen as such, without metadata.
#[test]
fn the_provider_sees_the_expression() -> Result<()> {
    for expr in [
        x() + lit(1.5) * col("t.y"),
        f::sin(x()),
        f::random(),
        Expr::Column(Column::new(Some("a.b"), "c.d")),
        Expr::OuterReferenceColumn(
            Arc::new(Field::new("x", DataType::Float64, false)),
            Column::new(Some("o.uter"), "x"),
        ),
        when(x().gt(lit(0.0)), x()).otherwise(-x())?,
    ] {
        let expected = expr.clone();
        rewrite(expr, move |seen| {
            assert_eq!(seen, expected);
            Ok(lit(0.0))
        })?;
    }
    for (expr, expected) in [
        (Expr::Literal(ScalarValue::from(2.0), Some(metadata("unit"))), lit(2.0)),
        (placeholder("named"), placeholder("")),
    ] {
        rewrite(expr, move |seen| {
            assert_eq!(seen, expected);
            Ok(lit(0.0))
        })?;
    }
    Ok(())
}

/// Of a schema, every field crosses that a name among the arguments may mean, and no other.
#[test]
fn the_schema_crosses_with_qualifiers_types_and_nullability() -> Result<()> {
    let fields = [
        (Some(TableReference::bare("a.b")), "x", DataType::Float64, true),
        (
            Some(TableReference::full("c", "s", "t")),
            "x",
            DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Float32)),
            false,
        ),
        (None, "y", DataType::new_list(DataType::Utf8, true), true),
        (Some(TableReference::bare("a.b")), "unread", DataType::Float64, true),
    ];
    let fields = fields.map(|(qualifier, name, data_type, nullable)| {
        let metadata = HashMap::from([("k".to_owned(), "v".to_owned())]);
        let field = Field::new(name, data_type, nullable).with_metadata(metadata);
        (qualifier, Arc::new(field))
    });
    let schema = DFSchema::new_with_metadata(fields.to_vec(), HashMap::new())?;
    let expected = DFSchema::new_with_metadata(fields[..3].to_vec(), HashMap::new())?;
    let udf = import(&probe(move |args, info| {
        assert_eq!(info.schema().as_ref(), &expected);
        Ok(ExprSimplifyResult::Original(args))
    }));
    let read = Expr::Column(Column::new(Some(TableReference::bare("a.b")), "x")).is_null().and(ident("y").is_null());
    udf.simplify(vec![read], &context(schema))?;
    Ok(())
}

/// The merged inputs of a plan node may hold the same name with and without qualifier.
#[test]
fn an_ambiguous_schema_crosses() -> Result<()> {
    let field = Field::new("x", DataType::Float64, true);
    let mut schema = DFSchema::try_from(Schema::new(vec![field.clone()]))?;
    schema.merge(&DFSchema::try_from_qualified_schema("t", &Schema::new(vec![field]))?);
    assert!(schema.check_names().is_err());
    let expected = schema.clone();
    let udf = import(&probe(move |args, info| {
        assert_eq!(info.schema().as_ref(), &expected);
        Ok(ExprSimplifyResult::Original(args))
    }));
    udf.simplify(vec![x()], &context(schema))?;
    Ok(())
}

#[test]
fn the_time_of_the_query_crosses() -> Result<()> {
    for time in [None, chrono::DateTime::from_timestamp(-1, 999_999_999)] {
        let udf = import(&probe(move |args, info| {
            assert_eq!(info.query_execution_start_time(), time);
            Ok(ExprSimplifyResult::Original(args))
        }));
        let info = SimplifyContext::builder().with_query_execution_start_time(time).build();
        udf.simplify(vec![lit(1.0)], &info)?;
    }
    Ok(())
}

#[test]
fn several_and_no_arguments_cross() -> Result<()> {
    for args in [vec![], vec![x(), lit(1.0), x()]] {
        let expected = args.clone();
        simplify_with(args, move |args, _| {
            assert_eq!(args, expected);
            Ok(ExprSimplifyResult::Original(args))
        })?;
    }
    Ok(())
}
