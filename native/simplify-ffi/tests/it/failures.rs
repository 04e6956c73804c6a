//! Errors and panics of the provider.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Diagnostic, Result, plan_datafusion_err};
use datafusion::logical_expr::{Expr, ScalarUDF, lit};

use crate::common::{probe, simplify_with};

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
    assert_eq!(error.to_string(), "FFI error: simplify of 'probe' panicked: no rule");
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
