//! Plans whose rows are of one of several inputs each.

use datafusion_common::{Column, DFSchema, JoinType, NullEquality, Result, ScalarValue};
use datafusion_expr::expr::Alias;
use datafusion_expr::{Expr, Join, LogicalPlan, Operator, Projection, SubqueryAlias};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::has_subquery;

use super::fold::{KnownValues, folded};
use crate::shared_relation::SharedRelation;
use crate::vjp::joined;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, columns, named, restore, under_names_of};
use crate::vocabulary::operators::Operators;
use crate::vocabulary::work_table::work_table;

/// A plan over full joins, each of whose rows is of one part.
pub struct Parts<'p> {
    plan: &'p LogicalPlan,
    operators: &'p Operators,
    input: PartInput<'p>,
    /// How many parts there are.
    count: usize,
    /// For each column the part that it is of, if it is passed on from one. It is NULL in the rows of the others.
    columns: Vec<Option<PartColumn>>,
}

/// A column that is passed on from a part.
#[derive(Clone)]
struct PartColumn {
    part: usize,
    /// What it is in all rows of the part, if that is known.
    value: Option<ScalarValue>,
}

/// What makes parts of the inputs of a plan.
enum PartInput<'p> {
    /// It is one part itself.
    Part,
    /// It computes something of each row.
    Passed(Box<Parts<'p>>),
    /// It has the rows of either side.
    Either(Box<Parts<'p>>, Box<Parts<'p>>),
    /// It has each row of the first beside all rows of the other.
    Beside(Box<Parts<'p>>, Box<LogicalPlan>),
}

impl<'p> Parts<'p> {
    /// Returns the parts of a plan, if there are several.
    pub fn match_plan(plan: &'p LogicalPlan, operators: &'p Operators, names: &mut Names) -> Result<Option<Self>> {
        let (input, columns) = match plan {
            LogicalPlan::SubqueryAlias(alias) => {
                let Some(input) = Self::match_plan(&alias.input, operators, names)? else { return Ok(None) };
                let columns = input.columns.clone();
                (PartInput::Passed(Box::new(input)), columns)
            }
            LogicalPlan::Projection(projection) if !projection.expr.iter().any(has_subquery) => {
                let Some(input) = Self::match_plan(&projection.input, operators, names)? else { return Ok(None) };
                let passed = |expr: &Expr| match unaliased(expr) {
                    Expr::Column(column) => {
                        let index = projection.input.schema().index_of_column(column)?;
                        Ok(input.columns[index].clone())
                    }
                    _ => Ok(None),
                };
                let columns = projection.expr.iter().map(passed).collect::<Result<_>>()?;
                (PartInput::Passed(Box::new(input)), columns)
            }
            LogicalPlan::Join(join) if join.join_type == JoinType::Full => {
                let left = Self::match_plan(&join.left, operators, names)?
                    .map_or_else(|| Self::one(&join.left, operators), Ok)?;
                let right = Self::match_plan(&join.right, operators, names)?
                    .map_or_else(|| Self::one(&join.right, operators), Ok)?;
                if !are_apart(join, &left, &right)? {
                    return Ok(None);
                }
                let moved = right.columns.iter().map(|column| {
                    column.clone().map(|PartColumn { part, value }| PartColumn { part: part + left.count, value })
                });
                let columns = left.columns.iter().cloned().chain(moved).collect();
                (PartInput::Either(Box::new(left), Box::new(right)), columns)
            }
            LogicalPlan::Join(join) if is_cross(join) => {
                let Some(left) = Self::match_plan(&join.left, operators, names)? else { return Ok(None) };
                let Some(other) = computed_once(&join.right, names)? else { return Ok(None) };
                let mut columns = left.columns.clone();
                columns.resize(plan.schema().fields().len(), None);
                (PartInput::Beside(Box::new(left), Box::new(other)), columns)
            }
            _ => return Ok(None),
        };
        let count = match &input {
            PartInput::Part => 1,
            PartInput::Passed(input) | PartInput::Beside(input, _) => input.count,
            PartInput::Either(left, right) => left.count + right.count,
        };
        Ok(Some(Self { plan, operators, input, count, columns }))
    }

    /// Returns a plan that is one part.
    fn one(plan: &'p LogicalPlan, operators: &'p Operators) -> Result<Self> {
        let columns = (0..plan.schema().fields().len())
            .map(|index| Ok(Some(PartColumn { part: 0, value: value_in_all_rows(plan, index)? })));
        Ok(Self { plan, operators, input: PartInput::Part, count: 1, columns: columns.collect::<Result<_>>()? })
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns how many columns there are in the widest part, with what stands beside it.
    pub fn widest(&self) -> usize {
        match &self.input {
            PartInput::Part => self.columns.len(),
            PartInput::Passed(input) => input.widest(),
            PartInput::Either(left, right) => left.widest().max(right.widest()),
            PartInput::Beside(input, other) => input.widest() + other.schema().fields().len(),
        }
    }

    /// Returns the rows of a part, with all columns in their order.
    pub fn branch(&self, part: usize) -> Result<LogicalPlan> {
        restore(self.with(part, &(0..self.columns.len()).collect())?, self.plan.schema())
    }

    /// Returns the rows of a part, with some of the columns under their names, in any order.
    fn with(&self, part: usize, wanted: &BTreeSet<usize>) -> Result<LogicalPlan> {
        match (&self.input, self.plan) {
            (PartInput::Passed(input), LogicalPlan::SubqueryAlias(alias)) => {
                let plan = Arc::new(input.with(part, wanted)?);
                Ok(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(plan, alias.alias.clone())?))
            }
            (PartInput::Passed(input), LogicalPlan::Projection(projection)) => {
                self.computed(projection, (input, part), wanted)
            }
            (PartInput::Either(left, right), _) => self.of_side((left, right), part, wanted),
            (PartInput::Beside(input, other), _) => {
                let own: BTreeSet<_> = wanted.iter().copied().filter(|index| *index < input.columns.len()).collect();
                let plan = input.with(part, &own)?;
                if own.len() == wanted.len() && has_one_row(other) {
                    return Ok(plan);
                }
                joined(plan, other.as_ref().clone(), vec![], None, JoinType::Inner, NullEquality::NullEqualsNothing)
            }
            (PartInput::Part | PartInput::Passed(_), plan) if wanted.len() == self.columns.len() => Ok(plan.clone()),
            (PartInput::Part | PartInput::Passed(_), plan) => {
                let columns = wanted.iter().map(|index| Expr::from(plan.schema().qualified_field(*index)));
                Ok(LogicalPlan::Projection(Projection::try_new(columns.collect(), Arc::new(plan.clone()))?))
            }
        }
    }

    /// Returns what a projection computes of the rows of a part.
    fn computed(
        &self,
        projection: &Projection,
        (input, part): (&Self, usize),
        wanted: &BTreeSet<usize>,
    ) -> Result<LogicalPlan> {
        let schema = projection.input.schema();
        let known = InPart { parts: input, part };
        let mut exprs = vec![];
        let mut read = BTreeSet::new();
        for index in wanted {
            let (table, field) = self.plan.schema().qualified_field(*index);
            let expr = folded(unaliased(&projection.expr[*index]), &known, schema)?;
            for column in expr.column_refs() {
                read.insert(schema.index_of_column(column)?);
            }
            exprs.push(expr.alias_qualified(table.cloned(), field.name()));
        }
        let plan = input.with(part, &read)?;
        // Most of what computes the columns of other parts passes on the columns of this one.
        let is_passed_on = |expr: &Expr| matches!(expr, Expr::Alias(alias) if is_named(alias));
        if exprs.len() == plan.schema().fields().len() && exprs.iter().all(is_passed_on) {
            return Ok(plan);
        }
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
    }

    /// Returns the rows of a part of a side of a full join, in which the columns of the other are NULL.
    fn of_side(&self, (left, right): (&Self, &Self), part: usize, wanted: &BTreeSet<usize>) -> Result<LogicalPlan> {
        let (side, part, before) = match part.checked_sub(left.count) {
            Some(part) => (right, part, left.columns.len()),
            None => (left, part, 0),
        };
        let own = before..before + side.columns.len();
        let others: Vec<_> = wanted.iter().copied().filter(|index| !own.contains(index)).collect();
        let of_side = wanted.iter().filter(|index| own.contains(index)).map(|index| index - before).collect();
        let plan = side.with(part, &of_side)?;
        if others.is_empty() {
            return Ok(plan);
        }
        let mut exprs = columns(plan.schema());
        for index in others {
            let (table, field) = self.plan.schema().qualified_field(index);
            let null = Expr::Literal(ScalarValue::try_from(field.data_type())?, None);
            exprs.push(null.alias_qualified(table.cloned(), field.name()));
        }
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
    }
}

/// What is known of the columns in the rows of a part.
struct InPart<'p> {
    parts: &'p Parts<'p>,
    part: usize,
}

