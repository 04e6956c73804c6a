//! Regions of the nodes that put rows together: joins, unions and lists.

use datafusion_common::{Column, JoinType, NullEquality, Result, internal_err, plan_err};
use datafusion_expr::builder::unnest_with_options;
use datafusion_expr::logical_plan::JoinConstraint;
use datafusion_expr::{Expr, Join, LogicalPlan, Projection, Union, Unnest};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::Linearizer;
use crate::reverse::nodes::Node;
use crate::reverse::region::{Leaf, Region, told_apart};
use crate::vocabulary::names::with_columns;
use crate::vocabulary::origin::is_unnested;

impl Linearizer<'_> {
    pub(super) fn join(&mut self, node: Node, join: &Join) -> Result<Region> {
        let [mut left, mut right] = [self.region(&join.left)?, self.region(&join.right)?];
        let mut on = vec![];
        for (a, b) in &join.on {
            on.push((self.inside(&mut left, a, join.left.schema())?, self.inside(&mut right, b, join.right.schema())?));
        }
        let filter = match &join.filter {
            None => None,
            Some(filter) => {
                let both = join.left.schema().join(join.right.schema())?;
                let columns = left.columns.iter().chain(&right.columns).cloned().collect();
                let mut region = Region::constant(LogicalPlan::default(), columns, false);
                let filter = self.inside(&mut region, filter, &both)?;
                if !region.leaves.is_empty() {
                    return plan_err!(
                        "the condition of a join has a subquery that reads the variable. Put it in WHERE"
                    );
                }
                Some(filter)
            }
        };
        if matches!(join.join_type, JoinType::Left | JoinType::Full) {
            right.with_presence(self.names)?;
        }
        if matches!(join.join_type, JoinType::Right | JoinType::Full) {
            left.with_presence(self.names)?;
        }
        let volatile = filter.iter().chain(on.iter().flat_map(|(a, b)| [a, b])).any(is_volatile);
        let is_cross = join.filter.is_none() && join.on.is_empty() && join.join_type == JoinType::Inner;
        let single = left.single && right.single && is_cross;
        let nulls = match join.null_equality {
            NullEquality::NullEqualsNull if join.join_type == JoinType::Inner => {
                on = told_apart(on, &left.plan, &right.plan)?;
                NullEquality::NullEqualsNothing
            }
            nulls => nulls,
        };
        let plan = LogicalPlan::Join(Join::try_new(
            Arc::new(std::mem::take(&mut left.plan)),
            Arc::new(std::mem::take(&mut right.plan)),
            on,
            filter,
            join.join_type,
            JoinConstraint::On,
            nulls,
            join.null_aware,
        )?);
        let region = match join.join_type {
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                left.take_in(&mut right);
                left
            }
            JoinType::LeftSemi | JoinType::LeftAnti => left,
            JoinType::RightSemi | JoinType::RightAnti => right,
            other => return plan_err!("gradients by row cannot pass through a join of type {other}"),
        };
        let region = Region { plan, single, ..region };
        if volatile { self.settled(node, region) } else { Ok(region) }
    }

    /// Every row of a union is of one of its inputs. The others have no row there.
    ///
    /// ```text
    /// Union                 Union
    ///   Projection: a         Projection: a, ∂row of the first, NULL
    ///   Projection: b   ->    Projection: b, NULL, ∂row of the second
    /// ```
    pub(super) fn union(&mut self, union: &Union) -> Result<Region> {
        let width = union.schema.fields().len();
        let mut readers = vec![];
        for input in &union.inputs {
            let region = self.region(input)?;
            let stage = self.same(region)?;
            readers.push(self.stages.reader(stage, width, self.names)?);
        }
        let names: Vec<_> = union.schema.fields().iter().map(|field| self.names.part(field.name())).collect();
        let rows: Vec<_> = readers.iter().map(|_| self.names.part("row")).collect();
        let mut inputs = vec![];
        let mut leaves = vec![];
        let mut varying = std::collections::BTreeSet::new();
        for (number, reader) in readers.into_iter().enumerate() {
            let columns = reader.columns.iter().zip(&names);
            let mut exprs: Vec<_> =
                columns.map(|(column, name)| Expr::Column(column.clone()).alias(name.clone())).collect();
            for (other, name) in rows.iter().enumerate() {
                let row = reader.leaves.first().and_then(|leaf| leaf.row.clone()).filter(|_| other == number);
                let none = || Expr::Literal(datafusion_common::ScalarValue::UInt64(None), None);
                exprs.push(row.map_or_else(none, Expr::Column).alias(name.clone()));
            }
            for leaf in reader.leaves {
                let columns = leaf.columns.iter().map(|column| {
                    let position = reader.columns.iter().position(|own| &own.name == column)?;
                    names.get(position).cloned()
                });
                let Some(columns) = columns.collect::<Option<Vec<_>>>() else {
                    return internal_err!("a stage has a column that varies and is not read");
                };
                varying.extend(columns.iter().cloned());
                leaves.push(Leaf { row: Some(Column::new_unqualified(&rows[number])), columns, own: vec![], ..leaf });
            }
            inputs.push(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(reader.plan))?)));
        }
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        let columns = names.into_iter().map(Column::new_unqualified).collect();
        Ok(Region { plan, columns, varying, steps: vec![], leaves, single: false })
    }

    /// The rows of a region, each beside the elements of its lists, which do not vary.
    pub(super) fn unnest(&mut self, unnest: &Unnest) -> Result<Region> {
        let mut region = self.region(&unnest.input)?;
        // Under their own names behind the columns of the region, all of which the node passes on.
        let mut lists = vec![];
        for (index, (table, field)) in unnest.input.schema().iter().enumerate() {
            if !is_unnested(unnest, index) {
                continue;
            }
            let list = region.columns[index].clone();
            if region.varying.contains(&list.name) {
                return plan_err!(
                    "{} varies and comes out of a list or struct. xql-ffi does not differentiate lists and structs",
                    field.name()
                );
            }
            lists.push(Expr::Column(list).alias_qualified(table.cloned(), field.name()));
        }
        let passed_on = region.plan.schema().columns();
        let plan = with_columns(std::mem::take(&mut region.plan), lists)?;
        let plan = unnest_with_options(plan, unnest.exec_columns.clone(), unnest.options.clone())?;
        let mut exprs: Vec<_> = passed_on.iter().cloned().map(Expr::Column).collect();
        let mut elements = vec![];
        for element in plan.schema().columns().split_off(passed_on.len()) {
            let name = self.names.part(&element.name);
            exprs.push(Expr::Column(element).alias(name.clone()));
            elements.push(Column::new_unqualified(name));
        }
        let mut elements = elements.into_iter();
        let passed_on = std::mem::take(&mut region.columns);
        for index in &unnest.dependency_indices {
            let own = if is_unnested(unnest, *index) { elements.next() } else { passed_on.get(*index).cloned() };
            region.columns.extend(own);
        }
        for leaf in &mut region.leaves {
            leaf.repeated = true;
        }
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
        Ok(Region { plan, single: false, ..region })
    }
}
