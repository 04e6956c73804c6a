//! The context of a call in the text: the names of columns, the operators beside it, the item of `SELECT` around it.

use sqlparser::ast::{SelectItem, SetExpr, Spanned};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, Word};
use std::cmp::Reverse;
use std::collections::HashMap;

use super::calls::SourceCall;
use super::statements::{ParsedStatement, outer_query};
use super::tokens::Source;
use crate::expr::Precedence;

/// The names of columns by their last part: all parts as the planner reads them, and the name as written.
pub type ColumnSpellings = HashMap<String, Vec<(Vec<String>, String)>>;

/// Returns where the items of the outermost `SELECT` end that have a call and no alias, each with its index among `width` columns.
pub fn unnamed_items(
    source: &Source,
    written: &ParsedStatement,
    calls: &[SourceCall],
    width: usize,
) -> Vec<(usize, usize)> {
    let Some(mut body) = outer_query(&written.statement).map(|query| query.body.as_ref()) else { return vec![] };
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    let SetExpr::Select(select) = body else { return vec![] };
    let wildcards = select
        .projection
        .iter()
        .filter(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    let wildcards = wildcards.count();
    let (mut ends, mut before) = (vec![], 0);
    for (number, item) in select.projection.iter().enumerate() {
        match item {
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => before += 1,
            SelectItem::UnnamedExpr(expr) => {
                let index = match before {
                    0 => Some(number),
                    // Items behind the last wildcard are counted from the end.
                    _ if before == wildcards => (width + number).checked_sub(select.projection.len()),
                    _ => None,
                };
                if let (Some(end), Some(index)) =
                    (item_end(source, &expr.span(), calls), index.filter(|index| *index < width))
                {
                    ends.push((end, index));
                }
            }
            _ => {}
        }
    }
    ends
}

/// Returns where an item without an alias ends, if it has a call.
fn item_end(source: &Source, span: &Span, calls: &[SourceCall]) -> Option<usize> {
    let first = *source.by_start.get(&span.start)?;
    let mut depth = 0_usize;
    // The span of an expression may exclude its first and last tokens: parentheses, a window.
    for token in first..source.tokens.len() {
        match &source.tokens[token].token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket if depth > 0 => depth -= 1,
            Token::RParen | Token::Comma | Token::SemiColon if depth == 0 => {
                return end_before(source, token, first, calls);
            }
            Token::Word(word) if depth == 0 && CLAUSE_KEYWORDS.contains(&word.keyword) => {
                return end_before(source, token, first, calls);
            }
            _ => {}
        }
    }
    end_before(source, source.tokens.len(), first, calls)
}

fn end_before(source: &Source, token: usize, first: usize, calls: &[SourceCall]) -> Option<usize> {
    let last = (first..token).rfind(|last| !matches!(source.tokens[*last].token, Token::Whitespace(_) | Token::EOF))?;
    let item = source.ranges[first].start..source.ranges[last].end;
    let next = calls.partition_point(|call| call.range.start < item.start);
    let has_call = calls.get(next).is_some_and(|call| call.range.end <= item.end);
    has_call.then_some(item.end)
}

/// Collects the names of columns in a call, those with the most parts first.
pub fn column_spellings(source: &Source, call: &SourceCall) -> ColumnSpellings {
    let mut inside = call.tokens.clone().skip(1).collect::<Vec<_>>();
    inside.retain(|token| !matches!(source.tokens[*token].token, Token::Whitespace(_)));
    let mut spellings = ColumnSpellings::new();
    let mut index = 0;
    while let Some(token) = inside.get(index) {
        let Token::Word(word) = &source.tokens[*token].token else {
            index += 1;
            continue;
        };
        let mut parts = vec![normalize(word)];
        let mut written = source.text[source.ranges[*token].clone()].to_owned();
        while let (Some(period), Some(next)) = (inside.get(index + 1), inside.get(index + 2))
            && source.tokens[*period].token == Token::Period
            && let Token::Word(word) = &source.tokens[*next].token
        {
            parts.push(normalize(word));
            written += ".";
            written += &source.text[source.ranges[*next].clone()];
            index += 2;
        }
        index += 1;
        let is_function = inside.get(index).is_some_and(|next| source.tokens[*next].token == Token::LParen);
        let known = spellings.entry(parts[parts.len() - 1].clone()).or_default();
        if !is_function && !known.iter().any(|known| known.0 == parts) {
            known.push((parts, written));
        }
    }
    for known in spellings.values_mut() {
        known.sort_by_key(|(parts, _)| Reverse(parts.len()));
    }
    spellings
}

