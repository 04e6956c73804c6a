//! `AS MATERIALIZED` and `AS NOT MATERIALIZED`, in a form that DataFusion parses.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::borrow::Cow;
use xql_relations::Materialization;

use super::tokens::Source;

/// Replaces the hint of each CTE by a marker behind the CTE. Returns the statement itself if it has no hint.
pub fn with_materialization(sql: &str) -> Cow<'_, str> {
    // Most statements have none, and are not tokenized.
    let Some(source) = mentions_materialized(sql).then(|| Source::new(sql).ok()).flatten() else {
        return Cow::Borrowed(sql);
    };
    let mut edits = vec![];
    for index in 0..source.tokens.len() {
        let Some(CteHint { name, materialization, query }) = CteHint::parse_at(&source.tokens, index) else { continue };
        let Some(end) = source.closing_paren(query) else { continue };
        edits.push((source.ranges[index].end..source.ranges[query].start, " ".to_owned()));
        let after = source.ranges[end].end;
        edits.push((after..after, format!(", {}", materialization.marker(name))));
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

/// Removes the hints of CTEs, which DataFusion's parser does not know.
pub fn strip_materialization(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for index in (0..tokens.len()).rev() {
        if let Some(CteHint { query, .. }) = CteHint::parse_at(&tokens, index) {
            tokens.drain(index + 1..query);
        }
    }
    tokens
}

fn mentions_materialized(sql: &str) -> bool {
    const WORD: &[u8] = b"materialized";
    sql.as_bytes().windows(WORD.len()).any(|part| part.eq_ignore_ascii_case(WORD))
}

/// The hint of a CTE.
struct CteHint<'t> {
    name: &'t str,
    materialization: Materialization,
    /// The token that opens the parenthesis around the query.
    query: usize,
}

impl<'t> CteHint<'t> {
    /// Parses the hint at a token, if that is the `AS` of a CTE with a hint.
    fn parse_at(tokens: &'t [TokenWithSpan], index: usize) -> Option<Self> {
        let is = |token: usize, keyword: Keyword| match &tokens[token].token {
            Token::Word(word) => word.quote_style.is_none() && word.keyword == keyword,
            _ => false,
        };
        if !is(index, Keyword::AS) {
            return None;
        }
        let is_word = |token: &usize| !matches!(tokens[*token].token, Token::Whitespace(_));
        let mut after = (index + 1..tokens.len()).filter(is_word);
        let mut before = (0..index).rev().filter(is_word);
        let mut word = after.next()?;
        let mut materialization = Materialization::Always;
        if is(word, Keyword::NOT) {
            (word, materialization) = (after.next()?, Materialization::Never);
        }
        let (query, first) = (after.next()?, after.next()?);
        if !is(word, Keyword::MATERIALIZED) || tokens[query].token != Token::LParen {
            return None;
        }
        let begin_queries = [Keyword::SELECT, Keyword::WITH, Keyword::VALUES, Keyword::TABLE];
        // `FROM t AS materialized (a, b)` names columns.
        if tokens[first].token != Token::LParen && !begin_queries.iter().any(|keyword| is(first, *keyword)) {
            return None;
        }
        let mut name = before.next()?;
        if tokens[name].token == Token::RParen {
            // Names of columns are between, without parentheses.
            before.find(|token| tokens[*token].token == Token::LParen)?;
            name = before.next()?;
        }
        match &tokens[name].token {
            Token::Word(word) => Some(Self { name: &word.value, materialization, query }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_stands_behind_the_cte() {
        let marked =
            |name, materialization| format!(", \"∂materialized {name}\" AS (SELECT 1 AS \"∂{materialization}\")");
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
