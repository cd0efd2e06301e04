//! Hides secrets in what commands print: also half a secret where an output was cut in its middle.

use std::fmt;

/// What stands for a secret.
const MASK: &str = "****";
/// Shorter secrets are left: hiding every `1` or `no` would spoil what people need to read.
const MIN_BYTES: usize = 4;
/// The shortest part of a secret at a cut that is hidden.
const MIN_PART: usize = 3;
/// What stands around a cut, see [`crate::tool`].
const CUT_BEGIN: &str = "\n[truncated: ";
const CUT_END: &str = " left out here]\n";

/// Texts that nobody is to read. A secret of several lines is also hidden line by line.
#[derive(Clone, Default)]
pub struct Masks(Vec<String>);

impl Masks {
    /// Hides these, and what makes them up.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut all: Vec<String> = Vec::new();
        for secret in secrets {
            let lines: Vec<String> = secret.lines().map(|line| line.trim().to_owned()).collect();
            all.push(secret.trim().to_owned());
            all.extend(lines);
        }
        all.retain(|secret| secret.len() >= MIN_BYTES);
        // A secret that contains another one is hidden first, as a whole.
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Self(all)
    }

    /// The text with every secret hidden.
    pub fn hide(&self, text: String) -> String {
        let mut text = text;
        for secret in &self.0 {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), MASK);
            }
        }
        if !self.0.is_empty() && text.contains(CUT_BEGIN) { self.hide_at_cuts(&text) } else { text }
    }

    fn hide_at_cuts(&self, text: &str) -> String {
        let mut hidden = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, from)) = rest.split_once(CUT_BEGIN) {
            let Some((note, after)) = from.split_once(CUT_END) else { break };
            match self.begun_at_end_of(before) {
                0 => hidden.push_str(before),
                part => {
                    hidden.push_str(&before[..before.len() - part]);
                    hidden.push_str(MASK);
                }
            }
            hidden.push_str(CUT_BEGIN);
            hidden.push_str(note);
            hidden.push_str(CUT_END);
            let part = self.ended_at_begin_of(after);
            if part > 0 {
                hidden.push_str(MASK);
            }
            rest = &after[part..];
        }
        hidden.push_str(rest);
        hidden
    }

    /// Bytes at the end of the text that are the beginning of a secret.
    fn begun_at_end_of(&self, text: &str) -> usize {
        let longest = |secret: &String| {
            let cuts = (MIN_PART..secret.len()).rev().filter(|cut| secret.is_char_boundary(*cut));
            cuts.into_iter().find(|cut| text.ends_with(&secret[..*cut])).unwrap_or(0)
        };
        self.0.iter().map(longest).max().unwrap_or(0)
    }

    /// Bytes at the beginning of the text that are the end of a secret.
    fn ended_at_begin_of(&self, text: &str) -> usize {
        let longest = |secret: &String| {
            let cuts =
                (1..=secret.len().saturating_sub(MIN_PART)).filter(|cut| secret.is_char_boundary(*cut));
            let found = cuts.into_iter().find(|cut| text.starts_with(&secret[*cut..]));
            found.map_or(0, |cut| secret.len() - cut)
        };
        self.0.iter().map(longest).max().unwrap_or(0)
    }
}

/// Shows no secret.
impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masks({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(secrets: &[&str]) -> Masks {
        Masks::new(secrets.iter().map(ToString::to_string))
    }

    #[test]
    fn every_secret_is_hidden_and_the_longer_one_first() {
        let hide = masks(&["token", "token-and-more", "abc", " sk-1\n"]);
        assert_eq!(hide.hide("a token-and-more, token; abc sk-1".into()), "a ****, ****; abc ****");
        assert_eq!(masks(&[]).hide("as it is".into()), "as it is");
        assert_eq!(format!("{hide:?}"), "Masks(3)");
    }

    #[test]
    fn a_secret_of_several_lines_is_hidden_line_by_line_too() {
        assert_eq!(masks(&["first-line\nsecond-line"]).hide("> second-line".into()), "> ****");
    }

    #[test]
    fn half_a_secret_at_a_cut_is_hidden() {
        let text = |head: &str, tail: &str| format!("{head}\n[truncated: 9 bytes left out here]\n{tail}");
        let hide = masks(&["sk-secret-value", "pässwörd"]);
        assert_eq!(hide.hide(text("x sk-sec", "ret-value y")), text("x ****", "**** y"));
        assert_eq!(hide.hide(text("x päs", "swörd")), text("x ****", "****"));
        assert_eq!(hide.hide(text("x sk", "ue y")), text("x sk", "ue y"));
        assert_eq!(hide.hide(text("x", "y")), text("x", "y"));
    }
}
