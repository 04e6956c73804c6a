//! Parsing of the statements in a text as DataFusion does, and access to their queries.

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

/// The depth to which expressions and queries may be nested. A session can be configured for more than its default.
const MAX_DEPTH: usize = 300;

/// The default depth of a session.
const DEFAULT_DEPTH: usize = 50;

/// A statement in a text.
pub struct ParsedStatement {
    /// The syntax tree.
    pub statement: Statement,
    /// The range of its tokens.
    pub tokens: Range<usize>,
}

impl Source<'_> {
    /// Parses the statements that have a name of an operator, and the CREATE statements before them. Others are not even parsed.
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

    /// Parses tokens as one statement.
    pub fn parse_tokens(&self, tokens: Vec<TokenWithSpan>) -> Result<Statement> {
        let mut statements = parse(tokens, MAX_DEPTH)?;
        match (statements.pop_front(), statements.is_empty()) {
            (Some(statement), true) => Ok(statement),
            _ => Err(plan_datafusion_err!("the text between two semicolons must be a single statement")),
        }
    }

    /// Returns the range of the query that a statement is or contains.
    pub fn query_range(&self, written: &ParsedStatement) -> Option<Range<usize>> {
        let query = outer_query(&written.statement)?;
        let mut start = written.tokens.start;
        if !matches!(&written.statement, Statement::Statement(statement) if matches!(**statement, ast::Statement::Query(_)))
        {
            start = *self.by_start.get(&query.span().start)?;
            // A parenthesis around the first part of a union belongs to the query, one around the whole does not.
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

    /// Returns the range of a statement.
    pub fn range(&self, written: &ParsedStatement) -> Range<usize> {
        self.ranges[written.tokens.start].start..self.ranges[written.tokens.end - 1].end
    }

    /// Returns whether a statement has source fragments.
    pub fn has_fragments(&self, written: &ParsedStatement) -> bool {
        let mut tokens = self.tokens[written.tokens.clone()].iter();
        tokens.any(|token| matches!(&token.token, Token::Word(word) if is_fragment(&word.value)))
    }

    /// Returns whether a statement inserts the rows of a query, whose columns then have no names.
    pub fn is_insert(&self, written: &ParsedStatement) -> bool {
        matches!(&written.statement, Statement::Statement(statement) if matches!(**statement, ast::Statement::Insert(_)))
    }

    /// Returns whether a statement names the columns of its target. DataFusion then takes every VALUES in it for rows of the target.
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

/// Parses a text with one statement at a session's default depth.
pub fn parse_one(text: &str) -> Result<Statement> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
    let mut statements =
        parse(tokens.map_err(|error| plan_datafusion_err!("the statement cannot be read: {error}"))?, DEFAULT_DEPTH)?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(plan_datafusion_err!("the text must be a single statement")),
    }
}

/// Parses a text with expanded derivatives.
pub fn parse_generated(text: &str) -> Result<Statement> {
    parse_one(text).map_err(|error| {
        let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
        // The parser does not always report that the text is too deep.
        match tokens.is_ok_and(|tokens| parse(tokens, MAX_DEPTH).is_ok()) {
            true => plan_datafusion_err!(
                "the derivative as text would be nested deeper than the {DEFAULT_DEPTH} levels that sessions read: \
                 make parts of the expression columns of a CTE"
            ),
            false => error,
        }
    })
}

/// Returns the operator that a word names.
pub fn operator_name(word: &Word) -> Option<&'static str> {
    let same = |name: &&str| match word.quote_style {
        Some(_) => word.value == *name,
        None => word.value.eq_ignore_ascii_case(name),
    };
    DERIVATIVES.iter().chain([&STOP_GRADIENT]).copied().find(same)
}

/// Returns the query that a statement is or contains.
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
