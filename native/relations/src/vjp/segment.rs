//! Segments: plans whose rows have all columns that a sweep through them reads.
//!
//! A segment is a linearized piece of a plan. Each row comes from at most one row of each leaf, so the cotangent of a
//! leaf's row is the sum over the rows of the segment with its number.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, JoinType, NullEquality, Result, ScalarValue};
use datafusion_expr::expr_rewriter::replace_col;
use datafusion_expr::logical_plan::JoinConstraint;
use datafusion_expr::{Expr, ExprSchemable, Join, LogicalPlan, lit};
use datafusion_functions::core::expr_fn::coalesce;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{columns_followed, is_volatile};

use crate::shared_relation::SharedRelation;
use crate::tangents::dual::{pair_of_tangent, tangent_of_pair};
use crate::vocabulary::names::{Names, columns, named, with_columns};
use xql_autodiff::vocabulary::types::can_vary;

/// The number of a residual. A residual reads those with lower numbers only.
pub type ResidualId = usize;

/// A plan in which every row comes from at most one row of each leaf. Its columns have names that no other column of the
/// statement has.
#[derive(Clone)]
pub struct Segment {
    /// The plan.
    pub plan: LogicalPlan,
    /// The columns of the node that the segment stands for, in their order.
    pub columns: Vec<Column>,
    /// The columns that vary with the variable.
    pub varying: BTreeSet<String>,
    /// The expressions that compute the varying columns other than those of leaves, in topological order.
    pub steps: Vec<LinearStep>,
    /// The residuals that it reads.
    pub leaves: Vec<Leaf>,
    /// Whether it has exactly one row.
    pub single: bool,
}

/// A column that varies, and the expression that computes it.
#[derive(Clone)]
pub struct LinearStep {
    /// The name of the column.
    pub output: String,
    /// The expression, over columns of the segment.
    pub expr: Expr,
}

/// A residual that a segment reads.
#[derive(Clone)]
pub struct Leaf {
    /// The residual.
    pub residual: ResidualId,
    /// The column with the number of the residual's row, NULL where an outer join has extended a row. `None` if the
    /// residual has one row.
    pub row: Option<Column>,
    /// For a residual of one row that an outer join may extend: a column that is NULL where a row of the segment lacks
    /// that row.
    pub present: Option<Column>,
    /// The names that the varying columns of the residual have in the segment.
    pub columns: Vec<String>,
    /// All columns of the residual, if the segment has them.
    pub own: Vec<Column>,
    /// Whether a row of the residual may be in several rows of the segment.
    pub repeated: bool,
}

impl Segment {
    /// Returns a segment of what does not vary.
    pub fn constant(plan: LogicalPlan, columns: Vec<Column>, single: bool) -> Self {
        Self { plan, columns, varying: BTreeSet::new(), steps: vec![], leaves: vec![], single }
    }

    /// Returns a scan of a shared relation as a segment that does not vary, with new names for its columns.
    pub fn reading(relation: &Arc<SharedRelation>, names: &mut Names) -> Result<Self> {
        let named: Vec<_> = relation.columns().map(|column| names.part(column)).collect();
        let plan = relation.scan_as(named)?;
        let columns = plan.schema().columns();
        Ok(Self::constant(plan, columns, false))
    }

    /// Returns the columns that vary of those that an expression reads.
    pub fn varying_in(&self, expr: &Expr) -> Vec<Column> {
        let mut read: Vec<_> =
            columns_followed(expr).into_iter().filter(|column| self.varying.contains(&column.name)).collect();
        read.sort();
        read
    }

    /// Returns whether an expression over the segment varies.
    pub fn varies(&self, expr: &Expr) -> Result<bool> {
        Ok(!self.varying_in(expr).is_empty() && can_vary(&expr.get_type(self.plan.schema())?))
    }

    /// Adds expressions over the segment's columns, and returns their columns.
    pub fn add(&mut self, exprs: Vec<(String, Expr)>, names: &mut Names) -> Result<Vec<Column>> {
        let mut found = vec![];
        let mut added = vec![];
        for (name, expr) in exprs {
            let expr = self.with_tangents_of_pairs(expr.unalias_nested().data, names)?;
            let expr = self.with_draws_apart(expr, names)?;
            if let Expr::Column(column) = expr {
                found.push(column);
                continue;
            }
            let output = names.part(&name);
            found.push(Column::new_unqualified(output.clone()));
            added.push(expr.clone().alias(output.clone()));
            if self.varies(&expr)? {
                self.varying.insert(output.clone());
                // Only the tangent of a pair is read, so the pair's cotangent is that of the tangent.
                let expr = tangent_of_pair(&expr).cloned().unwrap_or(expr);
                self.steps.push(LinearStep { output, expr });
            }
        }
        self.plan = with_columns(std::mem::take(&mut self.plan), added)?;
        Ok(found)
    }

