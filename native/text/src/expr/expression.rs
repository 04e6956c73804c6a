//! Operators, calls and queries in expressions.

use arrow::datatypes::DataType;
use datafusion_common::{Column, Result, ScalarValue, plan_err};
use datafusion_expr::expr::{
    AggregateFunction, AggregateFunctionParams, Case, Cast, InList, NullTreatment, Sort, WindowFunction,
    WindowFunctionParams,
};
use datafusion_expr::{
    BinaryExpr, Expr, GroupingSet, Like, LogicalPlan, Operator, WindowFrame, WindowFrameBound, WindowFrameUnits,
};

use super::binding::{Binding, Text};
use super::literals::{cast_sql, is_constant, literal, type_sql};
use crate::names::{CONVERTED, quoted_if_needed};

/// What an expression stands in: the names of its columns, and the text of the queries inside of it.
pub trait Surroundings {
    /// A column of the relations in FROM.
    fn column(&mut self, column: &Column) -> Result<String>;

    /// A column of a query around this one.
    fn outer_column(&mut self, column: &Column) -> Result<String>;

    /// A query in parentheses.
    fn query(&mut self, plan: &LogicalPlan) -> Result<String>;
}

/// The text of an expression where a whole expression may stand.
pub fn sql(expr: &Expr, around: &mut dyn Surroundings) -> Result<String> {
    Ok(text(expr, around)?.sql)
}

/// The text of an expression where it may be an operand of anything.
pub fn closed_sql(expr: &Expr, around: &mut dyn Surroundings) -> Result<String> {
    Ok(text(expr, around)?.within(Binding::Closed))
}

/// The text of an expression, and how tightly it binds.
pub fn bound_sql(expr: &Expr, around: &mut dyn Surroundings) -> Result<(String, Binding)> {
    let text = text(expr, around)?;
    Ok((text.sql, text.binding))
}

/// The text of what a query is ordered by.
pub fn order_sql(sort: &Sort, around: &mut dyn Surroundings) -> Result<String> {
    let direction = if sort.asc { "" } else { " DESC" };
    // By default NULL is the largest value.
    let nulls = match (sort.asc, sort.nulls_first) {
        (true, true) => " NULLS FIRST",
        (false, false) => " NULLS LAST",
        _ => "",
    };
    let key = sql(&sort.expr, around)?;
    let key = if is_constant(&key) { format!("({key})") } else { key };
    Ok(format!("{key}{direction}{nulls}"))
}

#[recursive::recursive]
fn text(expr: &Expr, around: &mut dyn Surroundings) -> Result<Text> {
    Ok(match expr {
        Expr::Alias(alias) => text(&alias.expr, around)?,
        Expr::Column(column) => Text::closed(around.column(column)?),
        Expr::OuterReferenceColumn(_, column) => Text::closed(around.outer_column(column)?),
        Expr::Literal(value, _) => literal(value)?,
        Expr::Placeholder(placeholder) => Text::closed(placeholder.id.clone()),
        Expr::BinaryExpr(binary) => operation(binary, around)?,
        Expr::Not(inside) => Text::at(Binding::Not, format!("NOT {}", operand(inside, around)?)),
        Expr::Negative(inside) => Text::at(Binding::Sign, format!("-{}", operand(inside, around)?)),
        Expr::Case(case) => self::case(case, around)?,
        Expr::Cast(Cast { expr, field }) => Text::closed(cast_sql(&sql(expr, around)?, field.data_type())),
        Expr::TryCast(cast) => {
            let (value, kind) = (sql(&cast.expr, around)?, type_sql(cast.field.data_type())?);
            Text::closed(format!("TRY_CAST({value} AS {kind})"))
        }
        Expr::ScalarFunction(call) if call.func.name() == CONVERTED && call.args.len() == 1 => {
            text(&call.args[0], around)?
        }
        Expr::ScalarFunction(call) => {
            Text::closed(format!("{}({})", quoted_if_needed(call.func.name()), arguments(&call.args, around)?))
        }
        Expr::AggregateFunction(call) => aggregate(call, around)?,
        Expr::WindowFunction(call) => window(call, around)?,
        Expr::ScalarSubquery(subquery) => Text::closed(around.query(&subquery.subquery)?),
        Expr::Exists(exists) => {
            let query = around.query(&exists.subquery.subquery)?;
            if exists.negated {
                Text::at(Binding::Not, format!("NOT EXISTS {query}"))
            } else {
                Text::closed(format!("EXISTS {query}"))
            }
        }
        Expr::GroupingSet(sets) => Text::closed(grouping_sets(sets, around)?),
        other => match comparison(other, around)? {
            Some(sql) => Text::at(Binding::Comparison, sql),
            None => {
                return plan_err!(
                    "{other} cannot be written as text: {} has no form in SQL here",
                    other.variant_name()
                );
            }
        },
    })
}

