//! The planner of statements: DataFusion's planner and functions with a catalog.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_catalog::TableProvider;
use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::provider_as_source;
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Column, DFSchema, Result, TableReference, plan_datafusion_err, plan_err};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner};
use datafusion_expr::{
    AggregateUDF, DdlStatement, Expr, ExprSchemable, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF,
};
use datafusion_sql::parser::Statement;
use datafusion_sql::planner::{IdentNormalizer, ParserOptions, SqlToRel};
use datafusion_sql::resolve::resolve_table_references;
use sqlparser::ast::Ident;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use xql_autodiff::Rules;
use xql_relations::relation_planners;

use super::catalog::{Catalog, CatalogTable, full_name};
use super::functions::{CallSite, SessionFunction, restore_operator_names};
use super::source_fragment::SourceFragment;
use crate::expr::{Scope, to_sql};
use crate::names::{is_fragment, parse_site_name};
use crate::statement::{outer_query, parse_one};

/// Plans statements.
#[derive(Clone)]
pub struct Planner<'a> {
    catalog: Cow<'a, Catalog>,
    functions: Arc<Functions>,
    options: Arc<ConfigOptions>,
    /// Names with known columns, such as those of CTEs.
    bound_names: HashMap<String, Arc<CatalogTable>>,
    /// The views that are being planned.
    open_views: Vec<String>,
    /// The planned views. A view is one relation however often it is read.
    views: Arc<Mutex<HashMap<String, Arc<CatalogTable>>>>,
}

/// Functions by name.
struct Functions {
    operators: HashMap<String, Arc<ScalarUDF>>,
    scalar: HashMap<String, Arc<ScalarUDF>>,
    higher_order: HashMap<String, Arc<HigherOrderUDF>>,
    aggregate: HashMap<String, Arc<AggregateUDF>>,
    window: HashMap<String, Arc<WindowUDF>>,
    expr_planners: Vec<Arc<dyn ExprPlanner>>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
}

impl<'a> Planner<'a> {
    /// Returns the tables and functions that it plans over.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Creates a planner over a catalog, with the user's rules.
    pub fn new(catalog: &'a Catalog, rules: &Rules) -> Self {
        let mut scalar = datafusion_functions::all_default_functions();
        scalar.extend(datafusion_functions_nested::all_default_nested_functions());
        let operators = xql_autodiff::functions_with(rules);
        let operators =
            operators.into_iter().map(|function| (function.name().to_owned(), Arc::new(function))).collect();
        let higher_order = datafusion_functions_nested::all_default_higher_order_functions();
        let aggregate = datafusion_functions_aggregate::all_default_aggregate_functions();
        let window = datafusion_functions_window::all_default_window_functions();
        let functions = Functions {
            operators,
            scalar: index_by_name(scalar, |function| (function.name(), function.aliases())),
            higher_order: index_by_name(higher_order, |function| (function.name(), function.aliases())),
            aggregate: index_by_name(aggregate, |function| (function.name(), function.aliases())),
            window: index_by_name(window, |function| (function.name(), function.aliases())),
            expr_planners: vec![
                Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
                Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
                Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
                Arc::new(datafusion_functions::datetime::planner::DatetimeFunctionPlanner),
                Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
                Arc::new(datafusion_functions_aggregate::planner::AggregateFunctionPlanner),
                Arc::new(datafusion_functions_window::planner::WindowFunctionPlanner),
            ],
            relation_planners: relation_planners(false),
        };
        Self {
            catalog: Cow::Borrowed(catalog),
            functions: Arc::new(functions),
            options: Arc::new(ConfigOptions::new()),
            bound_names: HashMap::new(),
            open_views: vec![],
            views: Arc::default(),
        }
    }

    /// Binds a name to a relation with these columns.
    pub fn bind_name(&mut self, name: &Ident, schema: SchemaRef) {
        let name = IdentNormalizer::default().normalize(name.clone());
        self.bound_names.insert(name, Arc::new(CatalogTable::new(schema)));
    }

    /// Plans a statement.
    pub fn plan(&self, statement: Statement) -> Result<LogicalPlan> {
        let options = ParserOptions::from(&self.options.sql_parser);
        restore_operator_names(SqlToRel::new_with_options(self, options).statement_to_plan(statement)?)
    }

