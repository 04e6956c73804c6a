//! The leaf that reads a common subplan.

use arrow::datatypes::{DataType, Field};
use datafusion_common::metadata::ScalarAndMetadata;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DFSchemaRef, Result, plan_err};
use datafusion_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;

use super::parameters::{parameters, replace_parameters, value_as};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::identity::occurrences;
use crate::vocabulary::work_table::work_table;

/// The plan of a CTE or view, with what its readers need to know.
#[derive(Debug)]
pub struct CommonSubplan {
    /// As it was planned for its first reader.
    written: LogicalPlan,
    /// The same, analyzed.
    plan: LogicalPlan,
    /// The columns, of which is known what was known of them as written. DataFusion takes wrong dependencies from a projection that computes a
    /// column before others, and groups by what it takes for dependent: it would group otherwise than without this project.
    schema: DFSchemaRef,
    /// How many nodes it has where everything is written out that it reads.
    size: usize,
    parameters: Vec<Expr>,
    work_tables: Vec<LogicalPlan>,
    /// The tables that it reads, as `EXPLAIN` shows them, each once.
    tables: Vec<String>,
    /// Whether it has a subquery.
    has_subquery: bool,
    /// Whether it has the hint `AS MATERIALIZED`.
    is_materialized: bool,
}

/// A reader of a common subplan: a leaf with its columns.
///
/// DataFusion sees of the subplan what it has to know: the parameters of a prepared statement, as expressions of the node, and the work
/// tables of recursive queries around it, as inputs.
#[derive(Debug, Clone)]
pub struct SubplanScan {
    subplan: Arc<CommonSubplan>,
    parameters: Vec<Expr>,
    work_tables: Vec<LogicalPlan>,
}

impl CommonSubplan {
    /// Creates the subplan of a plan as it was written, and analyzed. `is_materialized` says whether it is computed once even where
    /// one place reads it, and without a derivative.
    ///
    /// # Errors
    /// If the plan cannot be gone through.
    pub fn try_new(written: LogicalPlan, plan: LogicalPlan, is_materialized: bool) -> Result<Self> {
        let size = written_out_size(&plan)?;
        let (parameters, work_tables) = (parameters(&plan)?, work_tables(&plan)?);
        let (tables, has_subquery) = describe_tables(&plan)?;
        let known = written.schema().functional_dependencies().clone();
        let schema = Arc::new(plan.schema().as_ref().clone().with_functional_dependencies(known)?);
        Ok(Self { written, plan, schema, size, parameters, work_tables, tables, has_subquery, is_materialized })
    }

    /// Returns whether a plan is the same, for another reader.
    ///
    /// The readers of a CTE get copies of its plan, and those of a view copies with an alias. What is below has the schemas of one.
    pub fn is_of(&self, plan: &LogicalPlan) -> bool {
        let (LogicalPlan::SubqueryAlias(a), LogicalPlan::SubqueryAlias(b)) = (&self.written, plan) else {
            return false;
        };
        a.alias == b.alias
            && Arc::ptr_eq(a.input.schema(), b.input.schema())
            && discriminant(a.input.as_ref()) == discriminant(b.input.as_ref())
            && a.input.expressions() == b.input.expressions()
            && occurrences(&a.input) == occurrences(&b.input)
    }

    /// Returns whether it is computed once even where one place reads it.
    pub fn is_materialized(&self) -> bool {
        self.is_materialized
    }

    /// Returns what it is computed by.
    pub fn plan(&self) -> &LogicalPlan {
        &self.plan
    }

    /// Returns the name of the CTE or view.
    pub fn name(&self) -> String {
        match &self.plan {
            LogicalPlan::SubqueryAlias(alias) => alias.alias.to_string(),
            other => other.display().to_string(),
        }
    }

    /// Returns a leaf that reads it.
    pub fn scan(self: &Arc<Self>) -> LogicalPlan {
        let (parameters, work_tables) = (self.parameters.clone(), self.work_tables.clone());
        let node = SubplanScan { subplan: Arc::clone(self), parameters, work_tables };
        LogicalPlan::Extension(Extension { node: Arc::new(node) })
    }
}

impl SubplanScan {
    /// Returns the leaf that a node is.
    pub fn from_node(node: &LogicalPlan) -> Option<&Self> {
        let LogicalPlan::Extension(extension) = node else { return None };
        extension.node.as_any().downcast_ref()
    }

