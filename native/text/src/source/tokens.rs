//! A text as tokens, and where these stand in it.

use datafusion_common::{Result, plan_datafusion_err};
use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use std::collections::HashMap;
use std::ops::Range;

/// A text as tokens.
pub struct Source<'a> {
    pub text: &'a str,
    pub tokens: Vec<TokenWithSpan>,
    /// Where each token stands.
    pub ranges: Vec<Range<usize>>,
    pub by_start: HashMap<Location, usize>,
}

impl<'a> Source<'a> {
    pub fn new(text: &'a str) -> Result<Self> {
        let tokens = Tokenizer::new(&GenericDialect {}, text)
            .tokenize_with_location()
            .map_err(|error| plan_datafusion_err!("the statement cannot be read: {error}"))?;
        let mut offsets = Offsets::new(text);
        let ranges = tokens.iter().map(|token| offsets.of(token.span.start)..offsets.of(token.span.end)).collect();
        let by_start = tokens.iter().enumerate().map(|(number, token)| (token.span.start, number)).collect();
        Ok(Self { text, tokens, ranges, by_start })
    }

    /// Tokens without white space and comments around them.
    pub fn trimmed(&self, tokens: Range<usize>) -> Range<usize> {
        let is_space = |token: &usize| matches!(self.tokens[*token].token, Token::Whitespace(_) | Token::EOF);
        let start = tokens.clone().find(|token| !is_space(token)).unwrap_or(tokens.end);
        let end = tokens.clone().rfind(|token| !is_space(token)).map_or(start, |last| last + 1);
        start..end
    }

    /// The next token from `token` on that is no white space or comment.
    pub fn significant(&self, token: usize) -> Option<usize> {
        (token..self.tokens.len()).find(|token| !matches!(self.tokens[*token].token, Token::Whitespace(_)))
    }

    /// The token that closes the parenthesis which another one opens.
    pub fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (number, token) in self.tokens.iter().enumerate().skip(open) {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.checked_sub(1)?,
                _ => continue,
            }
            if depth == 0 {
                return Some(number);
            }
        }
        None
    }
}

/// Finds where a line and a column of a text are.
struct Offsets<'a> {
    lines: Vec<&'a str>,
    starts: Vec<usize>,
}

impl<'a> Offsets<'a> {
    fn new(text: &'a str) -> Self {
        let lines: Vec<_> = text.split_inclusive('\n').collect();
        let starts = lines
            .iter()
            .scan(0, |start, line| {
                let here = *start;
                *start += line.len();
                Some(here)
            })
            .collect();
        Self { lines, starts }
    }

    fn of(&mut self, location: Location) -> usize {
        let line = usize::try_from(location.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let column = usize::try_from(location.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let end = || self.lines.iter().map(|line| line.len()).sum();
        let (Some(text), Some(start)) = (self.lines.get(line), self.starts.get(line)) else { return end() };
        start + text.char_indices().nth(column).map_or(text.len(), |(offset, _)| offset)
    }
}
