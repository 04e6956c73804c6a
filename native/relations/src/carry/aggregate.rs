//! Tangents of groups and aggregates.

use datafusion_common::Result;
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Aggregate, ExprSchemable, LogicalPlan, Projection};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::combine::Agreements;
use super::{Carried, Carrier, Variable};
use crate::names::columns;
use crate::over::arguments;
use crate::tangent::{Linearized, Tangent, Tangents, null_with_column, written_out};

impl Carrier<'_> {
    /// An aggregate has its formula; a key that varies without being the variable has the tangent the group agrees on.
    pub fn aggregate(&mut self, aggregate: Aggregate, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = &aggregate;
        let keys = grouping_set_to_exprlist(group_expr)?;
        // The column that numbers grouping sets stands between keys and aggregates.
        let first = schema.fields().len() - aggr_expr.len();
        let computed = |index: usize| match keys.get(index) {
            Some(key) => Some(*key),
            None => index.checked_sub(first).and_then(|index| aggr_expr.get(index)),
        };
        let read = wanted.iter().filter_map(|index| computed(*index)).flat_map(arguments);
        let carried = self.input(input, variable, read)?;

        let mut tangents = Tangents::default();
        let mut agreements = Agreements::default();
        let mut aggregates = aggr_expr.clone();
        let mut exprs = columns(schema);
        for index in wanted {
            let Some(primal) = computed(*index) else { continue };
            let name = schema.field(*index).name();
            let tangent_type = self.tangent_type(schema.field(*index).data_type());
            let tangent = if *index >= keys.len() {
                self.over_rows(primal, input, &carried, &mut aggregates)?
            } else {
                match self.linearize(primal, input.schema(), &carried.tangents)? {
                    constant @ Linearized::Known(Tangent::Zero | Tangent::One) => constant,
                    tangent => {
                        let tangent = written_out(&tangent, primal, input.schema(), &tangent_type)?;
                        let tangent = tangent.cast_to(&tangent_type, carried.plan.schema())?;
                        Linearized::Known(Tangent::Column(agreements.add(self, tangent, &tangent_type, name)?))
                    }
                }
            };
            let tangent = match tangent {
                Linearized::Derived(expr) => {
                    let expr = self.of_type(null_with_column(expr, schema, *index)?, &tangent_type);
                    Tangent::Column(self.add_computed(expr, name, &mut exprs))
                }
                Linearized::Known(tangent) => tangent,
            };
            tangents.set(*index, tangent);
        }
        if !tangents.iter().any(|(_, tangent)| matches!(tangent, Tangent::Column(_))) {
            return Ok(Carried { plan: LogicalPlan::Aggregate(aggregate), tangents });
        }
        aggregates.extend(agreements.aggregates);
        exprs.extend(agreements.exprs);
        let plan = Aggregate::try_new(Arc::new(carried.plan), group_expr.clone(), aggregates)?;
        let plan = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(plan)))?;
        Ok(Carried { plan: LogicalPlan::Projection(plan), tangents })
    }
}
