//! Statements that are planned here, from their text.
//!
//! A host inlines a CTE for each of its readers before it calls its planner, so the plan of a model of a few layers would never be
//! finished: ten CTEs that each read the previous one twice are a thousand copies of the first. So a statement that reads a relation
//! several times is planned here, over the tables and with the functions of the host, where a common subplan is planned once. The host gets
//! the statement with one table in the place of its query, and plans that.
//!
//! ```sql
//! WITH a AS (SELECT ...), b AS (SELECT ... FROM a x JOIN a y ...) SELECT grad((SELECT l FROM b), val) FROM w
//! -- is for the host
//! SELECT * FROM xql_statement_7
//! ```
//!
//! So is a statement with a derivative and a name that `datafusion-proto` 55 writes without its quotes: `FROM w AS "a.b"`.

use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::catalog::{
    CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider, TableProvider,
};
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{Result, ScalarValue, TableReference};
use datafusion::execution::context::SessionState;
use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
use datafusion::logical_expr::{LogicalPlan, Statement as PlanStatement};
use datafusion::sql::parser::{CopyToSource, DFParser, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{DataType, Ident, ObjectNamePart, Query, Statement, TableFactor, Visit, Visitor};
use datafusion_ffi::execution::FFI_TaskContext;
use datafusion_ffi::table_provider::FFI_TableProvider;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use xql_autodiff::recognize;
use xql_relations::{
    has_calls, has_materialization, has_shared_subplans, replace_parameters, value_as, written_out_size,
};

use crate::codec::{forget, logical_codec};
use crate::functions::session_functions;
use crate::local_session::LocalSession;
use crate::registry::RegisteredSession;
use crate::runtime::{on_stack, runtime};
use crate::statement_names::STATEMENT_PREFIX;
use crate::statement_parameters::{parameters_of, query_of, types_in_sql};
use crate::statement_table::{StatementInputs, StatementTable};

/// The number of nodes above which a view is planned here, so that statements that read it need not be. The host then does not keep the
/// view's text.
const LARGE_VIEW: usize = 1000;

/// A statement that may have to be planned here.
pub struct StatementText {
    registered: Arc<RegisteredSession>,
    local: Arc<LocalSession>,
    /// The session of the host, for its functions.
    host: FFI_TaskContext,
    statement: DFStatement,
    /// The tables and views that the statement may scan.
    tables: Vec<TableReference>,
    /// Whether it says of a CTE whether that is materialized.
    is_materialized: bool,
    /// Whether a relation has a name that is another one once it has been encoded.
    has_ambiguous_name: bool,
    /// The values of its parameters, by their names.
    values: HashMap<String, ScalarAndMetadata>,
}

/// A statement that is planned here, rewritten for the host.
pub struct HostStatement {
    /// The statement with a table in the place of its query.
    pub sql: String,
    /// The name of the table.
    pub name: String,
    /// The table.
    pub table: FFI_TableProvider,
}

impl StatementText {
    /// Parses a statement. Returns `None` if no name is read several times, none is ambiguous, and no CTE says whether it is materialized.
    ///
    /// # Errors
    /// If there is no such session, or the text is no statement.
    pub fn try_new(session: &str, sql: &str) -> Result<Option<Self>> {
        let registered = RegisteredSession::find(session)?;
        let (host, local) = registered.snapshot()?;
        on_stack(|| {
            let state = local.state();
            let mut statement = state.sql_to_statement(sql, &state.config().options().sql_parser.dialect)?;
            let Some(query) = find_query(&mut statement) else { return Ok(None) };
            let is_materialized = has_materialization(sql);
            let has_ambiguous_name = has_ambiguous_name(query);
            if !has_repeated_name(query) && !is_materialized && !has_ambiguous_name {
                return Ok(None);
            }
            let query = wrap_query(query.clone());
            let tables = state.resolve_table_references(&query)?;
            let values = HashMap::new();
            Ok(Some(Self { registered, local, host, statement, tables, is_materialized, has_ambiguous_name, values }))
        })
    }

    /// Returns the quoted names of the tables and views that it may scan.
    pub fn tables(&self) -> impl Iterator<Item = String> {
        self.tables.iter().map(TableReference::to_quoted_string)
    }

    /// Sets the values of its parameters: the columns of an Arrow stream of one row.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn set_values(&mut self, stream: &[u8]) -> Result<()> {
        for batch in StreamReader::try_new(stream, None)? {
            let batch = batch?;
            for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                self.values.insert(field.name().clone(), ScalarValue::try_from_array(column, 0)?.into());
            }
        }
        Ok(())
    }

    /// Plans the statement, and returns it rewritten for the host if it has a common subplan that is computed once. `scans` are the encoded
    /// scans of its tables, empty where the host has no such table. With `shares_ctes`, CTEs are computed once even without a derivative.
    ///
    /// # Errors
    /// If a scan cannot be decoded, or the statement cannot be planned.
    pub fn plan(mut self, scans: &[&[u8]], shares_ctes: bool) -> Result<Option<HostStatement>> {
        let planned = on_stack(|| self.plan_query(scans, shares_ctes));
        for scan in scans {
            forget(scan);
        }
        planned
    }

    fn plan_query(&mut self, scans: &[&[u8]], shares_ctes: bool) -> Result<Option<HostStatement>> {
        let Some(query) = find_query(&mut self.statement) else { return Ok(None) };
        let query = query.clone();
        let mut inputs = StatementInputs { queries: vec![], shares_ctes: shares_ctes || self.local.shares_ctes() };
        let state = self.build_state(scans, &mut inputs)?;
        let planned = |statement| runtime().block_on(state.statement_to_plan(statement));
        let mut parameters = vec![];
        let plan = match find_preparation(&mut self.statement) {
            Some((name, types)) => {
                let LogicalPlan::Statement(PlanStatement::Prepare(prepared)) =
                    planned(wrap_preparation(name.clone(), types.clone(), query))?
                else {
                    return Ok(None);
                };
                parameters = parameters_of(&prepared.input)?;
                let Some(known) = types_in_sql(&prepared.fields) else { return Ok(None) };
                *types = known;
                Arc::unwrap_or_clone(prepared.input)
            }
            None => {
                let plan = planned(wrap_query(query))?;
                if !has_types_of(&plan, &self.values)? {
                    return Ok(None);
                }
                replace_parameters(plan, &self.values)?
            }
        };
        let schema = Schema::clone(plan.schema().as_arrow());
        let is_planned_here = match is_view(&self.statement) {
            true => self.is_materialized || self.has_ambiguous_name || written_out_size(&plan)? > LARGE_VIEW,
            false => {
                has_shared_subplans(&plan, inputs.shares_ctes)?
                    || self.has_ambiguous_name && has_calls(&plan, recognize)?
            }
        };
        if !is_planned_here || has_duplicate_names(&schema) {
            return Ok(None);
        }
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = format!("{STATEMENT_PREFIX}{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let table: Arc<dyn TableProvider> =
            Arc::new(StatementTable { schema: Arc::new(schema), plan, inputs, parameters: parameters.clone() });
        let table = FFI_TableProvider::new_with_ffi_codec(table, false, None, logical_codec());
        let Some(query) = find_query(&mut self.statement) else { return Ok(None) };
        let mut replacement = DFParser::parse_sql(&query_of(&name, &parameters))?;
        if let Some(replacement) = replacement.front_mut().and_then(find_query) {
            std::mem::swap(query, replacement);
        }
        if let DFStatement::CopyTo(copy) = &mut self.statement {
            // The parser has removed its quotes.
            copy.target = format!("'{}'", copy.target.replace('\'', "''"));
        }
        Ok(Some(HostStatement { sql: self.statement.to_string(), name, table }))
    }

    /// Builds the session in which the statement is planned, with the tables and functions of the host.
    fn build_state(&self, scans: &[&[u8]], inputs: &mut StatementInputs) -> Result<SessionState> {
        let catalogs: Arc<dyn CatalogProviderList> = Arc::new(MemoryCatalogProviderList::new());
        let state = SessionStateBuilder::new_from_existing(self.local.start_query(false));
        let mut state = state.with_catalog_list(Arc::clone(&catalogs)).build();
        for function in session_functions(&self.host) {
            state.register_udf(function)?;
        }
        for function in session_functions(&self.host) {
            state.register_udaf(function)?;
        }
        for function in session_functions(&self.host) {
            state.register_udwf(function)?;
        }
        for (reference, scan) in self.tables.iter().zip(scans) {
            if scan.is_empty() {
                continue;
            }
            let table = self.registered.decode_table(scan, &self.local.context, inputs)?;
            let catalog_options = &state.config_options().catalog;
            let full = reference.clone().resolve(&catalog_options.default_catalog, &catalog_options.default_schema);
            let catalog = catalogs.catalog(&full.catalog).unwrap_or_else(|| {
                let made = Arc::new(MemoryCatalogProvider::new());
                catalogs.register_catalog(full.catalog.to_string(), Arc::clone(&made) as _);
                made
            });
            if catalog.schema(&full.schema).is_none() {
                catalog.register_schema(&full.schema, Arc::new(MemorySchemaProvider::new()))?;
            }
            // A statement may name a table in several ways.
            if let Some(schema) = catalog.schema(&full.schema).filter(|schema| !schema.table_exist(&full.table)) {
                schema.register_table(full.table.to_string(), table)?;
            }
        }
        Ok(state)
    }
}

