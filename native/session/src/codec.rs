//! The codec that encodes tables, functions and plans as handles.
//!
//! `datafusion-proto` decodes what it has encoded as new objects. But a table, a function of this project and a finished plan have to stay
//! the same objects, and both libraries are in one process. So each gets a number when it is encoded, and a registry keeps it until it is
//! decoded.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, TableReference, internal_datafusion_err, internal_err, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, Extension, LogicalPlan, ScalarUDF, WindowUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use xql_autodiff::recognize;

use crate::functions::is_builtin;
use crate::plan_handle::{delegation_id, plan_to_encode, wrap_decoded};
use crate::runtime::{runtime, task_contexts};

/// The age at which a handle is dropped: the host failed while it encoded the plan, and will not decode it.
const EXPIRY: Duration = Duration::from_secs(60);

/// Objects that are encoded and not yet decoded, by number.
struct HandleRegistry<T>(LazyLock<Mutex<HashMap<u64, RegistryEntry<T>>>>);

/// An encoded object.
struct RegistryEntry<T> {
    value: T,
    created: Instant,
    /// The delegation during which it was encoded.
    delegation: Option<u64>,
}

static TABLES: HandleRegistry<Arc<dyn TableProvider>> = HandleRegistry::new();
static FUNCTIONS: HandleRegistry<Arc<ScalarUDF>> = HandleRegistry::new();
static AGGREGATES: HandleRegistry<Arc<AggregateUDF>> = HandleRegistry::new();
static WINDOWS: HandleRegistry<Arc<WindowUDF>> = HandleRegistry::new();
static PLANS: HandleRegistry<Arc<dyn ExecutionPlan>> = HandleRegistry::new();

/// The prefix of handles of this process. Handles of another process, or of an earlier one with the same identifier, have another.
static PROCESS_MARK: LazyLock<[u8; 8]> = LazyLock::new(|| {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (started.as_nanos() as u64 ^ (u64::from(std::process::id()) << 40)).to_le_bytes()
});

impl<T: Clone> HandleRegistry<T> {
    const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    /// Locks the registry after dropping expired entries.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, RegistryEntry<T>>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, entry| entry.created.elapsed() < EXPIRY);
        entries
    }

    /// Registers an object and encodes its handle.
    fn write(&self, value: T, buf: &mut Vec<u8>) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut entries = self.lock();
        entries.insert(number, RegistryEntry { value, created: Instant::now(), delegation: delegation_id() });
        buf.extend_from_slice(&*PROCESS_MARK);
        buf.extend_from_slice(&number.to_le_bytes());
    }

    /// Drops the objects that were encoded during a delegation.
    fn forget(&self, delegation: u64) {
        self.lock().retain(|_, entry| entry.delegation != Some(delegation));
    }

    /// Removes and returns the object of an encoded handle.
    fn read(&self, buf: &[u8]) -> Result<T> {
        let number = buf.strip_prefix(&*PROCESS_MARK).and_then(|number| number.try_into().ok()).map(u64::from_le_bytes);
        let found = number.and_then(|number| self.lock().remove(&number)).map(|entry| entry.value);
        found.ok_or_else(|| {
            internal_datafusion_err!(
                "what xql-ffi wrote into a plan is not in this process any longer: plans of a registered session are read once, in the \
                 process that wrote them"
            )
        })
    }
}

/// Counts the objects that are encoded and not yet decoded.
pub fn pending_handles() -> usize {
    let functions = FUNCTIONS.lock().len() + AGGREGATES.lock().len() + WINDOWS.lock().len();
    TABLES.lock().len() + functions + PLANS.lock().len()
}

/// Drops the objects whose handles are in an encoded plan, after an error.
pub fn forget(bytes: &[u8]) {
    for start in 0..bytes.len().saturating_sub(15) {
        if bytes[start..].starts_with(&*PROCESS_MARK) {
            let _ = TABLES.read(&bytes[start..start + 16]);
            let _ = FUNCTIONS.read(&bytes[start..start + 16]);
            let _ = AGGREGATES.read(&bytes[start..start + 16]);
            let _ = WINDOWS.read(&bytes[start..start + 16]);
            let _ = PLANS.read(&bytes[start..start + 16]);
        }
    }
}

