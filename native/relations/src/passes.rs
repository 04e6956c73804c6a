//! The passes of the analyzer rule over a plan with calls.

use datafusion_common::tree_node::Transformed;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::LogicalPlan;
use xql_contraction::Contractions;
use xql_guard::check_interrupted;

use crate::calls::rewriter::Differentiation;
use crate::disjoint::disjoint_joins_as_unions;
use crate::fixed_points::FixedPoints;
use crate::isolate_contractions::isolate_plain_contractions;
use crate::layering::{Size, stacked};
use crate::shared_relation::{each_rewritten, inline_shared_relations};
use crate::vocabulary::operators::{Operators, Recognize, left_to_simplify};
use crate::workarounds::global_aggregates::conditions_above_aggregates;
#[cfg(not(feature = "datafusion-55"))]
use crate::workarounds::grouping_sets::unequal_over_grouping_sets;
use crate::workarounds::join_build_side::one_row_sides_left;
#[cfg(not(feature = "datafusion-55"))]
use crate::workarounds::nullability::{Static, nullable_by_either_term};
#[cfg(not(feature = "datafusion-55"))]
use crate::workarounds::pruning::keep_recursive_columns;
use crate::workarounds::window_orderings::partitions_without_orderings;
use crate::workarounds::work_tables::work_tables_read_once;

/// The statement and session that the passes share.
#[derive(Debug)]
pub struct PassContext {
    /// Tells the operators among the functions of the session.
    pub recognize: Recognize,
    /// Those that the statement calls.
    pub operators: Operators,
    /// When derivatives are written as a stack.
    pub size: Size,
    /// Whether relations that are read several times are computed once.
    pub shares_relations: bool,
    /// Whether the sides of joins are put where they cost least.
    pub orders_joins: bool,
    /// How sums of products are computed.
    pub contractions: Contractions,
    /// The recursive queries that have the derivatives of their limits.
    pub fixed_points: FixedPoints,
}

/// A pass over a plan.
struct Pass {
    /// The name under which an internal error is reported.
    name: &'static str,
    scope: PassScope,
    run: fn(LogicalPlan, &PassContext) -> Result<Transformed<LogicalPlan>>,
}

/// The plans over which a pass runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassScope {
    /// The plan of the statement.
    Statement,
    /// The plan of the statement, and before it those of the shared relations that it reads, each once.
    EveryPlan,
}

/// The passes in their order. A shared relation is planned as these leave it.
const PASSES: &[Pass] = &[
    // What is decided by the nullability of a column is decided while differentiating.
    #[cfg(not(feature = "datafusion-55"))]
    Pass {
        name: "nullable_recursive_columns",
        scope: PassScope::Statement,
        run: |plan, _| nullable_by_either_term(plan, Static::Settled),
    },
    Pass {
        name: "differentiation",
        scope: PassScope::Statement,
        run: |plan, setting| {
            let contracts = setting.contractions != Contractions::Off;
            let apart = (contracts, setting.shares_relations);
            let differentiation = Differentiation::new(setting.recognize, apart, &plan)?;
            differentiation.with_fixed_points(setting.fixed_points.clone()).rewrite_plan(plan)
        },
    },
    Pass {
        name: "isolate_plain_contractions",
        scope: PassScope::Statement,
        run: |plan, setting| match setting.contractions {
            Contractions::Everywhere => isolate_plain_contractions(plan),
            _ => Ok(Transformed::no(plan)),
        },
    },
    // Calls in the branches of a union would not be one sweep, so this pass comes after differentiation.
    Pass {
        name: "disjoint_joins_as_unions",
        scope: PassScope::EveryPlan,
        run: |plan, setting| match setting.shares_relations {
            true => disjoint_joins_as_unions(plan, &setting.operators),
            false => Ok(Transformed::no(plan)),
        },
    },
    #[cfg(not(feature = "datafusion-55"))]
    Pass {
        name: "nullable_recursive_derivatives",
        scope: PassScope::EveryPlan,
        run: |plan, _| nullable_by_either_term(plan, Static::Derived),
    },
    #[cfg(not(feature = "datafusion-55"))]
    Pass { name: "kept_recursive_columns", scope: PassScope::EveryPlan, run: |plan, _| keep_recursive_columns(plan) },
    Pass {
        name: "work_tables_read_once",
        scope: PassScope::EveryPlan,
        run: |plan, setting| match setting.shares_relations {
            true => work_tables_read_once(plan),
            false => Ok(Transformed::no(plan)),
        },
    },
    Pass {
        name: "stacks",
        scope: PassScope::EveryPlan,
        run: |plan, setting| stacked(plan, &setting.operators, setting.size),
    },
    Pass {
        name: "relations_written_out",
        scope: PassScope::Statement,
        run: |plan, setting| {
            if setting.shares_relations { Ok(Transformed::no(plan)) } else { inline_shared_relations(plan) }
        },
    },
    Pass {
        name: "partitions_without_orderings",
        scope: PassScope::EveryPlan,
        run: |plan, _| partitions_without_orderings(plan),
    },
    #[cfg(not(feature = "datafusion-55"))]
    Pass {
        name: "unequal_over_grouping_sets",
        scope: PassScope::EveryPlan,
        run: |plan, _| unequal_over_grouping_sets(plan),
    },
    Pass {
        name: "one_row_sides_left",
        scope: PassScope::Statement,
        run: |plan, setting| if setting.orders_joins { one_row_sides_left(plan) } else { Ok(Transformed::no(plan)) },
    },
    Pass {
        name: "conditions_above_aggregates",
        scope: PassScope::EveryPlan,
        run: |plan, setting| conditions_above_aggregates(plan, &setting.operators),
    },
    // Last, for the passes before it find calls.
    Pass {
        name: "left_to_simplify",
        scope: PassScope::EveryPlan,
        run: |plan, setting| left_to_simplify(plan, setting.recognize),
    },
];

