//! `AS MATERIALIZED` and `AS NOT MATERIALIZED`, by which a CTE says for itself whether it is computed once.
//!
//! DataFusion's SQL has neither, and where its parser knows them, as in PostgreSQL's dialect, its planner drops them. So the text of a
//! statement gets a marker behind the CTE, which is found by the rules of SQL for names: it is seen where the CTE is.
//!
//! ```sql
//! WITH k AS MATERIALIZED (SELECT ...) SELECT ... FROM k
//! -- is planned as
//! WITH k AS (SELECT ...), "∂materialized k" AS (SELECT 1 AS "∂always") SELECT ... FROM k
//! ```

use datafusion_expr::LogicalPlan;
use sqlparser::ast::{Ident, ObjectName, TableFactor};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use std::borrow::Cow;

/// What a CTE says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Materialization {
    /// `AS MATERIALIZED`: it is computed once, however many places read it.
    Always,
    /// `AS NOT MATERIALIZED`: it is written out where it is read.
    Never,
}

const ALWAYS: &str = "∂always";
const NEVER: &str = "∂never";

impl Materialization {
    /// What the marker of a CTE says.
    pub fn of_marker(marker: &LogicalPlan) -> Option<Self> {
        match marker.schema().fields().first()?.name().as_str() {
            ALWAYS => Some(Self::Always),
            NEVER => Some(Self::Never),
            _ => None,
        }
    }
}

/// The relation that is there if the relation of this name says of itself whether it is computed once.
pub fn marker_of(name: &ObjectName) -> Option<TableFactor> {
    let [part] = name.0.as_slice() else { return None };
    let ident = Ident::with_quote('"', marker(&part.as_ident()?.value));
    Some(TableFactor::Table {
        name: ObjectName::from(vec![ident]),
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    })
}

const MARKER: &str = "∂materialized ";

fn marker(name: &str) -> String {
    format!("{MARKER}{}", name.to_lowercase())
}

/// Whether a statement has markers.
pub fn has_materialization(sql: &str) -> bool {
    sql.contains(MARKER)
}

/// A statement in which DataFusion reads what its CTEs say with `AS MATERIALIZED` and `AS NOT MATERIALIZED`, the statement itself if none
/// says anything.
pub fn with_materialization(sql: &str) -> Cow<'_, str> {
    let tokens = match mentions(sql) {
        true => Tokenizer::new(&GenericDialect, sql).tokenize_with_location().unwrap_or_default(),
        false => vec![],
    };
    let tokens: Vec<_> = tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let offsets = Offsets::of(sql);
    let mut edits = vec![];
    for place in 0..tokens.len() {
        let Some(Said { name, says, query }) = Said::at(&tokens, place) else { continue };
        let Some(end) = closing(&tokens, query) else { continue };
        let column = if says == Materialization::Always { ALWAYS } else { NEVER };
        let marker = Ident::with_quote('"', marker(name));
        edits.push((offsets.at(tokens[place].span.end)..offsets.at(tokens[query].span.start), " ".to_owned()));
        let after = offsets.at(tokens[end].span.end);
        edits.push((after..after, format!(", {marker} AS (SELECT 1 AS \"{column}\")")));
    }
    if edits.is_empty() {
        return Cow::Borrowed(sql);
    }
    edits.sort_by_key(|(range, _)| range.start);
    let (mut written, mut copied) = (String::new(), 0);
    for (range, text) in edits {
        written.push_str(&sql[copied..range.start]);
        written.push_str(&text);
        copied = range.end;
    }
    written.push_str(&sql[copied..]);
    Cow::Owned(written)
}

/// The tokens of a statement as DataFusion's parser reads them, without what CTEs say.
pub fn without_materialization(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_word =
        |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::MATERIALIZED);
    if !tokens.iter().any(is_word) {
        return tokens;
    }
    let words: Vec<_> = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).cloned().collect();
    let said = (0..words.len()).filter_map(|place| {
        let said = Said::at(&words, place)?;
        Some(words[place].span.end..words[said.query].span.start)
    });
    let said: Vec<_> = said.collect();
    let is_kept = |token: &TokenWithSpan| !said.iter().any(|said| said.contains(&token.span.start));
    tokens.into_iter().filter(is_kept).collect()
}

/// Whether a statement may say so: few do, and the others are not taken apart.
fn mentions(sql: &str) -> bool {
    const WORD: &[u8] = b"materialized";
    sql.as_bytes().windows(WORD.len()).any(|part| part.eq_ignore_ascii_case(WORD))
}