    /// Returns an expression that reads the tangents of pairs that vary as columns.
    fn with_tangents_of_pairs(&mut self, expr: Expr, names: &mut Names) -> Result<Expr> {
        let read = expr.transform_down(|part| {
            let pair = match pair_of_tangent(&part) {
                Some(Expr::Column(pair)) if self.varies(&part)? => pair.clone(),
                _ => return Ok(Transformed::no(part)),
            };
            let output = names.part("tangent");
            self.plan = with_columns(std::mem::take(&mut self.plan), vec![part.alias(output.clone())])?;
            self.varying.insert(output.clone());
            self.steps.push(LinearStep { output: output.clone(), expr: Expr::Column(pair) });
            Ok(Transformed::new(Expr::Column(Column::new_unqualified(output)), true, TreeNodeRecursion::Jump))
        })?;
        Ok(read.data)
    }

    /// Moves the volatile parts of a varying expression into columns of the segment, since a sweep evaluates the
    /// expression again.
    ///
    /// ```text
    /// CASE WHEN random() < 0.5 THEN 0 ELSE val END  ->  CASE WHEN ∂drawn < 0.5 THEN 0 ELSE val END
    /// ```
    fn with_draws_apart(&mut self, expr: Expr, names: &mut Names) -> Result<Expr> {
        if !is_volatile(&expr) || !self.varies(&expr)? {
            return Ok(expr);
        }
        let mut drawn = vec![];
        let read = expr.transform_down(|part| {
            if !part.is_volatile_node() || !self.varying_in(&part).is_empty() {
                return Ok(Transformed::no(part));
            }
            let output = names.part("drawn");
            drawn.push(part.alias(output.clone()));
            Ok(Transformed::new(Expr::Column(Column::new_unqualified(output)), true, TreeNodeRecursion::Jump))
        })?;
        self.plan = with_columns(std::mem::take(&mut self.plan), drawn)?;
        Ok(read.data)
    }

    /// Makes columns distinct: a column that occurs again, as in `SELECT x, x AS y`, is copied under a new name.
    pub fn make_distinct(&mut self, wanted: Vec<Column>, names: &mut Names) -> Result<Vec<Column>> {
        let mut added = vec![];
        let mut distinct: Vec<Column> = vec![];
        for column in wanted {
            if !distinct.contains(&column) {
                distinct.push(column);
                continue;
            }
            let output = names.part(&column.name);
            added.push(Expr::Column(column.clone()).alias(output.clone()));
            if self.varying.contains(&column.name) {
                self.varying.insert(output.clone());
                self.steps.push(LinearStep { output: output.clone(), expr: Expr::Column(column) });
            }
            distinct.push(Column::new_unqualified(output));
        }
        self.plan = with_columns(std::mem::take(&mut self.plan), added)?;
        Ok(distinct)
    }

    /// Gives every leaf a column that tells whether a row has a row of it, before an outer join extends rows.
    pub fn with_presence(&mut self, names: &mut Names) -> Result<()> {
        let is_unknown = |leaf: &&mut Leaf| leaf.row.is_none() && leaf.present.is_none();
        let mut unknown = self.leaves.iter_mut().filter(is_unknown).peekable();
        if unknown.peek().is_none() {
            return Ok(());
        }
        let present = names.part("present");
        unknown.for_each(|leaf| leaf.present = Some(Column::new_unqualified(present.clone())));
        self.plan = with_columns(std::mem::take(&mut self.plan), vec![lit(true).alias(present)])?;
        Ok(())
    }

    /// Moves the columns, steps and leaves of another segment into this one, once both are joined.
    pub fn take_in(&mut self, other: &mut Self) {
        for leaf in &mut self.leaves {
            leaf.repeated |= !other.single;
        }
        for leaf in &mut other.leaves {
            leaf.repeated |= !self.single;
        }
        self.columns.append(&mut other.columns);
        self.varying.append(&mut other.varying);
        self.steps.append(&mut other.steps);
        self.leaves.append(&mut other.leaves);
    }

