//! Errors and panics of the provider.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Diagnostic, Result, plan_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, col, create_udf, lit,
};
use xql_autodiff::{Rule, Rules, grad_with};

use crate::common::{context, import, probe, schema, simplify_with};

fn failure(error: impl Fn() -> DataFusionError + Send + Sync + 'static) -> DataFusionError {
    simplify_with(vec![lit(1)], move |_, _| Err(error())).unwrap_err()
}

#[test]
fn kinds_of_errors_are_kept() {
    use DataFusionError::{Configuration, Execution, Ffi, Internal, NotImplemented, Plan, ResourcesExhausted};
    for kind in [Configuration, Execution, Ffi, Internal, NotImplemented, Plan, ResourcesExhausted] {
        let here = kind("what is wrong".to_owned()).to_string();
        let there = failure(move || kind("what is wrong".to_owned()));
        assert_eq!(there.to_string(), here);
    }
    assert_eq!(failure(|| Plan("no rule".to_owned())).to_string(), "Error during planning: no rule");
}

#[test]
fn a_diagnostic_is_left_behind_and_its_error_kept() {
    let error = failure(|| plan_datafusion_err!("no rule").with_diagnostic(Diagnostic::new_error("here", None)));
    assert!(matches!(error, DataFusionError::Plan(_)), "{error:?}");
}

#[test]
fn other_errors_keep_their_message() {
    let error = failure(|| plan_datafusion_err!("no rule").context("in the derivative"));
    assert!(matches!(error, DataFusionError::Ffi(_)), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("in the derivative"), "{message}");
    assert!(message.contains("Error during planning: no rule"), "{message}");
}

#[test]
fn a_panic_is_an_error() {
    let error = simplify_with(vec![lit(1)], |_, _| panic!("no {}", "rule")).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("FFI error: simplify of 'probe' panicked at "), "{message}");
    assert!(message.contains("failures.rs:") && message.ends_with(": no rule"), "{message}");
    let error = simplify_with(vec![lit(1)], |_, _| std::panic::panic_any(1)).unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_with_a_payload_that_panics_is_an_error() {
    let error = simplify_with(vec![lit(1)], |_, _| std::panic::panic_any(PanicsWhenDropped));
    assert!(error.is_err());
}

#[test]
fn a_panic_on_release_goes_no_further() {
    let bomb = PanicsWhenDropped;
    let udf = probe(move |_, _| {
        let _held = &bomb;
        Err(plan_datafusion_err!("never called"))
    });
    drop(xql_simplify_ffi::FFI_ScalarUDFSimplify::from(udf));
}

/// A function only this library has cannot be in the answer.
#[test]
fn an_unknown_function_in_the_answer_is_an_error() -> Result<()> {
    let own: Arc<ScalarUDF> = probe(|_, _| Err(plan_datafusion_err!("never called")));
    let error = crate::common::rewrite(lit(1), move |arg: Expr| Ok(own.call(vec![arg])));
    let error = error.unwrap_err();
    assert!(matches!(error, DataFusionError::Plan(_)), "{error:?}");
    assert!(error.to_string().contains("'probe'"), "{error}");
    Ok(())
}

/// A function by which the calculus panics once a rule that calls it is made: while it is armed, it has no type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Broken(Signature);

impl ScalarUDFImpl for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        assert!(!ARMED.load(Ordering::SeqCst), "no type");
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        panic!("no value")
    }
}

static ARMED: AtomicBool = AtomicBool::new(false);

/// `grad` with a rule that calls such a function, asked across the boundary.
fn panic_in_the_calculus() -> DataFusionError {
    let broken = Arc::new(ScalarUDF::from(Broken(Signature::any(1, Volatility::Immutable))));
    let rule = Rule::with_functions("softly(x)", &["broken(x)"], [broken]).unwrap();
    ARMED.store(true, Ordering::SeqCst);
    let grad = Arc::new(grad_with(Rules::new(vec![rule]).unwrap()));
    let softly = create_udf(
        "softly",
        vec![DataType::Float64],
        DataType::Float64,
        Volatility::Immutable,
        Arc::new(|args: &[ColumnarValue]| Ok(args[0].clone())),
    );
    import(&grad).simplify(vec![softly.call(vec![col("t.x")]), col("t.x")], &context(schema())).unwrap_err()
}

#[test]
fn a_panic_in_the_calculus_is_an_error() {
    let message = panic_in_the_calculus().to_string();
    assert!(message.contains("simplify of 'grad' panicked at "), "{message}");
    assert!(message.ends_with(": no type"), "{message}");
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn panics_in_silence() {
    panic_in_the_calculus();
    a_panic_with_a_payload_that_panics_is_an_error();
    a_panic_on_release_goes_no_further();
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn panics_aloud() {
    panic_in_the_calculus();
    let thread = std::thread::spawn(|| panic!("not within a guard"));
    assert!(thread.join().is_err());
}

/// What a test of this program prints on standard error.
fn printed_by(test: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args(["--exact", "--ignored", "--nocapture", test]).output().unwrap();
    assert!(output.status.success(), "{test}: {}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "there is no {test}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_panic_prints_nothing() {
    assert_eq!(printed_by("failures::panics_in_silence"), "");
    let printed = printed_by("failures::panics_aloud");
    assert!(printed.contains("not within a guard") && !printed.contains("no type"), "{printed}");
}
