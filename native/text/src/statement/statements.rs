//! The statements of a text, parsed as DataFusion does, and the query that one is or has.

use datafusion_common::{DataFusionError, Result, plan_datafusion_err};
use datafusion_sql::parser::{CopyToSource, DFParserBuilder, Statement};
use sqlparser::ast::{self, Spanned};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};
use std::collections::VecDeque;
use std::ops::Range;
use xql_autodiff::vocabulary::functions::STOP_GRADIENT;

use super::materialization::strip_materialization;
use super::tokens::Source;
use crate::names::{DERIVATIVES, is_fragment};

/// How deep expressions and queries of a statement may be nested. Sessions can be told to take more than they do by default.
const MAX_DEPTH: usize = 300;

/// How deep they may be where a session has not been told so.
const DEFAULT_DEPTH: usize = 50;

/// A statement of a text.
pub struct ParsedStatement {
    /// What it says.
    pub statement: Statement,
    /// Its tokens.
    pub tokens: Range<usize>,
}

impl Source<'_> {
    /// The statements with a word that is the name of one of the functions, and those before them that make something, in order.
    /// Others are not even parsed.
    pub fn statements(&self) -> Result<Vec<ParsedStatement>> {
        let mut written = vec![];
        let mut start = 0;
        for end in 0..=self.tokens.len() {
            if self.tokens.get(end).is_none_or(|token| token.token == Token::SemiColon) {
                let tokens = self.trim(start..end);
                let names_call =
                    |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if operator_name(word).is_some());
                let makes = |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::CREATE);
                let words = &self.tokens[tokens.clone()];
                if words.iter().any(names_call) {
                    let statement = self.parse_tokens(self.tokens[tokens.clone()].to_vec())?;
                    written.push(ParsedStatement { statement, tokens });
                } else if words.first().is_some_and(makes)
                    && let Ok(statement) = self.parse_tokens(words.to_vec())
                {
                    written.push(ParsedStatement { statement, tokens });
                }
                start = end + 1;
            }
        }
        Ok(written)
    }

    /// The statement of these tokens.
    pub fn parse_tokens(&self, tokens: Vec<TokenWithSpan>) -> Result<Statement> {
        let mut statements = parse(tokens, MAX_DEPTH)?;
        match (statements.pop_front(), statements.is_empty()) {
            (Some(statement), true) => Ok(statement),
            _ => Err(plan_datafusion_err!("the text between two semicolons must be a single statement")),
        }
    }

    /// Where the query stands that a statement is or has.
    pub fn query_range(&self, written: &ParsedStatement) -> Option<Range<usize>> {
        let query = outer_query(&written.statement)?;
        let mut start = written.tokens.start;
        if !matches!(&written.statement, Statement::Statement(statement) if matches!(**statement, ast::Statement::Query(_)))
        {
            start = *self.by_start.get(&query.span().start)?;
            // A parenthesis around the first part of a union belongs to the query, one around all of it does not.
            let open = |token: usize| {
                let before = (written.tokens.start..token)
                    .rfind(|before| !matches!(self.tokens[*before].token, Token::Whitespace(_)))?;
                (self.tokens[before].token == Token::LParen).then_some(before)
            };
            while let Some(before) = open(start) {
                let close = self.closing_paren(before)?;
                start = before;
                if self.trim(close + 1..written.tokens.end).is_empty() {
                    break;
                }
                if matches!(written.statement, Statement::CopyTo(_)) {
                    return Some(self.ranges[before].end..self.ranges[close].start);
                }
            }
        }
        Some(self.ranges[start].start..self.ranges[written.tokens.end - 1].end)
    }

    /// Where a statement stands.
    pub fn range(&self, written: &ParsedStatement) -> Range<usize> {
        self.ranges[written.tokens.start].start..self.ranges[written.tokens.end - 1].end
    }

    /// Whether expressions of a statement are to keep the words of another engine.
    pub fn has_fragments(&self, written: &ParsedStatement) -> bool {
        let mut tokens = self.tokens[written.tokens.clone()].iter();
        tokens.any(|token| matches!(&token.token, Token::Word(word) if is_fragment(&word.value)))
    }

    /// Whether a statement inserts the rows of a query, whose columns have no names then.
    pub fn is_insert(&self, written: &ParsedStatement) -> bool {
        matches!(&written.statement, Statement::Statement(statement) if matches!(**statement, ast::Statement::Insert(_)))
    }

    /// Whether a statement says what columns the rows of its query get. DataFusion takes every VALUES in it for such rows.
    pub fn names_target_columns(&self, written: &ParsedStatement) -> bool {
        match &written.statement {
            Statement::Statement(statement) => names_target_columns(statement),
            Statement::Explain(explain) => match explain.statement.as_ref() {
                Statement::Statement(statement) => names_target_columns(statement),
                _ => false,
            },
            _ => false,
        }
    }
}

