//! Stack for expressions of any depth.

/// What cloning, comparing or dropping one level of an expression takes of the stack, generously.
const PER_LEVEL: usize = 2048;

/// What is needed besides.
const BASE: usize = 256 * 1024;

/// Runs `work` with stack enough for expressions of `depth` levels.
///
/// DataFusion's tree traversals grow the stack by themselves, the derived `Clone`, `PartialEq` and `Drop` of expressions do
/// not.
pub(crate) fn with_stack_for<T>(depth: usize, work: impl FnOnce() -> T) -> T {
    let needed = BASE + depth.saturating_mul(PER_LEVEL);
    stacker::maybe_grow(needed, 2 * needed, work)
}
