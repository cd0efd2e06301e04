//! `MEDIA:<path>` lines of a reply. The server's stream turns each into a `file` frame; the log keeps them as
//! written. What is read from the log is cut here by the same rule, so that both can be compared and look alike.

/// A piece of a logged text.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text with its line ends.
    Text(&'a str),
    /// The path of a `MEDIA:` line; the line and its end are gone.
    Media(&'a str),
}

/// The path that `line` names, if it is a `MEDIA:` line. Blanks around the path do not count.
fn media_path(line: &str) -> Option<&str> {
    line.strip_prefix("MEDIA:").map(str::trim).filter(|path| !path.is_empty())
}

/// `text` in order, neighbouring text lines in one piece.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        if let Some(path) = media_path(line) {
            if start < at {
                pieces.push(Piece::Text(&text[start..at]));
            }
            pieces.push(Piece::Media(path));
            start = next;
        }
        at = next;
    }
    if start < text.len() {
        pieces.push(Piece::Text(&text[start..]));
    }
    pieces
}

/// `text` without its `MEDIA:` lines.
pub fn cut(text: &str) -> String {
    pieces(text)
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) => Some(text),
            Piece::Media(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("Here it is\nMEDIA:/x.png\nMore text", "Here it is\nMore text")]
    #[case("see\nMEDIA: /a b.png", "see\n")]
    #[case("MEDIA:/x\r\nMEDIA:/y\nz", "z")]
    #[case("no MEDIA:/x here\n MEDIA:/y", "no MEDIA:/x here\n MEDIA:/y")]
    #[case("MEDIA:\nMEDIA:  \n", "MEDIA:\nMEDIA:  \n")]
    #[case("", "")]
    fn media_lines_leave_with_their_newline(#[case] text: &str, #[case] cut_text: &str) {
        assert_eq!(cut(text), cut_text);
    }

    #[test]
    fn pieces_keep_their_order() {
        assert_eq!(
            pieces("a\nb\nMEDIA:/x.png\nc"),
            [Piece::Text("a\nb\n"), Piece::Media("/x.png"), Piece::Text("c")]
        );
    }
}
