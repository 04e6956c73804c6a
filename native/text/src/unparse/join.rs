//! Unparses joins in FROM.

use datafusion_common::{NullEquality, Result, plan_err};
use datafusion_expr::{Join, JoinType};
use std::sync::Arc;

use super::expressions::SelectScope;
use super::select::{FromClause, JoinEffect, Select, indent};
use super::writer::QueryWriter;
use crate::expr::{atom_sql, to_sql};
use crate::plan::is_lateral;

/// Writes a join of both inputs.
pub fn write_join(writer: &mut QueryWriter, node: &Join) -> Result<Select> {
    let left = writer.select(&node.left)?;
    let left = writer.take_relation(left);
    let is_lateral_join = is_lateral(&node.right);
    if is_lateral_join {
        writer.outer.push(vec![left.clone()]);
    }
    let right = writer.select(&node.right);
    if is_lateral_join {
        writer.outer.pop();
    }
    let right = writer.take_relation(right?);
    let inputs = [left, right];
    let conditions = write_conditions(writer, node, &inputs)?;
    let kind = join_keyword(node.join_type, conditions.is_empty())?;
    let on = if conditions.is_empty() { String::new() } else { format!(" ON {}", conditions.join(" AND ")) };
    let [left, right] = inputs;
    let right_from = right.source.sql.unwrap_or_default();
    let needs_parentheses = match right.source.join {
        None => false,
        // a × (b ⋈ c) = (a × b) ⋈ c
        Some(JoinEffect::KeepsLeftRows) => kind != "CROSS JOIN",
        Some(JoinEffect::Other) => true,
    };
    let right_from = if needs_parentheses { format!("(\n{}\n)", indent(&right_from)) } else { right_from };
    let from = format!("{}\n{kind} {right_from}{on}", left.source.sql.unwrap_or_default());
    let items = match node.join_type {
        JoinType::LeftSemi | JoinType::LeftAnti => left.items,
        JoinType::RightSemi | JoinType::RightAnti => right.items,
        _ => [left.items, right.items].concat(),
    };
    let keeps_left =
        matches!(node.join_type, JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti);
    let keeps_left_rows = keeps_left && left.source.join != Some(JoinEffect::Other) && !is_lateral_join;
    let join = Some(if keeps_left_rows { JoinEffect::KeepsLeftRows } else { JoinEffect::Other });
    let depth = left.source.depth.max(right.source.depth);
    let select = Select::new(Arc::clone(&node.schema), Some(from), items, "joined");
    Ok(Select { source: FromClause { join, depth, ..select.source }, ..select })
}

/// Writes the conditions of a join.
fn write_conditions(writer: &mut QueryWriter, node: &Join, inputs: &[Select]) -> Result<Vec<String>> {
    let mut conditions = vec![];
    let over = &mut SelectScope::from_inputs(writer, inputs);
    for (a, b) in &node.on {
        let (a, b) = (atom_sql(a, over)?, atom_sql(b, over)?);
        conditions.push(match node.null_equality {
            NullEquality::NullEqualsNothing => format!("{a} = {b}"),
            // The parser takes all that follows IS NOT DISTINCT FROM as its right operand.
            NullEquality::NullEqualsNull => format!("({a} IS NOT DISTINCT FROM {b})"),
        });
    }
    if let Some(filter) = &node.filter {
        conditions.push(if conditions.is_empty() { to_sql(filter, over)? } else { atom_sql(filter, over)? });
    }
    if conditions.is_empty() && node.join_type != JoinType::Inner {
        conditions.push("TRUE".to_owned());
    }
    Ok(conditions)
}

fn join_keyword(join_type: JoinType, is_unconditional: bool) -> Result<&'static str> {
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