/// Drops the objects that were encoded during a delegation, after an error.
pub fn forget_delegation(number: u64) {
    TABLES.forget(number);
    FUNCTIONS.forget(number);
    AGGREGATES.forget(number);
    WINDOWS.forget(number);
    PLANS.forget(number);
}

#[derive(Debug)]
struct Codec;

impl LogicalExtensionCodec for Codec {
    fn try_decode(&self, _buf: &[u8], _inputs: &[LogicalPlan], _ctx: &TaskContext) -> Result<Extension> {
        not_impl_err!("xql-ffi has no logical node of its own")
    }

    fn try_encode(&self, node: &Extension, _buf: &mut Vec<u8>) -> Result<()> {
        not_impl_err!("xql-ffi does not write {}", node.node.name())
    }

    fn try_decode_table_provider(
        &self,
        buf: &[u8],
        _table: &TableReference,
        _schema: SchemaRef,
        _ctx: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        TABLES.read(buf)
    }

    fn try_encode_table_provider(
        &self,
        _table: &TableReference,
        node: Arc<dyn TableProvider>,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        TABLES.write(node, buf);
        Ok(())
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        if !is_builtin(node) || recognize(node).is_some() {
            FUNCTIONS.write(Arc::new(node.clone()), buf);
        }
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        if buf.is_empty() { not_impl_err!("there is no function {name}") } else { FUNCTIONS.read(buf) }
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        if !is_builtin(node) {
            AGGREGATES.write(Arc::new(node.clone()), buf);
        }
        Ok(())
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        if buf.is_empty() { not_impl_err!("there is no aggregate function {name}") } else { AGGREGATES.read(buf) }
    }

    fn try_encode_udwf(&self, node: &WindowUDF, buf: &mut Vec<u8>) -> Result<()> {
        if !is_builtin(node) {
            WINDOWS.write(Arc::new(node.clone()), buf);
        }
        Ok(())
    }

    fn try_decode_udwf(&self, name: &str, buf: &[u8]) -> Result<Arc<WindowUDF>> {
        if buf.is_empty() { not_impl_err!("there is no window function {name}") } else { WINDOWS.read(buf) }
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buf: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        _ctx: &TaskContext,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(wrap_decoded(PLANS.read(buf)?))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        _converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let name = node.name().to_owned();
        let Some(plan) = plan_to_encode(node) else { return internal_err!("xql-ffi does not write {name}") };
        PLANS.write(plan, buf);
        Ok(())
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        LogicalExtensionCodec::try_encode_udf(self, node, buf)
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        LogicalExtensionCodec::try_decode_udf(self, name, buf)
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        LogicalExtensionCodec::try_encode_udaf(self, node, buf)
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        LogicalExtensionCodec::try_decode_udaf(self, name, buf)
    }

    fn try_encode_udwf(&self, node: &WindowUDF, buf: &mut Vec<u8>) -> Result<()> {
        LogicalExtensionCodec::try_encode_udwf(self, node, buf)
    }

    fn try_decode_udwf(&self, name: &str, buf: &[u8]) -> Result<Arc<WindowUDF>> {
        LogicalExtensionCodec::try_decode_udwf(self, name, buf)
    }
}

/// Returns the codec of logical plans. It serves every session: it needs no functions of a session, which take long to list.
pub fn logical_codec() -> FFI_LogicalExtensionCodec {
    FFI_LogicalExtensionCodec::new(Arc::new(Codec), Some(runtime()), task_contexts())
}

/// Returns the codec of physical plans. It serves every session.
pub fn physical_codec() -> FFI_PhysicalExtensionCodec {
    FFI_PhysicalExtensionCodec::new(Arc::new(Codec), Some(runtime()), task_contexts())
}
