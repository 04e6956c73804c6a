//! Statements as they were written: their tokens, where these stand, and the calls among them.

use datafusion_common::{Result, plan_datafusion_err};
use datafusion_sql::parser::{CopyToSource, DFParserBuilder, Statement};
use sqlparser::ast::{self, Expr, ObjectNamePart, SelectItem, SetExpr, Spanned, Visit, Visitor};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, Word};
use std::collections::{HashMap, VecDeque};
use std::ops::{ControlFlow, Range};

use crate::expr::Binding;
use crate::names::site_name;

/// How deep expressions and queries of a statement may be nested. Sessions can be told to take more than they do by default.
const DEPTH: usize = 300;

/// How deep they may be where a session has not been told so.
const PLAIN_DEPTH: usize = 50;

const STOP: &str = "stop_gradient";
const OPERATORS: [&str; 3] = ["grad", "jvp", "vjp"];

/// A text as tokens.
pub struct Source<'a> {
    text: &'a str,
    tokens: Vec<TokenWithSpan>,
    /// Where each token stands.
    ranges: Vec<Range<usize>>,
    by_start: HashMap<Location, usize>,
}

/// A statement of a text.
pub struct Written {
    pub statement: Statement,
    /// Its tokens.
    tokens: Range<usize>,
}

/// A call as it was written.
#[derive(Debug, Clone)]
pub struct WrittenCall {
    /// In lower case.
    pub name: String,
    /// The call.
    pub range: Range<usize>,
    /// What is between its parentheses.
    pub inside: Range<usize>,
    /// The token of its name.
    token: usize,
    /// Whether it is a part of another call's function or directions.
    pub is_inner: bool,
}

impl WrittenCall {
    /// Whether the planner is shown the call by its number.
    pub fn is_planned(&self) -> bool {
        !self.is_inner && self.name != STOP
    }
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

