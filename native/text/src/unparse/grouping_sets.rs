//! Duplicate grouping sets.

use datafusion_common::Result;
use datafusion_expr::GroupingSet;
use std::collections::HashMap;

use super::names::unique;
use super::select::{Item, Select};
use super::writer::QueryWriter;
use crate::expr::{Scope, grouping_sets_sql, list_sql};

/// For each grouping set, how many sets before it are equal.
///
/// DataFusion distinguishes the rows of equal sets only by position. In text the sets get further constant keys: `GROUPING SETS ((k), (k))`
/// becomes `GROUPING SETS ((k), (k, again))`.
#[derive(Default)]
pub struct DuplicateSets(Vec<usize>);

impl DuplicateSets {
    /// Counts the duplicates of grouping sets.
    pub fn from_sets(sets: &GroupingSet) -> Self {
        let GroupingSet::GroupingSets(sets) = sets else { return Self::default() };
        let mut seen: HashMap<Vec<String>, usize> = HashMap::new();
        let places = sets.iter().map(|set| {
            let mut keys: Vec<_> = set.iter().map(ToString::to_string).collect();
            keys.sort();
            keys.dedup();
            let count = seen.entry(keys).or_default();
            *count += 1;
            *count - 1
        });
        Self(places.collect())
    }

    /// Adds constant columns to the input of an aggregation, one for each duplicate.
    pub fn add_markers(&self, writer: &mut QueryWriter, input: &mut Select) -> Vec<Item> {
        let count = self.0.iter().copied().max().unwrap_or(0);
        if count == 0 {
            return vec![];
        }
        let mut marked = writer.take_relation(input.clone());
        let width = marked.items.len();
        let known = marked.schema.fields().iter().map(|field| field.name().as_str());
        let names = unique(known.chain(std::iter::repeat_n("again", count)));
        let one = Item { sql: "1".to_owned(), name: None, is_simple: true, is_volatile: false };
        marked.items.extend(std::iter::repeat_n(one, count));
        *input = writer.derived_table(&marked.to_sql(&names), names, &marked);
        input.items[width..].to_vec()
    }

    /// Writes the sets, each with as many markers as it has predecessors.
    pub fn to_sql(&self, sets: &GroupingSet, markers: &[Item], scope: &mut dyn Scope) -> Result<String> {
        let GroupingSet::GroupingSets(listed_sets) = sets else { return grouping_sets_sql(sets, scope) };
        let mut written = vec![];
        for (set, repeated) in listed_sets.iter().zip(&self.0) {
            let mut keys = vec![];
            if !set.is_empty() {
                keys.push(list_sql(set, scope)?);
            }
            keys.extend(markers[..*repeated].iter().map(|marker| marker.sql.clone()));
            written.push(format!("({})", keys.join(", ")));
        }
        Ok(format!("GROUPING SETS ({})", written.join(", ")))
    }

    /// Writes DataFusion's grouping identifier: a bit for each key that is not in the set, and above these the number of the duplicate.
    pub fn grouping_id_sql(keys: &[Item], markers: &[Item]) -> String {
        let mut number = match keys {
            [] => "0".to_owned(),
            keys => format!("grouping({})", keys.iter().map(|key| key.sql.as_str()).collect::<Vec<_>>().join(", ")),
        };
        for marker in markers {
            number += &format!(" + {} * (1 - grouping({}))", 1_u64 << keys.len(), marker.sql);
        }
        number
    }
}
