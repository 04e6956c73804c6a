//! Nothing of DataFusion, and none of the special functions, is missing in the rule table: every scalar function and operator of a
//! session is in exactly one group of it, or neither takes nor returns a float.

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit, UnionFields, UnionMode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{Operator, ReturnFieldArgs, ScalarUDF};
use datafusion::prelude::SessionContext;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An argument to try a function with: its type, and its value if it is a constant.
#[derive(Clone)]
struct Probe {
    field: FieldRef,
    constant: Option<ScalarValue>,
}

fn probes() -> Vec<Probe> {
    let column = |data_type| Probe { field: Arc::new(Field::new("a", data_type, true)), constant: None };
    let constant = |text: &str| Probe { constant: Some(ScalarValue::from(text)), ..column(DataType::Utf8) };
    let value = Arc::new(Field::new("value", DataType::Float64, true));
    let map_by = |key| {
        let key = Arc::new(Field::new("key", key, false));
        let entries = Field::new("entries", DataType::Struct(vec![key, Arc::clone(&value)].into()), false);
        DataType::Map(Arc::new(entries), false)
    };
    let union = UnionFields::try_new([0], [Field::new("a", DataType::Float64, true)]).expect("a union");
    vec![
        column(DataType::Float64),
        column(DataType::Float32),
        column(DataType::Int64),
        column(DataType::Boolean),
        column(DataType::Utf8),
        column(DataType::Decimal128(10, 2)),
        column(DataType::Timestamp(TimeUnit::Nanosecond, None)),
        column(DataType::Interval(IntervalUnit::MonthDayNano)),
        column(DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)))),
        column(DataType::Struct(vec![Field::new("a", DataType::Float64, true)].into())),
        column(map_by(DataType::Utf8)),
        column(map_by(DataType::Float64)),
        column(DataType::Union(union, UnionMode::Dense)),
        // What date_part, arrow_cast, and get_field take their types from.
        constant("epoch"),
        constant("Float64"),
        constant("a"),
    ]
}

/// Whether a float is part of values of this type.
fn holds_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| holds_floats(field.data_type())),
        DataType::Dictionary(_, values) => holds_floats(values),
        DataType::Struct(fields) => fields.iter().any(|field| holds_floats(field.data_type())),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => holds_floats(field.data_type()),
        plain => plain.is_floating(),
    }
}

/// What becomes of floats in the calls of a function or operator that the planner accepts.
#[derive(Debug, Default)]
struct Found {
    accepted: bool,
    /// A float is taken as one. One that is first made a string or a whole number is not: that is a conversion, with a
    /// line of its own, and the function itself is not of floats.
    taken: bool,
    returned: bool,
}

impl Found {
    fn is_of_floats(&self) -> bool {
        self.taken || self.returned
    }

    fn note<'a>(&mut self, given: impl Iterator<Item = (&'a DataType, &'a DataType)>, result: &DataType) {
        self.accepted = true;
        self.taken |= given.into_iter().any(|(given, taken)| holds_floats(given) && holds_floats(taken));
        self.returned |= holds_floats(result);
    }
}

/// Tries a function with all combinations of up to three arguments, and of four if it takes no fewer.
fn try_function(function: &ScalarUDF) -> Found {
    let probes = probes();
    let mut found = Found::default();
    let mut arguments: Vec<Vec<&Probe>> = vec![vec![]];
    for arity in 0..=4 {
        if arity == 4 && found.accepted {
            break;
        }
        for probes in &arguments {
            let given: Vec<_> = probes.iter().map(|probe| Arc::clone(&probe.field)).collect();
            let constants: Vec<_> = probes.iter().map(|probe| probe.constant.as_ref()).collect();
            let Ok(taken) = fields_with_udf(&given, function) else { continue };
            let call = ReturnFieldArgs { arg_fields: &taken, scalar_arguments: &constants };
            if let Ok(result) = function.return_field_from_args(call) {
                let types = given.iter().zip(&taken).map(|(given, taken)| (given.data_type(), taken.data_type()));
                found.note(types, result.data_type());
            }
        }
        arguments =
            arguments.iter().flat_map(|some| probes.iter().map(|next| [some.as_slice(), &[next]].concat())).collect();
    }
    found
}

fn try_operator(operator: Operator) -> Found {
    let mut found = Found::default();
    for left in probes() {
        for right in probes() {
            let (left, right) = (left.field.data_type(), right.field.data_type());
            let coercer = BinaryTypeCoercer::new(left, &operator, right);
            if let (Ok((a, b)), Ok(result)) = (coercer.get_input_types(), coercer.get_result_type()) {
                found.note([(left, &a), (right, &b)].into_iter(), &result);
            }
        }
    }
    found
}

