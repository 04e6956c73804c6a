//! What this library has of its own: DataFusion's functions, threads, and a stack.

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

/// A session of DataFusion's own functions with the operators and the rules.
static BUILTIN_STATE: LazyLock<Arc<SessionState>> = LazyLock::new(|| {
    let session = SessionContext::new();
    xql_relations::register(&session);
    Arc::new(session.state())
});

/// DataFusion's own functions and the rules.
pub fn builtin_state() -> &'static SessionState {
    &BUILTIN_STATE
}

/// The contexts of DataFusion's own functions, for what reads plans here.
pub fn task_contexts() -> FFI_TaskContextProvider {
    let provider: Arc<dyn TaskContextProvider> = BUILTIN_STATE.clone();
    FFI_TaskContextProvider::from(&provider)
}

/// Bytes of a stack on which a plan is read, changed and written: all three go as deep as the plan.
pub const STACK: usize = 64 << 20;

/// Where what is computed in this library runs. A forked process has no threads of the one that it comes from, and makes its own.
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
    // To drop the other one would wait for its threads.
    std::mem::forget(current.replace((process, runtime)));
    handle
}

/// Runs `work` with enough of a stack; a panic is an error.
///
/// # Errors
/// That of `work`.
pub fn on_stack<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    stacker::maybe_grow(STACK / 2, STACK, || guard("planning a statement", work))
}

/// The outcome of `work` on a plan, which is polled with enough of a stack. What the host does with a plan goes as deep as that.
///
/// Where the thread has as much, it stays on its own stack: the host does not know of another one, and gives each of its recursive
/// functions that is called there a new one.
///
/// # Errors
/// If the plan cannot be gone through.
pub async fn on_stack_while_polled<T>(plan: &LogicalPlan, work: impl Future<Output = T>) -> Result<T> {
    let needed = on_stack(|| measure_depth(plan))? * STACK_PER_LEVEL + STACK_BASE;
    Ok(on_stack_of(needed.min(STACK), STACK, work).await)
}

/// Bytes of the stack that a level of a plan takes, twice over: the host was seen to take 8 KiB for a function in a function, 15 for an
/// operator in an operator and 17 for a node below a node.
const STACK_PER_LEVEL: usize = 32 << 10;
/// Bytes of the stack that a plan of one level takes, twice over.
const STACK_BASE: usize = 512 << 10;

/// How many nodes and expressions of a plan stand in one another.
fn measure_depth(plan: &LogicalPlan) -> Result<usize> {
    let mut levels = Levels::default();
    plan.visit_with_subqueries(&mut levels)?;
    Ok(levels.deepest)
}

/// The levels that a visitor has gone down to.
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

/// The levels of expressions.
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
