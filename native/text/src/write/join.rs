//! Joins: two relations in FROM.

use datafusion_common::{NullEquality, Result, plan_err};
use datafusion_expr::{Join, JoinType};
use std::sync::Arc;

use super::expressions::Over;
use super::select::{FromClause, Joined, Select, indented};
use super::writer::Writer;
use crate::expr::{closed_sql, sql};
use crate::plan::is_lateral;

/// The rows of both inputs together.
pub fn join(writer: &mut Writer, node: &Join) -> Result<Select> {
    let left = writer.select(&node.left)?;
    let left = writer.relation(left);
    let reads_left = is_lateral(&node.right);
    if reads_left {
        writer.outer.push(vec![left.clone()]);
    }
    let right = writer.select(&node.right);
    if reads_left {
        writer.outer.pop();
    }
    let right = writer.relation(right?);
    let inputs = [left, right];
    let conditions = conditions(writer, node, &inputs)?;
    let kind = keyword(node.join_type, conditions.is_empty())?;
    let on = if conditions.is_empty() { String::new() } else { format!(" ON {}", conditions.join(" AND ")) };
    let [left, right] = inputs;
    let right_from = right.source.sql.unwrap_or_default();
    let needs_parentheses = match right.source.joined {
        None => false,
        // a × (b ⋈ c) = (a × b) ⋈ c
        Some(Joined::AsLeftRows) => kind != "CROSS JOIN",
        Some(Joined::Otherwise) => true,
    };
    let right_from = if needs_parentheses { format!("(\n{}\n)", indented(&right_from)) } else { right_from };
    let from = format!("{}\n{kind} {right_from}{on}", left.source.sql.unwrap_or_default());
    let items = match node.join_type {
        JoinType::LeftSemi | JoinType::LeftAnti => left.items,
        JoinType::RightSemi | JoinType::RightAnti => right.items,
        _ => [left.items, right.items].concat(),
    };
    let keeps_left =
        matches!(node.join_type, JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti);
    let is_as_left = keeps_left && left.source.joined != Some(Joined::Otherwise) && !reads_left;
    let joined = Some(if is_as_left { Joined::AsLeftRows } else { Joined::Otherwise });
    let depth = left.source.depth.max(right.source.depth);
    let select = Select::new(Arc::clone(&node.schema), Some(from), items, "joined");
    Ok(Select { source: FromClause { joined, depth, ..select.source }, ..select })
}

/// What rows of both inputs meet by.
fn conditions(writer: &mut Writer, node: &Join, inputs: &[Select]) -> Result<Vec<String>> {
    let mut conditions = vec![];
    let over = &mut Over::all(writer, inputs);
    for (a, b) in &node.on {
        let (a, b) = (closed_sql(a, over)?, closed_sql(b, over)?);
        conditions.push(match node.null_equality {
            NullEquality::NullEqualsNothing => format!("{a} = {b}"),
            // The parser takes all that follows IS NOT DISTINCT FROM for its right side.
            NullEquality::NullEqualsNull => format!("({a} IS NOT DISTINCT FROM {b})"),
        });
    }
    if let Some(filter) = &node.filter {
        conditions.push(if conditions.is_empty() { sql(filter, over)? } else { closed_sql(filter, over)? });
    }
    if conditions.is_empty() && node.join_type != JoinType::Inner {
        conditions.push("TRUE".to_owned());
    }
    Ok(conditions)
}

fn keyword(join_type: JoinType, is_unconditional: bool) -> Result<&'static str> {
    Ok(match join_type {
        JoinType::Inner if is_unconditional => "CROSS JOIN",
        JoinType::Inner => "JOIN",
        JoinType::Left => "LEFT JOIN",
        JoinType::Right => "RIGHT JOIN",
        JoinType::Full => "FULL JOIN",
        JoinType::LeftSemi => "LEFT SEMI JOIN",
        JoinType::LeftAnti => "LEFT ANTI JOIN",
        JoinType::RightSemi => "RIGHT SEMI JOIN",
        JoinType::RightAnti => "RIGHT ANTI JOIN",
        JoinType::LeftMark | JoinType::RightMark => return plan_err!("SQL text has no {join_type} join"),
    })
}
