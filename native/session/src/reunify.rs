//! Restores table and CTE identity after a protobuf round trip.
//!
//! `xql-relations` recognizes a table by its provider and a query by the node that all copies in a plan share. A decoded plan shares
//! nothing. So two tables are one if they have the same owner and the same fingerprint, and two queries are one if they have the same text
//! under the same name, as a CTE or a view has that is read several times. [`statement_names`](crate::statement_names) knows which names
//! are those of derived tables.
//!
//! ```sql
//! WITH c AS (SELECT k, SUM(x) AS s FROM t GROUP BY k) SELECT ... FROM c JOIN t USING (k) WHERE c.s > (SELECT AVG(s) FROM c)
//! ```

use datafusion::catalog::TableProvider;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference, plan_err};
use datafusion::datasource::ViewTable;
use datafusion::datasource::listing::ListingTable;
use datafusion::logical_expr::{Expr, LogicalPlan, RecursiveQuery, SubqueryAlias, TableScan, TableSource};
use datafusion_ffi::table_provider::ForeignTableProvider;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};
use xql_relations::{NameKind, is_work_table, noted_name};

use crate::abi::{HandleFingerprint, table_fingerprint};
use crate::statement_names::{StatementNames, is_statement};

/// The relations that the plans of a session scan, each once, as long as some plan has it.
#[derive(Debug, Default)]
pub struct RelationCache {
    /// The first provider of each table.
    tables: Vec<(TableKey, Weak<dyn TableProvider>)>,
    /// The queries under names, by hash.
    queries: HashMap<u64, Vec<Weak<NamedQuery>>>,
}

/// How the names begin that DataFusion gives to subqueries that it takes apart as joins, with other numbers in each copy of a query.
const TAKEN_APART: [&str; 2] = ["__correlated_sq_", "__scalar_sq_"];

/// The first copy of a query under a name.
#[derive(Debug)]
pub struct NamedQuery {
    /// The query.
    node: LogicalPlan,
    /// What tells it from others, with the names of the queries that enclose it where these distinguish it.
    text: (Vec<TableReference>, LogicalPlan),
    /// The tables that it scans.
    providers: Vec<usize>,
}

impl RelationCache {
    /// Rewrites a plan to have one provider for each table of the session, and one copy of each named query. Whoever keeps the plan for
    /// longer than a statement keeps the copies in `held`.
    ///
    /// # Errors
    /// If the plan cannot be rebuilt.
    pub fn reunify(
        &mut self,
        plan: LogicalPlan,
        names: &StatementNames,
        held: &mut Vec<Arc<NamedQuery>>,
    ) -> Result<LogicalPlan> {
        Ok(Reunifier { names, cache: self, held }.reunify(plan, &[])?.data)
    }

    /// Returns the table that a plan of the host scans, or the view that it is.
    ///
    /// # Errors
    /// If the plan scans none, or it is not known whether a name is that of a view.
    pub fn scanned_table(&mut self, plan: LogicalPlan, names: &StatementNames) -> Result<Arc<dyn TableProvider>> {
        Ok(match plan {
            LogicalPlan::TableScan(scan) => self.table(source_as_provider(&scan.source)?),
            LogicalPlan::SubqueryAlias(alias) if name_kind(&alias.alias, names).is_none() => {
                Arc::new(ViewTable::new(Arc::unwrap_or_clone(alias.input), None))
            }
            other => return plan_err!("{} is no table", other.display()),
        })
    }

    /// Returns the first provider of a table, which is this one if there is none.
    fn table(&mut self, provider: Arc<dyn TableProvider>) -> Arc<dyn TableProvider> {
        let Some(key) = TableKey::from_provider(&provider) else { return provider };
        // The fingerprint of a dropped provider may belong to another table.
        self.tables.retain(|(_, provider)| provider.strong_count() > 0);
        let found = self.tables.iter().find(|(other, _)| *other == key);
        if let Some(one) = found.and_then(|(_, provider)| provider.upgrade()) {
            return one;
        }
        self.tables.push((key, Arc::downgrade(&provider)));
        provider
    }