    /// Joins each row with at most one row of another segment, by equal keys. The columns stay those of this segment.
    pub fn put_beside(
        &mut self,
        other: Self,
        on: Vec<(Expr, Expr)>,
        join_type: JoinType,
        nulls: NullEquality,
    ) -> Result<()> {
        let width = self.columns.len();
        let repeated: Vec<_> = self.leaves.iter().map(|leaf| leaf.repeated).collect();
        let own = std::mem::replace(self, Self::constant(LogicalPlan::default(), vec![], false));
        *self = own.joined(other, on, None, join_type, nulls)?;
        for (leaf, repeated) in self.leaves.iter_mut().zip(repeated) {
            leaf.repeated = repeated;
        }
        self.columns.truncate(width);
        Ok(())
    }

    /// Joins two segments. The result has the columns of both.
    pub fn joined(
        mut self,
        mut other: Self,
        on: Vec<(Expr, Expr)>,
        filter: Option<Expr>,
        join_type: JoinType,
        nulls: NullEquality,
    ) -> Result<Self> {
        let single = self.single && other.single && on.is_empty() && filter.is_none();
        let plan =
            joined(std::mem::take(&mut self.plan), std::mem::take(&mut other.plan), on, filter, join_type, nulls)?;
        self.take_in(&mut other);
        Ok(Self { plan, single, ..self })
    }
}

/// Returns a relation as a segment that does not vary, with new names for its columns.
pub fn renamed(plan: LogicalPlan, names: &mut Names) -> Result<Segment> {
    let exprs = columns(plan.schema());
    let plan = named(plan, &exprs, names)?;
    let columns = plan.schema().columns();
    Ok(Segment::constant(plan, columns, false))
}

/// A copy of rows with new names for its columns.
pub struct RenamedRows {
    /// The rows.
    pub plan: LogicalPlan,
    names: HashMap<Column, Column>,
}

impl RenamedRows {
    /// Copies the rows of a plan.
    pub fn new(plan: LogicalPlan, names: &mut Names) -> Result<Self> {
        let before = plan.schema().columns();
        let Segment { plan, columns, .. } = renamed(plan, names)?;
        Ok(Self { plan, names: before.into_iter().zip(columns).collect() })
    }

    /// Returns the column of the copy for a column of the rows.
    pub fn column(&self, column: &Column) -> Option<&Column> {
        self.names.get(column)
    }

    /// Rewrites an expression over the rows to read the copy.
    pub fn over(&self, expr: Expr) -> Result<Expr> {
        replace_col(expr, &self.names.iter().collect())
    }
}

/// Joins two plans whose columns have different names.
pub fn joined(
    left: LogicalPlan,
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
    join_type: JoinType,
    nulls: NullEquality,
) -> Result<LogicalPlan> {
    let on = if nulls == NullEquality::NullEqualsNull { null_safe_keys(on, &left, &right)? } else { on };
    let (left, right, nulls) = (Arc::new(left), Arc::new(right), NullEquality::NullEqualsNothing);
    Ok(LogicalPlan::Join(Join::try_new(left, right, on, filter, join_type, JoinConstraint::On, nulls, false)?))
}

/// Rewrites null-safe keys as keys that are never NULL: `k` becomes `k IS NULL` and `coalesce(k, 0)`.
///
/// A join has an option for null-safe keys. But DataFusion 54 merges adjacent inner joins, and applies the option of
/// the last one to all of them.
pub fn null_safe_keys(on: Vec<(Expr, Expr)>, left: &LogicalPlan, right: &LogicalPlan) -> Result<Vec<(Expr, Expr)>> {
    let mut keys = vec![];
    for (a, b) in on {
        // A key that is never NULL needs no rewriting, since it does not equal NULL.
        if !(a.nullable(left.schema())? && b.nullable(right.schema())?) {
            keys.push((a, b));
            continue;
        }
        let none = Expr::Literal(ScalarValue::new_default(&a.get_type(left.schema())?)?, None);
        keys.push((a.clone().is_null(), b.clone().is_null()));
        keys.push((coalesce(vec![a, none.clone()]), coalesce(vec![b, none])));
    }
    Ok(keys)
}