/// Returns whether a plan has its parameters of types that these values have, too. A common subplan is typed before it gets values, where the
/// host types the statement with them.
fn has_types_of(plan: &LogicalPlan, values: &HashMap<String, ScalarAndMetadata>) -> Result<bool> {
    Ok(plan.get_parameter_fields()?.iter().all(|(id, field)| {
        let value = values.get(id.trim_start_matches('$'));
        value.zip(field.as_ref()).is_some_and(|(value, field)| value_as(&value.value, field.data_type()).is_some())
    }))
}

/// Returns the query of a statement.
fn find_query(statement: &mut DFStatement) -> Option<&mut Query> {
    match statement {
        DFStatement::Statement(statement) => query_in(statement),
        DFStatement::Explain(explain) => find_query(&mut explain.statement),
        DFStatement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => Some(query),
            CopyToSource::Relation(_) => None,
        },
        _ => None,
    }
}

fn query_in(statement: &mut Statement) -> Option<&mut Query> {
    match statement {
        Statement::Query(query) => Some(query),
        Statement::Insert(insert) => insert.source.as_deref_mut(),
        Statement::CreateTable(table) => table.query.as_deref_mut(),
        Statement::CreateView(view) => Some(&mut view.query),
        Statement::Prepare { statement, .. } => query_in(statement),
        _ => None,
    }
}

