//! Operators, calls and subqueries as text.

use arrow::datatypes::DataType;
use datafusion_common::{Column, Result, ScalarValue, plan_err};
use datafusion_expr::expr::{
    AggregateFunction, AggregateFunctionParams, Case, Cast, InList, NullTreatment, Sort, WindowFunction,
    WindowFunctionParams,
};
use datafusion_expr::{
    BinaryExpr, Expr, GroupingSet, Like, LogicalPlan, Operator, WindowFrame, WindowFrameBound, WindowFrameUnits,
};

use super::literals::{cast_sql, is_constant, literal_sql, type_sql};
use super::precedence::{Precedence, SqlText};
use crate::names::{IMPLICIT_CAST, quote_if_needed};

/// The scope of an expression: how its columns are named, and how subqueries are written.
pub trait Scope {
    /// Returns the name of a column of the relations in FROM.
    fn column(&mut self, column: &Column) -> Result<String>;

    /// Returns the name of a column of an outer query.
    fn outer_column(&mut self, column: &Column) -> Result<String>;

    /// Writes a subquery in parentheses.
    fn query(&mut self, plan: &LogicalPlan) -> Result<String>;
}

/// Writes an expression.
pub fn to_sql(expr: &Expr, scope: &mut dyn Scope) -> Result<String> {
    Ok(write_expr(expr, scope)?.sql)
}

/// Writes an expression as an operand of any operator.
pub fn atom_sql(expr: &Expr, scope: &mut dyn Scope) -> Result<String> {
    Ok(write_expr(expr, scope)?.parenthesize(Precedence::Atom))
}

/// Writes an expression, and returns its precedence.
pub fn sql_with_precedence(expr: &Expr, scope: &mut dyn Scope) -> Result<(String, Precedence)> {
    let text = write_expr(expr, scope)?;
    Ok((text.sql, text.precedence))
}

/// Writes a key of ORDER BY.
pub fn order_sql(sort: &Sort, scope: &mut dyn Scope) -> Result<String> {
    let direction = if sort.asc { "" } else { " DESC" };
    // By default NULL is the largest value.
    let nulls = match (sort.asc, sort.nulls_first) {
        (true, true) => " NULLS FIRST",
        (false, false) => " NULLS LAST",
        _ => "",
    };
    let key = to_sql(&sort.expr, scope)?;
    let key = if is_constant(&key) { format!("({key})") } else { key };
    Ok(format!("{key}{direction}{nulls}"))
}

#[recursive::recursive]
fn write_expr(expr: &Expr, scope: &mut dyn Scope) -> Result<SqlText> {
    Ok(match expr {
        Expr::Alias(alias) => write_expr(&alias.expr, scope)?,
        Expr::Column(column) => SqlText::atom(scope.column(column)?),
        Expr::OuterReferenceColumn(_, column) => SqlText::atom(scope.outer_column(column)?),
        Expr::Literal(value, _) => literal_sql(value)?,
        Expr::Placeholder(placeholder) => SqlText::atom(placeholder.id.clone()),
        Expr::BinaryExpr(binary) => write_binary(binary, scope)?,
        Expr::Not(inside) => SqlText::new(Precedence::Not, format!("NOT {}", write_operand(inside, scope)?)),
        Expr::Negative(inside) => SqlText::new(Precedence::Sign, format!("-{}", write_operand(inside, scope)?)),
        Expr::Case(case) => write_case(case, scope)?,
        Expr::Cast(Cast { expr, field }) => SqlText::atom(cast_sql(&to_sql(expr, scope)?, field.data_type())),
        Expr::TryCast(cast) => {
            let (value, kind) = (to_sql(&cast.expr, scope)?, type_sql(cast.field.data_type())?);
            SqlText::atom(format!("TRY_CAST({value} AS {kind})"))
        }
        Expr::ScalarFunction(call) if call.func.name() == IMPLICIT_CAST && call.args.len() == 1 => {
            write_expr(&call.args[0], scope)?
        }
        Expr::ScalarFunction(call) => {
            SqlText::atom(format!("{}({})", quote_if_needed(call.func.name()), arguments_sql(&call.args, scope)?))
        }
        Expr::AggregateFunction(call) => write_aggregate_call(call, scope)?,
        Expr::WindowFunction(call) => write_window_call(call, scope)?,
        Expr::ScalarSubquery(subquery) => SqlText::atom(scope.query(&subquery.subquery)?),
        Expr::Exists(exists) => {
            let query = scope.query(&exists.subquery.subquery)?;
            if exists.negated {
                SqlText::new(Precedence::Not, format!("NOT EXISTS {query}"))
            } else {
                SqlText::atom(format!("EXISTS {query}"))
            }
        }
        Expr::GroupingSet(sets) => SqlText::atom(grouping_sets_sql(sets, scope)?),
        other => match write_comparison(other, scope)? {
            Some(sql) => SqlText::new(Precedence::Comparison, sql),
            None => {
                return plan_err!(
                    "{other} cannot be written as text: {} has no form in SQL here",
                    other.variant_name()
                );
            }
        },
    })
}

