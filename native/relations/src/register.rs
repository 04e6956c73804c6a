//! Registering the operators and the rules with a session.

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use datafusion_optimizer::AnalyzerRule;
use std::sync::Arc;
use xql_autodiff::{Rules, functions_with, recognize};

use crate::{DifferentiateRelations, KeepRecursiveColumns, Recognize, ShareRelations, WhenPrepared};

/// Registers `grad`, `jvp` and `vjp` with a session, and the rules by which they see through relations.
pub fn register(session: &SessionContext) {
    register_with(session, &Rules::default());
}

/// [`register`] with rules of the user's own.
pub fn register_with(session: &SessionContext, rules: &Rules) {
    for function in functions_with(rules) {
        session.register_udf(function);
    }
    add_rules(session, recognize);
}

/// Adds the rules to a session that has a differential operator and lacks them.
pub fn add_rules(session: &SessionContext, recognize: Recognize) {
    let differentiate = || DifferentiateRelations::recognizing(recognize);
    let state = session.state();
    let name = differentiate().name().to_owned();
    let known = state.analyzer().rules.iter().any(|rule| rule.name() == name);
    if known || !state.scalar_functions().values().any(|function| recognize(function).is_some()) {
        return;
    }
    session.add_analyzer_rule(Arc::new(differentiate()));
    session.add_analyzer_rule(Arc::new(KeepRecursiveColumns));
    // There is no way to put a rule first but to take all others away and to put them back.
    let others = state.optimizers();
    for rule in others {
        session.remove_optimizer_rule(rule.name());
    }
    session.add_optimizer_rule(Arc::new(WhenPrepared(differentiate())));
    session.add_optimizer_rule(Arc::new(WhenPrepared(KeepRecursiveColumns)));
    for rule in others {
        session.add_optimizer_rule(Arc::clone(rule));
    }
    let state = session.state_ref();
    let mut state = state.write();
    let builder = SessionStateBuilder::new_from_existing(state.clone());
    *state = builder.with_physical_optimizer_rule(Arc::new(ShareRelations)).build();
}
