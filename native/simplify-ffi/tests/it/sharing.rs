//! Shared and deep expressions.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{context, import_stock, probe, rewrite, schema, simplify_with};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::functions::expr_fn as f;
use datafusion::logical_expr::simplify::ExprSimplifyResult;
use datafusion::logical_expr::{Expr, ScalarUDFImpl, col, lit};
use xql_simplify_ffi::{FFI_Bytes, FFI_ScalarUDFSimplify, SimplifyingScalarUDF};

/// Bytes of the last request, as the function below counts them.
static REQUEST: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count(_this: &FFI_ScalarUDFSimplify, _request: *const u8, len: usize) -> FFI_Bytes {
    REQUEST.store(len, Ordering::SeqCst);
    vec![].into()
}

/// The length of the request for `arg`.
fn request_len(arg: Expr) -> usize {
    let udf = probe(|args, _| Ok(ExprSimplifyResult::Original(args)));
    let mut simplify = FFI_ScalarUDFSimplify::from(Arc::clone(&udf));
    simplify.simplify = count;
    let imported = SimplifyingScalarUDF::new(import_stock(&udf), simplify);
    imported.simplify(vec![arg], &context(schema())).expect_err("the answer is empty");
    REQUEST.load(Ordering::SeqCst)
}

fn squares(times: u32) -> Expr {
    (0..times).fold(col("t.x"), |y, _| y.clone() * y)
}

#[test]
fn a_shared_expression_crosses_once() -> Result<()> {
    let sizes = [15, 16, 17].map(|times| request_len(squares(times)));
    let per_square = sizes[1] - sizes[0];
    assert_eq!(sizes[2] - sizes[1], per_square);
    assert!(per_square < 64, "{per_square} bytes for each square");

    let answer = rewrite(squares(17), |y| Ok(y + lit(1.0)))?;
    assert_eq!(answer, squares(17) + lit(1.0));
    Ok(())
}

#[test]
fn volatile_calls_are_not_shared() -> Result<()> {
    let once = request_len(f::sin(f::random()));
    let twice = request_len(f::sin(f::random()) + f::sin(f::random()));
    let shared = request_len(f::sin(col("t.x")) + f::sin(col("t.x")));
    let single = request_len(f::sin(col("t.x")));
    assert!(twice - once > shared - single + 10);
    assert_eq!(rewrite(f::random() + f::random(), Ok)?, f::random() + f::random());
    Ok(())
}

/// Runs with the stack of a thread of the main program; DataFusion's threads have no less.
fn with_deep_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(64 << 20).spawn(work).unwrap().join().unwrap();
}

fn chain(levels: usize) -> Expr {
    (0..levels).fold(col("t.x"), |sum, _| sum + col("t.x"))
}

/// `maybe_grow` sees how much stack is left, so a small one must do.
#[test]
fn ten_thousand_levels_cross() {
    with_deep_stack(|| {
        let arg = chain(10_000);
        let stack = std::thread::Builder::new().stack_size(1 << 20);
        let answer = stack
            .spawn(move || {
                let simplified = simplify_with(vec![arg], |args, _| {
                    let sum = args[0].clone();
                    Ok(ExprSimplifyResult::Simplified(f::sin(sum.clone()) * sum * lit(2.0)))
                });
                let Ok(ExprSimplifyResult::Simplified(answer)) = simplified else {
                    panic!("not simplified");
                };
                answer
            })
            .unwrap()
            .join()
            .unwrap();
        let mut nodes = 0;
        answer
            .apply(|_| {
                nodes += 1;
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
        assert_eq!(nodes, 2 * 20_001 + 4);
    });
}

#[test]
fn ten_thousand_levels_are_left_as_they_are() {
    with_deep_stack(|| {
        let simplified = simplify_with(vec![chain(10_000)], |args, _| Ok(ExprSimplifyResult::Original(args)));
        let Ok(ExprSimplifyResult::Original(args)) = simplified else {
            panic!("simplified");
        };
        assert!(args[0] == chain(10_000));
    });
}

#[test]
fn the_struct_is_imported_by_its_address() {
    let udf = probe(|args, _| Ok(ExprSimplifyResult::Original(args)));
    let exported = FFI_ScalarUDFSimplify::from(udf);
    let shown = NonNull::from(&exported).cast::<c_void>();
    // SAFETY: `exported` lives on.
    assert!(unsafe { FFI_ScalarUDFSimplify::import(shown) }.is_ok());
}
