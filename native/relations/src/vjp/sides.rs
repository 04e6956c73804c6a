//! Joins of several relations as joins of two sides, in whatever order they are written.
//!
//! A sum of products is found over a join of two sides, grouped by keys of both. Of three relations one belongs to a side with another: what
//! divides the scores of attention stands beside these, be it joined before, after or between.

use datafusion_common::{Column, Dependency, JoinType, NullEquality, Result};
use datafusion_expr::logical_plan::JoinConstraint;
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{Aggregate, BinaryExpr, Expr, Join, LogicalPlan, Operator};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{has_subquery, is_volatile};

/// Returns the aggregate over a join of two sides, if it is over inner joins of more relations that can be so divided, and is not yet.
///
/// ```text
/// Aggregate: e.row, u.dim, sum(e.val / t.t * u.val)      Aggregate: e.row, u.dim, sum(e.val / t.t * u.val)
///   Join: e.row = t.row                                    Join: e.col = u.item
///     Join: e.col = u.item                            ->     Join: e.row = t.row
///       e                                                      e
///       u                                                      t
///     t                                                      u
/// ```
///
/// # Errors
/// If the plan cannot be put together again.
pub fn in_two_sides(aggregate: &Aggregate) -> Result<Option<Aggregate>> {
    let mut joined = Joined::default();
    let Some(top) = joined.collect(&aggregate.input) else { return Ok(None) };
    if joined.relations.len() < 3 {
        return Ok(None);
    }
    let keys: Vec<_> = aggregate.group_expr.iter().flat_map(Expr::column_refs).cloned().collect();
    let Some(sides) = joined.sides(&keys) else { return Ok(None) };
    if top.is_some_and(|[left, right]| sides == [left.clone(), right.clone()] || sides == [right, left]) {
        return Ok(None);
    }
    let Some(input) = joined.joined(sides)? else { return Ok(None) };
    Aggregate::try_new(input, aggregate.group_expr.clone(), aggregate.aggr_expr.clone()).map(Some)
}

/// The numbers of relations.
type Numbers = BTreeSet<usize>;

/// Relations and what is asked of their rows.
#[derive(Default)]
struct Joined {
    relations: Vec<Arc<LogicalPlan>>,
    conditions: Vec<Expr>,
}

impl Joined {
    /// Adds the relations and conditions of inner joins. Gives the relations of the two sides of the join, if no condition stands above it;
    /// nothing if the conditions cannot be asked elsewhere.
    fn collect(&mut self, plan: &Arc<LogicalPlan>) -> Option<Option<[Numbers; 2]>> {
        match plan.as_ref() {
            LogicalPlan::Filter(filter) if is_of_join(&filter.input) => {
                self.ask(&filter.predicate)?;
                self.collect(&filter.input)?;
                Some(None)
            }
            LogicalPlan::Join(join) if is_plain(join) => {
                for (left, right) in &join.on {
                    self.ask(&left.clone().eq(right.clone()))?;
                }
                if let Some(filter) = &join.filter {
                    self.ask(filter)?;
                }
                let first = self.relations.len();
                self.collect(&join.left)?;
                let second = self.relations.len();
                self.collect(&join.right)?;
                Some(Some([(first..second).collect(), (second..self.relations.len()).collect()]))
            }
            _ => {
                self.relations.push(Arc::clone(plan));
                Some(None)
            }
        }
    }

    fn ask(&mut self, condition: &Expr) -> Option<()> {
        if is_volatile(condition) || has_subquery(condition) || condition.contains_outer() {
            return None;
        }
        self.conditions.extend(split_conjunction(condition).into_iter().cloned());
        Some(())
    }

    /// Returns the relation that has a column.
    fn relation_of(&self, column: &Column) -> Option<usize> {
        self.relations.iter().position(|relation| relation.schema().has_column(column))
    }

    /// Returns the relations whose columns an expression reads.
    fn read(&self, expr: &Expr) -> Numbers {
        expr.column_refs().into_iter().filter_map(|column| self.relation_of(column)).collect()
    }