/// Returns the name of a statement that is prepared, and the types of its parameters.
fn find_preparation(statement: &mut DFStatement) -> Option<(&Ident, &mut Vec<DataType>)> {
    match statement {
        DFStatement::Statement(statement) => match statement.as_mut() {
            Statement::Prepare { name, data_types, .. } => Some((name, data_types)),
            _ => None,
        },
        _ => None,
    }
}

fn is_view(statement: &DFStatement) -> bool {
    matches!(statement, DFStatement::Statement(statement) if matches!(statement.as_ref(), Statement::CreateView(_)))
}

fn wrap_query(query: Query) -> DFStatement {
    DFStatement::Statement(Box::new(Statement::Query(Box::new(query))))
}

fn wrap_preparation(name: Ident, data_types: Vec<DataType>, query: Query) -> DFStatement {
    let statement = Box::new(Statement::Query(Box::new(query)));
    DFStatement::Statement(Box::new(Statement::Prepare { name, data_types, statement }))
}

/// Returns whether a query reads some name several times.
fn has_repeated_name(query: &Query) -> bool {
    struct NameSet(HashSet<String>);
    impl Visitor for NameSet {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            let TableFactor::Table { name, args: None, .. } = factor else { return ControlFlow::Continue(()) };
            let is_new = self.0.insert(name.to_string().to_lowercase());
            if is_new { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
    }
    query.visit(&mut NameSet(HashSet::new())).is_break()
}

/// Returns whether a query gives a relation a name that is read as another one once it is encoded without its quotes.
fn has_ambiguous_name(query: &Query) -> bool {
    struct AmbiguousName;
    impl AmbiguousName {
        fn find<'n>(mut names: impl Iterator<Item = &'n Ident>) -> ControlFlow<()> {
            let is_ambiguous = |name: &Ident| {
                name.quote_style.is_some()
                    && TableReference::parse_str_normalized(&name.value, true)
                        != TableReference::bare(name.value.as_str())
            };
            if names.any(is_ambiguous) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    impl Visitor for AmbiguousName {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            Self::find(query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| &cte.alias.name))
        }

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            match factor {
                TableFactor::Table { alias: Some(alias), .. }
                | TableFactor::Derived { alias: Some(alias), .. }
                | TableFactor::NestedJoin { alias: Some(alias), .. } => Self::find([&alias.name].into_iter()),
                TableFactor::Table { name, .. } => Self::find(name.0.iter().filter_map(ObjectNamePart::as_ident)),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    query.visit(&mut AmbiguousName).is_break()
}

fn has_duplicate_names(schema: &Schema) -> bool {
    let mut names = HashSet::new();
    !schema.fields().iter().all(|field| names.insert(field.name()))
}
