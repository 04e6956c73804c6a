//! Replaces the work table of a recursive query by one with further columns, or with nullable columns.
//!
//! Iterations pass a further column on if both terms compute it and the work table has it:
//!
//! ```text
//! RecursiveQuery: is_distinct=false               RecursiveQuery: is_distinct=false
//!   Projection: 0 AS s, p.w                         Projection: s, w, further
//!     TableScan: p                         ->         ... 0 AS s, p.w, ... what it is in the first rows
//!   Projection: o.s + 1, o.w                        Projection: o.s + 1, o.w, further
//!     TableScan: o                                    ... o.s + 1, o.w, ... what it is in the next rows
//!                                                       TableScan: o projection=[s, w, further]
//! ```

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::provider_as_source;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{DFSchemaRef, Result};
use datafusion_expr::{Expr, LogicalPlan, Projection, RecursiveQuery, TableScan, TableSource};
use std::fmt;
use std::sync::Arc;

use crate::version::{recursive_query, table_scan};
use crate::vocabulary::names::columns;
use crate::vocabulary::work_table::{is_work_table, source_column};

/// A work table that replaces the one of a recursive query.
///
/// First come the columns of the query, then the further ones, which are numbered from 0 and go by the same names in the work table,
/// in its scans and in the query.
#[derive(Clone)]
pub struct WorkTable {
    name: String,
    source: Arc<dyn TableSource>,
    /// How many columns it has without the further ones.
    width: usize,
}

impl fmt::Debug for WorkTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkTable").field("name", &self.name).field("width", &self.width).finish_non_exhaustive()
    }
}

/// A term of a recursive query that has been given further columns.
#[derive(Debug)]
pub struct Term {
    /// The columns that the term had before, all of which the plan still has, in any order.
    pub before: DFSchemaRef,
    /// What computes them and what the further columns are computed from.
    pub plan: LogicalPlan,
    /// What the further columns are over the plan.
    pub further: Vec<Expr>,
}

impl WorkTable {
    /// Returns the work table of a query with no other columns than these.
    pub fn with_schema(query: &RecursiveQuery, schema: SchemaRef) -> Self {
        let width = schema.fields().len();
        let source = provider_as_source(Arc::new(CteWorkTable::new(&query.name, schema)));
        Self { name: query.name.clone(), source, width }
    }

