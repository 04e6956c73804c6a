//! A `SELECT` under construction, and its text.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchemaRef};
use datafusion_expr::Expr;
use xql_relations::unaliased;

use crate::expr::is_constant;
use crate::names::{is_fragment, quote_if_needed};

/// The last clause of a `SELECT` so far. A later clause reads the results of earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// FROM.
    From,
    /// WHERE.
    Where,
    /// GROUP BY.
    Group,
    /// Window functions.
    Window,
    /// DISTINCT, or items that change the number of rows.
    Distinct,
    /// ORDER BY.
    Order,
    /// LIMIT or OFFSET.
    Limit,
}

/// What a join does with the rows of its left side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinEffect {
    /// Each left row is kept or matched independently of the others, and none is extended on the left.
    KeepsLeftRows,
    /// Anything else.
    Other,
}

/// A column of a `SELECT`, over FROM.
#[derive(Debug, Clone)]
pub struct Item {
    /// The text, an atom, so it can be an operand.
    pub sql: String,
    /// Its name without `AS`.
    pub name: Option<String>,
    /// Whether it may be repeated at no cost.
    pub is_simple: bool,
    /// Whether each evaluation may give another value.
    pub is_volatile: bool,
}

impl Item {
    /// Creates the item of a column in FROM.
    pub fn column(relation: &str, name: &str) -> Self {
        let sql = format!("{}.{}", quote_if_needed(relation), quote_if_needed(name));
        Self { sql, name: Some(name.to_owned()), is_simple: true, is_volatile: false }
    }

    /// Returns whether it is a source fragment.
    fn is_fragment(&self) -> bool {
        self.sql.starts_with("\"∂ ")
    }
}

/// The FROM clause of a `SELECT`.
#[derive(Debug, Clone)]
pub struct FromClause {
    /// Its text, if there is one.
    pub sql: Option<String>,
    /// The effect of a join. On the right side of another join it may need parentheses.
    pub join: Option<JoinEffect>,
    /// The preferred alias of the `SELECT` in an outer FROM.
    pub hint: String,
    /// How deeply queries are nested in it.
    pub depth: usize,
}

/// The clauses after FROM, and DISTINCT.
#[derive(Debug, Clone, Default)]
pub struct Clauses {
    /// The conditions of WHERE.
    pub filters: Vec<String>,
    /// The keys of GROUP BY, possibly none.
    pub groups: Option<Vec<String>>,
    /// The conditions of HAVING.
    pub having: Vec<String>,
    /// `DISTINCT`, or `DISTINCT ON (...)`.
    pub distinct: Option<String>,
    /// The keys of ORDER BY.
    pub order: Vec<String>,
    /// The number of LIMIT.
    pub limit: Option<String>,
    /// The number of OFFSET.
    pub offset: Option<String>,
}

/// A `SELECT`.
#[derive(Debug, Clone)]
pub struct Select {
    /// Its last clause.
    pub stage: Stage,
    /// The columns of the node that it is the text of.
    pub schema: DFSchemaRef,
    /// These columns, over FROM.
    pub items: Vec<Item>,
    /// The FROM clause.
    pub source: FromClause,
    /// The other clauses.
    pub clauses: Clauses,
}

impl Select {
    /// Creates a `SELECT` of all rows of a relation in FROM.
    pub fn new(schema: DFSchemaRef, from: Option<String>, items: Vec<Item>, hint: &str) -> Self {
        let source = FromClause { sql: from, join: None, hint: hint.to_owned(), depth: 0 };
        Self { stage: Stage::From, schema, items, source, clauses: Clauses::default() }
    }

    /// Adds a condition to WHERE.
    pub fn with_filter(mut self, condition: String) -> Self {
        self.clauses.filters.push(condition);
        self.stage = Stage::Where;
        self
    }

    /// Returns whether it only names columns of FROM.
    pub fn is_relation(&self) -> bool {
        // An expression written above a join would also be evaluated in rows that the join extends by NULL: `FROM t LEFT JOIN (SELECT k,
        // 1.0 AS q FROM u) u ON t.k = u.k`.
        self.stage == Stage::From && self.source.sql.is_some() && self.items.iter().all(|item| item.name.is_some())
    }

    /// Returns the item of a column.
    pub fn item(&self, column: &Column) -> Option<&Item> {
        self.items.get(self.schema.maybe_index_of_column(column)?)
    }

    /// Returns whether an expression over its columns is written as a constant.
    pub fn is_constant(&self, expr: &Expr) -> bool {
        match unaliased(expr) {
            Expr::Literal(..) => true,
            Expr::Column(column) => self.item(column).is_some_and(|item| is_constant(&item.sql)),
            _ => false,
        }
    }

    /// Returns whether expressions over its columns can inline its items: no computation and no volatile expression is repeated, and the
    /// text does not become too deep. `times` is how often an item that is not simple may be read.
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
        // Another engine may type a fragment otherwise than a column of it: 0.1 is a decimal, and an integer literal adapts to its context.
        if has_fragment && self.items.iter().zip(&read).any(|(item, read)| *read > 0 && item.is_fragment()) {
            return false;
        }
        if has_subquery && !self.items.iter().all(simple) {
            return false;
        }
        self.items.iter().zip(read).all(|(item, read)| simple(item) || read <= times && !(item.is_volatile && read > 0))
    }

    /// Writes the query with columns of these names.
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

/// The depth of parentheses above which an item becomes a column of a subquery. Parsers limit the depth of expressions.
const MAX_PAREN_DEPTH: usize = 12;

/// Measures how deeply parentheses are nested.
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

/// The maximum width of a line.
const WIDTH: usize = 100;

/// Writes a clause in one line, or each part in a line of its own.
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

/// Indents the lines of a text, except within quotes.
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

/// Removes parentheses around a whole text.
fn strip_parentheses(sql: &str) -> &str {
    let Some(inside) = sql.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else { return sql };
    // A subquery keeps them, and so does a text with other parentheses at its ends, as (a) + (b).
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
