//! Sums of products over joins, computed as matrix products.
//!
//! `SUM(a.v * b.v)` over a join of `a` and `b`, grouped by keys of both, is a product of two matrices. DataFusion makes every row of the
//! join and hashes its group. [`contract_sums`] finds such sums in a physical plan and replaces them by a [`ContractionExec`], which
//! buffers the inputs, encodes their keys as matrix indexes, and multiplies:
//!
//! - *dense* matrices, where most pairs of a row and a column have rows,
//! - *sparse* matrices, row by row, where few have,
//! - or neither, where keys have no codes or memory runs out: then the *fallback plan*, DataFusion's join and aggregation, reads the same
//!   rows.
//!
//! The rows that are there decide which it is. The result is that of the join and the aggregation: a group exists if the join has a row of
//! it, its sum is NULL if all products are, and a missing row is no 0 that an infinity could meet.
//!
//! Several aggregates of the same groups are computed from sums of their own: `COUNT` from a term that is 1 where there is a value, `AVG`
//! from a sum and a count, and a sum of several products from one each.
//!
//! A third input may *sample* a product: the derivative of a sum of products by a factor is, for each row with that factor, the sum of the
//! other factor times the cotangent of the group. So the other factor and the cotangents are multiplied, and the rows with the factor say
//! which elements are needed (a sampled dense-dense matrix product, SDDMM).
//!
//! Sums by an integer key, as those of cotangents by row number, need no hash table: the key is an array index. Two keys, as a Jacobian has,
//! have an index for each pair of them. An [`IntegerKeyAggregateExec`] adds rows as they arrive, and continues with DataFusion's aggregation
//! where a key is no index.
//!
//! Between two sums, rows are joined by row numbers and by the keys of groups. A [`UniqueKeyJoinExec`] joins by lookup in an array where
//! the keys of the build side are unique.
//!
//! In a loop, and where a plan is executed again, most keys are what they were, and so are factors that come from data. An execution caches
//! what it has encoded for the next one, which uses it if keys and factors are the same to the last bit. Keys are compared by digests: to
//! hold them would be to hold the rows of the last execution.
//!
//! # Words
//!
//! - The *code* of a key is its index among the distinct keys, as in dictionary encoding. An input with two codes per row is a sparse
//!   matrix: in coordinate form (COO) as it is read, in compressed form (CSR) when sorted.
//! - An element of a matrix is *occupied* if it has rows, and *valid* if one of these has a factor that is not NULL.
//! - The *build side* of a join is indexed, the *probe side* looks up.
//!
//! # Modules
//!
//! Each imports only from those before it:
//!
//! - `option` has the session's option, `outputs` the aggregates of a group, `spec` the description of a sum.
//! - `key_codes` encodes keys, `coo` and `csr` have sparse matrices, `bit_matrix`, `huge_pages` and `dense` dense ones, `accumulator` and
//!   `sampled` their products, `cost` chooses a kernel, and `pairs` has products as rows.
//! - `cse` evaluates expressions, `inputs` the keys and factors of inputs, `digest` recognizes them, `join_index` has the codes of a join,
//!   and `join_index_cache` those that sums share.
//! - `batch_streams` has streams of batches, `fallback` executes fallback plans, `input_buffer` buffers rows, `encoding_cache` has what is
//!   stored for the next execution, `compute` computes a sum, and `exec` is the operator.
//! - `integers` has keys as integers, and `pair_slots` numbers pairs of them; `integer_key_sums` and `integer_key_aggregate` sum by them,
//!   `unique_index` and `unique_key_join` join by them.
//! - `optimizer` replaces the nodes of a plan.

mod accumulator;
mod batch_streams;
mod bit_matrix;
mod compute;
mod coo;
mod cost;
mod cse;
mod csr;
mod dense;
mod digest;
mod encoding_cache;
mod exec;
mod fallback;
mod huge_pages;
mod input_buffer;
mod inputs;
mod integer_key_aggregate;
mod integer_key_sums;
mod integers;
mod join_index;
mod join_index_cache;
mod key_codes;
mod optimizer;
mod option;
mod outputs;
mod pair_slots;
mod pairs;
mod sampled;
mod spec;
mod unique_index;
mod unique_key_join;
pub mod version;

pub use batch_streams::flatten_stream;
pub use exec::ContractionExec;
pub use input_buffer::memory_size;
pub use integer_key_aggregate::IntegerKeyAggregateExec;
pub use optimizer::contract_sums;
pub use option::Contractions;
pub use unique_key_join::UniqueKeyJoinExec;