/// Returns the lowest precedence that a text may have to replace a call without parentheses.
pub fn required_precedence(source: &Source, call: &SourceCall) -> Precedence {
    let last = source.previous_significant(call.tokens.start);
    let last_but_one = last.and_then(|last| source.previous_significant(last));
    let [last, last_but_one] = [last, last_but_one].map(|token| token.map(|token| &source.tokens[token].token));
    let left = match (last, last_but_one) {
        // The sign of a number.
        (Some(Token::Minus | Token::Plus), Some(first)) if !ends_operand(first) => Precedence::Atom,
        (Some(token), _) => match token {
            Token::LParen | Token::Comma | Token::SemiColon => Precedence::Open,
            Token::Plus | Token::Minus => Precedence::Product,
            token if is_comparison(token) => Precedence::Sum,
            Token::Word(word) if word.quote_style.is_none() && !OPERATOR_WORDS.contains(&word.keyword) => {
                Precedence::Open
            }
            Token::Word(word) if matches!(word.keyword, Keyword::AND | Keyword::OR) => Precedence::Sum,
            _ => Precedence::Atom,
        },
        (None, _) => Precedence::Open,
    };
    let right = match source.next_significant(call.tokens.end).map(|token| &source.tokens[token].token) {
        None | Some(Token::EOF) | Some(Token::RParen | Token::Comma | Token::SemiColon) => Precedence::Open,
        Some(Token::Plus | Token::Minus) => Precedence::Sum,
        Some(Token::Mul | Token::Div | Token::Mod) => Precedence::Product,
        Some(token) if is_comparison(token) => Precedence::Sum,
        Some(Token::Word(word)) if matches!(word.keyword, Keyword::AND | Keyword::OR) => Precedence::Sum,
        Some(Token::Word(word)) if !OPERATOR_WORDS.contains(&word.keyword) => Precedence::Open,
        Some(_) => Precedence::Atom,
    };
    left.max(right)
}

/// Returns whether a token can end an operand.
fn ends_operand(token: &Token) -> bool {
    match token {
        Token::Number(..) | Token::SingleQuotedString(_) | Token::RParen | Token::RBracket | Token::Placeholder(_) => {
            true
        }
        Token::Word(word) => word.quote_style.is_some() || matches!(word.keyword, Keyword::NoKeyword | Keyword::END),
        _ => false,
    }
}

fn is_comparison(token: &Token) -> bool {
    matches!(token, Token::Eq | Token::DoubleEq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq)
}

/// Normalizes a name as the planner does.
fn normalize(word: &Word) -> String {
    if word.quote_style.is_some() { word.value.clone() } else { word.value.to_ascii_lowercase() }
}

/// Keywords that may follow the last item of `SELECT`.
const CLAUSE_KEYWORDS: [Keyword; 16] = [
    Keyword::FROM,
    Keyword::WHERE,
    Keyword::GROUP,
    Keyword::HAVING,
    Keyword::QUALIFY,
    Keyword::WINDOW,
    Keyword::ORDER,
    Keyword::SORT,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::FETCH,
    Keyword::UNION,
    Keyword::INTERSECT,
    Keyword::EXCEPT,
    Keyword::INTO,
    Keyword::DISTRIBUTE,
];

/// Keywords that are operators or parts of one.
const OPERATOR_WORDS: [Keyword; 16] = [
    Keyword::AND,
    Keyword::AT,
    Keyword::BETWEEN,
    Keyword::COLLATE,
    Keyword::DIV,
    Keyword::ESCAPE,
    Keyword::ILIKE,
    Keyword::IN,
    Keyword::INTERVAL,
    Keyword::IS,
    Keyword::LIKE,
    Keyword::NOT,
    Keyword::OR,
    Keyword::RLIKE,
    Keyword::SIMILAR,
    Keyword::TO,
];
