//! The built-in functions, threads and stacks of this library.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::execution::TaskContextProvider;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::SessionContext;
use datafusion_ffi::execution::FFI_TaskContextProvider;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tokio::runtime::{Handle, Runtime};
use xql_guard::{guard, on_stack_of};

/// A session with DataFusion's built-in functions, the operators and the rules.
static BUILTIN_STATE: LazyLock<Arc<SessionState>> = LazyLock::new(|| {
    let session = SessionContext::new();
    xql_relations::register(&session);
    Arc::new(session.state())
});

/// Returns the session with DataFusion's built-in functions, the operators and the rules.
pub fn builtin_state() -> &'static SessionState {
    &BUILTIN_STATE
}

/// Returns a provider of contexts with the built-in functions, in which plans are decoded.
pub fn task_contexts() -> FFI_TaskContextProvider {
    let provider: Arc<dyn TaskContextProvider> = BUILTIN_STATE.clone();
    FFI_TaskContextProvider::from(&provider)
}

/// The size of the stack on which a plan is decoded, rewritten and encoded: all three recurse as deep as the plan.
pub const STACK: usize = 64 << 20;

/// Returns the runtime of this library. A forked process inherits no threads, and creates its own.
pub fn runtime() -> Handle {
    static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);
    let process = std::process::id();
    let mut current = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((owner, runtime)) = current.as_ref()
        && *owner == process
    {
        return runtime.handle().clone();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("xql-ffi")
        .thread_stack_size(STACK)
        .enable_all()
        .build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no threads for xql-ffi: {error}"));
    let handle = runtime.handle().clone();
    // Dropping the runtime of the parent process would wait for its threads.
    std::mem::forget(current.replace((process, runtime)));
    handle
}

/// Runs `work` on a stack that is large enough; a panic becomes an error.
///
/// # Errors
/// That of `work`.
pub fn on_stack<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    stacker::maybe_grow(STACK / 2, STACK, || guard("planning a statement", work))
}

/// Polls `work` on a stack that is large enough for a plan. The host recurses as deep as the plan.
///
/// A thread that has as much stays on its own stack: the host does not know of another one, and would allocate a new one for each of its
/// recursive functions.
///
/// # Errors
/// If the plan cannot be traversed.
pub async fn on_stack_while_polled<T>(plan: &LogicalPlan, work: impl Future<Output = T>) -> Result<T> {
    let needed = on_stack(|| measure_depth(plan))? * STACK_PER_LEVEL + STACK_BASE;
    Ok(on_stack_of(needed.min(STACK), STACK, work).await)
}

/// The stack for one level of a plan, with a margin of two: the host was measured to take 8 KiB for a nested function, 15 for a nested
/// operator and 17 for a nested node.
const STACK_PER_LEVEL: usize = 32 << 10;
/// The stack for a plan of one level, with the same margin.
const STACK_BASE: usize = 512 << 10;

/// Measures how deeply the nodes and expressions of a plan are nested.
fn measure_depth(plan: &LogicalPlan) -> Result<usize> {
    let mut levels = Levels::default();
    plan.visit_with_subqueries(&mut levels)?;
    Ok(levels.deepest)
}

/// The depth of a visitor.
#[derive(Default)]
struct Levels {
    depth: usize,
    deepest: usize,
}

impl Levels {
    fn enter(&mut self) -> Result<TreeNodeRecursion> {
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        Ok(TreeNodeRecursion::Continue)
    }

    fn leave(&mut self) -> Result<TreeNodeRecursion> {
        self.depth -= 1;
        Ok(TreeNodeRecursion::Continue)
    }
}

impl<'n> TreeNodeVisitor<'n> for Levels {
    type Node = LogicalPlan;

    fn f_down(&mut self, node: &'n LogicalPlan) -> Result<TreeNodeRecursion> {
        self.enter()?;
        let mut expressions = ExpressionLevels(Self { depth: self.depth, deepest: self.deepest });
        node.apply_expressions(|expr| expr.visit(&mut expressions))?;
        self.deepest = expressions.0.deepest;
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, _node: &'n LogicalPlan) -> Result<TreeNodeRecursion> {
        self.leave()
    }
}

/// The depth of expressions.
struct ExpressionLevels(Levels);

impl<'n> TreeNodeVisitor<'n> for ExpressionLevels {
    type Node = Expr;

    fn f_down(&mut self, _expr: &'n Expr) -> Result<TreeNodeRecursion> {
        self.0.enter()
    }

    fn f_up(&mut self, _expr: &'n Expr) -> Result<TreeNodeRecursion> {
        self.0.leave()
    }
}
