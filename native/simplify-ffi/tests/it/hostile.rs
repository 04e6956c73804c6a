//! Bytes that are not what the ABI says.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex};

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Column, DataFusionError, Result};
use datafusion::functions::expr_fn as f;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::simplify::ExprSimplifyResult;
use datafusion::logical_expr::{
    Expr, GroupingSet, LogicalPlanBuilder, Operator, ScalarUDF, ScalarUDFImpl, cast, col, lit, scalar_subquery,
};
use datafusion_proto::generated::datafusion_common::scalar_value::Value;
use datafusion_proto::generated::datafusion_common::{Decimal128, ScalarFixedSizeBinary};
use datafusion_proto::logical_plan::DefaultLogicalExtensionCodec;
use datafusion_proto::logical_plan::to_proto::serialize_expr;
use datafusion_proto::protobuf::logical_expr_node::ExprType;
use datafusion_proto::protobuf::{self, LogicalExprNode};
use prost::Message;
use xql_simplify_ffi::wire::{self, Answer, Call, Entry, Kind, Opaque, Outcome, Request, Simplified};
use xql_simplify_ffi::{ABI_VERSION, FFI_Bytes, FFI_ScalarUDFSimplify, SimplifyingScalarUDF};

use crate::common::{context, import_stock, probe, schema};

/// The private data of the functions below.
pub struct Replay {
    requests: Mutex<Vec<Vec<u8>>>,
    answer: Vec<u8>,
}

impl Replay {
    pub fn new(answer: Vec<u8>) -> Self {
        Self { requests: Mutex::default(), answer }
    }
}

unsafe extern "C" fn replay(this: &FFI_ScalarUDFSimplify, request: *const u8, len: usize) -> FFI_Bytes {
    // SAFETY: the private data was set in `replaying`, the request comes from the consumer.
    let (replay, request) = unsafe { (&*this.private_data.cast::<Replay>(), std::slice::from_raw_parts(request, len)) };
    replay.requests.lock().unwrap().push(request.to_vec());
    replay.answer.clone().into()
}

unsafe extern "C" fn keep(_this: &mut FFI_ScalarUDFSimplify) {}

