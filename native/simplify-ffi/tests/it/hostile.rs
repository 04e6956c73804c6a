//! Bytes that are not what the ABI says.

use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};

use datafusion::common::{Column, DataFusionError, Result, ScalarValue};
use datafusion::functions::expr_fn as f;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::simplify::ExprSimplifyResult;
use datafusion::logical_expr::{
    Expr, GroupingSet, LogicalPlanBuilder, Operator, ScalarUDF, ScalarUDFImpl, col, lit, scalar_subquery,
};
use datafusion_proto::logical_plan::DefaultLogicalExtensionCodec;
use datafusion_proto::logical_plan::to_proto::serialize_expr;
use datafusion_proto::protobuf::LogicalExprNode;
use prost::Message;
use xql_simplify_ffi::wire::{Answer, Call, Entry, Kind, Opaque, Outcome, Request, Simplified};
use xql_simplify_ffi::{FFI_Bytes, FFI_ScalarUDFSimplify, SimplifyingScalarUDF};

use crate::common::{context, import_stock, probe, schema};

/// A generator of reproducible numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(bound).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}

fn mutated(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(5) {
            0 => bytes[at] = numbers.byte(),
            1 => bytes[at] ^= 1 << numbers.below(8),
            2 => bytes.insert(at, numbers.byte()),
            3 if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

/// The private data of the functions below.
struct Replay {
    requests: Mutex<Vec<Vec<u8>>>,
    answer: Vec<u8>,
}

unsafe extern "C" fn replay(this: &FFI_ScalarUDFSimplify, request: *const u8, len: usize) -> FFI_Bytes {
    // SAFETY: the private data was set in `replaying`, the request comes from the consumer.
    let (replay, request) = unsafe { (&*this.private_data.cast::<Replay>(), std::slice::from_raw_parts(request, len)) };
    replay.requests.lock().unwrap().push(request.to_vec());
    replay.answer.clone().into()
}

unsafe extern "C" fn keep(_this: &mut FFI_ScalarUDFSimplify) {}

/// Simplifies with a provider that records the request and gives a fixed answer.
fn simplify_by(replay_of: &Replay, args: Vec<Expr>) -> Result<ExprSimplifyResult> {
    let udf = unchanged();
    let exported = FFI_ScalarUDFSimplify::from(Arc::clone(&udf));
    let simplify = FFI_ScalarUDFSimplify {
        simplify: replay,
        release: keep,
        private_data: std::ptr::from_ref(replay_of).cast_mut().cast(),
        ..exported
    };
    let imported = SimplifyingScalarUDF::new(import_stock(&udf), simplify);
    imported.simplify(args, &context(schema()))
}

fn answered(answer: Vec<u8>, args: Vec<Expr>) -> Result<ExprSimplifyResult> {
    let replay = Replay { requests: Mutex::default(), answer };
    simplify_by(&replay, args)
}

fn request(args: Vec<Expr>) -> Vec<u8> {
    let replay = Replay { requests: Mutex::default(), answer: vec![] };
    simplify_by(&replay, args).expect_err("the answer is empty");
    replay.requests.into_inner().unwrap().remove(0)
}

fn asked(provider: &FFI_ScalarUDFSimplify, request: &[u8]) -> Answer {
    // SAFETY: the struct is of this library and the request outlives the call.
    let answer = unsafe { (provider.simplify)(provider, request.as_ptr(), request.len()) };
    Answer::decode(answer.as_slice()).unwrap()
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

/// Arguments with entries of every sort.
fn arguments() -> Vec<Expr> {
    let list =
        ScalarValue::new_list_nullable(&[ScalarValue::from(1.0)], &datafusion::arrow::datatypes::DataType::Float64);
    let plan = LogicalPlanBuilder::values(vec![vec![lit(1.0)]]).unwrap().build().unwrap();
    let foreign = unchanged();
    vec![
        f::power(col("t.x"), lit(2.0)) + col("t.x"),
        foreign.call(vec![col("t.x"), lit("text"), lit(ScalarValue::List(list))]),
        scalar_subquery(Arc::new(plan)) - col("t.y"),
        Expr::OuterReferenceColumn(
            Arc::new(datafusion::arrow::datatypes::Field::new(
                "x",
                datafusion::arrow::datatypes::DataType::Float64,
                true,
            )),
            Column::from("o.x"),
        ),
    ]
}

#[test]
fn garbled_requests_do_not_panic() {
    let provider = FFI_ScalarUDFSimplify::from(doubling());
    let request = request(arguments());
    let numbers = &mut Numbers(1);
    let mut failures = 0;
    for _ in 0..5000 {
        let answer = asked(&provider, &mutated(&request, numbers));
        failures += usize::from(matches!(answer.outcome, Some(Outcome::Failure(_))));
    }
    assert!(failures > 2500, "{failures}");
    for len in 0..request.len() {
        let answer = asked(&provider, &request[..len]);
        assert!(answer.outcome.is_some());
    }
}

#[test]
fn garbled_answers_do_not_panic() {
    let provider = FFI_ScalarUDFSimplify::from(doubling());
    let answer = asked(&provider, &request(arguments())).encode_to_vec();
    assert!(answered(answer.clone(), arguments()).is_ok());
    let numbers = &mut Numbers(2);
    let mut failures = 0;
    for _ in 0..5000 {
        let answer = mutated(&answer, numbers);
        let simplified = catch_unwind(|| answered(answer, arguments())).unwrap();
        failures += usize::from(simplified.is_err());
    }
    assert!(failures > 2500, "{failures}");
    for len in 0..answer.len() {
        let simplified = answered(answer[..len].to_vec(), arguments());
        assert!(simplified.is_err());
    }
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
    assert!(refusal(vec![node(&scalar_subquery(Arc::new(plan)))], 1).contains("a node with a plan"));
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
    let request = Request::decode(request(arguments()).as_slice()).unwrap();
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
    let answer = Answer::decode(answer.as_slice()).unwrap();
    assert!(matches!(answer.outcome, Some(Outcome::Failure(_))));
}
