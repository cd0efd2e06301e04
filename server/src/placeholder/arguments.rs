//! What follows a command, in the text that the command stands for: `$ARGUMENTS` is all of it as it was typed, `$1`
//! to `$9` are its words. Quotes hold a word together; `\` takes the next character as it is.

/// The name of all arguments.
const ALL: &str = "ARGUMENTS";

/// The words of a line: parted by blanks, except inside `"…"` and `'…'`. A quote that is not closed goes to the end.
pub fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().push(chars.next().unwrap_or('\\')),
            ('"' | '\'', None) => {
                quote = Some(c);
                // Empty quotes are a word, too.
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Fills `$ARGUMENTS` and `$1` to `$9` in; a word that is not there is empty. `\$` is a plain `$`. Everything else
/// stays: `$PATH`, `$12`, `$5.00`, `$0`.
pub fn fill(text: &str, arguments: &str) -> String {
    let words = words(arguments);
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        let after = &from[1..];
        if let Some(before) = before.strip_suffix('\\') {
            filled.push_str(before);
            filled.push('$');
            rest = after;
            continue;
        }
        filled.push_str(before);
        rest = if let Some(left) = after.strip_prefix(ALL).filter(|left| !goes_on(left)) {
            filled.push_str(arguments);
            left
        } else if let Some(place) = place(after) {
            filled.push_str(words.get(place - 1).map_or("", String::as_str));
            &after[1..]
        } else {
            filled.push('$');
            after
        };
    }
    filled.push_str(rest);
    filled
}

/// The number of a word, where the text begins with one that stands alone: neither a longer number or name, nor an
/// amount of money.
fn place(text: &str) -> Option<usize> {
    let digit = text.chars().next()?.to_digit(10).filter(|digit| *digit > 0)?;
    let after = &text[1..];
    let amount =
        after.strip_prefix(['.', ',']).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    (!goes_on(after) && !amount).then_some(digit as usize)
}

fn goes_on(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("", &[])]
    #[case("  a  b ", &["a", "b"])]
    #[case(r#""a b" 'c "d"' e"f g""#, &["a b", "c \"d\"", "ef g"])]
    #[case(r#"a\ b "c\"d" 'e\f' \\"#, &["a b", "c\"d", "e\\f", "\\"])]
    #[case(r#""" ''"#, &["", ""])]
    #[case(r#""open to the end"#, &["open to the end"])]
    fn words_are_quote_aware(#[case] line: &str, #[case] expected: &[&str]) {
        assert_eq!(words(line), expected);
    }

    #[rstest]
    #[case("do $ARGUMENTS.", r#"do main "two words"."#)]
    #[case("$1|$2|$3|", "main|two words||")]
    #[case("$1.", "main.")]
    #[case(r"\$1 \$ARGUMENTS", "$1 $ARGUMENTS")]
    #[case(
        "$5.00 $1,50 $12 $PATH $0 $1st $ARGUMENTS_X $ $$1",
        "$5.00 $1,50 $12 $PATH $0 $1st $ARGUMENTS_X $ $main"
    )]
    fn arguments_are_filled_in_and_nothing_else(#[case] text: &str, #[case] filled: &str) {
        assert_eq!(fill(text, r#"main "two words""#), filled);
    }

    #[test]
    fn what_an_argument_says_is_not_looked_at_again() {
        assert_eq!(fill("$ARGUMENTS $1", "$2 x"), "$2 x $2");
    }
}
