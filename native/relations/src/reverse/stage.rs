//! Stages: relations between the variable and the value that are computed once and read as often as needed.

use datafusion_common::{Column, Result};
use datafusion_expr::{LogicalPlan, Projection};
use std::collections::HashMap;
use std::sync::Arc;

use super::nodes::{Node, Nodes};
use super::partials::Partials;
use super::region::{Leaf, Region, StageId};
use crate::shared::SharedRelation;
use crate::vocabulary::names::{Names, columns};

/// A relation that is computed once.
pub struct Stage {
    relation: Arc<SharedRelation>,
    /// Whether it has exactly one row.
    pub single: bool,
    /// The positions of its columns that vary.
    pub varying: Vec<usize>,
    pub rows: Rows,
}

/// Where the rows of a stage come from.
pub enum Rows {
    /// They are those of the variable of this number.
    Variable(usize),
    /// They do not vary.
    Constant,
    /// They are those of a region, one by one. The columns that vary are these.
    Same { below: Region, columns: Vec<Column> },
    /// They are groups of the rows of a region by keys. The columns that vary are these aggregates.
    Groups { below: Region, keys: Vec<Column>, aggregates: Vec<Partials> },
}

impl Stage {
    /// A scan of all its columns.
    pub fn scan(&self, names: &mut Names) -> Result<Region> {
        read(&self.relation, names)
    }
}

/// The stages by which values depend on variables.
#[derive(Default)]
pub struct Stages {
    stages: Vec<Stage>,
    /// The stages of nodes by their numbers, with how many columns the nodes have.
    known: HashMap<usize, (StageId, usize)>,
    pub nodes: Nodes,
}

impl Stages {
    pub fn get(&self, id: StageId) -> Option<&Stage> {
        self.stages.get(id)
    }

    pub fn count(&self) -> usize {
        self.stages.len()
    }

    /// The stage of a node, if it has one.
    pub fn of(&self, node: Node) -> Option<(StageId, usize)> {
        self.known.get(&node.id).copied()
    }

    /// Notes which stage a node with so many columns is.
    pub fn know(&mut self, node: Node, id: StageId, width: usize) {
        self.known.insert(node.id, (id, width));
    }

    /// The stages of the rows of variables, with the numbers of the variables.
    pub fn of_variables(&self) -> impl Iterator<Item = (StageId, usize)> {
        let number = |(id, stage): (StageId, &Stage)| match stage.rows {
            Rows::Variable(variable) => Some((id, variable)),
            _ => None,
        };
        self.stages.iter().enumerate().filter_map(number)
    }

    /// A stage of the rows that a plan computes. Its last column numbers them, unless there is one row only or they do not vary.
    pub fn add(
        &mut self,
        name: &str,
        plan: LogicalPlan,
        single: bool,
        varying: Vec<usize>,
        rows: Rows,
        names: &mut Names,
    ) -> StageId {
        let table = names.part(name);
        let needs_no_numbers = single || matches!(rows, Rows::Constant);
        let relation = match needs_no_numbers {
            true => SharedRelation::new(table, plan),
            false => SharedRelation::numbered(table, plan, &names.part("row")),
        };
        self.scanned(Arc::new(relation), single, varying, rows)
    }

    /// A stage of the rows of a shared relation.
    pub fn scanned(&mut self, relation: Arc<SharedRelation>, single: bool, varying: Vec<usize>, rows: Rows) -> StageId {
        self.stages.push(Stage { relation, single, varying, rows });
        self.stages.len() - 1
    }

    /// A region that reads a stage, of which `width` columns are those of the node that it stands for.
    pub fn reader(&self, id: StageId, width: usize, names: &mut Names) -> Result<Region> {
        let stage = &self.stages[id];
        let mut region = stage.scan(names)?;
        region.single = stage.single;
        let row = region.columns.last().filter(|_| stage.relation.is_numbered()).cloned();
        let read = |index: &usize| Some(region.columns.get(*index)?.name.clone());
        let read: Vec<_> = stage.varying.iter().filter_map(read).collect();
        let own = region.columns.clone();
        region.columns.truncate(width);
        if !read.is_empty() {
            region.varying.extend(read.iter().cloned());
            region.leaves.push(Leaf { stage: id, row, present: None, columns: read, own, repeated: false });
        }
        Ok(region)
    }

    /// The same with the number of the row as one more column. A stage has columns between, of the region that it is computed from.
    pub fn numbered(&self, id: StageId, width: usize, names: &mut Names) -> Result<Region> {
        let mut region = self.reader(id, usize::MAX, names)?;
        let row = region.columns.pop();
        region.columns.truncate(width);
        region.columns.extend(row);
        Ok(region)
    }
}

/// A shared relation as a region of constants, its columns under names of their own.
pub fn read(relation: &Arc<SharedRelation>, names: &mut Names) -> Result<Region> {
    let named: Vec<_> = relation.columns().map(|column| names.part(column)).collect();
    let plan = relation.scan_as(named)?;
    let columns = plan.schema().columns();
    Ok(Region::constant(plan, columns, false))
}

/// A relation as a region of constants, its columns under names of their own.
pub fn renamed(plan: LogicalPlan, names: &mut Names) -> Result<Region> {
    let mut exprs = vec![];
    let mut named = vec![];
    for column in columns(plan.schema()) {
        let name = names.part(&column.qualified_name().1);
        exprs.push(column.alias(name.clone()));
        named.push(Column::new_unqualified(name));
    }
    let projection = Projection::try_new(exprs, Arc::new(plan))?;
    Ok(Region::constant(LogicalPlan::Projection(projection), named, false))
}