    /// Records the table or view that a statement of a script creates.
    pub fn track_ddl(&mut self, statement: &Statement) {
        let makes = match statement {
            Statement::CreateExternalTable(_) => true,
            Statement::Statement(made) => matches!(
                made.as_ref(),
                sqlparser::ast::Statement::CreateTable(_) | sqlparser::ast::Statement::CreateView(_)
            ),
            _ => false,
        };
        if !makes {
            return;
        }
        // DataFusion may execute what it cannot plan here.
        let Ok(LogicalPlan::Ddl(made)) = self.plan(statement.clone()) else { return };
        self.pin_views(&made);
        let catalog = &self.catalog;
        let stays = |name: &TableReference, if_not_exists: bool| if_not_exists && catalog.contains(name);
        match made {
            DdlStatement::CreateMemoryTable(table) if !stays(&table.name, table.if_not_exists) => {
                self.catalog.to_mut().add_table(table.name, Arc::clone(table.input.schema().inner()));
            }
            DdlStatement::CreateExternalTable(table)
                if !table.schema.fields().is_empty() && !stays(&table.name, table.if_not_exists) =>
            {
                self.catalog.to_mut().add_table(table.name, Arc::clone(table.schema.inner()));
            }
            DdlStatement::CreateView(view) => {
                if let Some(query) = outer_query(statement) {
                    self.catalog.to_mut().add_view(view.name, &query.to_string());
                }
            }
            _ => {}
        }
    }

    /// Plans the views that read a table or view before this is replaced: they keep the one that has the name now.
    fn pin_views(&self, made: &DdlStatement) {
        let name = match made {
            DdlStatement::CreateMemoryTable(table) if !table.if_not_exists => &table.name,
            DdlStatement::CreateExternalTable(table) if !table.if_not_exists => &table.name,
            DdlStatement::CreateView(view) => &view.name,
            _ => return,
        };
        if !self.catalog.contains(name) {
            return;
        }
        for (view, sql) in &self.catalog.views {
            // A view that cannot be planned is refused where it is read.
            let _ = self.plan_view(view, sql);
        }
        self.views.lock().unwrap_or_else(PoisonError::into_inner).remove(&full_name(name));
    }

    /// Returns the planned views with their full names.
    pub fn views(&self) -> Vec<(String, Arc<CatalogTable>)> {
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.iter().map(|(name, view)| (name.clone(), Arc::clone(view))).collect()
    }

    /// Returns whether a table is the one that has this name.
    pub fn has_name(&self, table: &CatalogTable, name: &TableReference) -> bool {
        self.catalog.tables.get(&full_name(name)).is_some_and(|named| std::ptr::eq(named.as_ref(), table))
    }

    /// Refuses a statement that reads a relation whose definition is unknown.
    pub fn check_readable(&self, statement: &Statement) -> Result<()> {
        let (references, _) = resolve_table_references(statement, true)?;
        for reference in references {
            if let Some(reason) = self.catalog.opaque.get(&full_name(&reference)) {
                return plan_err!("{reference}: {reason}");
            }
        }
        Ok(())
    }

    fn plan_view(&self, name: &str, sql: &str) -> Result<Arc<CatalogTable>> {
        if let Some(known) = self.views.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(Arc::clone(known));
        }
        if self.open_views.iter().any(|open| open == name) {
            return plan_err!("the view {name} reads itself");
        }
        let mut inside = self.clone();
        inside.bound_names.clear();
        inside.open_views.push(name.to_owned());
        let plan = parse_one(sql).and_then(|statement| {
            let query = outer_query(&statement).cloned();
            let query = query.ok_or_else(|| plan_datafusion_err!("the view {name} has no query"))?;
            let query = sqlparser::ast::Statement::Query(Box::new(query));
            inside.check_readable(&Statement::Statement(Box::new(query)))?;
            // The statement may rename the columns of the view.
            match inside.plan(statement)? {
                LogicalPlan::Ddl(DdlStatement::CreateView(made)) => Ok(made.input.as_ref().clone()),
                query => Ok(query),
            }
        });
        let plan = plan.map_err(|error| error.context(format!("the definition of the view {name}")))?;
        let schema = Arc::clone(plan.schema().inner());
        let view = Arc::new(CatalogTable { view: Some(plan), ..CatalogTable::new(schema) });
        self.views.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Arc::clone(&view));
        Ok(view)
    }
}

