//! Random and mutated messages, through both sides: an error each time or a valid expression, no panic, no leak, and no more
//! memory than the message is worth.
//!
//! Ten thousand inputs for each side, or as many as `XQL_FFI_TEST_ATTACKS` says:
//!
//! ```sh
//! XQL_FFI_TEST_ATTACKS=1000000 XQL_FFI_TEST_SEED=random cargo test --workspace --test it -- --nocapture attack
//! ```
//!
//! An input that fails is written to the folder `corpus`, which every run starts with. One that ends the process is in
//! `native/target/tmp`.

mod calls;
mod fields;
mod memory;
mod mutations;

use std::cell::RefCell;
use std::env::var;
use std::fs::{File, create_dir_all, read, read_dir, remove_file, write};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{Seek, Write};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::{DFSchema, DataFusionError, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{Expr, ExprSchemable};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use prost::Message;
use xql_simplify_ffi::FFI_ScalarUDFSimplify;
use xql_simplify_ffi::wire::Outcome;

use crate::common::{context, schema};
use crate::hostile::{Replay, asked, foreign_simplify, request};
use calls::{Attacked, calls, cross_unchanged, watched};
use memory::held;
use mutations::{mutated, mutations};

/// Threads of DataFusion have twice as much.
const STACK: usize = 1 << 20;

/// What an input may take of memory: so much, as a derivative of many terms does that crosses several times, and so many times its
/// length.
const MOST_BYTES: usize = 64 << 20;
const MOST_BYTES_PER_BYTE: usize = 1000;

/// The longest that an input may take, on a machine that may do much else.
const SLOWEST: Duration = Duration::from_secs(60);

/// What came of an input that was treated rightly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treated {
    Refused,
    Taken,
}

/// What came of an input, or what was wrong in how it was treated.
type Checked = Result<Treated, String>;

/// One side of the boundary under attack.
struct Side {
    name: &'static str,
    calls: Vec<Attacked>,
    /// For each call, the message that this side is to be sent.
    messages: Vec<Vec<u8>>,
    check: fn(&Attacked, &[u8]) -> Checked,
}

/// Attacks the side that `make` makes, with ten thousand inputs or as many as are asked for.
fn attack(make: impl FnOnce() -> Side + Send + 'static) {
    let run = || {
        let side = make();
        for (call, message) in side.messages.iter().enumerate() {
            assert_eq!(side.checked(call, message), Ok(Treated::Taken), "{} of call {call}", side.name);
        }
        for (file, call, input) in side.corpus() {
            side.treated(call, &input).unwrap_or_else(|reason| panic!("{}: {reason}", file.display()));
        }
        let inputs = var("XQL_FFI_TEST_ATTACKS").map_or(10_000, |inputs| inputs.parse().unwrap());
        side.random(inputs);
    };
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap_or_else(|panic| resume_unwind(panic));
}

/// What was seen of inputs.
#[derive(Default)]
struct Seen {
    refused: u32,
    slowest: Duration,
    most: usize,
}

impl Side {
    fn checked(&self, call: usize, input: &[u8]) -> Checked {
        (self.check)(&self.calls[call], input)
    }

    fn folder(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/attack/corpus").join(self.name)
    }

    /// Inputs that once failed. The name of a file starts with the number of the call.
    fn corpus(&self) -> Vec<(PathBuf, usize, Vec<u8>)> {
        let Ok(files) = read_dir(self.folder()) else { return vec![] };
        let input = |file: PathBuf| {
            let name = file.file_name()?.to_str()?;
            let call = name.split_once('-')?.0.parse().ok()?;
            let bytes = read(&file).ok()?;
            Some((file, call, bytes))
        };
        files.filter_map(|file| input(file.unwrap().path())).collect()
    }

    /// Checks an input, what it leaves behind and what it takes.
    fn treated(&self, call: usize, input: &[u8]) -> Result<(Treated, Duration, usize), String> {
        let start = Instant::now();
        let (treated, first) = held(|| self.checked(call, input));
        let (treated, time) = (treated?, start.elapsed());
        // What is made once and kept, such as a table of functions, is not left again.
        if first.left > 0 && (0..3).all(|_| held(|| self.checked(call, input)).1.left > 0) {
            return Err(format!("each time {} bytes are left allocated", first.left));
        }
        if first.most > MOST_BYTES + MOST_BYTES_PER_BYTE * input.len() {
            return Err(format!("{} bytes were allocated at once for an input of {}", first.most, input.len()));
        }
        if time > SLOWEST {
            return Err(format!("it took {time:?}"));
        }
        Ok((treated, time, first.most))
    }

