//! Which names are those of derived tables.
//!
//! A plan has the same node for `WITH q AS (...) ... FROM q` and for `FROM (...) AS q`. Only the planner of SQL knows that no other query
//! can read the second one. It notes the name, which plans share however often they are rewritten.

use datafusion_common::{Column, Result, TableReference};
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use sqlparser::ast::{TableAlias, TableFactor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// The names of derived tables by their addresses, which are theirs as long as they are here.
#[derive(Default)]
struct Names {
    noted: HashMap<usize, (Weak<str>, NameKind)>,
    /// With so many, those that no plan has any longer are forgotten.
    full: usize,
}

/// What a name is known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// That of a derived table.
    Derived,
    /// That of a derived table, or of a CTE or view: only the plan of the statement is known, and not its text.
    Unsure,
}

static NAMES: OnceLock<Mutex<Names>> = OnceLock::new();

fn address(name: &Arc<str>) -> usize {
    Arc::as_ptr(name).cast::<u8>() as usize
}

fn note(name: &Arc<str>, kind: NameKind) {
    let mut names = NAMES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if names.noted.len() >= names.full {
        names.noted.retain(|_, (name, _)| name.strong_count() > 0);
        names.full = 2 * names.noted.len().max(512);
    }
    names.noted.insert(address(name), (Arc::downgrade(name), kind));
}

/// Returns what a name is, if it is not that of a CTE or view: a derived table that [`DerivedTables`] has planned, or one of
/// [`noted_name`].
pub fn kind_of(alias: &TableReference) -> Option<NameKind> {
    let TableReference::Bare { table } = alias else { return None };
    let names = NAMES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    names.noted.get(&address(table)).map(|(_, kind)| *kind)
}

/// Returns a name of which this is known, for whoever has a plan that was not made by the planner of derived tables here.
pub fn noted_name(name: &str, kind: NameKind) -> TableReference {
    let table: Arc<str> = name.into();
    note(&table, kind);
    TableReference::Bare { table }
}

/// Plans derived tables as DataFusion does, and notes their names.
#[derive(Debug)]
pub struct DerivedTables;

impl RelationPlanner for DerivedTables {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (TableFactor::Derived { lateral: false, alias: Some(alias @ TableAlias { at: None, .. }), .. }, as_written) =
            (&relation, &relation)
        else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let alias = alias.clone();
        let mut plain = as_written.clone();
        if let TableFactor::Derived { alias, .. } = &mut plain {
            *alias = None;
        }
        let plan = context.plan(plain)?;
        let width = plan.schema().fields().len();
        if !alias.columns.is_empty() && alias.columns.len() != width {
            // DataFusion says what is wrong.
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let names: Vec<_> = alias.columns.into_iter().map(|column| context.normalize_ident(column.name)).collect();
        let table: Arc<str> = context.normalize_ident(alias.name).into();
        note(&table, NameKind::Derived);
        let plan = with_names(plan, names)?;
        let plan = LogicalPlanBuilder::from(plan).alias(TableReference::Bare { table })?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

/// Returns the plan with these names of its columns, if there are any.
fn with_names(plan: LogicalPlan, names: Vec<String>) -> Result<LogicalPlan> {
    if names.is_empty() {
        return Ok(plan);
    }
    let fields = plan.schema().fields().clone();
    let columns = fields.iter().map(|field| Expr::Column(Column::new_unqualified(field.name())));
    let renamed = columns.zip(names).map(|(column, name)| column.alias(name));
    LogicalPlanBuilder::from(plan).project(renamed)?.build()
}