impl KnownValues for InPart<'_> {
    fn value(&self, column: &Column) -> Result<Option<ScalarValue>> {
        let schema: &DFSchema = self.parts.plan.schema();
        let index = schema.index_of_column(column)?;
        match &self.parts.columns[index] {
            Some(column) if column.part == self.part => Ok(column.value.clone()),
            Some(_) => ScalarValue::try_from(schema.field(index).data_type()).map(Some),
            None => Ok(None),
        }
    }

    fn is_call(&self, expr: &Expr) -> bool {
        self.parts.operators.called_by(expr).is_some()
    }
}

/// Returns whether no row of one side of a full join has the key of a row of the other.
fn are_apart(join: &Join, left: &Parts<'_>, right: &Parts<'_>) -> Result<bool> {
    let (one, other) = match (join.on.as_slice(), &join.filter) {
        ([(one, other)], None) => (one, other),
        ([], Some(Expr::BinaryExpr(equal))) if equal.op == Operator::Eq => (equal.left.as_ref(), equal.right.as_ref()),
        _ => return Ok(false),
    };
    if join.null_equality == NullEquality::NullEqualsNull {
        return Ok(false);
    }
    let keys = match (keys(one, left)?, keys(other, right)?) {
        (Some(of_left), Some(of_right)) => Some((of_left, of_right)),
        _ => keys(other, left)?.zip(keys(one, right)?),
    };
    let Some((of_left, of_right)) = keys else { return Ok(false) };
    // Of other types there are values that differ and are equal to SQL, as 0.0 and -0.0 are.
    let differ = |one: &ScalarValue, other: &ScalarValue| {
        one.data_type().is_integer() && one.data_type() == other.data_type() && one != other
    };
    Ok(of_left.iter().all(|one| of_right.iter().all(|other| differ(one, other))))
}