    fn random(&self, inputs: u32) {
        let in_hand =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("attack-{}-{}", self.name, process::id()));
        let file = File::create(&in_hand).unwrap();
        let seen = RefCell::new(Seen::default());
        let outcome = runner(inputs).run(&self.inputs(), |(call, input)| {
            // If this input ends the process, it is there to be looked at.
            file.set_len(0)?;
            (&file).rewind()?;
            (&file).write_all(&[format!("{call}-").as_bytes(), &input].concat())?;
            let (treated, time, most) = self.treated(call, &input).map_err(TestCaseError::fail)?;
            let mut seen = seen.borrow_mut();
            seen.refused += u32::from(treated == Treated::Refused);
            seen.slowest = seen.slowest.max(time);
            seen.most = seen.most.max(most);
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, (call, input))) => {
                let kept = self.keep(call, &input);
                panic!("{}: {reason}", kept.display());
            }
            Err(TestError::Abort(reason)) => panic!("{reason}"),
        }
        remove_file(in_hand).unwrap();
        let Seen { refused, slowest, most } = seen.into_inner();
        println!(
            "{}: {inputs} inputs, {refused} refused; the slowest took {slowest:?}, the largest {most} bytes",
            self.name
        );
        // Else the mutations do nothing, or leave nothing to be read.
        assert!(refused > inputs / 2 && refused < inputs - inputs / 20, "{refused} of {inputs}");
    }

    fn inputs(&self) -> impl Strategy<Value = (usize, Vec<u8>)> + use<> {
        let calls = 0..self.messages.len();
        let messages: Vec<_> = self.messages.iter().cloned().enumerate().collect();
        prop_oneof![
            1 => (calls.clone(), vec(any::<u8>(), 0..300)),
            12 => (select(messages.clone()), mutations())
                .prop_map(|((call, message), mutations)| (call, mutated(&message, &mutations))),
            // What was meant for another call.
            2 => (calls, select(messages), mutations(), any::<bool>()).prop_map(|(call, (_, message), mutations, changed)| {
                (call, if changed { mutated(&message, &mutations) } else { message })
            }),
        ]
    }

    /// Keeps an input in the corpus.
    fn keep(&self, call: usize, input: &[u8]) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        create_dir_all(self.folder()).unwrap();
        let file = self.folder().join(format!("{call}-{:016x}", hasher.finish()));
        write(&file, input).unwrap();
        file
    }
}

/// The same inputs in every run, unless `XQL_FFI_TEST_SEED` gives another seed; `random` draws one.
fn runner(cases: u32) -> TestRunner {
    let seed = match var("XQL_FFI_TEST_SEED").as_deref() {
        Ok("random") => RandomState::new().hash_one(0),
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => 2026,
    };
    println!("seed {seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4096, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// A provider is sent a request.
fn check_request(call: &Attacked, request: &[u8]) -> Checked {
    // Made anew for each request, so that nothing is kept from one to the next.
    let provider = FFI_ScalarUDFSimplify::from(watched(&call.function));
    match asked(&provider, request).outcome {
        Some(Outcome::Failure(failure)) if failure.message.contains("panicked") => Err(failure.message),
        Some(Outcome::Failure(_)) => Ok(Treated::Refused),
        Some(_) => Ok(Treated::Taken),
        None => Err("an answer without outcome".to_owned()),
    }
}

/// A consumer is sent an answer.
fn check_answer(call: &Attacked, answer: &[u8]) -> Checked {
    let replay = Replay::new(answer.to_vec());
    let info = context(schema());
    match foreign_simplify(&replay, &call.function, call.args.clone()) {
        Err(error) if error.to_string().contains("panicked") => Err(error.to_string()),
        Err(_) => Ok(Treated::Refused),
        Ok(ExprSimplifyResult::Original(args)) if args == call.args => Ok(Treated::Taken),
        Ok(ExprSimplifyResult::Original(args)) => Err(format!("the arguments are now {args:?}")),
        Ok(ExprSimplifyResult::Simplified(expr)) => {
            let error = |error: DataFusionError| format!("{expr}: {error}");
            check_type(call, &expr, &info).map_err(error)?;
            cross_unchanged(std::slice::from_ref(&expr), &info)?;
            Ok(Treated::Taken)
        }
    }
}

/// That an expression has the type of the call that it stands for, unless the arguments have none themselves.
fn check_type(call: &Attacked, expr: &Expr, info: &SimplifyContext) -> Result<(), DataFusionError> {
    let data_type = |expr: &Expr| -> Result<_, DataFusionError> {
        Ok(expr.to_field(info.schema().as_ref())?.1.data_type().clone())
    };
    let unknown = |expr: &Expr| data_type(expr).is_err();
    if call.args.iter().any(unknown) {
        return Ok(());
    }
    let (given, called) = (
        data_type(expr)?,
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&call.function), call.args.clone())),
    );
    // That of a call for several derivatives cannot be told.
    match data_type(&called) {
        Ok(returned) if !DFSchema::datatype_is_logically_equal(&given, &returned) => {
            plan_err!("it is of type {given}, not {returned}")
        }
        _ => Ok(()),
    }
}

#[test]
fn requests() {
    attack(|| {
        let calls = calls();
        let messages = calls.iter().map(|call| request(&call.function, call.args.clone())).collect();
        Side { name: "requests", calls, messages, check: check_request }
    });
}

#[test]
fn answers() {
    attack(|| {
        let calls = calls();
        let answer = |call: &Attacked| {
            let provider = FFI_ScalarUDFSimplify::from(Arc::clone(&call.function));
            asked(&provider, &request(&call.function, call.args.clone())).encode_to_vec()
        };
        let messages = calls.iter().map(answer).collect();
        Side { name: "answers", calls, messages, check: check_answer }
    });
}