/// A test of a value, if an expression is one that has no operator of its own kind.
fn comparison(expr: &Expr, around: &mut dyn Surroundings) -> Result<Option<String>> {
    let (inside, test) = match expr {
        Expr::IsNull(inside) => (inside, "IS NULL"),
        Expr::IsNotNull(inside) => (inside, "IS NOT NULL"),
        Expr::IsTrue(inside) => (inside, "IS TRUE"),
        Expr::IsNotTrue(inside) => (inside, "IS NOT TRUE"),
        Expr::IsFalse(inside) => (inside, "IS FALSE"),
        Expr::IsNotFalse(inside) => (inside, "IS NOT FALSE"),
        Expr::IsUnknown(inside) => (inside, "IS UNKNOWN"),
        Expr::IsNotUnknown(inside) => (inside, "IS NOT UNKNOWN"),
        Expr::Between(between) => {
            let not = if between.negated { "NOT " } else { "" };
            let value = text(&between.expr, around)?.within(Binding::Sum);
            let low = text(&between.low, around)?.within(Binding::Sum);
            let high = text(&between.high, around)?.within(Binding::Sum);
            return Ok(Some(format!("{value} {not}BETWEEN {low} AND {high}")));
        }
        Expr::Like(like) => {
            return pattern(like, if like.case_insensitive { "ILIKE" } else { "LIKE" }, around).map(Some);
        }
        Expr::SimilarTo(like) => return pattern(like, "SIMILAR TO", around).map(Some),
        Expr::InList(InList { expr, list, negated }) => {
            let not = if *negated { "NOT " } else { "" };
            return Ok(Some(format!("{} {not}IN ({})", operand(expr, around)?, listed(list, around)?)));
        }
        Expr::InSubquery(is_in) => {
            let not = if is_in.negated { "NOT " } else { "" };
            let value = operand(&is_in.expr, around)?;
            return Ok(Some(format!("{value} {not}IN {}", around.query(&is_in.subquery.subquery)?)));
        }
        _ => return Ok(None),
    };
    Ok(Some(format!("{} {test}", operand(inside, around)?)))
}

fn operand(expr: &Expr, around: &mut dyn Surroundings) -> Result<String> {
    Ok(text(expr, around)?.within(Binding::Closed))
}

/// Expressions with commas between them.
pub fn listed(exprs: &[Expr], around: &mut dyn Surroundings) -> Result<String> {
    Ok(exprs.iter().map(|expr| sql(expr, around)).collect::<Result<Vec<_>>>()?.join(", "))
}

/// What a function is called with, without the conversions to texts that the planner adds.
fn arguments(args: &[Expr], around: &mut dyn Surroundings) -> Result<String> {
    Ok(args.iter().map(|arg| sql(unconverted(arg), around)).collect::<Result<Vec<_>>>()?.join(", "))
}