    /// Returns columns that are equal to a column, and the column.
    fn equal_to(&self, column: &Column) -> Vec<Column> {
        let mut equal = vec![column.clone()];
        let mut looked = 0;
        while looked < equal.len() {
            let found: Vec<_> = self.equalities().filter_map(|[a, b]| other(a, b, &equal[looked])).cloned().collect();
            looked += 1;
            for column in found {
                if !equal.contains(&column) {
                    equal.push(column);
                }
            }
        }
        equal
    }

    /// Returns the columns that have to be equal.
    fn equalities(&self) -> impl Iterator<Item = [&Column; 2]> {
        self.conditions.iter().filter_map(|condition| match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => match (left.as_ref(), right.as_ref()) {
                (Expr::Column(left), Expr::Column(right)) => Some([left, right]),
                _ => None,
            },
            _ => None,
        })
    }

    /// Returns the relations in two sides that have keys of groups each. One goes with the only other that it is joined to, if it has at
    /// most one row for each of that, or no key of its own.
    fn sides(&self, keys: &[Column]) -> Option<[Numbers; 2]> {
        let mut sides: Vec<Numbers> = (0..self.relations.len()).map(|number| [number].into()).collect();
        while sides.len() > 2 {
            let with: Vec<_> = sides.iter().map(|side| self.only_neighbour(side, &sides)).collect();
            let is_single =
                |number: &usize| with[*number].is_some_and(|of| self.is_one_for_each(&sides[*number], &sides[of]));
            let is_without_key = |number: &usize| with[*number].is_some() && !self.has_own_key(&sides[*number], keys);
            let mut numbers = 0..sides.len();
            let number = numbers.clone().find(is_single).or_else(|| numbers.find(is_without_key))?;
            let of = with[number]?;
            let side = std::mem::take(&mut sides[number]);
            sides[of].extend(side);
            sides.remove(number);
        }
        let [a, b] = <[Numbers; 2]>::try_from(sides).ok()?;
        let is_between = |[left, right]: [&Column; 2]| {
            let [left, right] = [left, right].map(|column| self.relation_of(column).is_some_and(|of| a.contains(&of)));
            left != right
        };
        let have_keys = [&a, &b].iter().all(|side| {
            keys.iter().any(|key| {
                self.equal_to(key).iter().any(|equal| self.relation_of(equal).is_some_and(|of| side.contains(&of)))
            })
        });
        (have_keys && self.equalities().any(is_between)).then_some([a, b])
    }

    /// Returns the side with relations that those of a side are joined to, if it is one only.
    fn only_neighbour(&self, side: &Numbers, sides: &[Numbers]) -> Option<usize> {
        let mut found = BTreeSet::new();
        for condition in &self.conditions {
            let read = self.read(condition);
            if !read.is_disjoint(side) {
                let others = sides.iter().enumerate().filter(|(_, other)| *other != side && !read.is_disjoint(other));
                found.extend(others.map(|(number, _)| number));
            }
        }
        found.pop_first().filter(|_| found.is_empty())
    }

    /// Returns whether a relation has at most one row for each of a side.
    fn is_one_for_each(&self, side: &Numbers, of: &Numbers) -> bool {
        let Some(relation) = side.first().filter(|_| side.len() == 1) else { return false };
        let schema = self.relations[*relation].schema();
        let is_given = |index: &usize| {
            let column = Column::from(schema.qualified_field(*index));
            let equal = self.equal_to(&column);
            equal.iter().any(|equal| self.relation_of(equal).is_some_and(|relation| of.contains(&relation)))
        };
        schema.functional_dependencies().iter().any(|known| {
            known.mode == Dependency::Single
                && known.target_indices.len() == schema.fields().len()
                && known.source_indices.iter().all(is_given)
        })
    }

    /// Returns whether a key of groups is of a side alone.
    fn has_own_key(&self, side: &Numbers, keys: &[Column]) -> bool {
        let is_of_side = |column: &Column| self.relation_of(column).is_none_or(|of| side.contains(&of));
        keys.iter().any(|key| self.equal_to(key).iter().all(is_of_side))
    }

    /// Returns the join of two sides. Nothing if relations of a side are joined by way of the other one.
    fn joined(&self, sides: [Numbers; 2]) -> Result<Option<Arc<LogicalPlan>>> {
        let mut asked = vec![];
        let mut found = vec![];
        for side in sides {
            let mut rest = side.into_iter();
            let Some(first) = rest.next() else { return Ok(None) };
            let mut rest: Vec<_> = rest.collect();
            let (mut of, mut plan) = (Numbers::from([first]), Arc::clone(&self.relations[first]));
            while !rest.is_empty() {
                let is_next = |number: &usize| self.are_joined(&of, &[*number].into());
                let Some(position) = rest.iter().position(is_next) else { return Ok(None) };
                let next = rest.remove(position);
                of.insert(next);
                plan = self.pair(plan, &self.relations[next], &of, &mut asked)?;
            }
            found.push((of, plan));
        }
        let [(mut all, left), (others, right)] = match <[_; 2]>::try_from(found) {
            Ok(sides) => sides,
            Err(_) => return Ok(None),
        };
        all.extend(others);
        self.pair(left, &right, &all, &mut asked).map(Some)
    }

    fn are_joined(&self, a: &Numbers, b: &Numbers) -> bool {
        self.equalities().any(|columns| {
            let of = columns.map(|column| self.relation_of(column));
            let is_in = |side: &Numbers, of: Option<usize>| of.is_some_and(|of| side.contains(&of));
            is_in(a, of[0]) && is_in(b, of[1]) || is_in(b, of[0]) && is_in(a, of[1])
        })
    }

    /// Returns the join of two plans, with the conditions on the relations that they have together and that have not been asked yet.
    fn pair(
        &self,
        left: Arc<LogicalPlan>,
        right: &Arc<LogicalPlan>,
        of: &Numbers,
        asked: &mut Vec<usize>,
    ) -> Result<Arc<LogicalPlan>> {
        let mut on = vec![];
        let mut filter = vec![];
        for (number, condition) in self.conditions.iter().enumerate() {
            if asked.contains(&number) || !self.read(condition).is_subset(of) {
                continue;
            }
            asked.push(number);
            match condition {
                Expr::BinaryExpr(BinaryExpr { left: a, op: Operator::Eq, right: b })
                    if has_all(&left, a) && has_all(right, b) =>
                {
                    on.push((a.as_ref().clone(), b.as_ref().clone()));
                }
                Expr::BinaryExpr(BinaryExpr { left: a, op: Operator::Eq, right: b })
                    if has_all(&left, b) && has_all(right, a) =>
                {
                    on.push((b.as_ref().clone(), a.as_ref().clone()));
                }
                other => filter.push(other.clone()),
            }
        }
        let (right, filter, nulls) = (Arc::clone(right), conjunction(filter), NullEquality::NullEqualsNothing);
        let join = Join::try_new(left, right, on, filter, JoinType::Inner, JoinConstraint::On, nulls, false)?;
        Ok(Arc::new(LogicalPlan::Join(join)))
    }
}

/// Returns whether a plan has all columns that an expression reads.
fn has_all(plan: &LogicalPlan, expr: &Expr) -> bool {
    let read = expr.column_refs();
    !read.is_empty() && read.into_iter().all(|column| plan.schema().has_column(column))
}

/// Returns the one of two columns that is equal to the other.
fn other<'c>(a: &'c Column, b: &'c Column, column: &Column) -> Option<&'c Column> {
    match column {
        column if column == a => Some(b),
        column if column == b => Some(a),
        _ => None,
    }
}

/// Returns whether the rows of a join are the pairs that fulfil conditions, of which NULL is none.
fn is_plain(join: &Join) -> bool {
    let is_known = join.null_equality == NullEquality::NullEqualsNothing || join.on.is_empty();
    join.join_type == JoinType::Inner && is_known && !join.null_aware
}

fn is_of_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => is_of_join(&filter.input),
        LogicalPlan::Join(join) => is_plain(join),
        _ => false,
    }
}
