//! Registering the operators and the rules with a session.

use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionContext;
use datafusion_expr::planner::RelationPlanner;
use std::sync::Arc;
use xql_autodiff::{Rules, functions_with, recognize};

use crate::eliminate_stop_gradient::EliminateStopGradient;
use crate::observe::ObserveRecursion;
use crate::options::DerivativeOptions;
use crate::rule::DifferentiateRelations;
use crate::subplan::CommonSubplans;
use crate::vocabulary::identity::DerivedTables;
use crate::vocabulary::operators::Recognize;
#[cfg(not(feature = "datafusion-55"))]
use crate::workarounds::dependencies::Dependencies;
#[cfg(not(feature = "datafusion-55"))]
use crate::workarounds::nullability::NullableRecursiveColumns;

/// Registers `grad`, `jvp`, `vjp` and `stop_gradient` with a session, and the rules by which they see through relations.
///
/// Statements that other threads plan meanwhile see all of it or nothing.
pub fn register(session: &SessionContext) {
    register_with(session, &Rules::default());
}

/// [`register`] with rules of the user's own.
pub fn register_with(session: &SessionContext, rules: &Rules) {
    update(session, |copy| {
        for function in functions_with(rules) {
            copy.register_udf(function);
        }
        insert_rules(copy, recognize);
    });
}

/// Returns what plans the relations of a statement so that derivatives know them, in the order in which they are asked: CTEs and views that
/// several places read are one leaf each, if `shares` says so.
pub fn relation_planners(shares: bool) -> Vec<Arc<dyn RelationPlanner>> {
    let mut planners: Vec<Arc<dyn RelationPlanner>> = vec![];
    #[cfg(not(feature = "datafusion-55"))]
    planners.push(Arc::new(Dependencies));
    if shares {
        planners.push(Arc::new(CommonSubplans::default()));
    }
    planners.push(Arc::new(DerivedTables));
    planners
}

/// Adds the rules to a session that lacks them, for operators that come with the expressions of a query.
///
/// Statements that other threads plan meanwhile have all rules that the session had before, and these or none of these.
pub fn add_rules(session: &SessionContext, recognize: Recognize) {
    if lacks_rules(&session.state_ref().read()) {
        update(session, |copy| insert_rules(copy, recognize));
    }
}

/// Changes a session in one step, under one lock: a copy that nobody else sees is changed, and takes the place of its state.
///
/// `SessionStateBuilder::new_from_existing` makes a state with other rules too, but without the statements that are prepared.
fn update(session: &SessionContext, change: impl FnOnce(&SessionContext)) {
    let state = session.state_ref();
    let mut state = state.write();
    let copy = SessionContext::new_with_state(state.clone());
    change(&copy);
    *state = copy.state_ref().read().clone();
}

fn lacks_rules(state: &SessionState) -> bool {
    !state.analyzer().rules.iter().any(|known| known.name() == DifferentiateRelations::NAME)
}

/// Adds the rules and their options to a session that nobody else uses.
fn insert_rules(session: &SessionContext, recognize: Recognize) {
    let state = session.state_ref().read().clone();
    if !lacks_rules(&state) {
        return;
    }
    {
        let state = session.state_ref();
        let mut state = state.write();
        let extensions = &mut state.config_mut().options_mut().extensions;
        if extensions.get::<DerivativeOptions>().is_none() {
            extensions.insert(DerivativeOptions::default());
        }
    }
    session.add_analyzer_rule(Arc::new(DifferentiateRelations::recognizing(recognize)));
    // There is no way to put a rule first but to take all others away and to put them back.
    for rule in state.optimizers() {
        session.remove_optimizer_rule(rule.name());
    }
    session.add_optimizer_rule(Arc::new(DifferentiateRelations::recognizing(recognize)));
    for rule in state.optimizers() {
        session.add_optimizer_rule(Arc::clone(rule));
    }
    // The last one is asked first.
    for planner in relation_planners(true).into_iter().rev() {
        let noted = session.register_relation_planner(planner);
        debug_assert!(noted.is_ok(), "DataFusion takes every planner");
    }
    #[cfg(not(feature = "datafusion-55"))]
    session.add_optimizer_rule(Arc::new(NullableRecursiveColumns));
    session.add_optimizer_rule(Arc::new(EliminateStopGradient));
    session.add_optimizer_rule(Arc::new(ObserveRecursion));
}