/// Simplifies a call of a function whose provider records the request and gives a fixed answer.
pub fn foreign_simplify(replay_of: &Replay, function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Result<ExprSimplifyResult> {
    let exported = FFI_ScalarUDFSimplify::from(Arc::clone(function));
    let simplify = FFI_ScalarUDFSimplify {
        simplify: replay,
        release: keep,
        private_data: std::ptr::from_ref(replay_of).cast_mut().cast(),
        ..exported
    };
    let imported = SimplifyingScalarUDF::new(import_stock(function), simplify);
    imported.simplify(args, &context(schema()))
}

fn answered(answer: Vec<u8>, args: Vec<Expr>) -> Result<ExprSimplifyResult> {
    foreign_simplify(&Replay::new(answer), &unchanged(), args)
}

pub fn request(function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Vec<u8> {
    let replay = Replay::new(vec![]);
    foreign_simplify(&replay, function, args).expect_err("the answer is empty");
    replay.requests.into_inner().unwrap().remove(0)
}

pub fn asked(provider: &FFI_ScalarUDFSimplify, request: &[u8]) -> Answer {
    // SAFETY: the struct is of this library and the request outlives the call.
    let answer = unsafe { (provider.simplify)(provider, request.as_ptr(), request.len()) };
    Answer::decode(answer.as_slice().unwrap()).unwrap()
}

fn unchanged() -> Arc<ScalarUDF> {
    probe(|args, _| Ok(ExprSimplifyResult::Original(args)))
}

fn doubling() -> Arc<ScalarUDF> {
    probe(|mut args, _| {
        let Some(arg) = args.pop() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        Ok(ExprSimplifyResult::Simplified(f::sin(arg.clone()) * arg))
    })
}

fn node(expr: &Expr) -> Entry {
    let node: LogicalExprNode = serialize_expr(expr, &DefaultLogicalExtensionCodec {}).unwrap();
    Entry { kind: Some(Kind::Node(node)) }
}

fn reference(entry: usize) -> Box<Expr> {
    Box::new(Expr::Column(Column::new_unqualified(entry.to_string())))
}

fn product(left: usize, right: usize) -> Entry {
    node(&Expr::BinaryExpr(BinaryExpr::new(reference(left), Operator::Multiply, reference(right))))
}

/// What becomes of an answer with these entries after the one entry of the request.
fn simplified(entries: Vec<Entry>, root: u32) -> Result<ExprSimplifyResult> {
    let answer = Answer { outcome: Some(Outcome::Simplified(Simplified { entries, root })) };
    answered(answer.encode_to_vec(), vec![col("t.x")])
}

fn refusal(entries: Vec<Entry>, root: u32) -> String {
    simplified(entries, root).unwrap_err().to_string()
}

#[test]
fn crafted_answers_are_refused() {
    assert!(simplified(vec![product(0, 0)], 1).is_ok());
    assert!(refusal(vec![], 1).contains("root"));
    assert!(refusal(vec![product(0, 1)], 1).contains("precede"));
    assert!(refusal(vec![product(0, usize::MAX)], 1).contains("malformed"));
    assert!(refusal(vec![Entry { kind: None }], 1).contains("without kind"));
    assert!(refusal(vec![node(&lit(1.0).alias("a"))], 1).contains("no reference"));
    assert!(refusal(vec![node(&col("t.x"))], 1).contains("malformed"));
    let sum = *reference(0) + *reference(0) + *reference(0);
    assert!(refusal(vec![node(&sum)], 1).contains("two operands"));
    let rollup = Expr::GroupingSet(GroupingSet::Rollup(vec![*reference(0)]));
    assert!(refusal(vec![node(&rollup)], 1).contains("kind that does not cross"));
    let plan = LogicalPlanBuilder::values(vec![vec![lit(1.0)]]).unwrap().build().unwrap();
    assert!(refusal(vec![node(&scalar_subquery(Arc::new(plan)))], 1).contains("kind that does not cross"));
    let unknown = unchanged().call(vec![*reference(0)]);
    assert!(refusal(vec![node(&unknown)], 1).contains("'probe'"));
    let call = Kind::Call(Call { function: 0, arguments: vec![], return_field: None });
    assert!(refusal(vec![Entry { kind: Some(call) }], 1).contains("not in the request"));
    let opaque = Kind::Opaque(Opaque::default());
    assert!(refusal(vec![Entry { kind: Some(opaque) }], 1).contains("opaque"));
}

/// Sixty-four squarings are 65 entries and more nodes than there is memory.
#[test]
fn an_answer_that_hides_too_many_nodes_is_refused() {
    let entries = (0..64).map(|entry| product(entry, entry)).collect();
    let error = simplified(entries, 64).unwrap_err();
    assert!(matches!(error, DataFusionError::ResourcesExhausted(_)), "{error}");
}

#[test]
fn a_request_of_another_version_is_refused() {
    let provider = FFI_ScalarUDFSimplify::from(doubling());
    let request = Request::decode(request(&unchanged(), vec![col("t.x")]).as_slice()).unwrap();
    for (abi_version, datafusion_major) in [(2, 54), (1, 53)] {
        let request = Request { abi_version, datafusion_major, ..request.clone() };
        let answer = asked(&provider, &request.encode_to_vec());
        let Some(Outcome::Failure(failure)) = answer.outcome else {
            panic!("answered");
        };
        assert!(failure.message.contains("asked by version"), "{failure:?}");
    }
}

#[test]
fn a_missing_request_is_refused() {
    let provider = FFI_ScalarUDFSimplify::from(doubling());
    // SAFETY: the struct is of this library, which takes no pointer for an error.
    let answer = unsafe { (provider.simplify)(&provider, std::ptr::null(), 0) };
    let answer = Answer::decode(answer.as_slice().unwrap()).unwrap();
    assert!(matches!(answer.outcome, Some(Outcome::Failure(_))));
}

/// The layout of [`FFI_Bytes`], for libraries that do not keep to it.
#[repr(C)]
struct RawBytes {
    data: *const u8,
    len: usize,
    release: Option<unsafe extern "C" fn(&mut FFI_Bytes)>,
    private_data: *mut c_void,
}

impl RawBytes {
    fn of(data: *const u8, len: usize) -> FFI_Bytes {
        let raw = Self { data, len, release: None, private_data: null_mut() };
        // SAFETY: the layout is the same.
        unsafe { transmute::<Self, FFI_Bytes>(raw) }
    }
}

/// What becomes of an answer that is no buffer.
fn refused_bytes(simplify: unsafe extern "C" fn(&FFI_ScalarUDFSimplify, *const u8, usize) -> FFI_Bytes) -> String {
    let udf = unchanged();
    let mut exported = FFI_ScalarUDFSimplify::from(Arc::clone(&udf));
    exported.simplify = simplify;
    let imported = SimplifyingScalarUDF::new(import_stock(&udf), exported);
    imported.simplify(vec![col("t.x")], &context(schema())).unwrap_err().to_string()
}

#[test]
fn buffers_that_are_none_are_refused() {
    unsafe extern "C" fn null(_: &FFI_ScalarUDFSimplify, _: *const u8, _: usize) -> FFI_Bytes {
        RawBytes::of(std::ptr::null(), 1 << 60)
    }
    unsafe extern "C" fn huge(_: &FFI_ScalarUDFSimplify, _: *const u8, _: usize) -> FFI_Bytes {
        RawBytes::of(std::ptr::dangling(), usize::MAX)
    }
    unsafe extern "C" fn empty(_: &FFI_ScalarUDFSimplify, _: *const u8, _: usize) -> FFI_Bytes {
        RawBytes::of(std::ptr::dangling(), 0)
    }
    assert!(refused_bytes(null).contains("1152921504606846976 bytes at 0x0"));
    assert!(refused_bytes(huge).contains("18446744073709551615 bytes"));
    assert!(refused_bytes(empty).contains("an answer without outcome"));
}

#[test]
fn a_request_longer_than_memory_is_refused() {
    let provider = FFI_ScalarUDFSimplify::from(doubling());
    let byte = 0_u8;
    // SAFETY: no more is read than a slice can have.
    let answer = unsafe { (provider.simplify)(&provider, &raw const byte, usize::MAX) };
    let answer = Answer::decode(answer.as_slice().unwrap()).unwrap();
    assert!(matches!(answer.outcome, Some(Outcome::Failure(_))));
}

/// A struct that has another layout than its version says.
#[test]
fn a_struct_without_functions_is_refused() {
    let versions = [ABI_VERSION, datafusion_ffi::version()];
    let mut words: Vec<u64> = [versions.as_slice(), &[0; 6]].concat();
    for function in 2..5 {
        words[2..5].fill(8);
        words[function] = 0;
        // SAFETY: the memory is as large as the struct, and the versions are right.
        let imported = unsafe { FFI_ScalarUDFSimplify::import(NonNull::from(&words[0]).cast()) };
        assert!(imported.unwrap_err().to_string().contains("lacks functions"));
    }
    // SAFETY: as above.
    let imported = unsafe { FFI_ScalarUDFSimplify::import(NonNull::from(&words[0]).cast::<u8>().add(4).cast()) };
    assert!(imported.unwrap_err().to_string().contains("address"));
}

/// A chain is one entry for each level.
fn chain(levels: usize) -> Result<ExprSimplifyResult> {
    simplified((0..levels).map(|level| product(level, 0)).collect(), u32::try_from(levels).unwrap())
}

/// What the consumer gets it must also be able to drop.
#[test]
fn an_answer_that_is_too_deep_is_refused() {
    let work = || {
        assert!(chain(1000).is_ok());
        for levels in [1010, 70_000] {
            let error = chain(levels).unwrap_err();
            assert!(matches!(error, DataFusionError::ResourcesExhausted(_)), "{error}");
            assert!(error.to_string().contains("levels deep"), "{error}");
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}

/// As deep as there are entries: no stack would be large enough.
#[test]
fn a_request_that_is_too_deep_is_refused() {
    let provider = FFI_ScalarUDFSimplify::from(doubling());
    let mut request = Request::decode(request(&unchanged(), vec![col("t.x")]).as_slice()).unwrap();
    request.entries.extend((0..70_000).map(|level| product(level, 0)));
    request.arguments = vec![70_000];
    let Some(Outcome::Failure(failure)) = asked(&provider, &request.encode_to_vec()).outcome else {
        panic!("answered");
    };
    assert!(failure.message.contains("levels deep"), "{failure:?}");
}

/// A literal is copied each time that it is used: a megabyte a million times.
#[test]
fn an_answer_that_hides_a_large_literal_is_refused() {
    let text = node(&lit("a".repeat(1 << 20)));
    let concat = |left, right| {
        node(&Expr::BinaryExpr(BinaryExpr::new(reference(left), Operator::StringConcat, reference(right))))
    };
    let doubled = (1..=20).map(|entry| concat(entry, entry));
    let number = node(&cast(*reference(21), DataType::Float64));
    let error = simplified(std::iter::once(text).chain(doubled).chain([number]).collect(), 22).unwrap_err();
    assert!(matches!(error, DataFusionError::ResourcesExhausted(_)), "{error}");
}

/// A few bytes for a value of gigabytes.
#[test]
fn literals_that_are_not_of_their_type_are_refused() {
    let list = DataType::new_fixed_size_list(DataType::Float64, i32::MAX, true);
    let literals = [
        Value::NullValue((&list).try_into().unwrap()),
        Value::NullValue((&DataType::Decimal128(200, 100)).try_into().unwrap()),
        Value::NullValue((&DataType::FixedSizeBinary(-1)).try_into().unwrap()),
        Value::Int8Value(300),
        Value::Uint16Value(1 << 20),
        Value::Decimal128Value(Decimal128 { value: vec![0; 15], p: 10, s: 2 }),
        Value::Decimal128Value(Decimal128 { value: vec![0; 16], p: 10 + 256, s: 2 }),
        Value::FixedSizeBinaryValue(ScalarFixedSizeBinary { values: vec![0; 3], length: 2 }),
    ];
    for value in literals {
        let shown = format!("{value:?}");
        let literal = ExprType::Literal(protobuf::ScalarValue { value: Some(value) });
        let entry = Entry { kind: Some(Kind::Node(LogicalExprNode { expr_type: Some(literal) })) };
        let refusal = refusal(vec![entry], 1);
        assert!(refusal.contains("not of its type"), "{shown}: {refusal}");
    }
    let types = [DataType::Decimal128(200, 100), DataType::FixedSizeBinary(-1), DataType::Time32(TimeUnit::Nanosecond)];
    for data_type in types {
        let entry = node(&cast(*reference(0), data_type.clone()));
        assert!(refusal(vec![entry], 1).contains("there is no type"), "{data_type}");
    }
}

/// What `simplify` gives is of the type of the call.
#[test]
fn answers_of_another_type_are_refused() {
    assert!(simplified(vec![product(0, 0)], 1).is_ok());
    assert!(refusal(vec![node(&lit("text"))], 1).contains("of type Utf8 for a call of 'probe', which returns Float64"));
    let column = Kind::Column(wire::Column { relation: None, name: "nowhere".to_owned() });
    assert!(refusal(vec![Entry { kind: Some(column) }], 1).contains("nowhere"));
    let entries = vec![node(&lit("text")), node(&(*reference(0) - *reference(1)))];
    assert!(refusal(entries, 2).contains("without type"));
}
