//! Identifiers in SQL.

use datafusion_common::utils::quote_identifier;
use sqlparser::keywords::{
    ALL_KEYWORDS, ALL_KEYWORDS_INDEX, Keyword, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_IDENTIFIER,
    RESERVED_FOR_TABLE_ALIAS, RESERVED_FOR_TABLE_FACTOR,
};
use xql_relations::unnumbered;

/// The operators that differentiate.
pub const DERIVATIVES: [&str; 3] = ["grad", "jvp", "vjp"];

/// The name of the function for a cast that the other engine adds by itself, and that is not written.
pub const IMPLICIT_CAST: &str = "∂ =";

/// The prefix of the function that stands for a source fragment, followed by its number.
const FRAGMENT_PREFIX: &str = "∂ ";

/// Returns whether a function stands for a source fragment.
pub fn is_fragment(function: &str) -> bool {
    function.starts_with(FRAGMENT_PREFIX)
}

/// Removes source fragments from the name of a column: `sum(t.x * t.y ∂ 3)` becomes `sum(t.x * t.y)`.
pub fn strip_fragments(name: &str) -> String {
    let mut parts = name.split(" ∂ ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit());
        if rest.len() == part.len() {
            plain += " ∂ ";
        }
        plain += rest;
    }
    plain
}

/// Quotes a name if DataFusion's parser would read it otherwise.
pub fn quote_if_needed(name: &str) -> String {
    if is_reserved(name) { format!("\"{name}\"") } else { quote_identifier(name).into_owned() }
}

/// Returns whether a name has another meaning somewhere a column may be.
fn is_reserved(name: &str) -> bool {
    const OTHERS: [Keyword; 36] = [
        Keyword::ALL,
        Keyword::AND,
        Keyword::ANY,
        Keyword::ARRAY,
        Keyword::AS,
        Keyword::ASC,
        Keyword::BETWEEN,
        Keyword::CASE,
        Keyword::CAST,
        Keyword::CURRENT_CATALOG,
        Keyword::CURRENT_DATE,
        Keyword::CURRENT_TIME,
        Keyword::CURRENT_TIMESTAMP,
        Keyword::CURRENT_USER,
        Keyword::DESC,
        Keyword::DISTINCT,
        Keyword::ELSE,
        Keyword::FALSE,
        Keyword::IN,
        Keyword::INTERVAL,
        Keyword::IS,
        Keyword::LIKE,
        Keyword::LOCALTIME,
        Keyword::LOCALTIMESTAMP,
        Keyword::NOT,
        Keyword::NULL,
        Keyword::OR,
        Keyword::SESSION_USER,
        Keyword::SOME,
        Keyword::TABLE,
        Keyword::THEN,
        Keyword::TRUE,
        Keyword::UNNEST,
        Keyword::USER,
        Keyword::VALUES,
        Keyword::WHEN,
    ];
    let upper = name.to_ascii_uppercase();
    let keyword = ALL_KEYWORDS.binary_search(&upper.as_str()).ok().map(|index| ALL_KEYWORDS_INDEX[index]);
    keyword.is_some_and(|keyword| {
        [
            RESERVED_FOR_COLUMN_ALIAS,
            RESERVED_FOR_TABLE_ALIAS,
            RESERVED_FOR_IDENTIFIER,
            RESERVED_FOR_TABLE_FACTOR,
            &OTHERS,
        ]
        .iter()
        .any(|list| list.contains(&keyword))
    })
}

/// Converts the name of a column to letters, digits and underscores: `∂pred/∂w` becomes `dpred_dw`, `∂row` becomes `row`.
pub fn plain_name(name: &str) -> String {
    let name = &strip_fragments(name);
    let name = if name.contains("/∂") { name } else { name.trim_start_matches('∂') };
    let mut plain = String::with_capacity(name.len());
    for character in unnumbered(name).chars() {
        match character {
            '∂' => plain.push('d'),
            letter if letter.is_ascii_alphanumeric() => plain.push(letter.to_ascii_lowercase()),
            _ if plain.is_empty() || plain.ends_with('_') => {}
            _ => plain.push('_'),
        }
    }
    let plain = plain.trim_end_matches('_');
    match plain.chars().next() {
        Some(first) if first.is_ascii_digit() => format!("c{plain}"),
        Some(_) => plain.to_owned(),
        None => "c".to_owned(),
    }
}

/// Returns the function name that stands for the call of this number while a statement is planned.
pub fn site_name(operator: &str, number: usize) -> String {
    format!("∂{operator} {number}")
}

/// Parses such a name as the operator and the number of the call.
pub fn parse_site_name(name: &str) -> Option<(&str, usize)> {
    let (operator, number) = name.strip_prefix('∂')?.split_once(' ')?;
    Some((operator, number.parse().ok()?))
}

/// Returns the first of `name`, `name_2`, `name_3`... that is free.
pub fn first_free_name(name: &str, is_free: impl Fn(&str) -> bool) -> String {
    let stem = match name.rsplit_once('_') {
        Some((stem, number)) if !stem.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) => stem,
        _ => name,
    };
    if is_free(name) {
        return name.to_owned();
    }
    let mut number = 2_usize;
    loop {
        let name = format!("{stem}_{number}");
        if is_free(&name) {
            return name;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{plain_name, strip_fragments};

    #[test]
    fn fragments_are_no_part_of_a_name() {
        assert_eq!(strip_fragments("sum(t.x * t.y ∂ 3)"), "sum(t.x * t.y)");
        assert_eq!(strip_fragments("t.x + t.y ∂ 10 ∂ 4"), "t.x + t.y");
        assert_eq!(strip_fragments("t.x ∂ y"), "t.x ∂ y");
        assert_eq!(plain_name("sum(t.x ∂ 3)"), "sum_t_x");
    }
}
