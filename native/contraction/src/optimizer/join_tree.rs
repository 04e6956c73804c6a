//! Joins of two or three inputs in a physical plan.

use arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{JoinSide, JoinType, NullEquality, Result, internal_err};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::utils::collect_columns;
use datafusion_physical_expr::{Partitioning, PhysicalExpr};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::joins::HashJoinExec;
use datafusion_physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::repartition::RepartitionExec;
use std::sync::Arc;

use crate::fallback::{InputExec, with_children};
use crate::spec::{KeyEquality, NullExtension};

/// The shape of a tree of joins.
#[derive(Debug, Clone, Copy)]
pub enum JoinShape {
    /// One input.
    Input,
    /// A join.
    Join(&'static JoinShape, &'static JoinShape),
}

const INPUT: JoinShape = JoinShape::Input;
const JOIN: JoinShape = JoinShape::Join(&INPUT, &INPUT);

/// The shapes, in the order in which they are tried.
pub const SHAPES: [JoinShape; 3] = [JoinShape::Join(&JOIN, &INPUT), JoinShape::Join(&INPUT, &JOIN), JOIN];

/// A plan that matches a shape: its rows are those of a join of inputs.
pub struct JoinTree {
    /// The inputs, without the repartitioning above them.
    pub inputs: Vec<Arc<dyn ExecutionPlan>>,
    /// The columns of all inputs, concatenated.
    pub schema: SchemaRef,
    /// The columns of the plan, over those of the inputs.
    columns: Vec<Arc<dyn PhysicalExpr>>,
    /// The equalities of the joins, over the columns of the inputs.
    pub equalities: Vec<KeyEquality>,
    /// The other conditions of the joins, over the columns of the inputs.
    pub conditions: Vec<Arc<dyn PhysicalExpr>>,
    /// The outer joined input of three.
    pub outer: Option<usize>,
    /// The outer join of two inputs.
    pub extension: Option<NullExtension>,
    /// The plan over leaves that are still to be bound.
    pub plan: Arc<dyn ExecutionPlan>,
}

/// Repartitions the rows of a plan with one partition.
pub fn repartition(plan: Arc<dyn ExecutionPlan>, partitioning: Partitioning) -> Result<Arc<dyn ExecutionPlan>> {
    match partitioning.partition_count() {
        1 => Ok(plan),
        _ => Ok(Arc::new(RepartitionExec::try_new(plan, partitioning)?)),
    }
}

/// Returns whether a node only redistributes rows among partitions.
pub fn is_shuffle(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let coalesces = plan.downcast_ref::<CoalescePartitionsExec>().is_some_and(|node| node.fetch().is_none());
    coalesces || plan.is::<RepartitionExec>()
}

impl JoinTree {
    /// Matches a plan with a shape. Returns `None` if it has another.
    pub fn match_shape(plan: &Arc<dyn ExecutionPlan>, shape: JoinShape) -> Result<Option<Self>> {
        Self::match_from(plan, shape, 0)
    }