/// An operation. What is nested on the left is written from its first operand on: `((a + b) + c) + d` may be of any length.
fn operation(binary: &BinaryExpr, around: &mut dyn Surroundings) -> Result<Text> {
    let mut nested = vec![binary];
    let mut first = binary.left.as_ref();
    while let Expr::BinaryExpr(left) = first {
        nested.push(left);
        first = &left.left;
    }
    // The planner makes texts of what || joins by itself.
    let joined = |operator, expr| if operator == Operator::StringConcat { unconverted(expr) } else { expr };
    first = joined(nested[nested.len() - 1].op, first);
    let is_wrapped = |pair: &[&BinaryExpr]| bindings(pair[1].op).0 < bindings(pair[0].op).1;
    let innermost = bindings(nested[nested.len() - 1].op);
    let mut sql = "(".repeat(nested.windows(2).filter(|pair| is_wrapped(pair)).count());
    sql += &text(first, around)?.within(innermost.1);
    for (depth, part) in nested.iter().enumerate().rev() {
        let right = text(joined(part.op, &part.right), around)?.within(bindings(part.op).2);
        sql += &format!(" {} {right}", operator(part.op));
        if depth > 0 && is_wrapped(&nested[depth - 1..=depth]) {
            sql.push(')');
        }
    }
    Ok(Text::at(bindings(binary.op).0, sql))
}

/// An expression without a conversion to the kind of texts that has no name in SQL, to which only the planner converts.
fn unconverted(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) if *cast.field.data_type() == DataType::Utf8 => &cast.expr,
        other => other,
    }
}

/// How tightly an operator binds, and its operands on the left and on the right have to at least.
fn bindings(operator: Operator) -> (Binding, Binding, Binding) {
    use Binding::{And, Closed, Comparison, Open, Or, Product, Sign, Sum};
    match operator {
        Operator::Or => (Or, Or, And),
        Operator::And => (And, And, Binding::Not),
        Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
            (Comparison, Sum, Sum)
        }
        Operator::Plus | Operator::Minus => (Sum, Sum, Product),
        Operator::Multiply | Operator::Divide | Operator::Modulo => (Product, Product, Sign),
        Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => (Open, Closed, Closed),
        _ => (Comparison, Closed, Closed),
    }
}

fn operator(operator: Operator) -> String {
    match operator {
        Operator::NotEq => "<>".to_owned(),
        // What a plan shows for it is no SQL.
        Operator::BitwiseXor => "^".to_owned(),
        operator => operator.to_string(),
    }
}

fn pattern(like: &Like, operator: &str, around: &mut dyn Surroundings) -> Result<String> {
    let not = if like.negated { "NOT " } else { "" };
    let (value, pattern) = (operand(&like.expr, around)?, operand(&like.pattern, around)?);
    let escape = match like.escape_char {
        Some('\'') => " ESCAPE ''''".to_owned(),
        Some(character) => format!(" ESCAPE '{character}'"),
        None => String::new(),
    };
    Ok(format!("{value} {not}{operator} {pattern}{escape}"))
}

fn case(case: &Case, around: &mut dyn Surroundings) -> Result<Text> {
    let mut written = "CASE".to_owned();
    if let Some(operand) = &case.expr {
        written += &format!(" {}", sql(operand, around)?);
    }
    for (when, then) in &case.when_then_expr {
        written += &format!(" WHEN {} THEN {}", sql(when, around)?, sql(then, around)?);
    }
    if let Some(otherwise) = &case.else_expr {
        written += &format!(" ELSE {}", sql(otherwise, around)?);
    }
    Ok(Text::closed(written + " END"))
}