/// Indexes functions by names and aliases.
fn index_by_name<F: ?Sized>(
    functions: Vec<Arc<F>>,
    names: impl Fn(&F) -> (&str, &[String]),
) -> HashMap<String, Arc<F>> {
    let mut named = HashMap::new();
    for function in functions {
        let (name, aliases) = names(&function);
        for name in aliases.iter().map(String::as_str).chain([name]) {
            named.insert(name.to_owned(), Arc::clone(&function));
        }
    }
    named
}

/// A scope without columns and queries.
struct EmptyScope;

impl Scope for EmptyScope {
    fn column(&mut self, column: &Column) -> Result<String> {
        plan_err!("there is no column {column}")
    }

    fn outer_column(&mut self, column: &Column) -> Result<String> {
        self.column(column)
    }

    fn query(&mut self, _plan: &LogicalPlan) -> Result<String> {
        plan_err!("a table function takes no subquery")
    }
}

impl ContextProvider for Planner<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        if let TableReference::Bare { table } = &name
            && let Some(table) = self.bound_names.get(table.as_ref())
        {
            return Ok(provider_as_source(Arc::clone(table) as Arc<dyn TableProvider>));
        }
        let full = full_name(&name);
        if let Some(sql) = self.catalog.views.get(&full) {
            return Ok(provider_as_source(self.plan_view(&full, sql)? as Arc<dyn TableProvider>));
        }
        if let Some(view) = self.open_views.last()
            && let Some(table) = self.catalog.stale_tables.get(&(view.clone(), full.clone()))
        {
            return Ok(provider_as_source(Arc::clone(table) as Arc<dyn TableProvider>));
        }
        match self.catalog.tables.get(&full) {
            Some(table) => Ok(provider_as_source(Arc::clone(table) as Arc<dyn TableProvider>)),
            None => plan_err!("there is no table called {name}"),
        }
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        const SERIES: [&str; 2] = ["generate_series", "range"];
        let mut written = vec![];
        for arg in &args {
            if !SERIES.contains(&name) || arg.get_type(&DFSchema::empty())? != DataType::Int64 {
                return plan_err!(
                    "{name}: a statement with derivatives may call the table functions generate_series and range over whole \
                     numbers, and no others. Keep the rows in a table: CREATE TABLE rows AS SELECT * FROM {name}(...)"
                );
            }
            written.push(to_sql(arg, &mut EmptyScope)?);
        }
        let call = Some(format!("{name}({})", written.join(", ")));
        let schema = Arc::new(Schema::new(vec![Field::new("value", DataType::Int64, false)]));
        Ok(provider_as_source(Arc::new(CatalogTable { call, ..CatalogTable::new(schema) })))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.functions.expr_planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if is_fragment(name) {
            return Some(Arc::new(ScalarUDF::new_from_impl(SourceFragment::new(name))));
        }
        if let Some((operator, number)) = parse_site_name(name) {
            let operator = self.functions.operators.get(operator)?;
            return Some(Arc::new(ScalarUDF::new_from_impl(CallSite::new(Arc::clone(operator), number, name))));
        }
        if let Some(function) = self.functions.operators.get(name).or_else(|| self.functions.scalar.get(name)) {
            return Some(Arc::clone(function));
        }
        // The planner handles this one.
        if name == "unnest" {
            return None;
        }
        if self.functions.aggregate.contains_key(name)
            || self.functions.window.contains_key(name)
            || self.functions.higher_order.contains_key(name)
        {
            return None;
        }
        if self.catalog.special.contains(name)
            && let Some(function) = xql_special::function(name)
        {
            return Some(Arc::clone(function));
        }
        Some(Arc::new(ScalarUDF::new_from_impl(SessionFunction::new(name, &self.catalog.functions))))
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.functions.higher_order.get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.functions.aggregate.get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.functions.window.get(name).cloned()
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.functions.relation_planners
    }

    fn udf_names(&self) -> Vec<String> {
        self.functions.scalar.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.functions.higher_order.keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.functions.aggregate.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.functions.window.keys().cloned().collect()
    }
}
