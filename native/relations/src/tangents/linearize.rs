//! The tangent of an expression over columns that have tangents.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, ExprSchema, Result, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{Expr, ExprSchemable, ScalarUDF, cast, lit, when};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{columns_followed, columns_read, is_opaque, subquery_of};
use xql_autodiff::vocabulary::fields::{field_of, type_of};
use xql_autodiff::vocabulary::functions::stop_gradient_argument;
use xql_autodiff::vocabulary::messages::abbreviate;
use xql_autodiff::vocabulary::transform::Transform;
use xql_autodiff::vocabulary::types::{can_vary, is_float, result_type};
use xql_autodiff::{Varies, inactive_condition};

use super::dual::linearize_pair;
use super::tangent::{Linearized, Tangent, Tangents};
use crate::vocabulary::nullable_wrapper::unwrap_all;
use crate::vocabulary::origin::passed_on;

/// Returns the positions of the columns that the value of an expression may vary with.
pub fn reads(expr: &Expr, schema: &DFSchema) -> Result<BTreeSet<usize>> {
    let columns = depends_on(expr, schema)?;
    Ok(columns.iter().filter_map(|column| schema.maybe_index_of_column(column)).collect())
}

/// Returns the columns that an expression may vary with: those of floats that it reads, and others where they may be made numbers again.
///
/// A float in a condition is one, since the expression does depend on it. A string in a condition, or one of which only the
/// length is taken, is none: `s` and `t` in `CASE WHEN s = 'a' THEN x ELSE y * length(t) END`.
pub fn depends_on(expr: &Expr, schema: &DFSchema) -> Result<HashSet<Column>> {
    let mut columns = columns_followed(expr);
    // What is not of this schema is of another query.
    columns.retain(|column| schema.data_type(column).is_ok_and(is_float) || !schema.has_column(column));
    let mut open = vec![expr];
    while let Some(part) = open.pop() {
        match part {
            // The operands of arithmetic tell as much, and finding its type would visit them all.
            Expr::BinaryExpr(binary) if binary.op.is_numerical_operators() => {
                open.extend([&*binary.left, &*binary.right])
            }
            part if type_of(part, schema).is_ok_and(|data_type| !can_vary(&data_type)) => {}
            Expr::Case(case) => {
                open.extend(case.when_then_expr.iter().map(|(_, value)| value.as_ref()));
                open.extend(case.else_expr.as_deref());
            }
            Expr::Column(_) => columns.extend(columns_read(part)),
            part if stop_gradient_argument(part).is_some() => {}
            part if is_opaque(part) => columns.extend(columns_followed(part)),
            part => {
                part.apply_children(|child| {
                    open.push(child);
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
        }
    }
    Ok(columns)
}

/// An expression that is linearized, and what there is to know for that, whatever it is linearized by.
#[derive(Debug)]
pub struct LinearizedExpr {
    expr: Expr,
    field: FieldRef,
    /// The position of the column that it passes on, and whether it does so as it is.
    passed_on: Option<(usize, bool)>,
    /// The columns that it may vary with.
    reads: Vec<(usize, Column)>,
    has_subquery: bool,
}

impl LinearizedExpr {
    /// Creates the expression over the columns of a schema.
    pub fn try_new(expr: Expr, schema: &DFSchema) -> Result<Self> {
        let field = field_of(&expr, schema)?;
        let column = passed_on(&expr, schema).and_then(|column| schema.maybe_index_of_column(column));
        let passed_on = column.map(|index| (index, matches!(unwrap_all(&expr), Expr::Column(_))));
        let mut read = vec![];
        if can_vary(field.data_type()) {
            for index in reads(&expr, schema)? {
                read.push((index, Column::from(schema.qualified_field(index))));
            }
        }
        let has_subquery =
            expr.exists(|part| Ok(subquery_of(part).is_some() || matches!(part, Expr::OuterReferenceColumn(..))))?;
        Ok(Self { expr, field, passed_on, reads: read, has_subquery })
    }

    /// Returns the positions of the columns that it may vary with.
    pub fn reads(&self) -> impl Iterator<Item = usize> {
        self.reads.iter().map(|(index, _)| *index)
    }

    /// Returns whether it reads more than the columns of its node: rows of a subquery, or a query around it.
    pub fn has_subquery(&self) -> bool {
        self.has_subquery
    }

    /// Returns the tangent of the expression over columns with these tangents.
    pub fn linearize(&self, schema: &DFSchema, tangents: &Tangents, jvp: &Arc<ScalarUDF>) -> Result<Linearized> {
        let Self { expr, field, .. } = self;
        let data_type = field.data_type();
        if !can_vary(data_type) {
            return Ok(Linearized::Known(Tangent::Zero));
        }
        if let Some((index, as_it_is)) = self.passed_on {
            let tangent = tangents.get(index);
            if as_it_is || tangent == Tangent::Zero || tangent == Tangent::One {
                return Ok(Linearized::Known(tangent));
            }
        }
        let part = |part: &Expr| -> Result<Expr> {
            tangent_to_expr(&linearize(part, schema, tangents, jvp)?, part, schema, &DataType::Float64)
        };
        let mut arguments = vec![];
        for (index, column) in &self.reads {
            let column = || Expr::Column(column.clone());
            match tangents.get(*index) {
                Tangent::Zero => continue,
                Tangent::One => arguments.extend([column(), lit(1.0)]),
                Tangent::Column(tangent) => arguments.extend([column(), tangent.factor()?]),
            }
        }
        if arguments.is_empty() {
            return Ok(Linearized::Known(Tangent::Zero));
        }
        arguments.insert(0, unwrap_all(expr).clone());
        check_subqueries(&arguments)?;
        if let Some(tangent) = linearize_pair(unwrap_all(expr), &part)? {
            return Ok(Linearized::Derived(tangent));
        }
        if !is_float(data_type) {
            return plan_err!(
                "{} varies with {} and must be a float; it is {data_type}. Use the number that it is made of",
                abbreviate(unwrap_all(expr)),
                abbreviate(&arguments[1])
            );
        }
        Ok(Linearized::Derived(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(jvp), arguments))))
    }

    /// Returns where the expression takes branches that do not vary, over the columns with these tangents; none if that is known nowhere.
    pub fn inactive(&self, schema: &DFSchema, tangents: &Tangents, with_tangents: &DFSchema) -> Result<Option<Expr>> {
        let has_inactive = |(index, _): &(usize, Column)| match tangents.get(*index) {
            Tangent::Column(tangent) => tangent.inactive.is_some(),
            Tangent::Zero | Tangent::One => false,
        };
        if !self.reads.iter().any(has_inactive) && !may_choose(&self.expr)? {
            return Ok(None);
        }
        let varies = |column: &Column| match schema.maybe_index_of_column(column).map(|index| tangents.get(index)) {
            Some(Tangent::Zero) => Varies::Never,
            Some(Tangent::Column(tangent)) => tangent.condition().map_or(Varies::Always, Varies::Unless),
            Some(Tangent::One) | None => Varies::Always,
        };
        // Some functions, as `coalesce`, are a CASE only then. What has no derivative says so when that is asked for.
        let info = SimplifyContext::builder().with_schema(Arc::new(with_tangents.clone())).build();
        let Ok(expr) = ExprSimplifier::new(info).simplify(unwrap_all(&self.expr).clone()) else { return Ok(None) };
        inactive_condition(&expr, with_tangents, &varies)
    }

    /// Returns the type of a tangent that [`linearize`](Self::linearize) has given, over the columns with theirs.
    pub fn field_of_derived(&self, tangent: &Expr, with_tangents: &DFSchema) -> Result<FieldRef> {
        match tangent {
            Expr::ScalarFunction(call) if call.args.first() == Some(unwrap_all(&self.expr)) => {
                let columns = call.args[1..].iter().step_by(2);
                let types = columns.map(|column| type_of(column, with_tangents)).collect::<Result<Vec<_>>>()?;
                let data_type = result_type(self.field.data_type(), &types);
                Ok(Arc::new(Field::new(call.func.name(), data_type, self.field.is_nullable())))
            }
            other => field_of(other, with_tangents),
        }
    }
}

/// Returns whether an expression may choose between values, as CASE does. Functions that choose, fragments of another
/// engine that may, and derivatives of such expressions count as well.
fn may_choose(expr: &Expr) -> Result<bool> {
    expr.exists(|part| {
        Ok(match part {
            Expr::Case(_) => true,
            Expr::ScalarFunction(call) => match call.func.name() {
                "coalesce" | "nvl" | "nvl2" | "nullif" | "nanvl" | "greatest" | "least" => true,
                name => name == Transform::Tangent.name() || name.starts_with('∂'),
            },
            _ => false,
        })
    })
}

/// Returns the tangent of an expression over columns with these tangents.
pub fn linearize(expr: &Expr, schema: &DFSchema, tangents: &Tangents, jvp: &Arc<ScalarUDF>) -> Result<Linearized> {
    LinearizedExpr::try_new(expr.clone(), schema)?.linearize(schema, tangents, jvp)
}

/// Returns the error if the expression that `jvp` is given with these arguments has a subquery that varies.
pub fn check_subqueries(arguments: &[Expr]) -> Result<()> {
    let Some((expression, directions)) = arguments.split_first() else { return Ok(()) };
    let varying: HashSet<_> = directions.iter().step_by(2).flat_map(columns_read).collect();
    expression.apply(|part| {
        if matches!(part, Expr::ScalarSubquery(_))
            && let Some(column) = columns_read(part).intersection(&varying).next()
        {
            return plan_err!(
                "the correlated subquery {} reads {column} of the query around it, which varies. xql-ffi does not \
                 differentiate such subqueries. Write it as a join",
                abbreviate(part)
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Returns the tangent of an expression as an expression, NULL where `primal` is.
pub fn tangent_to_expr(tangent: &Linearized, primal: &Expr, schema: &DFSchema, data_type: &DataType) -> Result<Expr> {
    let constant = |value: f64| -> Result<Expr> {
        let value = lit(value).cast_to(data_type, schema)?;
        if field_of(primal, schema)?.is_nullable() {
            when(primal.clone().is_not_null(), value).end()
        } else {
            Ok(value)
        }
    };
    match tangent {
        Linearized::Known(Tangent::Zero) => constant(0.0),
        Linearized::Known(Tangent::One) => constant(1.0),
        Linearized::Known(Tangent::Column(tangent)) => Ok(Expr::Column(tangent.column.clone())),
        Linearized::Derived(expr) => Ok(expr.clone()),
    }
}

/// Returns the tangent of an aggregate or window function in a column of this schema, NULL where that is. A single function of
/// tangents is so anyway.
pub fn null_with_column(tangent: Expr, schema: &DFSchema, index: usize) -> Result<Expr> {
    let column = Expr::Column(Column::from(schema.qualified_field(index)));
    if matches!(tangent, Expr::Column(_)) || !schema.field(index).is_nullable() {
        return Ok(tangent);
    }
    when(column.is_not_null(), tangent).end()
}

/// Returns what a formula computes, which is a DOUBLE, as the type of a tangent.
pub fn of_type(expr: Expr, data_type: &DataType) -> Expr {
    if data_type == &DataType::Float64 { expr } else { cast(expr, data_type.clone()) }
}