    /// Matches a plan with a shape, numbering inputs from `first` on.
    fn match_from(plan: &Arc<dyn ExecutionPlan>, shape: JoinShape, first: usize) -> Result<Option<Self>> {
        if is_shuffle(plan)
            && let [below] = plan.children().as_slice()
        {
            let Some(below) = Self::match_from(below, shape, first)? else { return Ok(None) };
            let plan = with_children(plan, vec![Arc::clone(&below.plan)])?;
            return Ok(Some(Self { plan, ..below }));
        }
        let JoinShape::Join(left, right) = shape else { return Ok(Some(Self::from_input(plan, first))) };
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let Some(below) = Self::match_from(projection.input(), shape, first)? else { return Ok(None) };
            let columns =
                projection.expr().iter().map(|column| below.over_inputs(&column.expr)).collect::<Result<_>>()?;
            let plan = with_children(plan, vec![Arc::clone(&below.plan)])?;
            return Ok(Some(Self { plan, columns, ..below }));
        }
        let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(None) };
        let Some(left) = Self::match_from(join.left(), *left, first)? else { return Ok(None) };
        let Some(right) = Self::match_from(join.right(), *right, first + left.inputs.len())? else { return Ok(None) };
        Self::from_join(plan, join, left, right)
    }

    /// Creates the tree of one input.
    pub fn from_input(plan: &Arc<dyn ExecutionPlan>, number: usize) -> Self {
        let schema = plan.schema();
        let columns = schema.fields().iter().enumerate();
        let columns = columns.map(|(index, field)| Arc::new(Column::new(field.name(), index)) as _).collect();
        let marker = Arc::new(InputExec::new(number, plan));
        Self {
            inputs: vec![Arc::clone(plan)],
            schema,
            columns,
            equalities: vec![],
            conditions: vec![],
            outer: None,
            extension: None,
            plan: marker,
        }
    }

    fn from_join(plan: &Arc<dyn ExecutionPlan>, join: &HashJoinExec, left: Self, right: Self) -> Result<Option<Self>> {
        if join.null_aware || join.fetch().is_some() || right.outer.or(left.outer).is_some() {
            return Ok(None);
        }
        let (width, inputs) = (left.schema.fields().len(), left.inputs.len());
        let outer = match join.join_type() {
            JoinType::Inner => None,
            JoinType::Left if right.inputs.len() == 1 => Some(inputs),
            JoinType::Right if inputs == 1 => Some(0),
            _ => return Ok(None),
        };
        // A condition of an outer join does not filter rows without a match.
        if join.filter().is_some() && outer.is_some() {
            return Ok(None);
        }
        let plan = with_children(plan, vec![Arc::clone(&left.plan), Arc::clone(&right.plan)])?;
        let schema = join_schema([&left, &right], outer);
        let extension = null_extension([&left, &right], outer)?;
        let outer = outer.filter(|_| inputs + right.inputs.len() > 2);
        let right_columns: Vec<_> =
            right.columns.iter().map(|column| shift_columns(column, width as isize)).collect::<Result<_>>()?;
        let both = Self {
            inputs: [left.inputs.as_slice(), &right.inputs].concat(),
            schema,
            columns: vec![],
            equalities: vec![],
            conditions: left.conditions,
            outer,
            extension,
            plan,
        };
        let mut conditions = both.conditions.clone();
        for condition in right.conditions {
            conditions.push(shift_columns(&condition, width as isize)?);
        }
        if let Some(filter) = join.filter() {
            let Some(condition) = bind_filter(filter, [&left.columns, &right_columns])? else { return Ok(None) };
            conditions.push(condition);
        }
        let mut equalities = left.equalities;
        for KeyEquality { sides, keys: [a, b], nulls } in right.equalities {
            let keys = [shift_columns(&a, width as isize)?, shift_columns(&b, width as isize)?];
            equalities.push(KeyEquality { sides: sides.map(|side| side + inputs), keys, nulls });
        }
        let nulls = join.null_equality() == NullEquality::NullEqualsNull;
        for (a, b) in join.on() {
            let keys = [substitute(a, &left.columns)?, substitute(b, &right_columns)?];
            let (Some(a), Some(b)) = (both.side_of(&keys[0]), both.side_of(&keys[1])) else { return Ok(None) };
            equalities.push(KeyEquality { sides: [a, b], keys, nulls });
        }
        let mut columns = [left.columns, right_columns].concat();
        if let Some(projection) = &join.projection {
            columns = projection.iter().map(|index| Arc::clone(&columns[*index])).collect();
        }
        Ok(Some(Self { columns, equalities, conditions, ..both }))
    }

    /// Rewrites an expression over the columns of the plan to one over those of the inputs.
    pub fn over_inputs(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        substitute(expr, &self.columns)
    }

    /// Iterates over the index of the first column of each input.
    fn starts(&self) -> impl Iterator<Item = usize> {
        let widths = self.inputs.iter().map(|input| input.schema().fields().len());
        widths.scan(0, |next, width| Some(std::mem::replace(next, *next + width)))
    }

    /// Returns the inputs whose columns an expression reads.
    pub fn sides_of(&self, expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
        let starts: Vec<_> = self.starts().collect();
        let side = |column: Column| starts.partition_point(|start| *start <= column.index()).saturating_sub(1);
        let mut sides: Vec<_> = collect_columns(expr).into_iter().map(side).collect();
        sides.sort_unstable();
        sides.dedup();
        sides
    }

    /// Returns the only input whose columns an expression reads.
    pub fn side_of(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        match self.sides_of(expr).as_slice() {
            [side] => Some(*side),
            _ => None,
        }
    }

    /// Rewrites an expression over the columns of all inputs to one over those of one input.
    pub fn local(&self, side: usize, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let start = self.starts().nth(side).unwrap_or_default();
        shift_columns(&expr, -(start as isize))
    }

    /// Returns the type of an expression over the columns of the inputs.
    pub fn type_of(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<arrow::datatypes::DataType> {
        let schema: &Schema = &self.schema;
        expr.data_type(schema)
    }
}

