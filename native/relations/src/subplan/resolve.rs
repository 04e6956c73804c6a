//! Resolves the leaves that read common subplans: each becomes a plan or the scan of a shared relation.

use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{Result, plan_datafusion_err};
use datafusion_expr::LogicalPlan;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use xql_autodiff::recognize;
use xql_autodiff::vocabulary::refusals::Refused;

use super::scan::{CommonSubplan, SubplanScan};
use crate::plan::rewrite::rewrite_up;
use crate::shared_relation::SharedRelation;
use crate::vocabulary::nodes::{any_node, any_node_behind, draws_itself};
use crate::vocabulary::operators::{Operators, Recognize};

/// The common subplans that a statement reads, each with a reader of it and the number of its readers.
#[derive(Debug, Default)]
pub struct Subplans {
    readers: HashMap<*const CommonSubplan, usize>,
    /// A reader of each, those before that it reads itself.
    scans: Vec<SubplanScan>,
    /// Those that are to be computed once.
    shared: HashSet<*const CommonSubplan>,
    /// What the plan of each has become.
    resolved: HashMap<*const CommonSubplan, ResolvedSubplan>,
}

/// Returns whether a plan calls an operator anywhere.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn has_calls(plan: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    Ok(!Subplans::read_by(plan)?.operators(plan, recognize)?.is_empty())
}

/// Returns whether a plan reads a common subplan which is computed once: one that says so, and one that several places read in plans
/// that are to be differentiated, and in all where `shares_ctes` says so.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn has_shared_subplans(plan: &LogicalPlan, shares_ctes: bool) -> Result<bool> {
    let subplans = Subplans::read_by(plan)?;
    let has_several_readers = subplans.readers.values().any(|readers| *readers > 1);
    Ok(subplans.has_materialized()
        || (has_several_readers && (shares_ctes || !subplans.operators(plan, recognize)?.is_empty())))
}

/// Which common subplans are computed once. The others are written out where they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// None.
    Nothing,
    /// Those that say so: `AS MATERIALIZED`.
    Materialized,
    /// Those, and all that several places read.
    Several,
}

/// The plan that replaces the readers of a subplan.
#[derive(Debug, Clone)]
enum ResolvedSubplan {
    /// Its plan, for the only one.
    Inlined(Arc<LogicalPlan>),
    /// A relation that is computed once.
    Shared(Arc<SharedRelation>),
}

/// What is done to a plan.
type Prepare<'p> = &'p dyn Fn(LogicalPlan) -> Result<LogicalPlan>;

impl Subplans {
    /// Returns those that a plan reads, be it in another one.
    ///
    /// # Errors
    /// If a plan cannot be gone through.
    pub fn read_by(plan: &LogicalPlan) -> Result<Self> {
        let mut subplans = Self::default();
        subplans.count(plan)?;
        Ok(subplans)
    }

    /// Returns the operators that a plan calls which reads these, and that they call.
    ///
    /// # Errors
    /// If a plan cannot be gone through.
    pub fn operators(&self, plan: &LogicalPlan, recognize: Recognize) -> Result<Operators> {
        let mut operators = Operators::from_plan(plan, recognize)?;
        for scan in &self.scans {
            operators.extend(scan.subplan().plan())?;
        }
        Ok(operators)
    }

    #[recursive::recursive]
    fn count(&mut self, plan: &LogicalPlan) -> Result<()> {
        let mut found = vec![];
        plan.apply_with_subqueries(|node| {
            found.extend(SubplanScan::from_node(node).cloned());
            Ok(TreeNodeRecursion::Continue)
        })?;
        for scan in found {
            let readers = self.readers.entry(Arc::as_ptr(scan.subplan())).or_default();
            *readers += 1;
            if *readers == 1 {
                self.count(scan.subplan().plan())?;
                self.scans.push(scan);
            }
        }
        Ok(())
    }

    /// Returns whether one of them says that it is computed once.
    pub fn has_materialized(&self) -> bool {
        self.scans.iter().any(|scan| scan.subplan().is_materialized())
    }

