//! Sums of products over joins, computed as arrays.
//!
//! `SUM(a.v * b.v)` over a join of `a` and `b`, grouped by keys of both, is a product of two arrays. DataFusion makes every row of the join
//! and looks for its group. [`contracted`] finds such sums among the nodes of a physical plan, and puts a [`ContractionExec`] in their
//! place, which reads the inputs, numbers their keys and computes the sums by positions:
//!
//! - by *dense* arrays, where most pairs of rows that these would have are there,
//! - by sorted *runs* of rows, where few are,
//! - and not at all, where the keys have no positions or the session's pool no memory for them: then the rows that have been read are
//!   *handed over* to the join and the groups that DataFusion has planned.
//!
//! Which it is, is decided by the rows that there are. The result is that of the join and the groups: a group is there if the join has a
//! row of it, its sum is NULL if all products are, and what is missing is no 0 that an infinity could meet.
//!
//! Several aggregates of the same groups are computed side by side, each from sums of its own: `COUNT` from a product that is 1 where there
//! is a value, `AVG` from a sum and a count, and a sum of products from each of these.
//!
//! A third input may *choose* pairs: the derivative of a sum of products by a factor is the sum, over the rows of the join that a row with
//! the factor is in, of the other factor times the cotangent of the group. So the other factor and the cotangents are multiplied, and the
//! rows with the factor say which of all pairs are wanted.
//!
//! Sums by whole numbers, as those of cotangents by the numbers of rows are, need no table of groups either: a number is a position. A
//! [`NumberedSumsExec`] adds the rows while they come, and hands over to DataFusion's groups where a number is no position.
//!
//! Between two sums, rows meet by numbers and by the keys of groups. A [`LookupExec`] joins them where no two rows of one side have the same
//! keys: a key is the place of its row.
//!
//! In a loop, and where a plan is executed again, most keys are what they were, and so are the factors of data. What an execution has
//! encoded is kept for the next one, and taken where keys and factors are the same to the last bit. Keys are known by digests: to hold
//! them would be to hold the rows of the last execution while those of the next one are computed.
//!
//! In the order of the modules, each of which imports only from those before it: `option` says how sums are computed, `outputs` which
//! aggregates are made of them, and `spec` what they are over. `keys` numbers keys, `entries` has rows by two positions, `runs` sorts
//! them. `bits`, `pages` and `dense`, `sparse` and `chosen` are the kernels, `kernel` chooses one, and `pairs` has the sums of pairs as
//! rows. `evaluated` evaluates expressions together, `compute` has the rows of inputs, `digest` what their keys are known by, `places`
//! their positions, and `common_places` those that several sums have. `handover` hands rows over, and `read` reads them. `kept` has
//! what an execution leaves to the next one, `sums` goes from the rows of inputs to those of the sum, and `exec` is the operator.
//! `integers` has keys as whole numbers, `numbers` sums by numbers, and `numbered` their operator. `unique` has rows by keys of their
//! own, and `lookup` the operator that looks them up. `recognize` finds sums and lookups among the nodes of a plan.

mod accumulator;
mod bit_matrix;
mod compute;
mod coo;
mod cost;
mod cse;
mod csr;
mod dense;
mod dense_key_aggregate;
mod dense_key_sums;
mod digest;
mod encoding_cache;
mod exec;
mod fallback;
mod huge_pages;
mod input_buffer;
mod inputs;
mod integers;
mod join_index;
mod join_index_cache;
mod key_codes;
mod optimizer;
mod option;
mod outputs;
mod pairs;
mod sampled;
mod spec;
mod unique_index;
mod unique_key_join;
pub mod version;

pub use dense_key_aggregate::DenseKeyAggregateExec;
pub use exec::ContractionExec;
pub use input_buffer::memory_size;
pub use optimizer::contract_sums;
pub use option::Contractions;
pub use unique_key_join::UniqueKeyJoinExec;
