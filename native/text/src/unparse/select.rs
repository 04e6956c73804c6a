//! A `SELECT` that is being put together, and its text.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchemaRef};
use datafusion_expr::Expr;
use xql_relations::unaliased;

use crate::expr::is_constant;
use crate::names::{is_fragment, quote_if_needed};

/// How far a `SELECT` has come. What comes later reads what came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It reads relations.
    From,
    /// It chooses among their rows.
    Where,
    /// It groups them.
    Group,
    /// It has window functions.
    Window,
    /// Its items are other rows than those that they read.
    Distinct,
    /// It has an order.
    Order,
    /// It is cut off.
    Limit,
}

/// What a join in FROM does with the rows of its first relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinEffect {
    /// What is found for one of them depends on no other, and no row is without one of them.
    KeepsLeftRows,
    /// Anything else.
    Other,
}

/// A column of a `SELECT` in terms of what it reads.
#[derive(Debug, Clone)]
pub struct Item {
    /// Closed, so that it may be an operand of anything.
    pub sql: String,
    /// The name that it has without `AS`.
    pub name: Option<String>,
    /// Whether it costs nothing and is the same wherever it is written.
    pub is_simple: bool,
    /// Whether it may be another value each time.
    pub is_volatile: bool,
}

impl Item {
    /// A column of a relation in FROM.
    pub fn column(relation: &str, name: &str) -> Self {
        let sql = format!("{}.{}", quote_if_needed(relation), quote_if_needed(name));
        Self { sql, name: Some(name.to_owned()), is_simple: true, is_volatile: false }
    }

    /// Whether it is nothing but words of another engine.
    fn is_fragment(&self) -> bool {
        self.sql.starts_with("\"∂ ")
    }
}

/// What a `SELECT` reads.
#[derive(Debug, Clone)]
pub struct FromClause {
    /// Its text, if it reads anything.
    pub sql: Option<String>,
    /// If it is a join, what it does with its rows. On the right side of another it may need parentheses.
    pub join: Option<JoinEffect>,
    /// The name of the `SELECT` where it is written in FROM itself.
    pub hint: String,
    /// How many queries in one another are in it.
    pub depth: usize,
}

/// The clauses of a `SELECT` behind FROM, and DISTINCT.
#[derive(Debug, Clone, Default)]
pub struct Clauses {
    /// The conditions of WHERE.
    pub filters: Vec<String>,
    /// The keys of GROUP BY, which may be none.
    pub groups: Option<Vec<String>>,
    /// The conditions of HAVING.
    pub having: Vec<String>,
    /// `DISTINCT`, or `DISTINCT ON (...)`.
    pub distinct: Option<String>,
    /// The keys of ORDER BY.
    pub order: Vec<String>,
    /// The number behind LIMIT.
    pub limit: Option<String>,
    /// The number behind OFFSET.
    pub offset: Option<String>,
}

/// A `SELECT`.
#[derive(Debug, Clone)]
pub struct Select {
    /// How far it has come.
    pub stage: Stage,
    /// The columns of the node of the plan that it stands for so far.
    pub schema: DFSchemaRef,
    /// What they are in terms of FROM.
    pub items: Vec<Item>,
    /// What it reads.
    pub source: FromClause,
    /// What it does with that.
    pub clauses: Clauses,
}

impl Select {
    /// All rows of a relation in FROM.
    pub fn new(schema: DFSchemaRef, from: Option<String>, items: Vec<Item>, hint: &str) -> Self {
        let source = FromClause { sql: from, join: None, hint: hint.to_owned(), depth: 0 };
        Self { stage: Stage::From, schema, items, source, clauses: Clauses::default() }
    }

    /// It with one more condition in WHERE.
    pub fn with_filter(mut self, condition: String) -> Self {
        self.clauses.filters.push(condition);
        self.stage = Stage::Where;
        self
    }

    /// Whether it is a relation in FROM and no more, with columns that are there.
    pub fn is_relation(&self) -> bool {
        // A value that is written above a join would be there in rows that the join extends by NULL as well:
        // `FROM t LEFT JOIN (SELECT k, 1.0 AS q FROM u) u ON t.k = u.k`.
        self.stage == Stage::From && self.source.sql.is_some() && self.items.iter().all(|item| item.name.is_some())
    }

    /// What a column of it is in terms of FROM.
    pub fn item(&self, column: &Column) -> Option<&Item> {
        self.items.get(self.schema.maybe_index_of_column(column)?)
    }

    /// Whether an expression over its columns is written as a constant.
    pub fn is_constant(&self, expr: &Expr) -> bool {
        match unaliased(expr) {
            Expr::Literal(..) => true,
            Expr::Column(column) => self.item(column).is_some_and(|item| is_constant(&item.sql)),
            _ => false,
        }
    }