/// Returns the values of a key in the parts of a side where it is not NULL. None if they are not known.
fn keys(key: &Expr, side: &Parts<'_>) -> Result<Option<Vec<ScalarValue>>> {
    let schema = side.plan.schema();
    if !key.column_refs().iter().all(|column| schema.has_column(column)) {
        return Ok(None);
    }
    let mut values = vec![];
    for part in 0..side.count {
        match folded(key, &InPart { parts: side, part }, schema)? {
            Expr::Literal(value, _) if value.is_null() => {}
            Expr::Literal(value, _) => values.push(value),
            _ => return Ok(None),
        }
    }
    Ok(Some(values))
}

/// Returns the literal that a column is in all rows.
fn value_in_all_rows(plan: &LogicalPlan, index: usize) -> Result<Option<ScalarValue>> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => value_in_all_rows(&alias.input, index),
        LogicalPlan::Projection(projection) => match unaliased(&projection.expr[index]) {
            Expr::Literal(value, _) => Ok(Some(value.clone())),
            Expr::Column(column) => {
                value_in_all_rows(&projection.input, projection.input.schema().index_of_column(column)?)
            }
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Returns whether a column has the name that it is given.
fn is_named(alias: &Alias) -> bool {
    matches!(alias.expr.as_ref(), Expr::Column(column) if column.relation == alias.relation && column.name == alias.name)
}

/// Returns whether a join has all pairs of rows.
fn is_cross(join: &Join) -> bool {
    join.join_type == JoinType::Inner && join.on.is_empty() && join.filter.is_none()
}

/// Returns a plan that several branches are to read, so that it is computed once. None if it cannot be.
fn computed_once(plan: &LogicalPlan, names: &mut Names) -> Result<Option<LogicalPlan>> {
    if reads_shared(plan) {
        return Ok(Some(plan.clone()));
    }
    if reads_plan_around(plan)? {
        return Ok(None);
    }
    let named = named(plan.clone(), &columns(plan.schema()), names)?;
    let relation = Arc::new(SharedRelation::new(names.part("beside"), named));
    under_names_of(plan.schema(), relation.scan()?).map(Some)
}

/// Returns whether a plan reads the rows of an iteration or a column of the query around, so that it cannot be planned apart.
pub fn reads_plan_around(plan: &LogicalPlan) -> Result<bool> {
    let is_of_plan_around = |node: &LogicalPlan| {
        node.contains_outer_reference() || matches!(node, LogicalPlan::TableScan(scan) if work_table(scan).is_some())
    };
    SharedRelation::any_node_in(plan, &is_of_plan_around)
}

/// Returns whether a plan is known to have one row.
fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::TableScan(scan) => {
            SharedRelation::scanned(scan).is_some_and(|relation| has_one_row(relation.plan()))
        }
        _ => false,
    }
}

/// Returns whether a plan reads columns of a relation that is computed once, however often it is read.
fn reads_shared(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => reads_shared(&alias.input),
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|expr| matches!(unaliased(expr), Expr::Column(_) | Expr::Literal(..)))
                && reads_shared(&projection.input)
        }
        LogicalPlan::TableScan(scan) => SharedRelation::scanned(scan).is_some(),
        _ => false,
    }
}
