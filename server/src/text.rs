//! Cutting text: always on a character boundary, always with a note of what was left out where a reader sees it.

use std::borrow::Cow;

/// The first `max` characters of `text`.
pub fn head_chars(text: &str, max: usize) -> &str {
    match text.char_indices().nth(max) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// The last `max` characters of `text`.
pub fn tail_chars(text: &str, max: usize) -> &str {
    match max.checked_sub(1).map(|last| text.char_indices().rev().nth(last)) {
        Some(Some((start, _))) => &text[start..],
        Some(None) => text,
        None => "",
    }
}

/// The longest prefix of at most `max` bytes that ends on a character boundary.
pub fn head_bytes(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// The longest suffix of at most `max` bytes that starts on a character boundary.
pub fn tail_bytes(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

/// A file's name as a part of one line: control characters, which would look like another line or worse, become
/// escapes such as `\n`.
pub fn on_one_line(name: &str) -> Cow<'_, str> {
    if !name.contains(char::is_control) {
        return name.into();
    }
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    name.chars().map(escaped).collect()
}

/// `text`, or its first `max` characters and a line that says how many were left out.
pub fn cut_with_note(text: String, max: usize) -> String {
    let total = text.chars().count();
    if total <= max {
        return text;
    }
    let head = head_chars(&text, max);
    format!("{head}\n[Content truncated: {total} characters in all, the first {max} are shown]")
}

/// `text`, or its beginning and its end, `max` characters together, around a line that says how many were left out.
/// For what tells the most at its end.
pub fn cut_middle_with_note(text: &str, max: usize) -> String {
    let total = text.chars().count();
    if total <= max {
        return text.to_owned();
    }
    let last = max / 2;
    let (head, tail) = (head_chars(text, max - last), tail_chars(text, last));
    let first = max - last;
    format!(
        "{head}\n[Content truncated: {total} characters in all, the first {first} and the last {last} are shown]\n{tail}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cuts_never_split_a_character_and_take_no_more_than_they_must(text in ".{0,40}", max in 0usize..60) {
            let (head, tail) = (head_chars(&text, max), tail_chars(&text, max));
            prop_assert!(text.starts_with(head) && text.ends_with(tail));
            let count = text.chars().count().min(max);
            prop_assert_eq!((head.chars().count(), tail.chars().count()), (count, count));
            let longest_char = 4;
            let whole = text.len() <= max;
            let (head, tail) = (head_bytes(&text, max), tail_bytes(&text, max));
            prop_assert!(text.starts_with(head) && text.ends_with(tail));
            for part in [head, tail] {
                prop_assert!(part.len() <= max && (whole == (part.len() == text.len())));
                prop_assert!(whole || part.len() + longest_char > max);
            }
        }

        #[test]
        fn a_cut_keeps_the_head_and_counts_what_there_was(text in "[a-zé漢🦀]{0,40}", max in 0usize..60) {
            let total = text.chars().count();
            let cut = cut_with_note(text.clone(), max);
            if total <= max {
                prop_assert_eq!(cut, text);
            } else {
                let (head, note) = cut.split_once('\n').unwrap();
                prop_assert_eq!(head, head_chars(&text, max));
                let said = format!("{total} characters in all");
                prop_assert!(note.contains(&said), "{}", note);
            }
        }
    }

    #[test]
    fn a_cut_in_the_middle_keeps_both_ends() {
        assert_eq!(cut_middle_with_note("häß", 3), "häß");
        assert_eq!(
            cut_middle_with_note("häßlich", 3),
            "hä\n[Content truncated: 7 characters in all, the first 2 and the last 1 are shown]\nh"
        );
    }

    #[test]
    fn a_name_stays_on_one_line() {
        assert_eq!(on_one_line("häß b"), "häß b");
        assert_eq!(on_one_line("a\nb\t\u{1b}[0m\u{85}"), "a\\nb\\t\\u{1b}[0m\\u{85}");
    }

    #[test]
    fn a_cut_says_what_was_left_out() {
        assert_eq!(cut_with_note("häß".into(), 3), "häß");
        assert_eq!(
            cut_with_note("häßlich".into(), 2),
            "hä\n[Content truncated: 7 characters in all, the first 2 are shown]"
        );
    }
}