/// What a CTE says at its `AS`.
struct Said<'t> {
    name: &'t str,
    says: Materialization,
    /// Where the parenthesis stands in which its query is.
    query: usize,
}

impl<'t> Said<'t> {
    /// What is said at a place, if that is the `AS` of a CTE which says something.
    fn at(tokens: &'t [TokenWithSpan], place: usize) -> Option<Self> {
        let is = |place: usize, keyword: Keyword| keyword_at(tokens, place) == Some(keyword);
        let (says, query) = match is(place + 1, Keyword::NOT) {
            true => (Materialization::Never, place + 3),
            false => (Materialization::Always, place + 2),
        };
        if !is(place, Keyword::AS) || !is(query - 1, Keyword::MATERIALIZED) || tokens.get(query)?.token != Token::LParen
        {
            return None;
        }
        let words = [Keyword::SELECT, Keyword::WITH, Keyword::VALUES, Keyword::TABLE];
        // `FROM t AS materialized (a, b)` names columns.
        if tokens.get(query + 1)?.token != Token::LParen && !words.iter().any(|word| is(query + 1, *word)) {
            return None;
        }
        let mut name = place.checked_sub(1)?;
        if tokens[name].token == Token::RParen {
            // Names of columns stand between: they have no parentheses.
            name = tokens[..name].iter().rposition(|token| token.token == Token::LParen)?.checked_sub(1)?;
        }
        match &tokens[name].token {
            Token::Word(word) => Some(Self { name: &word.value, says, query }),
            _ => None,
        }
    }
}

fn keyword_at(tokens: &[TokenWithSpan], place: usize) -> Option<Keyword> {
    match &tokens.get(place)?.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}

/// Where the parenthesis is closed that is opened at a place.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 1 => return Some(place),
            Token::RParen => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Where the lines of a text begin.
struct Offsets<'s> {
    text: &'s str,
    lines: Vec<usize>,
}

impl<'s> Offsets<'s> {
    fn of(text: &'s str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { text, lines: lines.collect() }
    }

    /// The byte at which a place is.
    fn at(&self, place: Location) -> usize {
        let (line, column) = (place.line as usize, place.column as usize);
        let Some(start) = line.checked_sub(1).and_then(|line| self.lines.get(line)) else { return self.text.len() };
        let rest = &self.text[*start..];
        start + rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_stands_behind_the_cte() {
        let marked = |name, says| format!(", \"∂materialized {name}\" AS (SELECT 1 AS \"∂{says}\")");
        for (sql, expected) in [
            (
                "WITH k AS MATERIALIZED (SELECT 1) TABLE k",
                format!("WITH k AS (SELECT 1){} TABLE k", marked("k", "always")),
            ),
            (
                "WITH a AS (SELECT 'é'),\n  K (x, y) as not\nmaterialized (VALUES (1, 2)) TABLE k",
                format!("WITH a AS (SELECT 'é'),\n  K (x, y) as (VALUES (1, 2)){} TABLE k", marked("k", "never")),
            ),
            (
                "WITH \"A\"\"b\" AS MATERIALIZED ((SELECT 1)) SELECT 1",
                format!("WITH \"A\"\"b\" AS ((SELECT 1)){} SELECT 1", marked("a\"\"b", "always")),
            ),
            (
                "WITH k AS MATERIALIZED (WITH k AS NOT MATERIALIZED (SELECT 1) TABLE k) TABLE k",
                format!(
                    "WITH k AS (WITH k AS (SELECT 1){} TABLE k){} TABLE k",
                    marked("k", "never"),
                    marked("k", "always")
                ),
            ),
        ] {
            assert_eq!(with_materialization(sql), expected);
        }
    }

    #[test]
    fn other_statements_stay() {
        for sql in [
            "SELECT 1",
            "SELECT * FROM t AS materialized (a, b)",
            "SELECT x AS materialized FROM t",
            "WITH k AS (SELECT 'k AS MATERIALIZED (SELECT 1)') TABLE k -- k AS MATERIALIZED (SELECT 1)",
            "WITH k AS \"materialized\" (SELECT 1) TABLE k",
            "SELECT 'unterminated AS MATERIALIZED (SELECT",
            "AS MATERIALIZED (SELECT 1)",
            ") AS MATERIALIZED (SELECT 1)",
            "WITH k AS MATERIALIZED (SELECT 1",
        ] {
            assert!(matches!(with_materialization(sql), Cow::Borrowed(same) if same == sql), "{sql}");
        }
    }
}