    /// Returns the plan with a shared relation in the place of each of them that is to be computed once. The others are written out.
    ///
    /// `prepare` is done to the plan of each, once those that it reads are in it.
    ///
    /// # Errors
    /// If a plan cannot be put together again, `prepare` refuses one, or one has to draw once that is written out.
    pub fn resolve(
        mut self,
        plan: LogicalPlan,
        sharing: Sharing,
        prepare: Prepare,
    ) -> Result<Transformed<LogicalPlan>> {
        if sharing == Sharing::Nothing {
            self.check_draws()?;
        }
        self.shared = match sharing {
            Sharing::Nothing => HashSet::new(),
            Sharing::Materialized => self.keys(|subplan, _| subplan.is_materialized()),
            Sharing::Several => self.keys(|subplan, readers| subplan.is_materialized() || readers > 1),
        };
        self.rewritten(plan, prepare)
    }

    /// Refuses to write out what says that all that read it have the same draws.
    fn check_draws(&self) -> Result<()> {
        let Some(held) = self.scans.iter().find(|scan| self.is_held(scan.subplan())) else { return Ok(()) };
        for scan in &self.scans {
            if any_node(scan.subplan().plan(), |node| Ok(draws_itself(node)))? {
                return Err(Refused::UnsupportedRelation.mark(plan_datafusion_err!(
                    "{} is AS MATERIALIZED and draws random numbers once for all that read it, and it is written out while \
                     xql.share_relations is false. SET xql.share_relations = true, or keep its rows in a table",
                    held.subplan().name()
                )));
            }
        }
        Ok(())
    }

    fn keys(&self, is_wanted: impl Fn(&CommonSubplan, usize) -> bool) -> HashSet<*const CommonSubplan> {
        let subplans = self.scans.iter().map(SubplanScan::subplan);
        subplans.filter(|subplan| is_wanted(subplan, self.readers_of(subplan))).map(Arc::as_ptr).collect()
    }

    fn readers_of(&self, subplan: &Arc<CommonSubplan>) -> usize {
        self.readers.get(&Arc::as_ptr(subplan)).copied().unwrap_or_default()
    }

    /// Returns whether several places read it, and it says that these read the same rows.
    fn is_held(&self, subplan: &Arc<CommonSubplan>) -> bool {
        subplan.is_materialized() && self.readers_of(subplan) > 1
    }

    fn rewritten(&mut self, plan: LogicalPlan, prepare: Prepare) -> Result<Transformed<LogicalPlan>> {
        rewrite_up(plan, &mut |node| match SubplanScan::from_node(&node).cloned() {
            Some(scan) => self.read(&scan, prepare).map(Transformed::yes),
            None => Ok(Transformed::no(node)),
        })
    }

    /// Returns what a reader of a subplan becomes.
    #[recursive::recursive]
    fn read(&mut self, scan: &SubplanScan, prepare: Prepare) -> Result<LogicalPlan> {
        let key = Arc::as_ptr(scan.subplan());
        let resolved = match self.resolved.get(&key) {
            Some(resolved) => resolved.clone(),
            None => {
                let plan = self.rewritten(scan.plan()?, prepare)?.data;
                let resolved = match (self.shared.contains(&key), &plan) {
                    (true, LogicalPlan::SubqueryAlias(alias)) => {
                        let name = alias.alias.clone();
                        let is_held = self.is_held(scan.subplan());
                        let draws_once = is_held && any_node_behind(&plan, |node| Ok(draws_itself(node)))?;
                        ResolvedSubplan::Shared(Arc::new(SharedRelation::common(name, prepare(plan)?, draws_once)))
                    }
                    _ => ResolvedSubplan::Inlined(Arc::new(plan)),
                };
                self.resolved.insert(key, resolved.clone());
                resolved
            }
        };
        match resolved {
            ResolvedSubplan::Inlined(plan) => Ok(plan.as_ref().clone()),
            ResolvedSubplan::Shared(relation) => relation.scan(),
        }
    }
}
