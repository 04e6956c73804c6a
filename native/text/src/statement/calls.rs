//! Calls of the operators and of `stop_gradient` in a text.

use datafusion_common::{Result, plan_datafusion_err};
use datafusion_sql::parser::{CopyToSource, Statement};
use sqlparser::ast::{Expr, ObjectNamePart, Visit, Visitor};
use sqlparser::tokenizer::{Location, Token, Word};
use std::ops::{ControlFlow, Range};
use xql_autodiff::vocabulary::functions::STOP_GRADIENT;

use super::statements::{ParsedStatement, operator_name};
use super::tokens::Source;
use crate::names::site_name;

/// A call in a text.
#[derive(Debug, Clone)]
pub struct SourceCall {
    /// The lower-case name.
    pub name: String,
    /// The range of the call.
    pub range: Range<usize>,
    /// The range between its parentheses.
    pub arguments: Range<usize>,
    /// The range of its tokens.
    pub tokens: Range<usize>,
    /// Whether it is in an argument of another call.
    pub is_inner: bool,
}

impl SourceCall {
    /// Returns whether the call is numbered for the planner.
    pub fn is_planned(&self) -> bool {
        !self.is_inner && self.name != STOP_GRADIENT
    }
}

/// Finds the calls of the operators and of `stop_gradient` in a statement, in the order of the text.
pub fn find_calls(source: &Source, written: &ParsedStatement) -> Result<Vec<SourceCall>> {
    let mut found = FunctionNames::default();
    visit(&written.statement, &mut found);
    let mut calls = vec![];
    for location in found.names {
        let token = source.by_start.get(&location).copied();
        let token =
            token.ok_or_else(|| plan_datafusion_err!("xql-ffi does not find the place of a call in the statement"))?;
        let Token::Word(word) = &source.tokens[token].token else { continue };
        let Some(name) = operator_name(word) else { continue };
        let open = source.next_significant(token + 1).filter(|open| source.tokens[*open].token == Token::LParen);
        let (open, close) = open
            .and_then(|open| Some((open, source.closing_paren(open)?)))
            .ok_or_else(|| plan_datafusion_err!("xql-ffi does not find the end of a call of {name}"))?;
        let (arguments, range) =
            (source.ranges[open].end..source.ranges[close].start, source.ranges[token].start..source.ranges[close].end);
        let tokens = token..close + 1;
        calls.push(SourceCall { name: name.to_owned(), range, arguments, tokens, is_inner: false });
    }
    calls.sort_by_key(|call| call.range.start);
    calls.dedup_by_key(|call| call.range.start);
    let mut outer = 0;
    for call in &mut calls {
        call.is_inner = call.range.end <= outer;
        if call.is_planned() {
            outer = call.range.end;
        }
    }
    Ok(calls)
}

/// Parses the statement with each outer call under its numbered name.
pub fn with_sites(source: &Source, written: &ParsedStatement, calls: &[SourceCall]) -> Result<Statement> {
    let mut tokens = source.tokens[written.tokens.clone()].to_vec();
    for (number, call) in calls.iter().enumerate().filter(|(_, call)| call.is_planned()) {
        if let Token::Word(word) = &mut tokens[call.tokens.start - written.tokens.start].token {
            *word = Word { value: site_name(&call.name, number), quote_style: Some('"'), keyword: word.keyword };
        }
    }
    source.parse_tokens(tokens)
}

/// Visits the parts of a statement that sqlparser has parsed.
fn visit<V: Visitor<Break = ()>>(statement: &Statement, visitor: &mut V) {
    let _ = match statement {
        Statement::Statement(statement) => statement.visit(visitor),
        Statement::Explain(explain) => {
            visit(&explain.statement, visitor);
            ControlFlow::Continue(())
        }
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => query.visit(visitor),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    };
}

/// Collects the locations of function names.
#[derive(Default)]
struct FunctionNames {
    names: Vec<Location>,
}

impl Visitor for FunctionNames {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice()
        {
            self.names.push(name.span.start);
        }
        ControlFlow::Continue(())
    }
}
