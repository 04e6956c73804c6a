//! Tangents of groups and aggregates.

use datafusion_common::{Column, Result};
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Projection};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::carrier::{Carried, Carrier, Variable};
use super::combine::Agreements;
use super::draws::Draws;
use crate::rows::arguments;
use crate::tangents::linearize::{null_with_column, written_out};
use crate::tangents::tangent::{Linearized, Tangent, Tangents};
use crate::vocabulary::names::columns;
use crate::vocabulary::nodes::computed;

impl Carrier<'_> {
    /// An aggregate has its formula; a key that varies without being the variable has the tangent the group agrees on.
    ///
    /// ```text
    /// Aggregate: groupBy=[[w]], aggr=[[avg(w * x) AS m]]
    ///   TableScan: t
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Projection: w, m, ∂avg AS ∂m/∂w
    ///   Aggregate: groupBy=[[w]], aggr=[[avg(w * x) AS m, avg(jvp(w * x, w, 1)) AS ∂avg]]
    ///     TableScan: t
    /// ```
    pub fn aggregate(&mut self, aggregate: Aggregate, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let aggregate = self.drawn_before_grouping(aggregate)?;
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = &aggregate;
        let computed = computed(&aggregate)?;
        let read = wanted.iter().filter_map(|index| computed[*index]).flat_map(arguments);
        let carried = self.by_value(|carrier| carrier.input(input, variable, read))?;

        let mut agreements = Agreements { aggregates: aggr_expr.clone(), exprs: vec![] };
        let mut exprs = columns(schema);
        let tangents = self.grouped(&aggregate, &carried, wanted, &mut agreements, &mut exprs)?;
        if !tangents.iter().any(|(_, tangent)| matches!(tangent, Tangent::Column(_))) {
            return Ok(Carried { plan: LogicalPlan::Aggregate(aggregate), tangents });
        }
        exprs.extend(agreements.exprs);
        let plan = Aggregate::try_new(Arc::new(carried.plan), group_expr.clone(), agreements.aggregates)?;
        let plan = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(plan)))?;
        Ok(Carried { plan: LogicalPlan::Projection(plan), tangents })
    }

    /// The tangents of groups over an input that has been carried. What they are computed from is added to the aggregates, they
    /// themselves to the expressions above.
    pub fn grouped(
        &mut self,
        aggregate: &Aggregate,
        carried: &Carried,
        wanted: &BTreeSet<usize>,
        agreements: &mut Agreements,
        exprs: &mut Vec<Expr>,
    ) -> Result<Tangents> {
        let Aggregate { input, group_expr, schema, .. } = aggregate;
        let keys = grouping_set_to_exprlist(group_expr)?.len();
        let computed = computed(aggregate)?;
        let mut tangents = Tangents::default();
        for index in wanted {
            let Some(primal) = computed[*index] else { continue };
            let name = schema.field(*index).name();
            let tangent_type = self.tangent_type(schema.field(*index).data_type());
            let tangent = if *index >= keys {
                self.over_rows(input, carried, &mut agreements.aggregates).tangent(primal)?
            } else {
                match self.linearize(primal, input.schema(), &carried.tangents)? {
                    constant @ Linearized::Known(Tangent::Zero | Tangent::One) => constant,
                    tangent => {
                        let tangent = written_out(&tangent, primal, input.schema(), &tangent_type)?;
                        let tangent = tangent.cast_to(&tangent_type, carried.plan.schema())?;
                        let key = Expr::Column(Column::from(schema.qualified_field(*index)));
                        let rolled_up = matches!(group_expr.as_slice(), [Expr::GroupingSet(_)]).then_some(key);
                        Linearized::Known(Tangent::Column(agreements.add(
                            self,
                            tangent,
                            rolled_up,
                            &tangent_type,
                            name,
                        )?))
                    }
                }
            };
            let tangent = match tangent {
                Linearized::Derived(expr) => {
                    let expr = self.of_type(null_with_column(expr, schema, *index)?, &tangent_type);
                    Tangent::Column(self.add_computed(expr, name, exprs))
                }
                Linearized::Known(tangent) => tangent,
            };
            tangents.set(*index, tangent);
        }
        Ok(tangents)
    }

    /// The aggregate over an input in which all that is volatile in its functions has been drawn.
    fn drawn_before_grouping(&mut self, aggregate: Aggregate) -> Result<Aggregate> {
        if !aggregate.aggr_expr.iter().any(is_volatile) {
            return Ok(aggregate);
        }
        let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
        let mut draws = Draws::new(self.names);
        let aggr_expr = aggr_expr.into_iter().map(|function| draws.function(function)).collect::<Result<_>>()?;
        Aggregate::try_new(draws.below(input)?, group_expr, aggr_expr)
    }
}
