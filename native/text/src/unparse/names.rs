//! Names of columns and tables.

use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DFSchema, Result, TableReference};
use datafusion_expr::LogicalPlan;
use std::collections::HashSet;
use xql_relations::SharedRelation;

use crate::names::{first_free_name, plain_name, quote_if_needed};

/// Returns unique names for the columns of a relation.
pub fn unique_names(schema: &DFSchema) -> Vec<String> {
    unique(schema.fields().iter().map(|field| field.name().as_str()))
}

/// Makes names unique.
pub fn unique<'n>(wanted: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let names = wanted.map(|wanted| {
        let name = first_free_name(&plain_name(wanted), |name| !taken.contains(name));
        taken.insert(name.clone());
        name
    });
    names.collect()
}

/// Writes the qualified name of a table.
pub fn table_sql(name: &TableReference) -> String {
    name.to_vec().iter().map(|part| quote_if_needed(part)).collect::<Vec<_>>().join(".")
}

/// Collects the names of the tables that a plan scans.
pub fn collect_table_names(plan: &LogicalPlan, names: &mut HashSet<String>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            match SharedRelation::scanned(scan) {
                Some(relation) => collect_table_names(relation.plan(), names)?,
                None => {
                    names.insert(scan.table_name.table().to_owned());
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}
