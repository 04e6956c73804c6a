//! Tokens of a text with their ranges.

use datafusion_common::{Result, plan_datafusion_err};
use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use std::collections::HashMap;
use std::ops::Range;
use std::str::Chars;

/// A tokenized text.
pub struct Source<'a> {
    /// The text.
    pub text: &'a str,
    /// Its tokens.
    pub tokens: Vec<TokenWithSpan>,
    /// The range of each token.
    pub ranges: Vec<Range<usize>>,
    /// The index of each token by its location.
    pub by_start: HashMap<Location, usize>,
}

impl<'a> Source<'a> {
    /// Tokenizes a text.
    pub fn new(text: &'a str) -> Result<Self> {
        let tokens = Tokenizer::new(&GenericDialect {}, text)
            .tokenize_with_location()
            .map_err(|error| plan_datafusion_err!("the statement cannot be read: {error}"))?;
        let mut offsets = Offsets::new(text);
        let ranges = tokens
            .iter()
            .map(|token| offsets.advance_to(token.span.start)..offsets.advance_to(token.span.end))
            .collect();
        let by_start = tokens.iter().enumerate().map(|(number, token)| (token.span.start, number)).collect();
        Ok(Self { text, tokens, ranges, by_start })
    }

    /// Trims white space and comments from a range of tokens.
    pub fn trim(&self, tokens: Range<usize>) -> Range<usize> {
        let is_space = |token: &usize| matches!(self.tokens[*token].token, Token::Whitespace(_) | Token::EOF);
        let start = tokens.clone().find(|token| !is_space(token)).unwrap_or(tokens.end);
        let end = tokens.clone().rfind(|token| !is_space(token)).map_or(start, |last| last + 1);
        start..end
    }

    /// Returns the first token from `token` on that is no white space or comment.
    pub fn next_significant(&self, token: usize) -> Option<usize> {
        (token..self.tokens.len()).find(|token| !matches!(self.tokens[*token].token, Token::Whitespace(_)))
    }

    /// Returns the last token before `token` that is no white space or comment.
    pub fn previous_significant(&self, token: usize) -> Option<usize> {
        (0..token).rfind(|token| !matches!(self.tokens[*token].token, Token::Whitespace(_)))
    }

    /// Returns the token that closes a parenthesis.
    pub fn closing_paren(&self, open: usize) -> Option<usize> {
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

/// Converts locations to offsets in one pass.
struct Offsets<'a> {
    rest: Chars<'a>,
    location: Location,
    offset: usize,
}

impl<'a> Offsets<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.chars(), location: Location::new(1, 1), offset: 0 }
    }

    /// Returns the offset of a location, which must not precede the last one.
    fn advance_to(&mut self, location: Location) -> usize {
        while self.location < location
            && let Some(character) = self.rest.next()
        {
            self.offset += character.len_utf8();
            self.location = match character {
                '\n' => Location::new(self.location.line + 1, 1),
                _ => Location::new(self.location.line, self.location.column + 1),
            };
        }
        self.offset
    }
}
