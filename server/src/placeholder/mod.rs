//! Placeholders in texts that people write: `{{name}}`. Finds them, fills in what the caller knows, and leaves
//! everything else as it was typed; what was filled in is never looked at again. What a name means is the caller's
//! to say, except for params of the settings ([`Params`]). `<<NAME>>` is no business of texts: it counts in settings
//! alone, so that nobody who writes a text can ask for the environment.

pub mod arguments;
mod mask;
mod params;

pub use mask::Masks;
pub use params::{Params, param_name};

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// As typed.
    Text(&'a str),
    /// A placeholder.
    Name {
        /// What stands between the braces, without blanks.
        name: &'a str,
        /// The whole of it.
        typed: &'a str,
    },
}

/// Takes a text apart: `{{`, blanks, a name of letters, digits, `_`, `-` and (not at its beginning) `.`, blanks, `}}`.
/// The pieces make up the text.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut begin, mut from) = (0, 0);
    while let Some(found) = text[from..].find("{{") {
        let at = from + found;
        if let Some((name, length)) = placeholder(&text[at..]) {
            if begin < at {
                pieces.push(Piece::Text(&text[begin..at]));
            }
            pieces.push(Piece::Name { name, typed: &text[at..at + length] });
            begin = at + length;
            from = begin;
        } else {
            // One brace only: the next may begin a placeholder (`{{{now}}`).
            from = at + 1;
        }
    }
    if begin < text.len() {
        pieces.push(Piece::Text(&text[begin..]));
    }
    pieces
}

/// Fills in what `value` knows; the rest stays as typed.
pub fn fill(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Name { name, typed } => filled.push_str(value(name).as_deref().unwrap_or(typed)),
        }
    }
    filled
}

/// The name of the placeholder that the text begins with, and the bytes that it takes.
fn placeholder(text: &str) -> Option<(&str, usize)> {
    let inner = text.strip_prefix("{{")?.trim_start();
    let first = inner.chars().next().filter(|c| is_plain(*c))?;
    let rest = &inner[first.len_utf8()..];
    let length = first.len_utf8() + rest.find(|c| !is_plain(c) && c != '.').unwrap_or(rest.len());
    let (name, after) = inner.split_at(length);
    let after = after.trim_start().strip_prefix("}}")?;
    Some((name, text.len() - after.len()))
}

/// Ids of skills may be of any letters.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("{{a}}", "[a]")]
    #[case("{{ a }} {{\ta-b.c_d }}", "[a] [a-b.c_d]")]
    #[case("{{{a}}}", "{[a]}")]
    #[case("{{a}}{{a}}", "[a][a]")]
    #[case("{{技能.params.k}}", "[技能.params.k]")]
    #[case("{{.a}} {{a b}} {{}} {{a", "{{.a}} {{a b}} {{}} {{a")]
    #[case("{ {a}} {{a} }", "{ {a}} {{a} }")]
    #[case("<<HOME>>", "<<HOME>>")]
    fn placeholders_are_found_and_everything_else_stays(#[case] text: &str, #[case] filled: &str) {
        assert_eq!(fill(text, |name| Some(format!("[{name}]"))), filled);
        assert_eq!(fill(text, |_| None), text);
    }

    #[test]
    fn what_was_filled_in_is_not_looked_at_again() {
        assert_eq!(fill("{{a}}{{b}}", |name| (name == "a").then(|| "{{b}}".to_owned())), "{{b}}{{b}}");
    }

    proptest! {
        #[test]
        fn the_pieces_make_up_the_text(text in "[{}a. -]{0,30}") {
            prop_assert_eq!(fill(&text, |_| None), text);
        }
    }
}
