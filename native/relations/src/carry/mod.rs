//! Tangents of the columns of a node, carried from where the variable originates.

mod aggregate;
mod carrier;
mod cells;
mod combine;
mod draws;
mod grown;
mod lift;
mod own_cell;
mod recursion;
mod several;
mod shared;
mod window;
mod windows_below;

use datafusion_common::{Result, plan_err};
use datafusion_expr::{Distinct, Expr, ExprSchemable, LogicalPlan, Projection, SubqueryAlias};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::types::can_vary;

use crate::tangents::tangent::{Tangent, Tangents};
use crate::vocabulary::names::{is_added, with_columns};
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::relation::is_same;
use carrier::Carried;
pub use carrier::{Carrier, Reading, Variable};
pub use cells::is_one_cell;
pub use combine::widened_union;
pub use draws::Draws;
pub use grown::{Cell, Grown};
pub use lift::lifted;
pub use several::{Asked, Direction, Several, is_plain};

/// Whether a gradient by row has added all of a plan, beside which the variable is not.
fn is_by_row(plan: &LogicalPlan) -> bool {
    let fields = plan.schema().fields();
    !fields.is_empty() && fields.iter().all(|field| is_added(field.name()))
}

impl Carrier<'_> {
    /// The node with tangents of the wanted columns.
    #[recursive::recursive]
    pub fn carry(&mut self, plan: LogicalPlan, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let mut rest = BTreeSet::new();
        for index in wanted {
            let is_given = Variable::Column(*index) == variable && self.direction.is_none();
            if !is_given && can_vary(plan.schema().field(*index).data_type()) {
                rest.insert(*index);
            }
        }
        let mut carried = if rest.is_empty() { Carried::constant(plan) } else { self.node(plan, variable, &rest)? };
        if let Variable::Column(index) = variable
            && wanted.contains(&index)
            && self.direction.is_none()
        {
            carried.tangents.set(index, Tangent::One);
        }
        Ok(carried)
    }

    fn node(&mut self, plan: LogicalPlan, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let stays = match (variable, &self.cell) {
            (Variable::Column(_), _) => false,
            (Variable::Outer, _) => plan.all_out_ref_exprs().is_empty(),
            (Variable::Everywhere, Some(cell)) => !cell.is_read_by(&plan)?,
            (Variable::Everywhere, None) => true,
        };
        if stays {
            return Ok(Carried::constant(plan));
        }
        if let (Variable::Everywhere, Some(cell)) = (variable, &self.cell)
            && is_same(&plan, &cell.origin)
        {
            let mut tangents = Tangents::default();
            tangents.set(cell.position, Tangent::One);
            return Ok(Carried { plan, tangents });
        }
        if let (Variable::Column(index), Some(direction)) = (variable, self.direction.clone()) {
            if origin(&plan, index)? == Origin::Here {
                return self.moved(plan, index, direction);
            }
            if matches!(
                plan,
                LogicalPlan::Aggregate(_)
                    | LogicalPlan::Distinct(_)
                    | LogicalPlan::Union(_)
                    | LogicalPlan::Unnest(_)
                    | LogicalPlan::RecursiveQuery(_)
            ) {
                return plan_err!(
                    "the direction {direction} is not the same in all rows, and cannot pass from {} through {}. Take the \
                     derivative by a column of one row, along {} + eps * {direction}",
                    self.variable,
                    plan.display().to_string().lines().next().unwrap_or_default(),
                    self.variable
                );
            }
        }
        if let LogicalPlan::TableScan(scan) = plan {
            return self.scan(scan, variable, wanted);
        }
        let below = match variable {
            Variable::Outer | Variable::Everywhere => vec![],
            Variable::Column(index) => match origin(&plan, index)? {
                Origin::Below(sources) => sources,
                // The other columns of the node that computes the variable are not computed from it.
                Origin::Here => {
                    if let LogicalPlan::RecursiveQuery(query) = &plan {
                        self.check_passed_on(query, index)?;
                    }
                    return Ok(Carried::constant(plan));
                }
            },
        };
        let inputs = plan.inputs();
        let by_row: Vec<_> = inputs.iter().map(|input| variable != Variable::Everywhere && is_by_row(input)).collect();
        let seen_by = |input: usize| {
            if variable == Variable::Everywhere || by_row.get(input) == Some(&true) {
                return Variable::Everywhere;
            }
            let source = below.iter().find(|(number, _)| *number == input);
            source.map_or(Variable::Outer, |(_, column)| Variable::Column(*column))
        };
        match plan {
            LogicalPlan::Projection(projection) => self.projection(projection, seen_by(0), wanted),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate, seen_by(0), wanted),
            LogicalPlan::Window(window) => self.window(window, seen_by(0), wanted),
            LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Subquery(_) => self.same_columns(&plan, seen_by(0), wanted),
            LogicalPlan::SubqueryAlias(alias) => self.subquery_alias(alias, seen_by(0), wanted),
            LogicalPlan::Join(join) => self.join(join, [seen_by(0), seen_by(1)], wanted),
            LogicalPlan::Union(union) => {
                let variables = (0..union.inputs.len()).map(seen_by).collect();
                self.union(&union, variables, wanted)
            }
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input, seen_by(0), wanted),
            LogicalPlan::Distinct(Distinct::On(on)) => self.distinct_on(on, seen_by(0), wanted),
            LogicalPlan::Unnest(unnest) => self.unnest(&unnest, seen_by(0), wanted),
            LogicalPlan::RecursiveQuery(query) if variable == Variable::Everywhere => plan_err!(
                "{} is a recursive query in a gradient by row, and derivatives by {} cannot pass through it",
                query.name,
                self.variable
            ),
            LogicalPlan::RecursiveQuery(query) => self.recursive_query(query, variable, wanted),
            LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => Ok(Carried::constant(plan)),
            other => plan_err!(
                "derivatives by {} cannot pass through {}",
                self.variable,
                other.display().to_string().lines().next().unwrap_or_default()
            ),
        }
    }

    /// The node in which the variable originates, with its tangent.
    fn moved(&mut self, plan: LogicalPlan, index: usize, direction: Expr) -> Result<Carried> {
        let field = plan.schema().field(index);
        let direction = direction.cast_to(&self.tangent_type(field.data_type()), plan.schema())?;
        let mut added = vec![];
        let mut tangents = Tangents::default();
        tangents.set(index, Tangent::Column(self.add_computed(direction, field.name(), &mut added)));
        Ok(Carried { plan: with_columns(plan, added)?, tangents })
    }

    ///
    /// ```text
    /// Projection: p.w, p.w * d.x AS q
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Projection: p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w
    /// ```
    fn projection(&mut self, projection: Projection, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let Projection { mut expr, input, .. } = projection;
        let primal: Vec<_> = wanted.iter().map(|index| (*index, expr[*index].clone())).collect();
        let carried = self.input(&input, variable, primal.iter().map(|(_, expr)| expr))?;
        let mut tangents = Tangents::default();
        for (index, primal) in primal {
            let name = primal.qualified_name().1;
            let tangent = self.linearize(&primal, input.schema(), &carried.tangents)?;
            tangents.set(index, self.add_column(tangent, &name, &mut expr));
        }
        let plan = LogicalPlan::Projection(Projection::try_new(expr, Arc::new(carried.plan))?);
        Ok(Carried { plan, tangents })
    }

    /// An input with the tangents of all columns that the expressions need.
    fn input<'e>(
        &mut self,
        input: &LogicalPlan,
        variable: Variable,
        exprs: impl IntoIterator<Item = &'e Expr>,
    ) -> Result<Carried> {
        let needs = self.needs(input, variable, exprs)?;
        self.carry(input.clone(), variable, &needs)
    }

    /// A node with one input, whose columns are its own.
    fn same_columns(&mut self, plan: &LogicalPlan, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let carried = self.carry(plan.inputs()[0].clone(), variable, wanted)?;
        let plan = plan.with_new_exprs(plan.expressions(), vec![carried.plan])?;
        Ok(Carried { plan, tangents: carried.tangents })
    }

    fn subquery_alias(
        &mut self,
        alias: SubqueryAlias,
        variable: Variable,
        wanted: &BTreeSet<usize>,
    ) -> Result<Carried> {
        let carried = self.carry(Arc::unwrap_or_clone(alias.input), variable, wanted)?;
        let tangents = carried.tangents.within(&alias.alias);
        let plan = SubqueryAlias::try_new(Arc::new(carried.plan), alias.alias)?;
        Ok(Carried { plan: LogicalPlan::SubqueryAlias(plan), tangents })
    }
}