    /// Returns what it reads.
    pub fn subplan(&self) -> &Arc<CommonSubplan> {
        &self.subplan
    }

    /// Returns the plan of what it reads, with the values that its parameters have got.
    ///
    /// # Errors
    /// If a value does not fit.
    pub fn plan(&self) -> Result<LogicalPlan> {
        let mut values = HashMap::new();
        for (parameter, value) in self.subplan.parameters.iter().zip(&self.parameters) {
            // DataFusion keeps the name of the parameter as an alias.
            if let (Expr::Placeholder(parameter), Expr::Literal(value, _)) = (parameter, unaliased(value)) {
                let known = parameter.field.as_deref().map(Field::data_type);
                let Some(value) = known.map_or_else(|| Some(value.clone()), |known| value_as(value, known)) else {
                    return plan_err!(
                        "the value of {} is {value}, and what several places read is planned for {}. Write CAST({} AS {})",
                        parameter.id,
                        known.unwrap_or(&DataType::Null),
                        parameter.id,
                        value.data_type()
                    );
                };
                values.insert(parameter.id.trim_start_matches('$').to_owned(), ScalarAndMetadata::from(value));
            }
        }
        let plan = self.subplan.plan.clone();
        if values.is_empty() { Ok(plan) } else { replace_parameters(plan, &values) }
    }
}

/// Returns how many nodes a plan has where everything is written out that it reads.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn written_out_size(plan: &LogicalPlan) -> Result<usize> {
    let mut size = 0_usize;
    plan.apply_with_subqueries(|node| {
        size = size.saturating_add(SubplanScan::from_node(node).map_or(1, |scan| scan.subplan.size));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(size)
}

/// Scans of the work tables that a plan reads of recursive queries around it, one of each.
fn work_tables(plan: &LogicalPlan) -> Result<Vec<LogicalPlan>> {
    let (mut found, mut own) = (vec![], vec![]);
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::RecursiveQuery(query) => own.push(query.name.clone()),
            LogicalPlan::TableScan(scan) => found.extend(work_table(scan).map(|name| (name, node.clone()))),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    found.retain(|(name, _)| !own.contains(name));
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found.dedup_by(|(a, _), (b, _)| a == b);
    Ok(found.into_iter().map(|(_, scan)| scan).collect())
}

/// Returns the scans of tables in a plan as `EXPLAIN` shows them, each once, and whether it has a subquery.
fn describe_tables(plan: &LogicalPlan) -> Result<(Vec<String>, bool)> {
    let (mut tables, mut has_subquery) = (vec![], false);
    plan.apply_with_subqueries(|node| {
        has_subquery |= matches!(node, LogicalPlan::Subquery(_));
        match (node, SubplanScan::from_node(node)) {
            (LogicalPlan::TableScan(_), _) => tables.push(node.display().to_string()),
            (_, Some(scan)) => {
                tables.extend(scan.subplan.tables.iter().cloned());
                has_subquery |= scan.subplan.has_subquery;
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    tables.sort();
    tables.dedup();
    Ok((tables, has_subquery))
}

impl UserDefinedLogicalNodeCore for SubplanScan {
    fn name(&self) -> &str {
        "SubplanScan"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.work_tables.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.subplan.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.parameters.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let shown = self.subplan.plan.display().to_string();
        write!(f, "SubplanScan: {}", shown.trim_start_matches("SubqueryAlias: "))?;
        if self.subplan.has_subquery {
            write!(f, ", (<subquery>)")?;
        }
        self.subplan.tables.iter().try_for_each(|table| write!(f, "\n  {table}"))
    }

    fn with_exprs_and_inputs(&self, parameters: Vec<Expr>, work_tables: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { subplan: Arc::clone(&self.subplan), parameters, work_tables })
    }
}

impl SubplanScan {
    fn key(&self) -> (*const CommonSubplan, &[Expr]) {
        (Arc::as_ptr(&self.subplan), &self.parameters)
    }
}

impl PartialEq for SubplanScan {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for SubplanScan {}

impl Hash for SubplanScan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl PartialOrd for SubplanScan {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.key().partial_cmp(&other.key())
    }
}
