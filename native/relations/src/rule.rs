//! The analyzer rule.

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::LogicalPlan;
use datafusion_expr::expr_rewriter::coerce_plan_expr_for_schema;
use datafusion_optimizer::{Analyzer, AnalyzerRule, OptimizerConfig, OptimizerRule};
use std::sync::Arc;
use xql_autodiff::recognize;

use crate::calls::plan::Differentiation;
use crate::vocabulary::operators::{Recognize, has_call_anywhere, left_to_simplify};
use crate::workarounds::nullability::{Static, nullable_by_either_term};
use crate::workarounds::pruning::keep_recursive_columns;

/// The analyzer rule that lets derivatives see through CTEs, subqueries, joins, aggregates, windows and recursion.
///
/// It emits calls of `jvp` and plain relational operators only, and leaves a plan without calls as it is. It stands after type
/// coercion, where `SessionContext::add_analyzer_rule` puts it.
///
/// DataFusion optimizes a statement that is prepared (`PREPARE`) without analyzing it, so that expressions would be simplified
/// before the rule has seen them. Therefore it is a rule of the optimizer as well, to be put before all others. In a plan that has
/// been analyzed it finds no calls: those that the rule leaves to `simplify` it does not recognize again.
#[derive(Debug)]
pub struct DifferentiateRelations {
    recognize: Recognize,
}

const NAME: &str = "differentiate_relations";

impl DifferentiateRelations {
    /// The rule for the functions of `xql_autodiff`.
    pub fn new() -> Self {
        Self { recognize }
    }

    /// The rule for functions that are recognized otherwise, such as those imported from another library.
    pub fn recognizing(recognize: Recognize) -> Self {
        Self { recognize }
    }

    fn differentiate(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if !has_call_anywhere(&plan, self.recognize)? {
            return Ok(Transformed::no(plan));
        }
        nullable_by_either_term(plan, Static::Settled)?
            .transform_data(|plan| Differentiation::new(self.recognize, &plan)?.differentiated(plan))?
            .transform_data(|plan| nullable_by_either_term(plan, Static::Derived))?
            .transform_data(keep_recursive_columns)?
            .transform_data(|plan| left_to_simplify(plan, self.recognize))
    }
}

impl Default for DifferentiateRelations {
    fn default() -> Self {
        Self::new()
    }
}

impl AnalyzerRule for DifferentiateRelations {
    fn name(&self) -> &str {
        NAME
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(self.differentiate(plan)?.data)
    }
}

impl OptimizerRule for DifferentiateRelations {
    fn name(&self) -> &str {
        NAME
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !has_call_anywhere(&plan, self.recognize)? {
            return Ok(Transformed::no(plan));
        }
        // A plan with calls has not been analyzed: no types have been coerced.
        let schema = Arc::clone(plan.schema());
        let mut plan = plan;
        for rule in Analyzer::new().rules {
            plan = rule.analyze(plan, &config.options())?;
        }
        let plan = self.differentiate(plan)?.data;
        // Coerced expressions may be of other types than they were taken to be of, which an optimizer rule must not change.
        Ok(Transformed::yes(coerce_plan_expr_for_schema(plan, &schema)?))
    }
}
