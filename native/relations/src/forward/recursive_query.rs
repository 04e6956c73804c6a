//! Tangents through every iteration of a recursive query.

use arrow::datatypes::{Field, FieldRef, Schema};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result, internal_err, plan_err};
use datafusion_expr::{Expr, LogicalPlan, Projection, RecursiveQuery, TableScan, TableSource, lit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::carrier::{Carried, Carrier, Recursion, Variable};
use crate::shared::SharedRelation;
use crate::tangents::tangent::{Tangent, Tangents};
use crate::vocabulary::origin::in_work_table;
use crate::vocabulary::work_table::{is_work_table, rescan, source_column, work_table};

impl Carrier<'_> {
    /// A variable that every iteration passes on unchanged is followed through all of them: the columns that vary with it
    /// carry their tangents in columns of the recursive query.
    ///
    /// ```text
    /// RecursiveQuery: is_distinct=false
    ///   Projection: 0 AS s, p.w, 1 AS q
    ///     TableScan: p
    ///   Projection: o.s + 1, o.w, o.q + o.w * o.q
    ///     TableScan: o
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// RecursiveQuery: is_distinct=false
    ///   Projection: s, w, q, 0 AS ∂q/∂w
    ///     Projection: 0 AS s, p.w, 1 AS q
    ///       TableScan: p
    ///   Projection: s, w, q, ∂q AS ∂q/∂w
    ///     Projection: o.s + 1 AS s, o.w, o.q + o.w * o.q AS q, jvp(o.q + o.w * o.q, o.w, 1, o.q, o.∂q/∂w) AS ∂q
    ///       TableScan: o projection=[s, w, q, ∂q/∂w]
    /// ```
    pub fn recursive_query(
        &mut self,
        query: RecursiveQuery,
        variable: Variable,
        wanted: &BTreeSet<usize>,
    ) -> Result<Carried> {
        let mut wanted = wanted.clone();
        let mut varying = BTreeMap::new();
        // Which columns vary, and which the recursive term reads to compute their tangents, grows until it is consistent.
        loop {
            let names = self.names.clone();
            let (source, width) = self.widened(&query, &varying)?;
            let start = self.carry(query.static_term.as_ref().clone(), variable, &wanted)?;
            let recursion = Recursion {
                name: query.name.clone(),
                variable,
                varying: varying.clone(),
                source,
                width,
                asked: BTreeSet::new(),
            };
            let (step, recursion) = self.recursive_term(&query.recursive_term, recursion, &wanted)?;
            let grown: BTreeSet<usize> = wanted.union(&recursion.asked).copied().collect();
            let vary: BTreeSet<usize> = grown
                .iter()
                .copied()
                .filter(|index| {
                    Variable::Column(*index) != variable
                        && (start.tangents.get(*index) != Tangent::Zero || step.tangents.get(*index) != Tangent::Zero)
                })
                .collect();
            if grown == wanted && vary.iter().eq(varying.keys()) {
                return self.carried_through(query, start, step, recursion);
            }
            *self.names = names;
            wanted = grown;
            for index in vary {
                let column = query.static_term.schema().field(index).name();
                varying.entry(index).or_insert_with(|| self.names.tangent(column, &self.variable));
            }
        }
    }

    /// The recursive term with tangents, and what it has asked of the work table.
    fn recursive_term(
        &mut self,
        term: &LogicalPlan,
        recursion: Recursion,
        wanted: &BTreeSet<usize>,
    ) -> Result<(Carried, Recursion)> {
        let variable = recursion.variable;
        self.recursions.push(recursion);
        let carried = self.carry(term.clone(), variable, wanted);
        match self.recursions.pop() {
            Some(recursion) => Ok((carried?, recursion)),
            None => internal_err!("a recursive query was left twice"),
        }
    }

    fn carried_through(
        &self,
        query: RecursiveQuery,
        start: Carried,
        step: Carried,
        recursion: Recursion,
    ) -> Result<Carried> {
        if recursion.varying.is_empty() {
            return Ok(Carried::constant(LogicalPlan::RecursiveQuery(query)));
        }
        if query.is_distinct {
            return plan_err!(
                "{} is a recursive query with UNION, which compares whole rows, so derivatives by {} cannot pass through it. \
                 Write UNION ALL",
                query.name,
                self.variable
            );
        }
        let added: Vec<_> = recursion.varying.iter().map(|(index, name)| (*index, name.clone())).collect();
        let start = self.with_columns(start, query.static_term.schema(), query.static_term.schema(), &added)?;
        let step = self.with_columns(step, query.recursive_term.schema(), query.recursive_term.schema(), &added)?;
        let plan = LogicalPlan::RecursiveQuery(RecursiveQuery {
            name: query.name,
            static_term: Arc::new(start),
            recursive_term: Arc::new(reading(step, &recursion.name, &recursion.source)?),
            is_distinct: false,
        });
        let mut tangents = Tangents::default();
        for (index, name) in added {
            tangents.set(index, Tangent::Column(Column::new_unqualified(name)));
        }
        Ok(Carried { plan, tangents })
    }

    /// A working table with tangents behind its columns, and how many columns it has without them.
    fn widened(
        &self,
        query: &RecursiveQuery,
        varying: &BTreeMap<usize, String>,
    ) -> Result<(Arc<dyn TableSource>, usize)> {
        let schema = query.static_term.schema();
        let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        let width = fields.len();
        for (index, name) in varying {
            let field = schema.field(*index);
            fields.push(Arc::new(Field::new(name, self.tangent_type(field.data_type()), field.is_nullable())));
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        Ok((work_table(&query.name, schema), width))
    }

    /// Refuses a variable that every iteration passes on by way of a shared relation, so that other columns may be computed from it:
    ///
    /// ```sql
    /// SELECT 0 AS step, val, lr FROM start
    /// UNION ALL
    /// SELECT step + 1, val - lr * grad((SELECT SUM(val * val) FROM r), val), lr FROM r WHERE step < 9  -- grad(val, lr) of this
    /// ```
    pub fn check_passed_on(&self, query: &RecursiveQuery, variable: usize) -> Result<()> {
        let term = without_shared(query.recursive_term.as_ref().clone())?;
        match in_work_table(&term, variable, &query.name)? == Some(variable) {
            true => self.refuse_gradients_in(&query.name),
            false => Ok(()),
        }
    }

    /// The error for a recursive query whose iterations take gradients by row of their own rows.
    fn refuse_gradients_in<T>(&self, name: &str) -> Result<T> {
        plan_err!(
            "the iterations of the recursive query {name} take a gradient by its own rows, and derivatives by {} cannot pass through \
             them. Write the iterations as CTEs, one after the other",
            self.variable
        )
    }

    /// A table is where variables originate, so its columns do not vary, except for those of a working table.
    pub fn scan(&mut self, scan: TableScan, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let constant = |scan| Ok(Carried::constant(LogicalPlan::TableScan(scan)));
        if let Some(relation) = SharedRelation::scanned(&scan) {
            for recursion in &self.recursions {
                let reads = |node: &LogicalPlan| matches!(node, LogicalPlan::TableScan(scan) if is_work_table(scan, &recursion.name));
                if SharedRelation::any_node_in(relation.plan(), &reads)? {
                    return self.refuse_gradients_in(&recursion.name);
                }
            }
            return self.shared(scan, &relation, wanted);
        }
        let found = self.recursions.iter_mut().rev().find(|recursion| is_work_table(&scan, &recursion.name));
        let Some(recursion) = found else { return constant(scan) };
        let same = match (variable, recursion.variable) {
            (Variable::Column(here), Variable::Column(there)) => source_column(&scan, here) == there,
            (Variable::Outer, Variable::Outer) => true,
            _ => false,
        };
        if !same {
            return constant(scan);
        }
        let mut tangents = Tangents::default();
        let mut added = vec![];
        for index in wanted {
            let column = source_column(&scan, *index);
            recursion.asked.insert(column);
            let mut varying = recursion.varying.iter().zip(recursion.width..);
            if let Some(((_, name), position)) = varying.find(|((varying, _), _)| **varying == column) {
                tangents.set(*index, Tangent::Column(Column::new(Some(scan.table_name.clone()), name)));
                added.push(position);
            }
        }
        let scan = rescan(scan, &recursion.source, added)?;
        Ok(Carried { plan: LogicalPlan::TableScan(scan), tangents })
    }
}

/// A plan with the plans of shared relations in the place of their scans. The numbers of rows are 0 in it.
fn without_shared(plan: LogicalPlan) -> Result<LogicalPlan> {
    let without = plan.transform_down(|node| {
        let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
        let Some(relation) = SharedRelation::scanned(scan) else { return Ok(Transformed::no(node)) };
        let columns = relation.plan().schema().columns();
        let exprs = scan.projected_schema.iter().enumerate().map(|(index, (table, field))| {
            let column = columns.get(source_column(scan, index)).cloned();
            column.map_or_else(|| lit(0_u64), Expr::Column).alias_qualified(table.cloned(), field.name())
        });
        let plan = Projection::try_new(exprs.collect(), Arc::new(relation.plan().clone()))?;
        Ok(Transformed::yes(LogicalPlan::Projection(plan)))
    })?;
    Ok(without.data)
}

/// A recursive term with every scan of the working table of this name reading a wider one.
pub fn reading(term: LogicalPlan, name: &str, wider: &Arc<dyn TableSource>) -> Result<LogicalPlan> {
    let read = term.transform_down_with_subqueries(|node| match node {
        LogicalPlan::TableScan(scan) if is_work_table(&scan, name) && !Arc::ptr_eq(&scan.source, wider) => {
            Ok(Transformed::yes(LogicalPlan::TableScan(rescan(scan, wider, [])?)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(read.data)
}
