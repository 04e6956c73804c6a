//! Joins: two relations in FROM.

use datafusion_common::{NullEquality, Result, plan_err};
use datafusion_expr::{Join, JoinType, Subquery};
use std::sync::Arc;

use super::names::unique_names;
use super::writer::Writer;
use crate::derive::is_lateral;
use crate::expr::{closed_sql, sql};
use crate::select::{Joined, Select, indented};

impl Writer<'_> {
    /// A query in FROM that reads columns of what is on the left of it.
    pub fn lateral(&mut self, node: &Subquery) -> Result<Select> {
        let select = self.select(&node.subquery)?;
        let names = unique_names(&select.schema);
        let mut written = self.derived(&select.text(&names), names, &select);
        written.from = written.from.map(|from| format!("LATERAL {from}"));
        Ok(written)
    }

    pub fn join(&mut self, node: &Join) -> Result<Select> {
        let left = self.select(&node.left)?;
        let left = self.relation(left);
        let reads_left = is_lateral(&node.right);
        if reads_left {
            self.outer.push(vec![left.clone()]);
        }
        let right = self.select(&node.right);
        if reads_left {
            self.outer.pop();
        }
        let right = self.relation(right?);
        let inputs = [left, right];
        let mut conditions = vec![];
        let equal = match node.null_equality {
            NullEquality::NullEqualsNothing => "=",
            NullEquality::NullEqualsNull => "IS NOT DISTINCT FROM",
        };
        for (a, b) in &node.on {
            let over = &mut self.over(&inputs);
            let condition = format!("{} {equal} {}", closed_sql(a, over)?, closed_sql(b, over)?);
            // The parser takes all that follows IS NOT DISTINCT FROM for its right side.
            let is_open = node.null_equality == NullEquality::NullEqualsNull;
            conditions.push(if is_open { format!("({condition})") } else { condition });
        }
        if let Some(filter) = &node.filter {
            let over = &mut self.over(&inputs);
            conditions.push(if conditions.is_empty() { sql(filter, over)? } else { closed_sql(filter, over)? });
        }
        let [left, right] = inputs;
        let kind = match node.join_type {
            JoinType::Inner if conditions.is_empty() => "CROSS JOIN",
            JoinType::Inner => "JOIN",
            JoinType::Left => "LEFT JOIN",
            JoinType::Right => "RIGHT JOIN",
            JoinType::Full => "FULL JOIN",
            JoinType::LeftSemi => "LEFT SEMI JOIN",
            JoinType::LeftAnti => "LEFT ANTI JOIN",
            JoinType::RightSemi => "RIGHT SEMI JOIN",
            JoinType::RightAnti => "RIGHT ANTI JOIN",
            JoinType::LeftMark | JoinType::RightMark => {
                return plan_err!("SQL text has no {} join", node.join_type);
            }
        };
        if conditions.is_empty() && node.join_type != JoinType::Inner {
            conditions.push("TRUE".to_owned());
        }
        let on = if conditions.is_empty() { String::new() } else { format!(" ON {}", conditions.join(" AND ")) };
        let right_from = right.from.unwrap_or_default();
        let needs_parentheses = match right.joined {
            None => false,
            // a × (b ⋈ c) = (a × b) ⋈ c
            Some(Joined::AsLeftRows) => kind != "CROSS JOIN",
            Some(Joined::Otherwise) => true,
        };
        let right_from = if needs_parentheses { format!("(\n{}\n)", indented(&right_from)) } else { right_from };
        let from = format!("{}\n{kind} {right_from}{on}", left.from.unwrap_or_default());
        let items = match node.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => left.items,
            JoinType::RightSemi | JoinType::RightAnti => right.items,
            _ => [left.items, right.items].concat(),
        };
        let depth = left.depth.max(right.depth);
        let joined = match node.join_type {
            JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
                if left.joined != Some(Joined::Otherwise) && !reads_left =>
            {
                Joined::AsLeftRows
            }
            _ => Joined::Otherwise,
        };
        Ok(Select { joined: Some(joined), depth, ..Select::new(Arc::clone(&node.schema), Some(from), items, "joined") })
    }
}