    /// The statements with a word that is the name of one of the functions, in order. Others are not even parsed.
    pub fn statements(&self) -> Result<Vec<Written>> {
        let mut written = vec![];
        let mut start = 0;
        for end in 0..=self.tokens.len() {
            if self.tokens.get(end).is_none_or(|token| token.token == Token::SemiColon) {
                let tokens = self.trimmed(start..end);
                let names_call =
                    |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if called(word).is_some());
                if self.tokens[tokens.clone()].iter().any(names_call) {
                    let statement = self.parsed(self.tokens[tokens.clone()].to_vec())?;
                    written.push(Written { statement, tokens });
                }
                start = end + 1;
            }
        }
        Ok(written)
    }

    fn parsed(&self, tokens: Vec<TokenWithSpan>) -> Result<Statement> {
        let mut statements = parse(tokens, DEPTH)?;
        match (statements.pop_front(), statements.is_empty()) {
            (Some(statement), true) => Ok(statement),
            _ => Err(plan_datafusion_err!("what stands between two semicolons is no single statement")),
        }
    }

    /// Tokens without white space and comments around them.
    fn trimmed(&self, tokens: Range<usize>) -> Range<usize> {
        let is_space = |token: &usize| matches!(self.tokens[*token].token, Token::Whitespace(_) | Token::EOF);
        let start = tokens.clone().find(|token| !is_space(token)).unwrap_or(tokens.end);
        let end = tokens.clone().rfind(|token| !is_space(token)).map_or(start, |last| last + 1);
        start..end
    }

    /// The next token from `token` on that is no white space or comment.
    fn significant(&self, token: usize) -> Option<usize> {
        (token..self.tokens.len()).find(|token| !matches!(self.tokens[*token].token, Token::Whitespace(_)))
    }

    /// The calls of the operators and of `stop_gradient` in a statement, in the order of their names in the text.
    pub fn calls(&self, written: &Written) -> Result<Vec<WrittenCall>> {
        let mut found = Calls::default();
        visit(&written.statement, &mut found);
        let mut calls = vec![];
        for location in found.names {
            let token = self.by_start.get(&location).copied();
            let token =
                token.ok_or_else(|| plan_datafusion_err!("the place of a call in the statement is not known"))?;
            let Token::Word(word) = &self.tokens[token].token else { continue };
            let Some(name) = called(word) else { continue };
            let open = self.significant(token + 1).filter(|open| self.tokens[*open].token == Token::LParen);
            let (open, close) = open
                .and_then(|open| Some((open, self.closing(open)?)))
                .ok_or_else(|| plan_datafusion_err!("the end of a call of {name} is not found"))?;
            let (inside, range) =
                (self.ranges[open].end..self.ranges[close].start, self.ranges[token].start..self.ranges[close].end);
            calls.push(WrittenCall { name: name.to_owned(), range, inside, token, is_inner: false });
        }
        calls.sort_by_key(|call| call.range.start);
        calls.dedup_by_key(|call| call.range.start);
        let outer: Vec<_> = calls.iter().filter(|call| call.name != STOP).map(|call| call.range.clone()).collect();
        for call in &mut calls {
            call.is_inner = outer.iter().any(|outer| outer.start < call.range.start && call.range.end <= outer.end);
        }
        Ok(calls)
    }

    /// The token that closes the parenthesis which another one opens.
    fn closing(&self, open: usize) -> Option<usize> {
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

    /// The statement with each outer call of an operator under a name of its own, or under that of the first one that is written
    /// as it is, if `shared`.
    pub fn with_sites(&self, written: &Written, calls: &[WrittenCall], shared: bool) -> Result<Statement> {
        let mut tokens = self.tokens[written.tokens.clone()].to_vec();
        for (number, call) in calls.iter().enumerate() {
            if !call.is_planned() {
                continue;
            }
            let same = |other: &WrittenCall| {
                other.is_planned() && self.text[other.range.clone()] == self.text[call.range.clone()]
            };
            let number = if shared { calls.iter().position(same).unwrap_or(number) } else { number };
            if let Token::Word(word) = &mut tokens[call.token - written.tokens.start].token {
                *word = Word { value: site_name(&call.name, number), quote_style: Some('"'), keyword: word.keyword };
            }
        }
        self.parsed(tokens)
    }

    /// Where the query stands that a statement is or has.
    pub fn query(&self, written: &Written) -> Option<Range<usize>> {
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
                let close = self.closing(before)?;
                start = before;
                if self.trimmed(close + 1..written.tokens.end).is_empty() {
                    break;
                }
                if matches!(written.statement, Statement::CopyTo(_)) {
                    return Some(self.ranges[before].end..self.ranges[close].start);
                }
            }
        }
        Some(self.ranges[start].start..self.ranges[written.tokens.end - 1].end)
    }

    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Where the items of the outermost `SELECT` end that have calls and no name, each with its number among `width` columns.
    pub fn unnamed_items(&self, written: &Written, calls: &[WrittenCall], width: usize) -> Vec<(usize, usize)> {
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
                        // What is behind the last wildcard is counted from the end.
                        _ if before == wildcards => (width + number).checked_sub(select.projection.len()),
                        _ => None,
                    };
                    if let (Some(end), Some(index)) =
                        (self.item_end(&expr.span(), calls), index.filter(|index| *index < width))
                    {
                        ends.push((end, index));
                    }
                }
                _ => {}
            }
        }
        ends
    }

    /// Where an item without a name ends that has a call.
    fn item_end(&self, span: &Span, calls: &[WrittenCall]) -> Option<usize> {
        let first = *self.by_start.get(&span.start)?;
        let mut depth = 0_usize;
        // The span of an expression may leave out what is at its ends: parentheses, a window.
        for token in first..self.tokens.len() {
            match &self.tokens[token].token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket if depth > 0 => depth -= 1,
                Token::RParen | Token::Comma | Token::SemiColon if depth == 0 => {
                    return self.end_before(token, first, calls);
                }
                Token::Word(word) if depth == 0 && ENDS.contains(&word.keyword) => {
                    return self.end_before(token, first, calls);
                }
                _ => {}
            }
        }
        self.end_before(self.tokens.len(), first, calls)
    }

    fn end_before(&self, token: usize, first: usize, calls: &[WrittenCall]) -> Option<usize> {
        let last =
            (first..token).rfind(|last| !matches!(self.tokens[*last].token, Token::Whitespace(_) | Token::EOF))?;
        let item = self.ranges[first].start..self.ranges[last].end;
        let has_call = calls.iter().any(|call| item.start <= call.range.start && call.range.end <= item.end);
        has_call.then_some(item.end)
    }

    /// Where a statement stands.
    pub fn range(&self, written: &Written) -> Range<usize> {
        self.ranges[written.tokens.start].start..self.ranges[written.tokens.end - 1].end
    }

    /// Whether a statement inserts the rows of a query, whose columns have no names then.
    pub fn is_insert(&self, written: &Written) -> bool {
        matches!(&written.statement, Statement::Statement(statement) if matches!(**statement, ast::Statement::Insert(_)))
    }

    /// The names of columns in a part of the text: their parts as the planner reads them, and as they are written. Those with
    /// the most parts come first.
    pub fn spellings(&self, part: &Range<usize>) -> Vec<(Vec<String>, String)> {
        let inside: Vec<_> = (0..self.tokens.len())
            .filter(|token| part.start <= self.ranges[*token].start && self.ranges[*token].end <= part.end)
            .filter(|token| !matches!(self.tokens[*token].token, Token::Whitespace(_)))
            .collect();
        let mut spellings: Vec<(Vec<String>, String)> = vec![];
        let mut at = 0;
        while let Some(token) = inside.get(at) {
            let Token::Word(word) = &self.tokens[*token].token else {
                at += 1;
                continue;
            };
            let mut parts = vec![normalized(word)];
            let mut written = self.text[self.ranges[*token].clone()].to_owned();
            while let (Some(period), Some(next)) = (inside.get(at + 1), inside.get(at + 2))
                && self.tokens[*period].token == Token::Period
                && let Token::Word(word) = &self.tokens[*next].token
            {
                parts.push(normalized(word));
                written += ".";
                written += &self.text[self.ranges[*next].clone()];
                at += 2;
            }
            at += 1;
            let is_called = inside.get(at).is_some_and(|next| self.tokens[*next].token == Token::LParen);
            if !is_called && !spellings.iter().any(|known| known.0 == parts) {
                spellings.push((parts, written));
            }
        }
        spellings.sort_by_key(|(parts, _)| std::cmp::Reverse(parts.len()));
        spellings
    }

    /// How tightly a text has to bind that takes the place of a call.
    pub fn needed_at(&self, call: &Range<usize>) -> Binding {
        let significant = |token: &usize| !matches!(self.tokens[*token].token, Token::Whitespace(_) | Token::EOF);
        let mut before =
            (0..self.tokens.len()).rev().filter(significant).filter(|token| self.ranges[*token].end <= call.start);
        let after = (0..self.tokens.len()).filter(significant).find(|token| self.ranges[*token].start >= call.end);
        let left = match (
            before.next().map(|token| &self.tokens[token].token),
            before.next().map(|token| &self.tokens[token].token),
        ) {
            // The sign of a number.
            (Some(Token::Minus | Token::Plus), Some(first)) if !ends_operand(first) => Binding::Closed,
            (Some(token), _) => match token {
                Token::LParen | Token::Comma | Token::SemiColon => Binding::Open,
                Token::Plus | Token::Minus => Binding::Product,
                token if is_comparison(token) => Binding::Sum,
                Token::Word(word) if word.quote_style.is_none() && !OPERATOR_WORDS.contains(&word.keyword) => {
                    Binding::Open
                }
                Token::Word(word) if matches!(word.keyword, Keyword::AND | Keyword::OR) => Binding::Sum,
                _ => Binding::Closed,
            },
            (None, _) => Binding::Open,
        };
        let right = match after.map(|token| &self.tokens[token].token) {
            None | Some(Token::RParen | Token::Comma | Token::SemiColon) => Binding::Open,
            Some(Token::Plus | Token::Minus) => Binding::Sum,
            Some(Token::Mul | Token::Div | Token::Mod) => Binding::Product,
            Some(token) if is_comparison(token) => Binding::Sum,
            Some(Token::Word(word)) if matches!(word.keyword, Keyword::AND | Keyword::OR) => Binding::Sum,
            Some(Token::Word(word)) if !OPERATOR_WORDS.contains(&word.keyword) => Binding::Open,
            Some(_) => Binding::Closed,
        };
        left.max(right)
    }
}