    /// Whether expressions over its columns can be written in terms of what these are computed from: nothing is computed
    /// twice that is not already, and nothing is drawn twice.
    pub fn can_inline(&self, exprs: &[&Expr], times: usize) -> bool {
        let mut read = vec![0_usize; self.items.len()];
        let mut has_subquery = false;
        let mut has_fragment = false;
        for expr in exprs {
            let _ = expr.apply(|part| {
                match part {
                    Expr::ScalarFunction(call) => has_fragment |= is_fragment(call.func.name()),
                    Expr::Column(column) => {
                        if let Some(index) = self.schema.maybe_index_of_column(column) {
                            read[index] += 1;
                        }
                    }
                    Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => has_subquery = true,
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            });
        }
        let simple = |item: &Item| item.is_simple && !item.is_volatile;
        if self.items.iter().zip(&read).any(|(item, read)| *read > 0 && paren_depth(&item.sql) > MAX_PAREN_DEPTH) {
            return false;
        }
        // Another engine may type an expression otherwise than a column of it: 0.1 is a decimal, and 1 fits to what is beside it.
        if has_fragment && self.items.iter().zip(&read).any(|(item, read)| *read > 0 && item.is_fragment()) {
            return false;
        }
        if has_subquery && !self.items.iter().all(simple) {
            return false;
        }
        self.items.iter().zip(read).all(|(item, read)| simple(item) || read <= times && !(item.is_volatile && read > 0))
    }

    /// The text with columns of these names.
    pub fn to_sql(&self, names: &[String]) -> String {
        let items = self.items.iter().zip(names).map(|(item, name)| {
            if item.name.as_ref() == Some(name) {
                item.sql.clone()
            } else {
                format!("{} AS {}", strip_parentheses(&item.sql), quote_if_needed(name))
            }
        });
        let mut items: Vec<_> = items.collect();
        if items.is_empty() {
            items.push("1 AS one".to_owned());
        }
        let mut lines = vec![];
        let start = match &self.clauses.distinct {
            Some(distinct) => format!("SELECT {distinct}"),
            None => "SELECT".to_owned(),
        };
        push_clause(&mut lines, &start, &items, ",");
        if let Some(from) = &self.source.sql {
            lines.push(format!("FROM {from}"));
        }
        let and = |parts: &[String]| parts.iter().map(|part| format!("({part})")).collect::<Vec<_>>();
        let conjuncts = |parts: &[String]| if parts.len() == 1 { parts.to_vec() } else { and(parts) };
        if !self.clauses.filters.is_empty() {
            push_clause(&mut lines, "WHERE", &conjuncts(&self.clauses.filters), " AND");
        }
        if let Some(groups) = self.clauses.groups.as_ref().filter(|groups| !groups.is_empty()) {
            push_clause(&mut lines, "GROUP BY", groups, ",");
        }
        if !self.clauses.having.is_empty() {
            push_clause(&mut lines, "HAVING", &conjuncts(&self.clauses.having), " AND");
        }
        if !self.clauses.order.is_empty() {
            push_clause(&mut lines, "ORDER BY", &self.clauses.order, ",");
        }
        lines.extend(self.clauses.limit.iter().map(|limit| format!("LIMIT {limit}")));
        lines.extend(self.clauses.offset.iter().map(|offset| format!("OFFSET {offset}")));
        lines.join("\n")
    }
}

/// How many parentheses in one another a value may have that is not computed in a query of its own. Parsers do not read expressions
/// of any depth.
const MAX_PAREN_DEPTH: usize = 12;

/// How many parentheses in one another a text has.
fn paren_depth(sql: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in sql.bytes() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// How long a line may be.
const WIDTH: usize = 100;

/// A clause in one line, or in a line for each of its parts.
fn push_clause(lines: &mut Vec<String>, start: &str, parts: &[String], between: &str) {
    let line = format!("{start} {}", parts.join(&format!("{between} ")));
    if line.len() <= WIDTH && !line.contains('\n') || parts.len() == 1 {
        lines.push(line);
        return;
    }
    lines.push(start.to_owned());
    for (number, part) in parts.iter().enumerate() {
        let end = if number + 1 < parts.len() { between } else { "" };
        lines.push(format!("{}{end}", indent(part)));
    }
}

/// The lines of a text two places to the right. What stands in quotes, a string or a name, keeps its line breaks as they are.
pub fn indent(text: &str) -> String {
    let mut lines = String::with_capacity(text.len() + 64);
    lines.push_str("  ");
    let mut quote = None;
    for character in text.chars() {
        lines.push(character);
        quote = match (quote, character) {
            (None, '\'' | '"') => Some(character),
            (Some(open), close) if open == close => None,
            (None, '\n') => {
                lines.push_str("  ");
                None
            }
            (quote, _) => quote,
        };
    }
    lines
}

/// A text without parentheses around all of it.
fn strip_parentheses(sql: &str) -> &str {
    let Some(inside) = sql.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else { return sql };
    // A query keeps them, and so does what has others at its ends, as (a) + (b).
    let mut depth = 0_i32;
    let mut quote = None;
    for character in inside.chars() {
        match (quote, character) {
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return sql;
        }
    }
    if inside.trim_start().starts_with("SELECT") || inside.trim_start().starts_with("WITH") { sql } else { inside }
}
