//! Takes `MEDIA:<path>` lines out of text that arrives in pieces. Only a line that may still become such a line is
//! held back (web contract, section 2, frames); everything else goes out at once.

/// The longest line that is held back, in bytes; a longer one is text.
const MAX_HELD: usize = 4096;
const MARKER: &str = "MEDIA:";

/// What goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text for the reader.
    Text(String),
    /// A file, named by the path as written.
    File(String),
}

/// The filter of one text.
#[derive(Debug, Default)]
pub struct MediaFilter {
    /// The line so far, while it may still become a `MEDIA:` line.
    held: String,
    /// Whether the current line is already known to be text.
    in_text: bool,
}

impl MediaFilter {
    /// The bytes at the end of all text pushed that have not gone out.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes more text; gives what can go out.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut out = String::new();
        let mut pieces = Vec::new();
        for line in text.split_inclusive('\n') {
            if self.in_text {
                out.push_str(line);
                self.in_text = !line.ends_with('\n');
                continue;
            }
            self.held.push_str(line);
            if let Some(path) = self.held.ends_with('\n').then(|| path_of(&self.held)).flatten() {
                if !out.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut out)));
                }
                pieces.push(Piece::File(path.to_owned()));
                self.held.clear();
            } else if self.held.ends_with('\n') || !undecided(&self.held) {
                self.in_text = !self.held.ends_with('\n');
                out.push_str(&self.held);
                self.held.clear();
            }
        }
        if !out.is_empty() {
            pieces.push(Piece::Text(out));
        }
        pieces
    }

    /// The text is over: decides what is held. The next text starts a new line.
    pub fn finish(&mut self) -> Option<Piece> {
        self.in_text = false;
        let held = std::mem::take(&mut self.held);
        match path_of(&held) {
            Some(path) => Some(Piece::File(path.to_owned())),
            None => (!held.is_empty()).then_some(Piece::Text(held)),
        }
    }
}

/// Whether an unfinished line may still become a `MEDIA:` line.
fn undecided(line: &str) -> bool {
    line.len() <= MAX_HELD && (MARKER.starts_with(line) || line.starts_with(MARKER))
}

/// The path of a `MEDIA:` line; one space after the colon and white space at the end are accepted.
fn path_of(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(MARKER)?.trim_end();
    let path = rest.strip_prefix(' ').unwrap_or(rest);
    (!path.is_empty() && !path.starts_with(char::is_whitespace)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(pieces: &[&str]) -> (String, Vec<String>) {
        let mut filter = MediaFilter::default();
        let mut all: Vec<Piece> = pieces.iter().flat_map(|piece| filter.push(piece)).collect();
        all.extend(filter.finish());
        let (mut text, mut files) = (String::new(), Vec::new());
        for piece in all {
            match piece {
                Piece::Text(more) => text.push_str(&more),
                Piece::File(path) => files.push(path),
            }
        }
        (text, files)
    }

    #[test]
    fn media_lines_leave_the_text_with_their_newline() {
        assert_eq!(whole(&["see\nMEDIA: /ws/p.png\nafter"]), ("see\nafter".into(), vec!["/ws/p.png".into()]));
        assert_eq!(
            whole(&["MEDIA:/a b.png\r\nMEDIA:/c"]),
            (String::new(), vec!["/a b.png".into(), "/c".into()])
        );
    }

    #[test]
    fn only_a_line_that_may_become_a_media_line_is_held_back() {
        let mut filter = MediaFilter::default();
        assert_eq!(filter.push("Hello"), vec![Piece::Text("Hello".into())]);
        assert_eq!(filter.push(" MEDIA:/x\n"), vec![Piece::Text(" MEDIA:/x\n".into())]);
        assert_eq!(filter.push("MED"), vec![]);
        assert_eq!(filter.held(), 3);
        assert_eq!(filter.push("ICINE"), vec![Piece::Text("MEDICINE".into())]);
    }

    #[test]
    fn a_marker_without_a_path_or_of_endless_length_is_text() {
        assert_eq!(whole(&["MEDIA:\nMEDIA:  \n"]), ("MEDIA:\nMEDIA:  \n".into(), vec![]));
        let endless = format!("MEDIA:{}", "x".repeat(MAX_HELD));
        let mut filter = MediaFilter::default();
        assert_eq!(filter.push(&endless), vec![Piece::Text(endless.clone())]);
    }

    proptest! {
        #[test]
        fn the_cut_of_the_pieces_makes_no_difference(
            lines in prop::collection::vec(prop_oneof!["[a-zé]{0,5}", "MEDIA: ?/[a-z]{1,4}", "MED", "MEDIA:"], 0..6),
            cuts in prop::collection::vec(1usize..5, 0..20),
        ) {
            let text = lines.join("\n");
            let chars: Vec<char> = text.chars().collect();
            let (mut pieces, mut at) = (Vec::new(), 0);
            for cut in cuts {
                let end = (at + cut).min(chars.len());
                pieces.push(chars[at..end].iter().collect::<String>());
                at = end;
            }
            pieces.push(chars[at..].iter().collect());
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(whole(&pieces), whole(&[&text]));
        }
    }
}
