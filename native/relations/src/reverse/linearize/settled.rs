//! What is computed once, as stages that regions read.

use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Column, Result};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::collections::HashSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{columns_read, is_volatile};

use super::Linearizer;
use crate::reverse::nodes::Node;
use crate::reverse::region::{Region, StageId};
use crate::reverse::stage::{Rows, renamed};
use crate::reverse::variable::named;
use crate::shared::SharedRelation;
use crate::vocabulary::names::columns;

impl Linearizer<'_> {
    /// The region of a CTE, view or derived table. One that has several readers is computed once, unless that is cheap.
    pub(super) fn relation(&mut self, node: Node, plan: &LogicalPlan) -> Result<Region> {
        if matches!(plan, LogicalPlan::SubqueryAlias(_)) {
            return self.region(plan);
        }
        // What it reads has its readers too, as parts of it.
        let around = self.readers;
        self.readers = around.max(self.stages.nodes.times(node));
        let region = self.region(plan);
        let several = std::mem::replace(&mut self.readers, around) > around;
        let region = region?;
        if several && !region.single && !is_read_again_as_it_is(&region.plan)? {
            return self.settled(node, region);
        }
        Ok(region)
    }

    /// What does not vary. It is computed once if it is much to compute, or if it might be other rows the second time.
    pub(super) fn constant(&mut self, plan: &LogicalPlan, node: Node) -> Result<Region> {
        let single = matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty());
        if is_read_again_as_it_is(plan)? {
            let region = renamed(plan.clone(), self.names)?;
            return Ok(Region { single, ..region });
        }
        let width = plan.schema().fields().len();
        let region = renamed(plan.clone(), self.names)?;
        let stage = self.stages.add("constants", region.plan, single, vec![], Rows::Constant, self.names);
        self.stages.know(node, stage, width);
        self.stages.reader(stage, width, self.names)
    }

    /// The region of a shared relation. The numbers of its rows are those of the stage that it becomes.
    pub(super) fn shared(&mut self, node: Node, relation: &SharedRelation) -> Result<Region> {
        let (stage, width) = match self.stages.of(node) {
            Some(known) => known,
            None => {
                let region = self.region(relation.plan())?;
                let width = region.columns.len();
                let stage = self.same(region)?;
                self.stages.know(node, stage, width);
                (stage, width)
            }
        };
        if relation.is_numbered() {
            return self.stages.numbered(stage, width, self.names);
        }
        self.stages.reader(stage, width, self.names)
    }

    /// The rows of a region computed once, because they might be others the second time.
    pub fn settled(&mut self, node: Node, region: Region) -> Result<Region> {
        let width = region.columns.len();
        let stage = self.same(region)?;
        self.stages.know(node, stage, width);
        self.stages.reader(stage, width, self.names)
    }

    /// A stage with the rows of a region. Its first columns are those of the node that the region stands for, the others what a
    /// sweep through the region reads.
    pub fn same(&mut self, mut region: Region) -> Result<StageId> {
        let repeated = std::mem::take(&mut region.columns);
        region.columns = region.apart(repeated, self.names)?;
        let mut all = region.columns.clone();
        let mut read: HashSet<_> = region.steps.iter().flat_map(|step| columns_read(&step.expr)).collect();
        read.extend(region.leaves.iter().flat_map(|leaf| [&leaf.row, &leaf.present]).flatten().cloned());
        let others = region.plan.schema().columns().into_iter();
        all.extend(others.filter(|column| !region.columns.contains(column) && read.contains(column)));
        for leaf in &mut region.leaves {
            leaf.own.clear();
        }
        let exprs: Vec<_> = all.iter().cloned().map(Expr::Column).collect();
        let plan = named(std::mem::take(&mut region.plan), &exprs, self.names)?;
        let table = self.names.part("rows");
        let relation = Arc::new(SharedRelation::numbered(table, plan, &self.names.part("row")));
        let scan = relation.scan()?;
        let own = columns(scan.schema()).into_iter().zip(&all);
        let own = own.map(|(column, own)| column.alias_qualified(own.relation.clone(), own.name.clone()));
        let mut own: Vec<_> = own.collect();
        let row = Column::new_unqualified(self.names.part("row"));
        own.extend(columns(scan.schema()).pop().map(|number| number.alias(row.name.clone())));
        region.plan = LogicalPlan::Projection(Projection::try_new(own, Arc::new(scan))?);
        let varying: Vec<_> =
            (0..region.columns.len()).filter(|index| region.varying.contains(&region.columns[*index].name)).collect();
        let columns = varying.iter().map(|index| region.columns[*index].clone()).collect();
        region.columns.push(row);
        Ok(self.stages.scanned(relation, false, varying, Rows::Same { below: region, columns }))
    }
}

/// Whether a plan that is computed twice is cheap to, and has the same rows both times.
pub fn is_read_again_as_it_is(plan: &LogicalPlan) -> Result<bool> {
    let mut cheap = true;
    plan.apply_with_subqueries(|node| {
        cheap &= matches!(
            node,
            LogicalPlan::TableScan(_)
                | LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Values(_)
                | LogicalPlan::EmptyRelation(_)
        );
        node.apply_expressions(|expr| {
            cheap &= !is_volatile(expr);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if cheap { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(cheap)
}