    /// Returns the work table of a query with these columns behind those that it has.
    pub fn widened(query: &RecursiveQuery, further: impl IntoIterator<Item = FieldRef>) -> Self {
        let schema = query.static_term.schema();
        let fields: Vec<_> = schema.fields().iter().cloned().chain(further).collect();
        let width = schema.fields().len();
        let table = Self::with_schema(query, Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())));
        Self { width, ..table }
    }

    /// Returns the name of the recursive query.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a scan reads the work table of the query, this one or the one that it had.
    pub fn is_read_by(&self, scan: &TableScan) -> bool {
        is_work_table(scan, &self.name)
    }

    /// Returns the scan of this work table in the place of that of another one, with the same columns, and after them those of the
    /// further columns with these numbers that are not among them.
    pub fn rescan(&self, scan: TableScan, further: impl IntoIterator<Item = usize>) -> Result<TableScan> {
        let width = scan.projected_schema.fields().len();
        let mut projection: Vec<_> = (0..width).map(|index| source_column(&scan, index)).collect();
        for number in further {
            if !projection.contains(&(self.width + number)) {
                projection.push(self.width + number);
            }
        }
        let TableScan { table_name, filters, fetch, .. } = scan;
        table_scan(table_name, Arc::clone(&self.source), projection, filters, fetch)
    }

    /// Returns the query of these terms, each with the further columns. What in the recursive term still scans the work table that
    /// the query had scans this one.
    pub fn query(self, static_term: Term, recursive_term: Term) -> Result<LogicalPlan> {
        let recursive_term = self.reading_this(self.widened_term(recursive_term)?)?;
        let static_term = Arc::new(self.widened_term(static_term)?);
        recursive_query(self.name, static_term, Arc::new(recursive_term), false).map(LogicalPlan::RecursiveQuery)
    }

    /// Returns the columns of a term in their order, and after them the further ones.
    fn widened_term(&self, Term { before, plan, further }: Term) -> Result<LogicalPlan> {
        let schema = self.source.schema();
        let names = schema.fields().iter().skip(self.width).map(|field| field.name().clone());
        let further = further.into_iter().zip(names).map(|(expr, name)| expr.alias(name));
        let exprs = columns(&before).into_iter().chain(further).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
    }

    fn reading_this(&self, term: LogicalPlan) -> Result<LogicalPlan> {
        let read = term.transform_down_with_subqueries(|node| match node {
            LogicalPlan::TableScan(scan) if self.is_read_by(&scan) && !Arc::ptr_eq(&scan.source, &self.source) => {
                Ok(Transformed::yes(LogicalPlan::TableScan(self.rescan(scan, [])?)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(read.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};
    use datafusion_expr::{LogicalPlanBuilder, col, lit};

    /// `SELECT 0 AS s UNION ALL SELECT s + 1 FROM r`
    fn query() -> Result<RecursiveQuery> {
        let start = LogicalPlanBuilder::empty(true).project([lit(0_i64).alias("s")])?.build()?;
        let table = Arc::new(CteWorkTable::new("r", Arc::clone(start.schema().inner())));
        let scan = LogicalPlanBuilder::scan("r", provider_as_source(table), None)?;
        let step = scan.project([(col("s") + lit(1_i64)).alias("s")])?.build()?;
        let (static_term, recursive_term) = (Arc::new(start), Arc::new(step));
        recursive_query("r".to_owned(), static_term, recursive_term, false)
    }

    #[test]
    fn both_terms_and_the_work_table_have_a_further_column() -> Result<()> {
        let query = query()?;
        let table = WorkTable::widened(&query, [Arc::new(Field::new("t", DataType::Float64, false))]);
        let LogicalPlan::Projection(step) = query.recursive_term.as_ref() else { unreachable!("a projection") };
        let LogicalPlan::TableScan(scan) = step.input.as_ref().clone() else { unreachable!("a scan") };
        let scan = Arc::new(LogicalPlan::TableScan(table.rescan(scan, [0])?));
        let exprs = step.expr.iter().cloned().chain([(col("r.t") * lit(2.0)).alias("twice")]);
        let step = LogicalPlan::Projection(Projection::try_new(exprs.collect(), scan)?);
        let term = |plan: &LogicalPlan, before: &LogicalPlan, further| {
            let before = Arc::clone(before.schema());
            Term { before, plan: plan.clone(), further: vec![further] }
        };
        let start = term(&query.static_term, &query.static_term, lit(1.0));
        let wide = table.query(start, term(&step, &query.recursive_term, col("twice")))?;
        let shown = wide.display_indent().to_string();
        let expected = "RecursiveQuery: is_distinct=false
  Projection: s, Float64(1) AS t
    Projection: Int64(0) AS s
      EmptyRelation: rows=1
  Projection: s, twice AS t
    Projection: r.s + Int64(1) AS s, r.t * Float64(2) AS twice
      TableScan: r projection=[s, t]";
        assert_eq!(shown, expected);
        Ok(())
    }

    #[test]
    fn what_still_scans_the_work_table_of_before_scans_the_other_one() -> Result<()> {
        let query = query()?;
        let table = WorkTable::widened(&query, [Arc::new(Field::new("t", DataType::Float64, false))]);
        let term = |plan: &Arc<LogicalPlan>| Term {
            before: Arc::clone(plan.schema()),
            plan: plan.as_ref().clone(),
            further: vec![lit(0.0)],
        };
        let source = Arc::clone(&table.source);
        let wide = table.query(term(&query.static_term), term(&query.recursive_term))?;
        let mut scans = vec![];
        wide.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                scans.push(Arc::ptr_eq(&scan.source, &source));
            }
            Ok(datafusion_common::tree_node::TreeNodeRecursion::Continue)
        })?;
        assert_eq!(scans, [true]);
        Ok(())
    }
}
