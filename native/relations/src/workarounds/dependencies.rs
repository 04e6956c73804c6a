//! Functional dependencies behind columns that a projection computes.
//!
//! DataFusion 54 leaves out a computed column when it counts the columns of a projection that are those of its input, so that the columns
//! behind it are taken for the ones before. It then groups by columns that it takes for dependent on the keys, and takes most of them away
//! again in its last rules, by the same mistake. What is planned apart in between, as a shared relation is, is grouped by too many columns.
//! Later versions have mended it (`calc_func_dependencies_for_project`): with them, what is here goes.
//!
//! ```sql
//! -- Not (a, b) are the key, but (a, c)
//! WITH q AS (SELECT a, a + 1 AS b, c, s FROM (SELECT a, c, SUM(x) AS s FROM t GROUP BY a, c) g) SELECT a, b, MAX(s) FROM q GROUP BY a, b
//! ```

use datafusion_common::{DFSchema, Dependency, FunctionalDependence, FunctionalDependencies, Result};
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use sqlparser::ast::TableFactor;
use std::cell::Cell;
use std::sync::Arc;

/// Plans CTEs, views and derived tables as DataFusion does, with the dependencies that their columns have.
#[derive(Debug)]
pub struct Dependencies;

thread_local! {
    /// Whether DataFusion is asked for what it makes of a relation.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for Dependencies {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let is_named = matches!(
            relation,
            TableFactor::Derived { lateral: false, alias: Some(_), .. } | TableFactor::Table { args: None, .. }
        );
        if !is_named || IS_ASKING.take() {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_ASKING.set(true);
        let planned = context.plan(relation);
        IS_ASKING.set(false);
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(with_dependencies(planned?)?, None))))
    }
}

/// Returns a query under a name with the dependencies that its columns have.
///
/// # Errors
/// If they do not fit its columns.
fn with_dependencies(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::SubqueryAlias(mut alias) = plan else { return Ok(plan) };
    let known = dependencies(&alias.input);
    if known != *alias.schema.functional_dependencies() {
        alias.schema = Arc::new(DFSchema::clone(&alias.schema).with_functional_dependencies(known)?);
    }
    Ok(LogicalPlan::SubqueryAlias(alias))
}

/// Returns the dependencies among the columns of a node. Those of a query under a name are right already.
fn dependencies(plan: &LogicalPlan) -> FunctionalDependencies {
    match plan {
        LogicalPlan::Projection(projection) => of_projection(projection),
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => {
            plan.inputs().first().map_or_else(FunctionalDependencies::empty, |input| dependencies(input))
        }
        other => other.schema().functional_dependencies().clone(),
    }
}

fn of_projection(projection: &Projection) -> FunctionalDependencies {
    let input = projection.input.schema();
    let places: Vec<_> = projection.expr.iter().map(|expr| column(expr, input)).collect();
    let outputs = |columns: &[usize]| -> Vec<usize> {
        let of_output = (0..).zip(&places).filter(|(_, place)| place.is_some_and(|place| columns.contains(&place)));
        of_output.map(|(output, _)| output).collect()
    };
    let mut known = vec![];
    for of_input in dependencies(&projection.input).iter() {
        let FunctionalDependence { source_indices, target_indices, nullable, mode } = of_input;
        if !source_indices.iter().all(|source| places.contains(&Some(*source))) {
            continue;
        }
        // A key that is there twice is as good by one of the two, but DataFusion knows keys by their number.
        let sources = outputs(source_indices);
        if sources.len() != source_indices.len() {
            continue;
        }
        let targets = match mode {
            Dependency::Single => (0..projection.expr.len()).collect(),
            Dependency::Multi => outputs(target_indices),
        };
        known.push(FunctionalDependence::new(sources, targets, *nullable).with_mode(*mode));
    }
    FunctionalDependencies::new(known)
}

/// Returns the place of the column of the input that an expression is.
fn column(expr: &Expr, input: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Alias(alias) => column(&alias.expr, input),
        Expr::Column(column) => input.maybe_index_of_column(column),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::SessionContext;

    const KEYS: &str = "SELECT a, a + 1 AS b, c, s FROM (SELECT a, c, SUM(x) AS s FROM t GROUP BY a, c) g";

    async fn planned(session: &SessionContext) -> Result<String> {
        session.sql("CREATE TABLE IF NOT EXISTS t AS VALUES (1, 1, 1.0), (1, 2, 2.0)").await?;
        let table = "t AS (SELECT column1 AS a, column2 AS c, column3 AS x FROM t)";
        let cte = format!("WITH {table}, q AS ({KEYS}) SELECT a, b, MAX(s) FROM q GROUP BY a, b");
        let derived = format!("WITH {table} SELECT a, b, MAX(s) FROM ({KEYS}) q GROUP BY a, b");
        let mut plans = String::new();
        for sql in [cte, derived] {
            plans += &session.sql(&sql).await?.into_unoptimized_plan().display_indent().to_string();
        }
        Ok(plans)
    }

    /// With what is here, DataFusion groups by the keys alone. Without, it groups by more: once it does not, what is here goes.
    #[tokio::test]
    async fn groups_are_by_their_keys() -> Result<()> {
        let session = SessionContext::new();
        assert_eq!(planned(&session).await?.matches("groupBy=[[q.a, q.b, q.c, q.s]]").count(), 2);
        session.register_relation_planner(Arc::new(Dependencies))?;
        let plans = planned(&session).await?;
        assert_eq!(plans.matches("groupBy=[[q.a, q.b]]").count(), 2, "{plans}");
        Ok(())
    }
}