/// Writes a predicate that has no operator of its own kind, `None` if the expression is none.
fn write_comparison(expr: &Expr, scope: &mut dyn Scope) -> Result<Option<String>> {
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
            let value = write_expr(&between.expr, scope)?.parenthesize(Precedence::Sum);
            let low = write_expr(&between.low, scope)?.parenthesize(Precedence::Sum);
            let high = write_expr(&between.high, scope)?.parenthesize(Precedence::Sum);
            return Ok(Some(format!("{value} {not}BETWEEN {low} AND {high}")));
        }
        Expr::Like(like) => {
            return write_pattern(like, if like.case_insensitive { "ILIKE" } else { "LIKE" }, scope).map(Some);
        }
        Expr::SimilarTo(like) => return write_pattern(like, "SIMILAR TO", scope).map(Some),
        Expr::InList(InList { expr, list, negated }) => {
            let not = if *negated { "NOT " } else { "" };
            return Ok(Some(format!("{} {not}IN ({})", write_operand(expr, scope)?, list_sql(list, scope)?)));
        }
        Expr::InSubquery(is_in) => {
            let not = if is_in.negated { "NOT " } else { "" };
            let value = write_operand(&is_in.expr, scope)?;
            return Ok(Some(format!("{value} {not}IN {}", scope.query(&is_in.subquery.subquery)?)));
        }
        _ => return Ok(None),
    };
    Ok(Some(format!("{} {test}", write_operand(inside, scope)?)))
}

fn write_operand(expr: &Expr, scope: &mut dyn Scope) -> Result<String> {
    Ok(write_expr(expr, scope)?.parenthesize(Precedence::Atom))
}

/// Writes a list of expressions.
pub fn list_sql(exprs: &[Expr], scope: &mut dyn Scope) -> Result<String> {
    Ok(exprs.iter().map(|expr| to_sql(expr, scope)).collect::<Result<Vec<_>>>()?.join(", "))
}

/// Writes the arguments of a function, without the casts to text that the planner adds.
fn arguments_sql(args: &[Expr], scope: &mut dyn Scope) -> Result<String> {
    Ok(args.iter().map(|arg| to_sql(strip_text_cast(arg), scope)).collect::<Result<Vec<_>>>()?.join(", "))
}