fn aggregate(call: &AggregateFunction, around: &mut dyn Surroundings) -> Result<Text> {
    let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = &call.params;
    let within_group = call.func.supports_within_group_clause() && !order_by.is_empty();
    // The first argument of a percentile is what it is ordered by.
    let args = if within_group { args.get(1..).unwrap_or_default() } else { args };
    let mut written = format!(
        "{}({}{}",
        quoted_if_needed(call.func.name()),
        if *distinct { "DISTINCT " } else { "" },
        arguments(args, around)?
    );
    if !order_by.is_empty() && !within_group {
        written += &format!(" ORDER BY {}", ordered(order_by, around)?);
    }
    written += ")";
    if within_group {
        written += &format!(" WITHIN GROUP (ORDER BY {})", ordered(order_by, around)?);
    }
    written += treatment(*null_treatment);
    if let Some(filter) = filter {
        written += &format!(" FILTER (WHERE {})", sql(filter, around)?);
    }
    Ok(Text::closed(written))
}

fn treatment(treatment: Option<NullTreatment>) -> &'static str {
    match treatment {
        Some(NullTreatment::IgnoreNulls) => " IGNORE NULLS",
        Some(NullTreatment::RespectNulls) => " RESPECT NULLS",
        None => "",
    }
}

fn ordered(order_by: &[Sort], around: &mut dyn Surroundings) -> Result<String> {
    Ok(order_by.iter().map(|key| order_sql(key, around)).collect::<Result<Vec<_>>>()?.join(", "))
}

fn window(call: &WindowFunction, around: &mut dyn Surroundings) -> Result<Text> {
    let WindowFunctionParams { args, partition_by, order_by, window_frame, filter, null_treatment, distinct } =
        &call.params;
    let mut written = format!(
        "{}({}{})",
        quoted_if_needed(call.fun.name()),
        if *distinct { "DISTINCT " } else { "" },
        arguments(args, around)?
    );
    written += treatment(*null_treatment);
    if let Some(filter) = filter {
        written += &format!(" FILTER (WHERE {})", sql(filter, around)?);
    }
    let mut over = vec![];
    if !partition_by.is_empty() {
        over.push(format!("PARTITION BY {}", listed(partition_by, around)?));
    }
    if !order_by.is_empty() {
        over.push(format!("ORDER BY {}", ordered(order_by, around)?));
    }
    // What a window has that names no frame.
    let unnamed = WindowFrame::new((!order_by.is_empty()).then_some(false));
    if *window_frame != unnamed {
        over.push(frame(window_frame)?);
    }
    Ok(Text::closed(format!("{written} OVER ({})", over.join(" "))))
}

fn frame(frame: &WindowFrame) -> Result<String> {
    let units = match frame.units {
        WindowFrameUnits::Rows => "ROWS",
        WindowFrameUnits::Range => "RANGE",
        WindowFrameUnits::Groups => "GROUPS",
    };
    let bound = |bound: &WindowFrameBound| -> Result<String> {
        let distance = |value: &ScalarValue, side: &str| match value {
            value if value.is_null() => Ok(format!("UNBOUNDED {side}")),
            value if value.data_type().is_integer() => Ok(format!("{value} {side}")),
            value => Ok(format!("{} {side}", literal(value)?.sql)),
        };
        match bound {
            WindowFrameBound::Preceding(value) => distance(value, "PRECEDING"),
            WindowFrameBound::CurrentRow => Ok("CURRENT ROW".to_owned()),
            WindowFrameBound::Following(value) => distance(value, "FOLLOWING"),
        }
    };
    Ok(format!("{units} BETWEEN {} AND {}", bound(&frame.start_bound)?, bound(&frame.end_bound)?))
}

/// What rows are grouped by where there are several groupings.
pub fn grouping_sets(sets: &GroupingSet, around: &mut dyn Surroundings) -> Result<String> {
    Ok(match sets {
        GroupingSet::Rollup(keys) => format!("ROLLUP ({})", listed(keys, around)?),
        GroupingSet::Cube(keys) => format!("CUBE ({})", listed(keys, around)?),
        GroupingSet::GroupingSets(sets) => {
            let sets = sets.iter().map(|set| Ok(format!("({})", listed(set, around)?)));
            format!("GROUPING SETS ({})", sets.collect::<Result<Vec<_>>>()?.join(", "))
        }
    })
}