/// Returns the columns of both sides of a join, nullable where the input is outer joined.
fn join_schema(sides: [&JoinTree; 2], outer: Option<usize>) -> SchemaRef {
    let starts = [0, sides[0].inputs.len()];
    let fields = sides.into_iter().zip(starts).flat_map(|(side, first)| {
        let is_outer = outer == Some(first) && side.inputs.len() == 1;
        let fields = side.schema.fields().iter().cloned();
        fields.map(move |field| if is_outer { Arc::new(field.as_ref().clone().with_nullable(true)) } else { field })
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns the outer join of two inputs: this join, if it has two, or one below it.
fn null_extension(sides: [&JoinTree; 2], outer: Option<usize>) -> Result<Option<NullExtension>> {
    let [left, right] = sides.map(|side| side.inputs.len());
    if let Some(by) = outer.filter(|_| left + right == 2) {
        return Ok(Some(NullExtension { of: 1 - by, by, nulls: null_row(&sides[by].schema)? }));
    }
    let [left_extension, right_extension] = sides.map(|side| side.extension.clone());
    let shift =
        |extension: NullExtension| NullExtension { of: extension.of + left, by: extension.by + left, ..extension };
    Ok(left_extension.or(right_extension.map(shift)))
}

/// Creates a row of NULLs.
pub fn null_row(schema: &Schema) -> Result<RecordBatch> {
    let fields = schema.fields().iter();
    let (fields, columns): (Vec<_>, Vec<_>) =
        fields.map(|field| (field.as_ref().clone().with_nullable(true), new_null_array(field.data_type(), 1))).unzip();
    let count = RecordBatchOptions::new().with_row_count(Some(1));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &count)?)
}

/// Binds the condition of a join to the columns of its sides.
fn bind_filter(
    filter: &JoinFilter,
    [left, right]: [&[Arc<dyn PhysicalExpr>]; 2],
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let column = |ColumnIndex { index, side }: &ColumnIndex| match side {
        JoinSide::Left => left.get(*index).cloned(),
        JoinSide::Right => right.get(*index).cloned(),
        JoinSide::None => None,
    };
    let read = filter.column_indices().iter().map(column).collect::<Option<Vec<_>>>();
    read.map(|read| substitute(filter.expression(), &read)).transpose()
}

/// Replaces the columns of an expression.
fn substitute(expr: &Arc<dyn PhysicalExpr>, columns: &[Arc<dyn PhysicalExpr>]) -> Result<Arc<dyn PhysicalExpr>> {
    let substituted = Arc::clone(expr).transform_up(|part| match part.downcast_ref::<Column>() {
        Some(column) => match columns.get(column.index()) {
            Some(column) => Ok(Transformed::yes(Arc::clone(column))),
            None => internal_err!("{column} is no column of the rows"),
        },
        None => Ok(Transformed::no(part)),
    })?;
    Ok(substituted.data)
}

/// Shifts the columns of an expression.
fn shift_columns(expr: &Arc<dyn PhysicalExpr>, by: isize) -> Result<Arc<dyn PhysicalExpr>> {
    let shifted = Arc::clone(expr).transform_up(|part| match part.downcast_ref::<Column>() {
        Some(column) => {
            let Some(index) = column.index().checked_add_signed(by) else {
                return internal_err!("{column} is of another input");
            };
            Ok(Transformed::yes(Arc::new(Column::new(column.name(), index)) as _))
        }
        None => Ok(Transformed::no(part)),
    })?;
    Ok(shifted.data)
}
