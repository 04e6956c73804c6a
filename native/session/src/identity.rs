//! What is one relation in a plan that has been written as bytes and read again.
//!
//! `xql-relations` knows a table by its provider and a query by where it was written, which copies of a plan share. What is read from
//! bytes shares nothing. So here tables are one that have one owner and keep the same there, and so are queries of one text under one
//! name, as a CTE or a view is that several places read. Which names are those of derived tables [`names`](crate::names) knows.
//!
//! ```sql
//! WITH c AS (SELECT k, SUM(x) AS s FROM t GROUP BY k) SELECT ... FROM c JOIN t USING (k) WHERE c.s > (SELECT AVG(s) FROM c)
//! ```

use datafusion::catalog::TableProvider;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, TableReference};
use datafusion::datasource::listing::ListingTable;
use datafusion::logical_expr::{LogicalPlan, RecursiveQuery, SubqueryAlias, TableScan, TableSource};
use datafusion_ffi::table_provider::ForeignTableProvider;
use std::collections::HashMap;
use std::sync::Arc;
use xql_relations::{is_work_table, noted_name};

use crate::abi::{Kept, kept};
use crate::names::Names;

/// What a table is known by.
#[derive(PartialEq)]
enum Known {
    /// A table of another library, by the library and what that keeps.
    Kept(usize, Kept),
    /// Files, by their places, their columns and how they are read.
    Files(String),
}

impl Known {
    fn of(provider: &Arc<dyn TableProvider>) -> Option<Self> {
        if let Some(ForeignTableProvider(table)) = provider.downcast_ref() {
            // SAFETY: another library of a process has the same major version of DataFusion, which the registration checks.
            return Some(Self::Kept((table.library_marker_id)(), unsafe { kept(table) }));
        }
        let files = provider.downcast_ref::<ListingTable>()?;
        Some(Self::Files(format!("{:?} {:?} {:?}", files.table_paths(), files.schema(), files.options())))
    }
}

/// The plan with one provider for each table and one copy of each query that a name stands for.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn identified(plan: LogicalPlan, names: &Names) -> Result<LogicalPlan> {
    let mut known = Identities { names, tables: vec![], queries: HashMap::new() };
    Ok(known.identified(plan, &[])?.data)
}

/// A query as it is written, and the names that it stands within.
type Text = (Vec<TableReference>, LogicalPlan);

/// What has been found in a plan.
struct Identities<'a> {
    names: &'a Names,
    tables: Vec<(Known, Arc<dyn TableProvider>)>,
    /// The queries under names, with the names around them where another one may be meant, and the tables that they read.
    queries: HashMap<Text, Vec<(Vec<usize>, LogicalPlan)>>,
}

impl Identities<'_> {
    /// A plan that stands within queries of these names.
    fn identified(&mut self, plan: LogicalPlan, around: &[TableReference]) -> Result<Transformed<LogicalPlan>> {
        let mut within = around.to_vec();
        if let LogicalPlan::SubqueryAlias(alias) = &plan {
            within.push(alias.alias.clone());
        }
        let plan = plan.map_children(|child| self.identified(child, &within))?;
        let plan = plan.transform_data(|plan| plan.map_subqueries(|subquery| self.identified(subquery, &within)))?;
        plan.transform_data(|node| match node {
            LogicalPlan::TableScan(scan) => Ok(match one_table(&scan, &mut self.tables)? {
                Some(one) => {
                    let source = provider_as_source(one);
                    Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan }))
                }
                None => Transformed::no(LogicalPlan::TableScan(scan)),
            }),
            LogicalPlan::SubqueryAlias(alias) => self.query(alias, around),
            LogicalPlan::RecursiveQuery(query) => one_work_table(query),
            node => Ok(Transformed::no(node)),
        })
    }

    /// The copy of a query under a name that was met first.
    fn query(&mut self, alias: SubqueryAlias, around: &[TableReference]) -> Result<Transformed<LogicalPlan>> {
        let kind = match &alias.alias {
            TableReference::Bare { table } => self.names.kind(table),
            _ => None,
        };
        let (key, node) = match kind {
            // The name of a CTE or view is the same query wherever it is read.
            None => (vec![], LogicalPlan::SubqueryAlias(alias)),
            Some(kind) => {
                let name = noted_name(alias.alias.table(), kind);
                (around.to_vec(), LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(alias.input, name)?))
            }
        };
        let read = providers(&node)?;
        let known = self.queries.entry((key, node.clone())).or_default();
        if let Some((_, one)) = known.iter().find(|(known, _)| *known == read) {
            return Ok(Transformed::yes(one.clone()));
        }
        known.push((read, node.clone()));
        Ok(Transformed::yes(node))
    }
}

/// The provider that a table had where it was read first.
fn one_table(
    scan: &TableScan,
    tables: &mut Vec<(Known, Arc<dyn TableProvider>)>,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
    let Some(known) = Known::of(&provider) else { return Ok(None) };
    if let Some((_, one)) = tables.iter().find(|(other, _)| *other == known) {
        return Ok(Some(Arc::clone(one)));
    }
    tables.push((known, provider));
    Ok(None)
}

/// A recursive query all of whose readers of the last iteration read one work table.
///
/// ```sql
/// WITH RECURSIVE r AS (SELECT ... UNION ALL SELECT val - grad((SELECT SUM(val * val) FROM r), val) FROM r)
/// ```
fn one_work_table(mut query: RecursiveQuery) -> Result<Transformed<LogicalPlan>> {
    let mut one: Option<Arc<dyn TableSource>> = None;
    let term = Arc::unwrap_or_clone(query.recursive_term).transform_down_with_subqueries(|node| {
        Ok(match node {
            // A query of the same name within hides this one.
            LogicalPlan::RecursiveQuery(within) if within.name == query.name => {
                Transformed::new(LogicalPlan::RecursiveQuery(within), false, TreeNodeRecursion::Jump)
            }
            LogicalPlan::TableScan(scan) if is_work_table(&scan, &query.name) => {
                let source = Arc::clone(one.get_or_insert_with(|| Arc::clone(&scan.source)));
                Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan }))
            }
            node => Transformed::no(node),
        })
    })?;
    query.recursive_term = Arc::new(term.data);
    Ok(Transformed::new_transformed(LogicalPlan::RecursiveQuery(query), term.transformed))
}

/// Which tables a plan reads, in their order. The equality of plans leaves them out. The table of the last iteration is that of the
/// recursive query around it, and each time read anew from the bytes.
fn providers(plan: &LogicalPlan) -> Result<Vec<usize>> {
    let mut found = vec![];
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source).ok();
            let provider = provider.filter(|provider| !provider.is::<CteWorkTable>());
            found.push(provider.map_or(0, |provider| Arc::as_ptr(&provider).cast::<()>() as usize));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