/// Returns the plan of a CTE or view as it is differentiated: the passes before that over it, which are over statements.
#[cfg(not(feature = "datafusion-55"))]
pub fn prepared(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(nullable_by_either_term(plan, Static::Settled)?.data)
}

/// Returns the plan of a CTE or view as it is differentiated.
#[cfg(feature = "datafusion-55")]
pub fn prepared(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(plan)
}

/// Returns the plan of a statement after all passes.
pub fn run_passes(plan: LogicalPlan, setting: &PassContext) -> Result<Transformed<LogicalPlan>> {
    PASSES.iter().try_fold(Transformed::no(plan), |before, Pass { name, scope, run }| {
        check_interrupted()?;
        before
            .transform_data(|plan| match scope {
                PassScope::Statement => run(plan, setting),
                PassScope::EveryPlan => each_rewritten(plan, &mut |plan| run(plan, setting)),
            })
            .map_err(|error| match error {
                mistake @ DataFusionError::Internal(_) => mistake.context(format!("in the pass {name}")),
                other => other,
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_relation::SharedRelation;
    #[cfg(not(feature = "datafusion-55"))]
    use crate::workarounds::pruning::keeps_recursive_columns;
    use datafusion::prelude::SessionContext;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use xql_autodiff::Threshold;

    #[test]
    fn names_of_passes_are_their_own() {
        let names: BTreeSet<_> = PASSES.iter().map(|pass| pass.name).collect();
        assert_eq!(names.len(), PASSES.len());
    }

    /// Runs all passes over the plans of shared relations: each gets what the plan of a statement gets.
    #[tokio::test]
    async fn passes_reach_the_plans_of_shared_relations() -> Result<()> {
        let ctx = SessionContext::new();
        for function in xql_autodiff::functions() {
            ctx.register_udf(function);
        }
        let sql = "WITH RECURSIVE r AS (SELECT 1.0 AS x UNION ALL SELECT x + 1 FROM r WHERE x < 3) SELECT grad(x * x, x) AS d FROM r";
        let plan = ctx.sql(sql).await?.into_unoptimized_plan();
        let recognize = xql_autodiff::recognize;
        let setting = PassContext {
            recognize,
            operators: Operators::from_plan(&plan, recognize)?,
            size: Size { functions: usize::MAX, threshold: Threshold { times: 2, more: 100, repeated: 16 } },
            shares_relations: true,
            orders_joins: true,
            contractions: Contractions::On,
            fixed_points: FixedPoints::default(),
        };
        let relation = Arc::new(SharedRelation::numbered("r", plan, "row"));
        let relation = SharedRelation::new("of r", relation.scan()?);
        let passed = run_passes(Arc::new(relation).scan()?, &setting)?;
        assert!(passed.transformed);
        let has = |is: &dyn Fn(&LogicalPlan) -> bool| SharedRelation::any_node_in(&passed.data, is);
        #[cfg(not(feature = "datafusion-55"))]
        assert!(has(&|node| keeps_recursive_columns(node))?);
        let calls =
            |plan: &LogicalPlan| Operators::from_plan(plan, recognize).is_ok_and(|operators| !operators.is_empty());
        assert!(!has(&calls)?, "{}", passed.data);
        Ok(())
    }
}