/// Writes a binary operation. A left-nested chain such as `((a + b) + c) + d` may be of any length, so it is written iteratively.
fn write_binary(binary: &BinaryExpr, scope: &mut dyn Scope) -> Result<SqlText> {
    let mut nested = vec![binary];
    let mut first = binary.left.as_ref();
    while let Expr::BinaryExpr(left) = first {
        nested.push(left);
        first = &left.left;
    }
    // The planner casts the operands of || to text by itself.
    let unconvert = |operator, expr| if operator == Operator::StringConcat { strip_text_cast(expr) } else { expr };
    first = unconvert(nested[nested.len() - 1].op, first);
    let is_wrapped = |pair: &[&BinaryExpr]| precedences(pair[1].op).0 < precedences(pair[0].op).1;
    let innermost = precedences(nested[nested.len() - 1].op);
    let mut sql = "(".repeat(nested.windows(2).filter(|pair| is_wrapped(pair)).count());
    sql += &write_expr(first, scope)?.parenthesize(innermost.1);
    for (depth, part) in nested.iter().enumerate().rev() {
        let right = write_expr(unconvert(part.op, &part.right), scope)?.parenthesize(precedences(part.op).2);
        sql += &format!(" {} {right}", operator_sql(part.op));
        if depth > 0 && is_wrapped(&nested[depth - 1..=depth]) {
            sql.push(')');
        }
    }
    Ok(SqlText::new(precedences(binary.op).0, sql))
}

/// Removes a cast to the text type that has no name in SQL, which only the planner adds.
fn strip_text_cast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) if *cast.field.data_type() == DataType::Utf8 => &cast.expr,
        other => other,
    }
}

/// Returns the precedence of an operator, and the lowest ones that its left and right operands may have.
fn precedences(operator: Operator) -> (Precedence, Precedence, Precedence) {
    use Precedence::{And, Atom, Comparison, Open, Or, Product, Sign, Sum};
    match operator {
        Operator::Or => (Or, Or, And),
        Operator::And => (And, And, Precedence::Not),
        Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
            (Comparison, Sum, Sum)
        }
        Operator::Plus | Operator::Minus => (Sum, Sum, Product),
        Operator::Multiply | Operator::Divide | Operator::Modulo => (Product, Product, Sign),
        Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => (Open, Atom, Atom),
        _ => (Comparison, Atom, Atom),
    }
}

fn operator_sql(operator: Operator) -> String {
    match operator {
        Operator::NotEq => "<>".to_owned(),
        // Its form in a plan is no SQL.
        Operator::BitwiseXor => "^".to_owned(),
        operator => operator.to_string(),
    }
}

fn write_pattern(like: &Like, operator: &str, scope: &mut dyn Scope) -> Result<String> {
    let not = if like.negated { "NOT " } else { "" };
    let (value, pattern) = (write_operand(&like.expr, scope)?, write_operand(&like.pattern, scope)?);
    let escape = match like.escape_char {
        Some('\'') => " ESCAPE ''''".to_owned(),
        Some(character) => format!(" ESCAPE '{character}'"),
        None => String::new(),
    };
    Ok(format!("{value} {not}{operator} {pattern}{escape}"))
}

fn write_case(case: &Case, scope: &mut dyn Scope) -> Result<SqlText> {
    let mut written = "CASE".to_owned();
    if let Some(operand) = &case.expr {
        written += &format!(" {}", to_sql(operand, scope)?);
    }
    for (when, then) in &case.when_then_expr {
        written += &format!(" WHEN {} THEN {}", to_sql(when, scope)?, to_sql(then, scope)?);
    }
    if let Some(otherwise) = &case.else_expr {
        written += &format!(" ELSE {}", to_sql(otherwise, scope)?);
    }
    Ok(SqlText::atom(written + " END"))
}

fn write_aggregate_call(call: &AggregateFunction, scope: &mut dyn Scope) -> Result<SqlText> {
    let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = &call.params;
    let within_group = call.func.supports_within_group_clause() && !order_by.is_empty();
    // The first argument of a percentile is its order.
    let args = if within_group { args.get(1..).unwrap_or_default() } else { args };
    let mut written = format!(
        "{}({}{}",
        quote_if_needed(call.func.name()),
        if *distinct { "DISTINCT " } else { "" },
        arguments_sql(args, scope)?
    );
    if !order_by.is_empty() && !within_group {
        written += &format!(" ORDER BY {}", order_list_sql(order_by, scope)?);
    }
    written += ")";
    if within_group {
        written += &format!(" WITHIN GROUP (ORDER BY {})", order_list_sql(order_by, scope)?);
    }
    written += null_treatment_sql(*null_treatment);
    if let Some(filter) = filter {
        written += &format!(" FILTER (WHERE {})", to_sql(filter, scope)?);
    }
    Ok(SqlText::atom(written))
}