    /// Returns the first copy of a query, which is this one if there is none.
    fn query(&mut self, query: NamedQuery) -> Arc<NamedQuery> {
        let mut hasher = DefaultHasher::new();
        query.text.hash(&mut hasher);
        self.queries.retain(|_, queries| {
            queries.retain(|query| query.strong_count() > 0);
            !queries.is_empty()
        });
        let candidates = self.queries.entry(hasher.finish()).or_default();
        let found = candidates
            .iter()
            .filter_map(Weak::upgrade)
            .find(|other| other.text == query.text && other.providers == query.providers);
        found.unwrap_or_else(|| {
            let query = Arc::new(query);
            candidates.push(Arc::downgrade(&query));
            query
        })
    }
}

fn name_kind(alias: &TableReference, names: &StatementNames) -> Option<NameKind> {
    match alias {
        TableReference::Bare { table } => names.kind(table),
        _ => None,
    }
}

/// The key of a table.
#[derive(Debug, PartialEq)]
enum TableKey {
    /// A table of another library, by library and fingerprint.
    Foreign(usize, HandleFingerprint),
    /// A listing table, by paths, columns and options.
    Files(String),
}

impl TableKey {
    fn from_provider(provider: &Arc<dyn TableProvider>) -> Option<Self> {
        if let Some(ForeignTableProvider(table)) = provider.downcast_ref() {
            // SAFETY: another library of a process has the same major version of DataFusion, which the registration checks.
            return Some(Self::Foreign((table.library_marker_id)(), unsafe { table_fingerprint(table) }));
        }
        let files = provider.downcast_ref::<ListingTable>()?;
        Some(Self::Files(format!("{:?} {:?} {:?}", files.table_paths(), files.schema(), files.options())))
    }
}

/// One traversal of a plan.
struct Reunifier<'a> {
    names: &'a StatementNames,
    cache: &'a mut RelationCache,
    held: &'a mut Vec<Arc<NamedQuery>>,
}

impl Reunifier<'_> {
    /// Rewrites a plan that is within queries of these names.
    fn reunify(&mut self, plan: LogicalPlan, enclosing: &[TableReference]) -> Result<Transformed<LogicalPlan>> {
        if is_statement(&plan) {
            return Ok(Transformed::no(plan));
        }
        let mut within = enclosing.to_vec();
        if let LogicalPlan::SubqueryAlias(alias) = &plan {
            let prefix = prefix_of(&alias.alias, self.names);
            within.push(prefix.map_or_else(|| alias.alias.clone(), TableReference::bare));
        }
        let plan = plan.map_children(|child| self.reunify(child, &within))?;
        let plan = plan.transform_data(|plan| plan.map_subqueries(|subquery| self.reunify(subquery, &within)))?;
        plan.transform_data(|node| match node {
            LogicalPlan::TableScan(scan) => Ok(match source_as_provider(&scan.source) {
                Ok(provider) => {
                    let source = provider_as_source(self.cache.table(provider));
                    Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan }))
                }
                Err(_) => Transformed::no(LogicalPlan::TableScan(scan)),
            }),
            LogicalPlan::SubqueryAlias(alias) if prefix_of(&alias.alias, self.names).is_none() => {
                self.query(alias, enclosing)
            }
            LogicalPlan::RecursiveQuery(query) => unify_work_tables(query),
            node => Ok(Transformed::no(node)),
        })
    }

    /// Replaces a named query by its first copy.
    fn query(&mut self, alias: SubqueryAlias, enclosing: &[TableReference]) -> Result<Transformed<LogicalPlan>> {
        let (enclosing, node) = match name_kind(&alias.alias, self.names) {
            // The name of a CTE or view is the same query wherever it is read, in the query that has it.
            None => {
                let definer = self.names.definer(alias.alias.table(), enclosing).cloned();
                (definer.into_iter().collect(), LogicalPlan::SubqueryAlias(alias))
            }
            Some(kind) => {
                let name = noted_name(alias.alias.table(), kind);
                (enclosing.to_vec(), LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(alias.input, name)?))
            }
        };
        let (providers, text) = (scanned_providers(&node)?, numbered_anew(&node, self.names)?);
        let one = self.cache.query(NamedQuery { node, text: (enclosing, text), providers });
        let node = one.node.clone();
        self.held.push(one);
        Ok(Transformed::yes(node))
    }
}