/// The groups of the rule table that have a line for a name.
fn groups(table: &RecordBatch, is_named: impl Fn(&str) -> bool) -> Vec<String> {
    let column = |name| table.column_by_name(name).expect("a column of the table").as_string::<i32>();
    let lines = column("signature").iter().zip(column("group")).filter_map(|(signature, group)| signature.zip(group));
    let found: BTreeSet<_> = lines.filter(|(signature, _)| is_named(signature)).map(|(_, group)| group).collect();
    found.into_iter().map(str::to_owned).collect()
}

/// The name of the function that a signature calls.
fn called(signature: &str) -> Option<&str> {
    let (name, _) = signature.split_once('(')?;
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_').then_some(name)
}

/// What is wrong with the groups that something of floats, or not of floats, is in.
fn complaint(found: &Found, groups: &[String]) -> Option<String> {
    match groups {
        _ if !found.accepted => Some("takes no arguments that are tried".to_owned()),
        [] if found.is_of_floats() => Some(format!("is missing in the table: {found:?}")),
        [group] if group == "differentiable" && !found.returned => Some("returns no float".to_owned()),
        [] | [_] => None,
        several => Some(format!("is in several groups: {several:?}")),
    }
}

/// A session with the special functions.
fn session() -> SessionContext {
    let session = SessionContext::new();
    xql_special::functions().into_iter().for_each(|function| session.register_udf(function));
    session
}

/// The name by which the table lists a function.
fn listed(function: &ScalarUDF) -> &str {
    xql_special::canonical(function).unwrap_or(function.name())
}

#[test]
fn every_function_of_a_session_is_in_one_group() -> Result<()> {
    let table = xql_autodiff::rule_table()?;
    let state = session().state();
    let functions: BTreeMap<_, _> = state.scalar_functions().values().map(|f| (listed(f).to_owned(), f)).collect();
    assert!(functions.len() > 150, "{} functions", functions.len());
    let mut complaints = vec![];
    for (name, function) in &functions {
        let groups = groups(&table, |signature| called(signature) == Some(name));
        complaints.extend(complaint(&try_function(function), &groups).map(|what| format!("{name} {what}")));
    }
    // What they return depends on their lambda.
    for function in state.higher_order_functions().values() {
        if groups(&table, |signature| called(signature) == Some(function.name())).len() != 1 {
            complaints.push(format!("{} is not in one group", function.name()));
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
    Ok(())
}

#[test]
fn every_function_of_the_table_is_one_of_a_session() -> Result<()> {
    let table = xql_autodiff::rule_table()?;
    let state = session().state();
    let names: BTreeSet<_> = state
        .scalar_functions()
        .values()
        .map(|function| listed(function))
        .chain(state.higher_order_functions().values().map(|function| function.name()))
        .collect();
    for signature in table["signature"].as_string::<i32>().iter().flatten() {
        if let Some(name) = called(signature) {
            assert!(names.contains(name), "{signature} is no function, or listed under an alias");
        }
    }
    Ok(())
}

/// All operators. The `match` fails to compile when there is another.
macro_rules! operators {
    ($($name:ident)*) => {{
        fn is_listed(operator: Operator) -> bool {
            match operator {
                $(Operator::$name)|* => true,
            }
        }
        let all = [$(Operator::$name),*];
        assert!(all.into_iter().all(is_listed));
        all
    }};
}

#[test]
fn every_operator_is_in_one_group() -> Result<()> {
    let table = xql_autodiff::rule_table()?;
    let operators = operators!(
        Eq NotEq Lt LtEq Gt GtEq Plus Minus Multiply Divide Modulo And Or IsDistinctFrom IsNotDistinctFrom RegexMatch
        RegexIMatch RegexNotMatch RegexNotIMatch LikeMatch ILikeMatch NotLikeMatch NotILikeMatch BitwiseAnd BitwiseOr
        BitwiseXor BitwiseShiftRight BitwiseShiftLeft StringConcat AtArrow ArrowAt Arrow LongArrow HashArrow
        HashLongArrow AtAt IntegerDivide HashMinus AtQuestion Question QuestionAnd QuestionPipe Colon
    );
    let mut of_floats = BTreeSet::new();
    for operator in operators {
        let found = try_operator(operator);
        // Planned, but refused when executed.
        if operator == Operator::Colon {
            continue;
        }
        if found.is_of_floats() {
            of_floats.insert(operator.to_string());
        }
        let groups = groups(&table, |signature| {
            signature.split_once(&format!(" {operator} ")).is_some_and(|(a, b)| !a.contains(' ') && !b.contains(' '))
        });
        let wrong = complaint(&Found { accepted: true, ..found }, &groups);
        assert_eq!(wrong, None, "{operator}");
    }
    assert!(["+", "%", "<", "IS DISTINCT FROM"].iter().all(|operator| of_floats.contains(*operator)), "{of_floats:?}");
    Ok(())
}