fn null_treatment_sql(treatment: Option<NullTreatment>) -> &'static str {
    match treatment {
        Some(NullTreatment::IgnoreNulls) => " IGNORE NULLS",
        Some(NullTreatment::RespectNulls) => " RESPECT NULLS",
        None => "",
    }
}

fn order_list_sql(order_by: &[Sort], scope: &mut dyn Scope) -> Result<String> {
    Ok(order_by.iter().map(|key| order_sql(key, scope)).collect::<Result<Vec<_>>>()?.join(", "))
}

fn write_window_call(call: &WindowFunction, scope: &mut dyn Scope) -> Result<SqlText> {
    let WindowFunctionParams { args, partition_by, order_by, window_frame, filter, null_treatment, distinct } =
        &call.params;
    let mut written = format!(
        "{}({}{})",
        quote_if_needed(call.fun.name()),
        if *distinct { "DISTINCT " } else { "" },
        arguments_sql(args, scope)?
    );
    written += null_treatment_sql(*null_treatment);
    if let Some(filter) = filter {
        written += &format!(" FILTER (WHERE {})", to_sql(filter, scope)?);
    }
    let mut over = vec![];
    if !partition_by.is_empty() {
        over.push(format!("PARTITION BY {}", list_sql(partition_by, scope)?));
    }
    if !order_by.is_empty() {
        over.push(format!("ORDER BY {}", order_list_sql(order_by, scope)?));
    }
    // The frame of a window that specifies none.
    let default_frame = WindowFrame::new((!order_by.is_empty()).then_some(false));
    if *window_frame != default_frame {
        over.push(frame_sql(window_frame)?);
    }
    Ok(SqlText::atom(format!("{written} OVER ({})", over.join(" "))))
}

fn frame_sql(frame: &WindowFrame) -> Result<String> {
    let units = match frame.units {
        WindowFrameUnits::Rows => "ROWS",
        WindowFrameUnits::Range => "RANGE",
        WindowFrameUnits::Groups => "GROUPS",
    };
    let bound = |bound: &WindowFrameBound| -> Result<String> {
        let distance = |value: &ScalarValue, side: &str| match value {
            value if value.is_null() => Ok(format!("UNBOUNDED {side}")),
            value if value.data_type().is_integer() => Ok(format!("{value} {side}")),
            value => Ok(format!("{} {side}", literal_sql(value)?.sql)),
        };
        match bound {
            WindowFrameBound::Preceding(value) => distance(value, "PRECEDING"),
            WindowFrameBound::CurrentRow => Ok("CURRENT ROW".to_owned()),
            WindowFrameBound::Following(value) => distance(value, "FOLLOWING"),
        }
    };
    Ok(format!("{units} BETWEEN {} AND {}", bound(&frame.start_bound)?, bound(&frame.end_bound)?))
}

/// Writes grouping sets.
pub fn grouping_sets_sql(sets: &GroupingSet, scope: &mut dyn Scope) -> Result<String> {
    Ok(match sets {
        GroupingSet::Rollup(keys) => format!("ROLLUP ({})", list_sql(keys, scope)?),
        GroupingSet::Cube(keys) => format!("CUBE ({})", list_sql(keys, scope)?),
        GroupingSet::GroupingSets(sets) => {
            let sets = sets.iter().map(|set| Ok(format!("({})", list_sql(set, scope)?)));
            format!("GROUPING SETS ({})", sets.collect::<Result<Vec<_>>>()?.join(", "))
        }
    })
}
