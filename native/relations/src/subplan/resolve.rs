//! What becomes of the leaves that read common subplans.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_expr::LogicalPlan;
use std::collections::HashMap;
use std::sync::Arc;
use xql_autodiff::recognize;

use super::scan::{CommonSubplan, SubplanScan};
use crate::plan::rewrite::rewrite_up;
use crate::shared::SharedRelation;
use crate::vocabulary::operators::{Operators, Recognize};

/// The common subplans that a statement reads, each with a reader of it and the number of its readers.
#[derive(Debug, Default)]
pub struct Subplans {
    readers: HashMap<*const CommonSubplan, usize>,
    /// A reader of each, those before that it reads itself.
    scans: Vec<SubplanScan>,
    /// What the plan of each has become.
    resolved: HashMap<*const CommonSubplan, Resolved>,
}

/// Whether a plan calls an operator anywhere.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn has_calls(plan: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    Ok(!Subplans::read_by(plan)?.operators(plan, recognize)?.is_empty())
}

/// Whether a plan reads a common subplan at several places which is then computed once: in plans that are to be differentiated, and in
/// all where `shares_ctes` says so.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn has_shared_subplans(plan: &LogicalPlan, shares_ctes: bool) -> Result<bool> {
    let subplans = Subplans::read_by(plan)?;
    let has_several_readers = subplans.readers.values().any(|readers| *readers > 1);
    Ok(has_several_readers && (shares_ctes || !subplans.operators(plan, recognize)?.is_empty()))
}

/// What stands for the readers of a subplan.
#[derive(Debug, Clone)]
enum Resolved {
    /// Its plan, for the only one.
    Inlined(Arc<LogicalPlan>),
    /// A relation that is computed once.
    Shared(Arc<SharedRelation>),
}

/// What is done to a plan.
type Prepare<'p> = &'p dyn Fn(LogicalPlan) -> Result<LogicalPlan>;

impl Subplans {
    /// Those that a plan reads, be it in another one.
    ///
    /// # Errors
    /// If a plan cannot be gone through.
    pub fn read_by(plan: &LogicalPlan) -> Result<Self> {
        let mut subplans = Self::default();
        subplans.count(plan)?;
        Ok(subplans)
    }

    /// The operators that a plan calls which reads these, and that they call.
    ///
    /// # Errors
    /// If a plan cannot be gone through.
    pub fn operators(&self, plan: &LogicalPlan, recognize: Recognize) -> Result<Operators> {
        let mut operators = Operators::of(plan, recognize)?;
        for scan in &self.scans {
            operators.extend(scan.subplan().plan())?;
        }
        Ok(operators)
    }

    #[recursive::recursive]
    fn count(&mut self, plan: &LogicalPlan) -> Result<()> {
        let mut found = vec![];
        plan.apply_with_subqueries(|node| {
            found.extend(SubplanScan::of(node).cloned());
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

    /// The plan with each of them written out where it is read.
    ///
    /// # Errors
    /// If a plan cannot be put together again.
    pub fn inlined(mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        self.readers.clear();
        self.rewritten(plan, &Ok)
    }

    /// The plan with a shared relation in the place of each of them that several places read. The others are written out.
    ///
    /// `prepare` is done to the plan of each, once those that it reads are in it.
    ///
    /// # Errors
    /// If a plan cannot be put together again, or `prepare` refuses one.
    pub fn shared(mut self, plan: LogicalPlan, prepare: Prepare) -> Result<Transformed<LogicalPlan>> {
        self.rewritten(plan, prepare)
    }

    fn rewritten(&mut self, plan: LogicalPlan, prepare: Prepare) -> Result<Transformed<LogicalPlan>> {
        rewrite_up(plan, &mut |node| match SubplanScan::of(&node).cloned() {
            Some(scan) => self.read(&scan, prepare).map(Transformed::yes),
            None => Ok(Transformed::no(node)),
        })
    }

    /// What a reader of a subplan becomes.
    #[recursive::recursive]
    fn read(&mut self, scan: &SubplanScan, prepare: Prepare) -> Result<LogicalPlan> {
        let key = Arc::as_ptr(scan.subplan());
        let resolved = match self.resolved.get(&key) {
            Some(resolved) => resolved.clone(),
            None => {
                let plan = self.rewritten(scan.plan()?, prepare)?.data;
                let is_shared = self.readers.get(&key).is_some_and(|readers| *readers > 1);
                let resolved = match (is_shared, &plan) {
                    (true, LogicalPlan::SubqueryAlias(alias)) => {
                        let name = alias.alias.clone();
                        Resolved::Shared(Arc::new(SharedRelation::common(name, prepare(plan)?)))
                    }
                    _ => Resolved::Inlined(Arc::new(plan)),
                };
                self.resolved.insert(key, resolved.clone());
                resolved
            }
        };
        match resolved {
            Resolved::Inlined(plan) => Ok(plan.as_ref().clone()),
            Resolved::Shared(relation) => relation.scan(),
        }
    }
}
