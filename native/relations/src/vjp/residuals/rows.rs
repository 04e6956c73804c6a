//! Residuals with the rows of a segment, one by one.

use datafusion_common::{Column, JoinType, NullEquality, Result, internal_err};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::collections::HashSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;

use super::framed_sums::{ByValue, FramedSum, transposed};
use super::materialized::{PulledBack, Stored};
use crate::shared_relation::SharedRelation;
use crate::vjp::cotangents::{Cotangents, RowCotangents};
use crate::vjp::segment::{Segment, joined};
use crate::vocabulary::names::{Names, columns, named};

/// The rows of a segment as they were computed.
pub struct Rows {
    /// The segment over the stored rows, with their number as its last column.
    below: Segment,
    /// The columns that vary.
    varying: Vec<Column>,
    /// Those of them that are sums over frames of the rows.
    sums: Vec<FramedSum>,
}

impl Rows {
    /// Returns a residual with the rows of a segment, of which some columns are sums over frames. Its first columns are those of the
    /// segment, the others what a sweep through it reads.
    pub fn computed(mut segment: Segment, sums: Vec<FramedSum>, names: &mut Names) -> Result<(Stored, Self)> {
        let repeated = std::mem::take(&mut segment.columns);
        segment.columns = segment.make_distinct(repeated, names)?;
        let mut all = segment.columns.clone();
        let mut read: HashSet<_> = segment.steps.iter().flat_map(|step| columns_read(&step.expr)).collect();
        read.extend(segment.leaves.iter().flat_map(|leaf| [&leaf.row, &leaf.present]).flatten().cloned());
        let others = segment.plan.schema().columns().into_iter();
        all.extend(others.filter(|column| !segment.columns.contains(column) && read.contains(column)));
        for leaf in &mut segment.leaves {
            leaf.own.clear();
        }
        let exprs: Vec<_> = all.iter().cloned().map(Expr::Column).collect();
        let plan = named(std::mem::take(&mut segment.plan), &exprs, names)?;
        let relation = Arc::new(SharedRelation::numbered(names.part("rows"), plan, &names.part("row")));
        let scan = relation.scan()?;
        let own = columns(scan.schema()).into_iter().zip(&all);
        let own = own.map(|(column, own)| column.alias_qualified(own.relation.clone(), own.name.clone()));
        let mut own: Vec<_> = own.collect();
        let row = Column::new_unqualified(names.part("row"));
        own.extend(columns(scan.schema()).pop().map(|number| number.alias(row.name.clone())));
        segment.plan = LogicalPlan::Projection(Projection::try_new(own, Arc::new(scan))?);
        let positions: Vec<_> = (0..segment.columns.len())
            .filter(|index| segment.varying.contains(&segment.columns[*index].name))
            .collect();
        let varying = positions.iter().map(|index| segment.columns[*index].clone()).collect();
        segment.columns.push(row);
        let stored = Stored { relation, single: false, varying: positions };
        Ok((stored, Self { below: segment, varying, sums }))
    }

    /// Returns the rows as they were computed, each with its cotangents.
    pub fn pullback(&self, total: RowCotangents, names: &mut Names) -> Result<PulledBack<'_>> {
        let of_columns = total.of_columns();
        let (Some(row), Some(number)) = (total.row.clone(), self.below.columns.last()) else {
            return internal_err!("rows have no numbers");
        };
        let mut cotangents = Cotangents::default();
        let (mut reached, mut others) = (vec![], vec![]);
        for (column, cotangent) in self.varying.iter().zip(of_columns) {
            let Some(cotangent) = cotangent else { continue };
            match self.sums.iter().find(|sum| sum.is(column)) {
                Some(sum) => reached.push((sum, cotangent)),
                None => others.push((column, cotangent)),
            }
        }
        if total.of.is_some() && !reached.is_empty() {
            let by_value = ByValue { rows: &self.below.plan, number, total };
            let (rows, of) = by_value.transposed(reached, others, &mut cotangents, names)?;
            return Ok(PulledBack { below: &self.below, rows, of, cotangents });
        }
        for (column, cotangent) in others {
            cotangents.add(&column.name, cotangent);
        }
        // A row may be in the frame of another one without a cotangent of its own.
        let join_type = if reached.is_empty() { JoinType::Inner } else { JoinType::Left };
        let on = vec![(Expr::Column(number.clone()), Expr::Column(row))];
        let nulls = NullEquality::NullEqualsNothing;
        let rows = joined(self.below.plan.clone(), total.plan, on, None, join_type, nulls)?;
        let rows = transposed(rows, reached, &mut cotangents, names)?;
        Ok(PulledBack { below: &self.below, rows, of: total.of, cotangents })
    }
}
