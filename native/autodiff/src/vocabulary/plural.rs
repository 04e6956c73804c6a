//! Numbers with nouns in messages.

/// Writes a number with a noun, which is given in the singular.
///
/// ```text
/// no arguments       1 argument       2 arguments
/// ```
pub fn count_noun(count: usize, name: &str) -> String {
    match count {
        0 => format!("no {name}s"),
        1 => format!("1 {name}"),
        count => format!("{count} {name}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::count_noun;

    #[test]
    fn one_is_in_the_singular() {
        assert_eq!([0, 1, 2].map(|count| count_noun(count, "argument")), ["no arguments", "1 argument", "2 arguments"]);
    }
}