fn names_target_columns(statement: &ast::Statement) -> bool {
    match statement {
        ast::Statement::Insert(_) => true,
        ast::Statement::CreateTable(table) => !table.columns.is_empty(),
        ast::Statement::Explain { statement, .. } | ast::Statement::Prepare { statement, .. } => {
            names_target_columns(statement)
        }
        _ => false,
    }
}

/// Parses tokens as DataFusion does.
fn parse(tokens: Vec<TokenWithSpan>, depth: usize) -> Result<VecDeque<Statement>> {
    DFParserBuilder::new(strip_materialization(tokens))
        .with_dialect(&GenericDialect {})
        .with_recursion_limit(depth)
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|error| match error {
            DataFusionError::SQL(parser, _) if matches!(*parser, ParserError::RecursionLimitExceeded) => {
                plan_datafusion_err!(
                    "the statement is nested deeper than {depth} levels: make parts of its expressions columns of a CTE"
                )
            }
            error => plan_datafusion_err!("{}", error.strip_backtrace()),
        })
}

/// The statement of a text that has one, as a session reads it by default.
pub fn parse_one(text: &str) -> Result<Statement> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
    let mut statements =
        parse(tokens.map_err(|error| plan_datafusion_err!("the statement cannot be read: {error}"))?, DEFAULT_DEPTH)?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(plan_datafusion_err!("the text must be a single statement")),
    }
}

/// The statement of a text with derivatives written out.
pub fn parse_generated(text: &str) -> Result<Statement> {
    parse_one(text).map_err(|error| {
        let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
        // Where it is too deep, the parser does not always say so.
        match tokens.is_ok_and(|tokens| parse(tokens, MAX_DEPTH).is_ok()) {
            true => plan_datafusion_err!(
                "the derivative as text would be nested deeper than the {DEFAULT_DEPTH} levels that sessions read: \
                 make parts of the expression columns of a CTE"
            ),
            false => error,
        }
    })
}

/// The operator that a word names.
pub fn operator_name(word: &Word) -> Option<&'static str> {
    let same = |name: &&str| match word.quote_style {
        Some(_) => word.value == *name,
        None => word.value.eq_ignore_ascii_case(name),
    };
    DERIVATIVES.iter().chain([&STOP_GRADIENT]).copied().find(same)
}

/// The query that a statement is or has.
pub fn outer_query(statement: &Statement) -> Option<&ast::Query> {
    match statement {
        Statement::Statement(statement) => find_query(statement),
        Statement::Explain(explain) => outer_query(&explain.statement),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => Some(query),
            CopyToSource::Relation(_) => None,
        },
        _ => None,
    }
}

fn find_query(statement: &ast::Statement) -> Option<&ast::Query> {
    match statement {
        ast::Statement::Query(query) => Some(query),
        ast::Statement::Insert(insert) => insert.source.as_deref(),
        ast::Statement::CreateTable(table) => table.query.as_deref(),
        ast::Statement::CreateView(view) => Some(&view.query),
        ast::Statement::Explain { statement, .. } | ast::Statement::Prepare { statement, .. } => find_query(statement),
        _ => None,
    }
}
