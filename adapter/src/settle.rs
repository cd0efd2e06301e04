//! After a turn whose stream had a gap: what of the logged reply the editor has not seen. Pure: reads a log,
//! compares two texts, decides.

use crate::media;
use crate::upstream::history::Row;

/// What stands before a reply that is sent once more as a whole.
pub const FULL_REPLY: &str = "[reconnected \u{2014} full reply]\n";

/// What is left to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The editor has it all.
    Complete,
    /// The editor has a beginning; this is the rest.
    Rest(String),
    /// What the editor has does not fit; this is the whole reply.
    Full(String),
}

/// Whether a logged user row is the prompt `text`. The server may add lines of its own below, for saved images.
pub fn is_prompt(content: &str, text: &str) -> bool {
    match content.strip_prefix(text) {
        Some("") => true,
        Some(rest) if text.is_empty() => rest.starts_with('['),
        Some(rest) => rest.starts_with("\n\n") || rest.starts_with("\n["),
        None => false,
    }
}

/// The rows after the last one that is the prompt; `None` when the log does not hold it.
pub fn rows_after_prompt<'a>(rows: &'a [Row], prompt: &str) -> Option<&'a [Row]> {
    let at =
        rows.iter().rposition(|row| row.is_shown() && row.is_user() && is_prompt(&row.content, prompt))?;
    Some(&rows[at + 1..])
}

/// The reply in `rows`, without its `MEDIA:` lines.
pub fn reply(rows: &[Row]) -> String {
    let spoken = rows.iter().filter(|row| row.is_shown() && row.is_assistant());
    spoken.flat_map(Row::texts).map(media::cut).collect()
}

/// Compares the logged `reply` with what was streamed. `own` is where in `streamed` this prompt's reply begins;
/// `None` when the end of another turn may stand in front of it and nothing tells where that ends.
pub fn compare(streamed: &str, own: Option<usize>, reply: &str) -> Verdict {
    let shown = streamed.get(own.unwrap_or(0)..).unwrap_or_default();
    if reply.is_empty() || shown.trim_end() == reply.trim_end() {
        return Verdict::Complete;
    }
    if own.is_none() && shown.trim_end().ends_with(reply.trim_end()) {
        return Verdict::Complete;
    }
    match reply.strip_prefix(shown) {
        Some(rest) => Verdict::Rest(rest.to_owned()),
        // More was shown than logged: a note of the server, for one.
        None if shown.starts_with(reply) => Verdict::Complete,
        None => Verdict::Full(reply.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn rows(value: Value) -> Vec<Row> {
        serde_json::from_value(value).expect("rows")
    }

    #[rstest]
    #[case::equal("Hello world", Some(0), "Hello world", Verdict::Complete)]
    #[case::blank_at_the_end("Hello world\n", Some(0), "Hello world", Verdict::Complete)]
    #[case::prefix("Hello ", Some(0), "Hello world", Verdict::Rest("world".into()))]
    #[case::nothing_streamed("", Some(0), "Hello", Verdict::Rest("Hello".into()))]
    #[case::hole("Helld", Some(0), "Hello world", Verdict::Full("Hello world".into()))]
    #[case::nothing_logged("second", None, "", Verdict::Complete)]
    #[case::other_turn_in_front("tail. answer", None, "answer", Verdict::Complete)]
    #[case::only_the_other_turn("tail. ", None, "answer", Verdict::Full("answer".into()))]
    #[case::queued_and_nothing_streamed("", None, "late answer", Verdict::Rest("late answer".into()))]
    #[case::own_part_known("tail. ans", Some(6), "answer", Verdict::Rest("wer".into()))]
    #[case::own_part_still_empty("tail. answer", Some(12), "answer", Verdict::Rest("answer".into()))]
    fn what_is_left_to_send(
        #[case] streamed: &str,
        #[case] own: Option<usize>,
        #[case] reply: &str,
        #[case] left: Verdict,
    ) {
        assert_eq!(compare(streamed, own, reply), left);
    }

    #[test]
    fn the_reply_is_all_that_the_assistant_said_after_the_last_such_prompt() {
        let log = rows(json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "old"},
            {"type": "user", "role": "user", "content": "hi\n[saved: /x.png]"},
            {"type": "assistant", "role": "assistant", "content": "ignored", "contentBlocks": [
                {"type": "thinking", "text": "hm"}, {"type": "text", "text": "Hello "},
                {"type": "tool_call", "toolCall": {"name": "grep", "input": "{}"}},
                {"type": "text", "text": "MEDIA:/x.png\nwor"}]},
            {"type": "assistant", "role": "assistant", "content": "sub", "taskId": "t"},
            {"type": "assistant", "role": "assistant", "content": "gone", "deleted": true},
            {"type": "user", "role": "user", "content": "(from: session x)\nreport"},
            {"type": "notification", "role": "system", "content": "note"},
            {"type": "assistant", "role": "assistant", "content": "ld"},
        ]));
        let after = rows_after_prompt(&log, "hi").expect("found");
        assert_eq!(reply(after), "Hello world");
    }

    #[test]
    fn another_prompt_with_the_same_beginning_is_not_taken_for_it() {
        let log = rows(
            json!([{"role": "user", "content": "history please"}, {"role": "user", "content": "hi\nthere"}]),
        );
        assert!(rows_after_prompt(&log, "hi").is_none());
    }
}