/// Whether an operand of an operator may end with a token.
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

/// A name as the planner reads it.
fn normalized(word: &Word) -> String {
    if word.quote_style.is_some() { word.value.clone() } else { word.value.to_ascii_lowercase() }
}

/// What may stand behind the last item of `SELECT`.
const ENDS: [Keyword; 16] = [
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

/// Words that are operators, or are parts of one.
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

/// Parses tokens as DataFusion does.
fn parse(tokens: Vec<TokenWithSpan>, depth: usize) -> Result<VecDeque<Statement>> {
    DFParserBuilder::new(tokens)
        .with_dialect(&GenericDialect {})
        .with_recursion_limit(depth)
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|error| plan_datafusion_err!("{}", error.strip_backtrace()))
}

/// The statement of a text that has one, as a session reads it by default.
pub fn parse_one(text: &str) -> Result<Statement> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
    let mut statements =
        parse(tokens.map_err(|error| plan_datafusion_err!("the statement cannot be read: {error}"))?, PLAIN_DEPTH)?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(plan_datafusion_err!("a single statement is wanted")),
    }
}

/// The operator that a word names.
fn called(word: &Word) -> Option<&'static str> {
    let same = |name: &&str| match word.quote_style {
        Some(_) => word.value == *name,
        None => word.value.eq_ignore_ascii_case(name),
    };
    OPERATORS.iter().chain([&STOP]).copied().find(same)
}

/// The query that a statement is or has.
pub fn outer_query(statement: &Statement) -> Option<&ast::Query> {
    match statement {
        Statement::Statement(statement) => query_of(statement),
        Statement::Explain(explain) => outer_query(&explain.statement),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => Some(query),
            CopyToSource::Relation(_) => None,
        },
        _ => None,
    }
}

fn query_of(statement: &ast::Statement) -> Option<&ast::Query> {
    match statement {
        ast::Statement::Query(query) => Some(query),
        ast::Statement::Insert(insert) => insert.source.as_deref(),
        ast::Statement::CreateTable(table) => table.query.as_deref(),
        ast::Statement::CreateView(view) => Some(&view.query),
        ast::Statement::Explain { statement, .. } | ast::Statement::Prepare { statement, .. } => query_of(statement),
        _ => None,
    }
}

/// Visits what DataFusion's statements have of sqlparser's.
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

/// The places of the names of functions.
#[derive(Default)]
struct Calls {
    names: Vec<Location>,
}

impl Visitor for Calls {
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