/// Returns how a name begins that DataFusion has given to a subquery, and no statement to a query.
fn prefix_of(alias: &TableReference, names: &StatementNames) -> Option<&'static str> {
    let TableReference::Bare { table } = alias else { return None };
    if names.has(table) {
        return None;
    }
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|digit| digit.is_ascii_digit());
    TAKEN_APART.into_iter().find(|prefix| table.strip_prefix(prefix).is_some_and(is_number))
}

/// Returns a query with the names that DataFusion has given to its subqueries numbered from 1 on, as in all copies of it.
///
/// ```text
/// LeftSemi Join: t.k = __correlated_sq_7.k  ->  LeftSemi Join: t.k = __correlated_sq_1.k
/// ```
fn numbered_anew(query: &LogicalPlan, names: &StatementNames) -> Result<LogicalPlan> {
    let is_taken_apart = |node: &LogicalPlan| matches!(node, LogicalPlan::SubqueryAlias(alias) if prefix_of(&alias.alias, names).is_some());
    let mut has_some = false;
    query.apply_with_subqueries(|node| {
        has_some |= is_taken_apart(node);
        Ok(if has_some { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !has_some {
        return Ok(query.clone());
    }
    let mut given: HashMap<TableReference, TableReference> = HashMap::new();
    let renamed = query.clone().transform_up_with_subqueries(|node| {
        if let LogicalPlan::SubqueryAlias(alias) = &node
            && let Some(prefix) = prefix_of(&alias.alias, names)
        {
            let number = given.len() + 1;
            let name =
                given.entry(alias.alias.clone()).or_insert_with(|| TableReference::bare(format!("{prefix}{number}")));
            let alias = SubqueryAlias::try_new(Arc::clone(&alias.input), name.clone())?;
            return Ok(Transformed::yes(LogicalPlan::SubqueryAlias(alias)));
        }
        let node = node.map_expressions(|expr| {
            expr.transform(|part| match part {
                Expr::Column(Column { relation: Some(relation), name, spans }) if given.contains_key(&relation) => {
                    let relation = given.get(&relation).cloned();
                    Ok(Transformed::yes(Expr::Column(Column { relation, name, spans })))
                }
                part => Ok(Transformed::no(part)),
            })
        })?;
        node.map_data(LogicalPlan::recompute_schema)
    });
    Ok(renamed?.data)
}

/// Gives all scans of a recursive query's work table one source.
///
/// ```sql
/// WITH RECURSIVE r AS (SELECT ... UNION ALL SELECT val - grad((SELECT SUM(val * val) FROM r), val) FROM r)
/// ```
fn unify_work_tables(mut query: RecursiveQuery) -> Result<Transformed<LogicalPlan>> {
    let mut one: Option<Arc<dyn TableSource>> = None;
    let term = Arc::unwrap_or_clone(query.recursive_term).transform_down_with_subqueries(|node| {
        Ok(match node {
            // A nested query of the same name hides this one.
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

/// Returns the providers that a plan scans, in order, which the equality of plans ignores. Work tables are left out: each has a new
/// provider after decoding, and belongs to the recursive query around it.
fn scanned_providers(plan: &LogicalPlan) -> Result<Vec<usize>> {
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
